// AVX2: Winograd transforms and products.
#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "cpu/kernels/kernels.hpp"
#include "cpu/kernels/winograd.hpp"

namespace convgrad::cpu {
namespace {

#include "cpu/kernels/convert.inl"
#include "cpu/kernels/vector_avx2.inl"

#include "cpu/kernels/winograd_vector.inl"

}  // namespace

const winograd_kernels *winograd_avx2() {
    static constexpr winograd_kernels set = kernels_for(isa::avx2);
    return &set;
}

}  // namespace convgrad::cpu
