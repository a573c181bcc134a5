// AVX-512: f32 fused multiply-add; bf16 and f16 are widened while packing.
#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "cpu/kernels/kernels.hpp"

namespace convgrad::cpu {
namespace {

#include "cpu/kernels/convert.inl"
#include "cpu/kernels/vector_avx512.inl"

inline V::acc V::madd(acc c, unit a, unit b) {
    return _mm512_fmadd_ps(a, b, c);
}

#include "cpu/kernels/dot_vector.inl"
#include "cpu/kernels/format_fma.inl"
#include "cpu/kernels/pack_vector.inl"
#include "cpu/kernels/product_vector.inl"
#include "cpu/kernels/store_vector.inl"
#include "cpu/kernels/transpose_vector.inl"

}  // namespace

const kernel_set *fma_avx512() {
    static constexpr kernel_set set{isa::avx512, operand_format::fma, V::lanes, 4,
        {0, V::max_m[1], V::max_m[2], V::max_m[3], V::max_m[4]}, F::k_per_unit, 4, 4, 1, F::limits,
        nullptr, nullptr, product, pack_channels, pack_pixels, scan, pack_weights, pack_positions,
        nullptr, store, transpose_elements, dot,
        {0, V::max_dot[1], V::max_dot[2], V::max_dot[3], V::max_dot[4]}, depthwise_avx512,
        depthwise_gradient_avx512, widen_rows_avx512, narrow_rows_avx512, sum_positions_avx512};
    return &set;
}

}  // namespace convgrad::cpu
