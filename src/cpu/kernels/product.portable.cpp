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
#include "cpu/kernels/group_gradient_vector.inl"
#include "cpu/kernels/pack_vector.inl"
#include "cpu/kernels/product_vector.inl"
#include "cpu/kernels/store_vector.inl"
#include "cpu/kernels/transpose_vector.inl"
#include "cpu/kernels/vector_set.inl"

}  // namespace

const kernel_set *fma_portable(data_type, math_mode) {
    static constexpr kernel_set set = [] {
        kernel_set k = vector_kernels(isa::portable, operand_format::fma);
        k.group_gradient = group_gradient;
        k.dot = dot;
        for (int n = 1; n <= 4; ++n) k.max_dot[n] = V::max_dot[n];
        k.depthwise = depthwise_portable;
        k.depthwise_gradient = depthwise_gradient_portable;
        k.widen_rows = widen_rows_portable;
        k.narrow_rows = narrow_rows_portable;
        k.sum_positions = sum_positions_portable;
        return k;
    }();
    return &set;
}

}  // namespace convgrad::cpu
