// AVX-512: batch normalisation.
#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "cpu/kernels/kernels.hpp"
#include "cpu/kernels/norm.hpp"

namespace convgrad::cpu {
namespace {

#include "cpu/kernels/convert.inl"
#include "cpu/kernels/vector_avx512.inl"

inline V::acc V::madd(acc c, unit a, unit b) {
    return _mm512_fmadd_ps(a, b, c);
}

#include "cpu/kernels/norm_vector.inl"

}  // namespace

const norm_kernels &norm_avx512() {
    static constexpr norm_kernels kernels = vector_norm(isa::avx512);
    return kernels;
}

}  // namespace convgrad::cpu
