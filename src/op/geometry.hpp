// What is known about the sizes of one op, in canonical terms, and what follows from it.
//
// For convolutions: a large and a small data tensor (see op_roles) and weights. Sizes that are not
// known are unknown_dim.
#pragma once

#include <array>

#include "op/lower.hpp"
#include "op/schema.hpp"

namespace convgrad::ops {

struct data_sizes {
    dim n = unknown_dim, c = unknown_dim;
    std::array<dim, 3> x{unknown_dim, unknown_dim, unknown_dim};
};

/// `o` is the dimension that counts small's channels, `i` the one that counts large's; which of
/// them is divided by groups, `form` tells.
struct weights_sizes {
    dim o = unknown_dim, i = unknown_dim;
    std::array<dim, 3> k{unknown_dim, unknown_dim, unknown_dim};
};

/// The two grouped forms of IOX and XOI (the others have only the first).
enum class weights_form : std::uint8_t {
    divided_i,  // (O, I/groups)
    divided_o,  // (O/groups, I)
};

struct geometry {
    int axes = 0;
    data_sizes large, small;
    weights_sizes weights;
    weights_form form = weights_form::divided_i;
    /// Per spatial axis; unknown where auto_pad needs a size that is unknown.
    std::array<dim, 3> pad_begin{unknown_dim, unknown_dim, unknown_dim};
    std::array<dim, 3> pad_end{unknown_dim, unknown_dim, unknown_dim};
    /// Why a length of diff_src must be given: the formula for what is not given has none. Empty
    /// if that is not so.
    std::string open_length;
};

/// Gathers all sources, derives what follows, throws invalid_shape on any contradiction.
geometry derive(const parsed_attributes &attrs, std::span<const logical_tensor> inputs,
    std::span<const logical_tensor> outputs);

/// What is known about the sizes of a bias gradient: diff_dst → diff_bias.
struct sum_geometry {
    int axes = 0;  // 0 also where the rank is unknown
    dim channels = unknown_dim;
};
/// Throws invalid_shape on any contradiction.
sum_geometry derive_sum(const parsed_attributes &attrs, const logical_tensor &diff_dst,
    const logical_tensor &diff_bias);

/// Fills in what follows about the output of BiasAdd, Add or ReLU. Throws invalid_shape on any
/// contradiction.
void derive_epilogue(
    const parsed_attributes &attrs, std::span<const logical_tensor> inputs, logical_tensor &output);
/// Whether a tensor of shape `small` is one of shape `large` by NumPy's rules, repeated along axes
/// of length 1 and in front. What is unknown may be.
bool broadcasts_to(const dims &small, const dims &large);

/// Each list must have one entry per spatial axis, or invalid_shape.
void check_list_lengths(const parsed_attributes &attrs, std::size_t axes);

/// Begin and end pad of one axis (section "auto_pad" of the op's page). `large` and `small` may be
/// unknown; the result is unknown where they are needed. For ConvolutionBackwardData an unknown
/// `large` means: by the formula.
struct pad_pair {
    dim begin = unknown_dim, end = unknown_dim;
};
pad_pair axis_pads(
    const parsed_attributes &attrs, std::size_t axis, dim kernel, dim large, dim small);

/// Positions of dimensions in a shape of `axes` spatial axes.
struct data_order {
    std::size_t n, c, x;  // x: the first spatial axis
};
data_order order_of(data_format format, int axes);
struct weights_order {
    std::size_t o, i, k;
};
weights_order order_of(weights_format format, int axes);

}  // namespace convgrad::ops
