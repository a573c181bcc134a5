// The canonical problem: six ops become three passes over src, weights and dst of one convolution;
// a fourth pass, the bias gradient alone, sums dst up.
//
// Layer: below src/op (which makes problems), above src/cpu (which computes them). Nothing here
// knows what an attribute is; nothing here knows what a vector register is.
//
//   dst[n, o, y] = Σ_{i,k} src[n, i, y·stride + k·dilation − pad] · weights[o, i, k]
//
// Layouts are strides. A convolution of rank 1 or 2 has unit leading axes.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include <convgrad/types.hpp>

namespace convgrad::conv {

enum class pass : std::uint8_t {
    forward,
    backward_data,
    backward_weights,
    /// diff_bias = Σ dst over batch and space, and nothing else: there is no src (ic is 0) and
    /// there are no weights; diff_bias is from_dst, diff_bias_type is out_type.
    backward_bias,
};

/// One spatial axis. The end pad follows from these and may be negative.
struct axis {
    dim src = 1;     // length of src
    dim dst = 1;     // length of dst
    dim kernel = 1;  // taps
    dim stride = 1;
    dim dilation = 1;  // 1 = dense
    dim pad = 0;       // begin pad, ≥ 0

    friend bool operator==(const axis &, const axis &) = default;
};

/// Strides of src or dst in elements; c runs over the channels of all groups.
struct data_strides {
    dim n = 0, c = 0;
    std::array<dim, 3> x{};

    friend bool operator==(const data_strides &, const data_strides &) = default;
};

/// Strides of weights in elements; o and i run within one group, so that every layout, both grouped
/// forms of IOX and XOI included, is a choice of strides.
struct weights_strides {
    dim g = 0, o = 0, i = 0;
    std::array<dim, 3> k{};

    friend bool operator==(const weights_strides &, const weights_strides &) = default;
};

/// Where a bias gradient comes from: the sum over batch and space of dst (convolution), or of src
/// (transposed convolution, whose diff_dst plays src).
enum class bias_gradient : std::uint8_t { none, from_dst, from_src };

struct problem {
    pass what = pass::forward;
    /// Type of all floating-point inputs.
    data_type type = data_type::f32;
    /// Type of the output; differs from `type` only for f32 weights gradients of 16-bit inputs.
    data_type out_type = data_type::f32;
    dim mb = 0, groups = 1;
    dim ic = 0, oc = 0;     // per group
    std::array<axis, 3> x;  // depth, height, width
    data_strides src, dst;
    weights_strides weights;

    /// A bias of type `type` is added to the output: oc·groups long in the forward pass, ic·groups
    /// in backward data (ConvTranspose).
    bool bias = false;
    dim bias_stride = 1;
    /// A tensor shaped like the output (dst or src) is added after the bias.
    bool add = false;
    data_strides add_strides;
    /// max(0, ·) after everything; NaN stays NaN.
    bool relu = false;
    /// The previous contents of the output are added to the result.
    bool accumulate = false;

    /// Backward weights: also write the bias gradient. Backward bias: from_dst.
    bias_gradient diff_bias = bias_gradient::none;
    data_type diff_bias_type = data_type::f32;

    math_mode math = math_mode::accurate;

    /// Not the output, and the same from execution to execution: see buffers::prepared.
    bool constant_weights = false;

    friend bool operator==(const problem &, const problem &) = default;
};

/// Memory for one execution, by canonical role. The pass decides which one is written.
struct buffers {
    void *src = nullptr;
    void *weights = nullptr;
    void *dst = nullptr;
    void *bias = nullptr;       // input bias, or output bias gradient
    const void *add = nullptr;  // see problem::add
    /// The weights in the form that the plan made of them (engines::plan::prepare); null: there is
    /// none.
    const void *prepared = nullptr;
};

/// Multiply-adds of the plain sum, padded taps counted (what benchdnn counts too, times 2).
inline double macs(const problem &p) {
    double v = static_cast<double>(p.mb) * static_cast<double>(p.groups) * static_cast<double>(p.ic)
               * static_cast<double>(p.oc);
    for (const axis &a : p.x) v *= static_cast<double>(a.dst) * static_cast<double>(a.kernel);
    return v;
}

}  // namespace convgrad::conv
