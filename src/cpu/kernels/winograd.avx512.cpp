// AVX-512: Winograd transforms and products.
#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "cpu/kernels/kernels.hpp"
#include "cpu/kernels/winograd.hpp"

namespace convgrad::cpu {
namespace {

#include "cpu/kernels/convert.inl"
#include "cpu/kernels/vector_avx512.inl"

inline V::acc V::madd(acc c, unit a, unit b) {
    return _mm512_fmadd_ps(a, b, c);
}

#include "cpu/kernels/winograd_vector.inl"

}  // namespace

const winograd_kernels *winograd_avx512() {
    static constexpr winograd_kernels set = kernels_for(isa::avx512);
    return &set;
}

}  // namespace convgrad::cpu
