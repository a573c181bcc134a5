// Plain C++ for any CPU: f32; bf16 and f16 are widened while packing.
#include <cstdint>
#include <type_traits>

#include "cpu/kernels/kernels.hpp"

namespace convgrad::cpu {
namespace {

#include "cpu/kernels/convert.inl"
#include "cpu/kernels/vector_portable.inl"

#include "cpu/kernels/dot_vector.inl"
#include "cpu/kernels/format_fma.inl"
#include "cpu/kernels/pack_vector.inl"
#include "cpu/kernels/product_vector.inl"
#include "cpu/kernels/store_vector.inl"
#include "cpu/kernels/transpose_vector.inl"

}  // namespace

const kernel_set *fma_portable() {
    static constexpr kernel_set set{isa::portable, operand_format::fma, V::lanes, 4,
        {0, V::max_m[1], V::max_m[2], V::max_m[3], V::max_m[4]}, F::k_per_unit, 4, 4, 1, F::limits,
        nullptr, nullptr, product, pack_channels, pack_pixels, scan, pack_weights, pack_positions,
        nullptr, store, transpose_elements, dot,
        {0, V::max_dot[1], V::max_dot[2], V::max_dot[3], V::max_dot[4]}, depthwise_portable,
        depthwise_gradient_portable, widen_rows_portable, narrow_rows_portable,
        sum_positions_portable};
    return &set;
}

}  // namespace convgrad::cpu
