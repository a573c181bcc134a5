// AVX-512 BF16: bf16 pairs multiplied and added in f32 by VDPBF16PS.
#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "cpu/kernels/kernels.hpp"

namespace convgrad::cpu {
namespace {

#include "cpu/kernels/convert.inl"
#include "cpu/kernels/vector_avx512.inl"

inline V::acc V::madd(acc c, unit a, unit b) {
    return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

#include "cpu/kernels/format_dot2.inl"
#include "cpu/kernels/group_gradient.inl"
#include "cpu/kernels/pack_vector.inl"
#include "cpu/kernels/product_vector.inl"
#include "cpu/kernels/quad_product.inl"
#include "cpu/kernels/store_vector.inl"
#include "cpu/kernels/transpose_vector.inl"
#include "cpu/kernels/vector_set.inl"

}  // namespace

const kernel_set *dot2_avx512_bf16(data_type type, math_mode) {
    static constexpr kernel_set set = [] {
        kernel_set all = vector_kernels(isa::avx512_bf16, operand_format::dot2);
        all.quad_product = quad_product;
        all.group_gradient = group_gradient;
        return all;
    }();
    return type == data_type::bf16 ? &set : nullptr;
}

}  // namespace convgrad::cpu
