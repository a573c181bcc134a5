// Shape inference and lowering: the two users of geometry.
#include "op/lower.hpp"

#include <algorithm>

#include "op/axis.hpp"
#include "op/geometry.hpp"
#include "op/layout.hpp"
#include "op/message.hpp"
#include "op/schema.hpp"

namespace convgrad::ops {
namespace {

void check_layouts(const parsed_attributes &attrs, std::span<const logical_tensor> inputs,
    std::span<const logical_tensor> outputs) {
    const op_schema &schema = schema_of(attrs.kind);
    for (std::size_t i = 0; i < inputs.size(); ++i)
        check_layout(attrs, i < schema.inputs.size() ? schema.inputs[i].name : "add", inputs[i]);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        check_layout(attrs, schema.outputs[i].name, outputs[i]);
        check_elements_apart(attrs, schema.outputs[i].name, outputs[i]);
    }
}

dims data_shape(const parsed_attributes &attrs, const geometry &g, const data_sizes &sizes) {
    dims shape(static_cast<std::size_t>(g.axes) + 2);
    const data_order order = order_of(attrs.data_format, g.axes);
    shape[order.n] = sizes.n;
    shape[order.c] = sizes.c;
    for (int i = 0; i < g.axes; ++i) shape[order.x + i] = sizes.x[i];
    return shape;
}

dims weights_shape(const parsed_attributes &attrs, const geometry &g) {
    dims shape(static_cast<std::size_t>(g.axes) + 2);
    const weights_order order = order_of(attrs.weights_format, g.axes);
    shape[order.o] = g.weights.o;
    shape[order.i] = g.weights.i;
    for (int i = 0; i < g.axes; ++i) shape[order.k + i] = g.weights.k[i];
    return shape;
}

void require_known(const parsed_attributes &attrs, const argument_schema &schema,
    const logical_tensor &tensor, std::string_view remedy) {
    if (tensor.is_known()) return;
    fail(error_code::invalid_shape, attrs.kind, attrs.op_name,
        cat(schema.name, " has ",
            tensor.shape ? cat("shape ", *tensor.shape) : std::string("unknown rank"), "; ",
            remedy));
}

void require_known(const parsed_attributes &attrs, std::span<const logical_tensor> inputs,
    std::span<const logical_tensor> outputs) {
    const op_schema &schema = schema_of(attrs.kind);
    for (std::size_t i = 0; i < inputs.size() && i < schema.inputs.size(); ++i)
        if (!schema.inputs[i].shape_input && inputs[i].type != data_type::undef)
            require_known(
                attrs, schema.inputs[i], inputs[i], "compiling needs the shapes of all inputs");
    if (attrs.add && !inputs.back().is_known())
        fail(error_code::invalid_shape, attrs.kind, attrs.op_name,
            "add has an unknown shape; compiling needs the shapes of all inputs");
    const bool shape_input = schema.shape_input().index < inputs.size();
    std::string remedy = "compiling needs its shape";
    const geometry g = attrs.kind == op_kind::convolution_backward_data && !outputs[0].is_known()
                           ? derive(attrs, inputs, outputs)
                           : geometry{};
    if (!g.open_length.empty())
        remedy += cat(": ", g.open_length);
    else if (shape_input)
        remedy = "compiling needs its shape, where the shape input is known only at execution";
    else if (schema.roles.what == conv::pass::backward_weights)
        remedy = "compiling needs its shape: from the input weights_shape, the attribute "
                 "weights_shape or the tensor itself";
    for (std::size_t i = 0; i < outputs.size(); ++i)
        require_known(attrs, schema.outputs[i], outputs[i], remedy);
}

/// One of an op's tensors by its canonical role.
const logical_tensor &at(argument_ref ref, std::span<const logical_tensor> inputs,
    std::span<const logical_tensor> outputs) {
    return ref.output ? outputs[ref.index] : inputs[ref.index];
}

// Both grouped forms number one of the two channel dimensions over all groups; that one's stride
// times its channels per group is the stride of groups.
conv::weights_strides weights_strides_of(const parsed_attributes &attrs, const geometry &g,
    const logical_tensor &tensor, dim oc, dim ic) {
    const std::array<dim, 5> strides = canonical_strides(tensor);
    const weights_order order = order_of(attrs.weights_format, g.axes);
    const dim o = strides[order.o], i = strides[order.i];
    const dim group = g.form == weights_form::divided_i ? o * oc : i * ic;
    return {group, o, i, three_axes(strides, *tensor.shape, order.k, g.axes)};
}

// Strides between single points and dilations of single taps mean nothing: 1. What remains is
// bounded, so that y*stride + k*dilation - pad never overflows, whatever order it is summed in.
conv::axis axis_of(const parsed_attributes &attrs, const geometry &g, int i) {
    const auto axis = static_cast<std::size_t>(i);
    const axis_terms t = terms_of(attrs, axis, g.weights.k[axis]);
    conv::axis a{
        g.large.x[axis], g.small.x[axis], t.kernel, t.stride, t.dilation, g.pad_begin[axis]};
    if (a.dst <= 1) a.stride = 1;
    if (a.kernel <= 1) a.dilation = 1;
    constexpr dim limit = dim{1} << 60;
    const wide reach = wide{a.stride} * (a.dst - 1) + t.extent();
    if (reach > limit || a.pad > limit || a.src > limit)
        fail(error_code::invalid_shape, attrs.kind, attrs.op_name,
            cat("spatial axis ", i, " with stride ", t.stride, ", dilation ", t.dilation,
                ", kernel ", t.kernel, ", begin pad ", a.pad, " and lengths ", a.src, " and ",
                a.dst, " overflows 64-bit offsets"));
    return a;
}

void lower_bias(conv::problem &p, const parsed_attributes &attrs,
    std::span<const logical_tensor> inputs, std::span<const logical_tensor> outputs) {
    const op_roles &roles = roles_of(attrs.kind);
    const std::span<const logical_tensor> from = roles.bias.output ? outputs : inputs;
    if (roles.bias.index >= from.size()) return;
    const logical_tensor &bias = from[roles.bias.index];
    if (bias.type == data_type::undef) return;
    p.bias_stride = canonical_strides(bias)[0];
    p.bias = roles.is_layer();
    if (p.bias) return;
    p.diff_bias = roles.transposed ? conv::bias_gradient::from_src : conv::bias_gradient::from_dst;
    p.diff_bias_type = bias.type;
}

/// A sum over batch and space has neither kernel nor groups.
conv::problem lower_sum(const parsed_attributes &attrs, std::span<const logical_tensor> inputs,
    std::span<const logical_tensor> outputs) {
    const sum_geometry g = derive_sum(attrs, inputs[0], outputs[0]);
    const dims &shape = *inputs[0].shape;
    const data_order order = order_of(attrs.data_format, g.axes);
    conv::problem p;
    p.what = conv::pass::backward_bias;
    p.type = inputs[0].type;
    p.out_type = outputs[0].type;
    p.mb = shape[order.n];
    p.ic = 0;
    p.oc = g.channels;
    for (int i = 0; i < g.axes; ++i) {
        conv::axis &a = p.x[static_cast<std::size_t>(3 - g.axes + i)];
        a.src = a.dst = shape[order.x + static_cast<std::size_t>(i)];
    }
    p.dst = data_strides_of(attrs, g.axes, inputs[0]);
    lower_bias(p, attrs, inputs, outputs);
    p.accumulate = attrs.accumulate;
    return p;
}

}  // namespace

void infer_shapes(const parsed_attributes &attrs, std::span<const logical_tensor> inputs,
    std::span<logical_tensor> outputs) {
    const op_schema &schema = schema_of(attrs.kind);
    const op_roles &roles = schema.roles;
    if (schema.epilogue) {
        derive_epilogue(attrs, inputs, outputs[0]);
        check_layouts(attrs, inputs, outputs);
        return;
    }
    if (roles.what == conv::pass::backward_bias) {
        outputs[0].shape = dims{derive_sum(attrs, inputs[0], outputs[0]).channels};
        check_layouts(attrs, inputs, outputs);
        return;
    }
    const geometry g = derive(attrs, inputs, outputs);
    if (roles.what == conv::pass::backward_weights) {
        outputs[0].shape = weights_shape(attrs, g);
        if (outputs.size() > 1) outputs[1].shape = dims{roles.transposed ? g.large.c : g.small.c};
    } else {
        outputs[0].shape =
            data_shape(attrs, g, roles.what == conv::pass::forward ? g.small : g.large);
    }
    check_layouts(attrs, inputs, outputs);
}

conv::problem lower(const parsed_attributes &attrs, std::span<const logical_tensor> inputs,
    std::span<const logical_tensor> outputs) {
    const op_roles &roles = roles_of(attrs.kind);
    require_known(attrs, inputs, outputs);
    if (roles.what == conv::pass::backward_bias) {
        check_layouts(attrs, inputs, outputs);
        return lower_sum(attrs, inputs, outputs);
    }
    const geometry g = derive(attrs, inputs, outputs);
    check_layouts(attrs, inputs, outputs);

    conv::problem p;
    p.what = roles.what;
    p.type = inputs[0].type;
    p.out_type = outputs[0].type;
    p.mb = g.large.n;
    p.groups = attrs.groups;
    p.ic = g.large.c / attrs.groups;
    p.oc = g.small.c / attrs.groups;
    for (int i = 0; i < g.axes; ++i) p.x[3 - g.axes + i] = axis_of(attrs, g, i);
    p.src = data_strides_of(attrs, g.axes, at(roles.large, inputs, outputs));
    p.dst = data_strides_of(attrs, g.axes, at(roles.small, inputs, outputs));
    const logical_tensor &weights = at(roles.weights, inputs, outputs);
    p.weights = weights_strides_of(attrs, g, weights, p.oc, p.ic);
    p.constant_weights = !roles.weights.output && weights.is_constant;
    lower_bias(p, attrs, inputs, outputs);
    if (attrs.add) {
        p.add = true;
        p.add_strides = repeated_strides_of(attrs, g.axes, inputs.back(), *outputs[0].shape);
    }
    p.relu = attrs.relu;
    p.accumulate = attrs.accumulate;
    return p;
}

conv::buffers bind(op_kind kind, std::span<void *const> inputs, std::span<void *const> outputs) {
    const op_roles &roles = roles_of(kind);
    const auto pointer = [&](argument_ref ref) {
        const std::span<void *const> from = ref.output ? outputs : inputs;
        return ref.index < from.size() ? from[ref.index] : nullptr;
    };
    conv::buffers data;
    data.src = pointer(roles.large);
    data.dst = pointer(roles.small);
    data.weights = pointer(roles.weights);
    data.bias = pointer(roles.bias);
    if (roles.is_layer()) data.add = pointer({false, most_inputs - 1});
    return data;
}

}  // namespace convgrad::ops
