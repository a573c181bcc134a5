// op + attributes + tensor descriptions → checked, shape-inferred, canonical problem.
//
// The three steps, each a plain function: parse (attribute bag → typed), infer (fills in output
// shapes, both directions where the specification allows), lower (→ conv::problem + argument
// roles).
#pragma once

#include <optional>
#include <span>

#include <convgrad/op.hpp>

#include "conv/problem.hpp"

namespace convgrad::ops {

enum class auto_pad : std::uint8_t { none, same_upper, same_lower, valid };
enum class data_format : std::uint8_t { nxc, ncx };
enum class weights_format : std::uint8_t { xio, oix, xoi, iox };

/// Attributes after parsing; list lengths are not yet checked against a rank.
struct parsed_attributes {
    op_kind kind;
    std::string_view op_name;  // the user's name for the op in messages; may be empty
    dims strides, pads_begin, pads_end, dilations, output_padding;  // output_padding may be empty
    ops::auto_pad auto_pad = auto_pad::none;
    dim groups = 1;
    ops::data_format data_format = data_format::nxc;
    ops::weights_format weights_format = weights_format::xio;
    std::optional<dims> shape;  // dst_shape or weights_shape attribute
    bool accumulate = false;
    bool relu = false;
    bool add = false;  // internal: one more input after the op's own, shaped like output 0
};

/// Checks an op against its schema: attribute names, types, ranges, requiredness; number of inputs
/// and outputs; data types. Throws invalid_op.
parsed_attributes check_op(const op &node);

/// Fills in what follows about shapes (unknown ranks and dimensions allowed); throws invalid_shape
/// where known things contradict each other. `inputs` is not changed.
void infer_shapes(const parsed_attributes &attrs, std::span<const logical_tensor> inputs,
    std::span<logical_tensor> outputs);

/// Everything that is needed to plan. `inputs` and `outputs` must be known (after infer_shapes),
/// except a shape input's value.
conv::problem lower(const parsed_attributes &attrs, std::span<const logical_tensor> inputs,
    std::span<const logical_tensor> outputs);

/// Canonical buffers from the op's data pointers (in the op's own order; absent optional inputs
/// null). `input_count` counts the inputs present.
conv::buffers bind(op_kind kind, std::span<void *const> inputs, std::span<void *const> outputs);

}  // namespace convgrad::ops
