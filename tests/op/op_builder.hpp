// Short ways to write ops down in tests.
#pragma once

#include <vector>

#include <convgrad/op.hpp>

#include "op/lower.hpp"
#include "op/schema.hpp"

namespace convgrad::test {

inline constexpr dim unk = unknown_dim;

/// An op with the required attributes for this many spatial axes (strides and dilations 1, pads 0)
/// and without tensors.
inline op plain_op(op_kind kind, std::size_t axes, std::string name = "layer") {
    op node(1, kind, std::move(name));
    node.set("strides", dims(axes, 1)).set("dilations", dims(axes, 1));
    node.set("pads_begin", dims(axes, 0)).set("pads_end", dims(axes, 0));
    return node;
}

/// A tensor of known or partly known shape; an empty list means: rank unknown.
inline logical_tensor tensor_of(
    std::size_t id, const dims &shape, data_type type = data_type::f32, const dims &strides = {}) {
    logical_tensor t(id, type);
    if (!shape.empty()) t.shape = shape;
    t.strides = strides;
    return t;
}

/// plain_op with two inputs and one output of these shapes (as in tensor_of).
inline op op_with(op_kind kind, std::size_t axes, const dims &first, const dims &second,
    const dims &output = {}) {
    op node = plain_op(kind, axes);
    node.add_input(tensor_of(10, first)).add_input(tensor_of(11, second));
    node.add_output(tensor_of(20, output));
    return node;
}

/// Outputs after checking and inference.
inline std::vector<logical_tensor> inferred(const op &node) {
    const ops::parsed_attributes attrs = ops::check_op(node);
    std::vector<logical_tensor> outputs = node.outputs();
    ops::infer_shapes(attrs, node.inputs(), outputs);
    return outputs;
}

/// The shape of output 0 after inference.
inline dims inferred_shape(const op &node) {
    return inferred(node)[0].shape.value();
}

/// Checked, inferred and lowered.
inline conv::problem lowered(const op &node) {
    const std::vector<logical_tensor> outputs = inferred(node);
    return ops::lower(ops::check_op(node), node.inputs(), outputs);
}

}  // namespace convgrad::test
