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
#include "cpu/kernels/pack_vector.inl"
#include "cpu/kernels/product_vector.inl"
#include "cpu/kernels/store_vector.inl"
#include "cpu/kernels/transpose_vector.inl"

}  // namespace

const kernel_set *dot2_avx512_bf16() {
    static constexpr kernel_set set{isa::avx512_bf16, operand_format::dot2, V::lanes, 4,
        {0, V::max_m[1], V::max_m[2], V::max_m[3], V::max_m[4]}, F::k_per_unit, 4, 4, 1, F::limits,
        nullptr, nullptr, product, pack_channels, pack_pixels, scan, pack_weights, pack_positions,
        nullptr, store, transpose_elements, nullptr, {}, nullptr, nullptr, nullptr, nullptr,
        nullptr};
    return &set;
}

}  // namespace convgrad::cpu
