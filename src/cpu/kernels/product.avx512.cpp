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
#include "cpu/kernels/group_gradient.inl"
#include "cpu/kernels/pack_vector.inl"
#include "cpu/kernels/product_vector.inl"
#include "cpu/kernels/quad_product.inl"
#include "cpu/kernels/store_vector.inl"
#include "cpu/kernels/transpose_vector.inl"
#include "cpu/kernels/vector_set.inl"

}  // namespace

const kernel_set *fma_avx512(data_type, math_mode) {
    static constexpr kernel_set set = [] {
        kernel_set k = vector_kernels(isa::avx512, operand_format::fma);
        k.quad_product = quad_product;
        k.group_gradient = group_gradient;
        k.dot = dot;
        for (int n = 1; n <= 4; ++n) k.max_dot[n] = V::max_dot[n];
        k.depthwise = depthwise_avx512;
        k.depthwise_gradient = depthwise_gradient_avx512;
        k.widen_rows = widen_rows_avx512;
        k.narrow_rows = narrow_rows_avx512;
        k.sum_positions = sum_positions_avx512;
        return k;
    }();
    return &set;
}

}  // namespace convgrad::cpu
