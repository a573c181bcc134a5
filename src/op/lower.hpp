// op + attributes + tensor descriptions → checked, shape-inferred, canonical problem.
//
// The three steps, each a plain function: check_op or parse (attributes → typed), infer_shapes
// (fills in output shapes), lower (→ conv::problem); bind gives pointers their canonical roles.
//
// Inputs are in the op's own order. An optional input that is not connected is left out; only where
// `parsed_attributes::add` makes one more input follow, an absent bias is a tensor of type undef.
#pragma once

#include <optional>
#include <span>

#include <convgrad/op.hpp>

#include "conv/problem.hpp"
#include "op/formats.hpp"

namespace convgrad {
inline namespace CONVGRAD_ABI {

// include/convgrad/eager.hpp
struct attributes;

}  // namespace CONVGRAD_ABI
}  // namespace convgrad

namespace convgrad::ops {

/// Attributes after parsing; list lengths are not yet checked against a rank.
struct parsed_attributes {
    op_kind kind = op_kind::convolution;
    std::string_view op_name = {};  // the user's name for the op in messages; may be empty
    dims strides = {}, pads_begin = {}, pads_end = {}, dilations = {};
    std::optional<dims> output_padding = {};  // nullopt: zeros
    ops::auto_pad auto_pad = auto_pad::none;
    dim groups = 1;
    ops::data_format data_format = data_format::nxc;
    ops::weights_format weights_format = weights_format::xio;
    std::optional<dims> shape = {};  // dst_shape or weights_shape attribute
    bool accumulate = false;
    bool relu = false;
    bool add = false;  // internal: one more input after the op's own, shaped like output 0
    bool add_broadcasts = false;  // internal: or smaller, by NumPy's rules
    ops::auto_broadcast auto_broadcast = auto_broadcast::numpy;
    bool says_data_format = false;  // data_format was given, not left to its default
};

/// Checks an op against its schema: attribute names, types, ranges, requiredness; number of inputs
/// and outputs; data types. Throws invalid_op. The result refers to the op's name.
parsed_attributes check_op(const op &node);

/// What eager and compiled calls ask for beyond attributes.
struct op_flags {
    bool accumulate = false, diff_bias = false, relu = false, add = false;
};

/// The same for an eager call on data tensors of this rank: empty lists get their defaults. Options
/// that the op does not take (accumulate for a forward op, diff_bias for anything but a weights
/// gradient, relu and add for a gradient) are refused.
parsed_attributes parse(
    op_kind kind, const attributes &attrs, std::size_t rank, const op_flags &opts);

/// Number of inputs and outputs, and their data types (check_op includes it). Throws invalid_op.
void check_arguments(const parsed_attributes &attrs, std::span<const logical_tensor> inputs,
    std::span<const logical_tensor> outputs);

/// Fills in what follows about the outputs' shapes (unknown ranks and dimensions allowed); throws
/// invalid_shape where known things contradict each other. `inputs` is not changed.
///
/// A shape input (dst_shape, weights_shape) counts with its `value`. Where one is connected without
/// a value, nothing else but the output's own shape may stand in for it, so an unknown output stays
/// unknown in part; at execution, call again with the value to compare it with the output's shape.
void infer_shapes(const parsed_attributes &attrs, std::span<const logical_tensor> inputs,
    std::span<logical_tensor> outputs);

/// Everything that is needed to plan, except math. `inputs` and `outputs` must be known (after
/// infer_shapes), except a shape input's value; throws invalid_shape otherwise.
conv::problem lower(const parsed_attributes &attrs, std::span<const logical_tensor> inputs,
    std::span<const logical_tensor> outputs);

/// Canonical buffers from the op's data pointers, in the op's own order. Absent optional tensors
/// are null or left out at the end; the pointer of `add` is the last of most_inputs.
conv::buffers bind(op_kind kind, std::span<void *const> inputs, std::span<void *const> outputs);

}  // namespace convgrad::ops
