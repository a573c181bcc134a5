#include "op_case.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "op/schema.hpp"

namespace convgrad::cli {
namespace {

/// A problem read as a convolution: a transposed one is the convolution that maps its dst to its
/// src.
struct geometry {
    dim groups, mb, ic, oc;  // channels of all groups
    std::array<conv::axis, 3> x;
    std::size_t first;  // first axis in use
};

geometry geometry_of(const problem_string &p) {
    geometry g{p.groups, p.mb, p.deconv ? p.oc : p.ic, p.deconv ? p.ic : p.oc, {},
        static_cast<std::size_t>(3 - p.rank)};
    for (std::size_t i = 0; i < 3; ++i) {
        const spatial &a = p.x[i];
        const dim src = p.deconv ? a.out : a.in, dst = p.deconv ? a.in : a.out;
        g.x[i] = {src, dst, a.kernel, a.stride, a.dilation + 1, a.pad};
        if (i < g.first) g.x[i] = conv::axis{};
    }
    return g;
}

/// The axes in use of one property, in order.
template <typename Value>
dims collect(const geometry &g, Value value) {
    dims list;
    for (std::size_t i = g.first; i < 3; ++i) list.push_back(value(g.x[i]));
    return list;
}

dim product(const dims &list) {
    dim n = 1;
    for (dim d : list) n *= d;
    return n;
}

dims data_shape(data_format format, dim n, dim c, const dims &x) {
    dims shape = {n};
    if (format == data_format::ncx) shape.push_back(c);
    shape.insert(shape.end(), x.begin(), x.end());
    if (format == data_format::nxc) shape.push_back(c);
    return shape;
}

/// With the names I and O of the canonical convolution: XIO and XOI, OIX and IOX are the same
/// bytes.
bool kernel_first(weights_format format) {
    return format == weights_format::xio || format == weights_format::xoi;
}

dims weights_shape(weights_format format, const geometry &g) {
    const dims k = collect(g, [](const conv::axis &a) { return a.kernel; });
    const dim ic = g.ic / g.groups;
    dims shape;
    if (kernel_first(format)) {
        shape = k;
        shape.insert(shape.end(), {ic, g.oc});
    } else {
        shape = {g.oc, ic};
        shape.insert(shape.end(), k.begin(), k.end());
    }
    return shape;
}

/// Three spatial strides from a tensor's own, which begin at `first`: unit axes in front have those
/// that packed ones would.
std::array<dim, 3> three_axes(const dims &shape, const dims &strides, std::size_t first) {
    const std::size_t axes = shape.size() - 2, unit = 3 - axes;
    std::array<dim, 3> x{};
    for (std::size_t i = 0; i < axes; ++i) x[unit + i] = strides[first + i];
    for (std::size_t i = unit; i-- > 0;)
        x[i] = i + 1 == unit ? strides[first] * std::max<dim>(shape[first], 1) : x[i + 1];
    return x;
}

conv::data_strides data_strides_of(data_format format, const dims &shape, const dims &strides) {
    const bool nxc = format == data_format::nxc;
    conv::data_strides s;
    s.n = strides[0];
    s.c = nxc ? strides.back() : strides[1];
    s.x = three_axes(shape, strides, nxc ? 1 : 2);
    return s;
}

conv::weights_strides weights_strides_of(
    weights_format format, const geometry &g, const dims &shape, const dims &strides) {
    const bool first = kernel_first(format);
    const std::size_t o = first ? strides.size() - 1 : 0, i = first ? o - 1 : 1;
    return {g.oc / g.groups * strides[o], strides[o], strides[i],
        three_axes(shape, strides, first ? 0 : 2)};
}

conv::problem canonical(const op_case &c, const geometry &g) {
    conv::problem p;
    p.what = pass_of(c.kind);
    p.type = p.out_type = c.type;
    p.mb = g.mb;
    p.groups = g.groups;
    p.ic = g.ic / g.groups;
    p.oc = g.oc / g.groups;
    p.x = g.x;
    p.math = c.on.math;
    return p;
}

/// The bias gradient of a convolution: a sum of its dst, without kernel, src and groups.
conv::problem canonical_sum(const op_case &c, const geometry &g) {
    conv::problem p = canonical(c, g);
    p.groups = 1;
    p.ic = 0;
    p.oc = g.oc;
    for (conv::axis &a : p.x) a = {.src = a.dst, .dst = a.dst};
    p.src = {};
    p.weights = {};
    p.diff_bias = conv::bias_gradient::from_dst;
    p.diff_bias_type = c.type;
    return p;
}

struct roles {
    std::vector<role> inputs;
    role output;
};

roles roles_of(op_kind kind) {
    switch (kind) {
    case op_kind::bias_add_backward:
        return {{role::dst}, role::bias};
    case op_kind::bias_add:
    case op_kind::add:
    case op_kind::relu:
        break;  // none of computed_ops()
    case op_kind::convolution:
        return {{role::src, role::weights}, role::dst};
    case op_kind::convolution_backward_data:
        return {{role::dst, role::weights}, role::src};
    case op_kind::convolution_backward_weights:
        return {{role::src, role::dst}, role::weights};
    case op_kind::conv_transpose:
        return {{role::dst, role::weights}, role::src};
    case op_kind::conv_transpose_backward_data:
        return {{role::src, role::weights}, role::dst};
    case op_kind::conv_transpose_backward_weights:
        return {{role::dst, role::src}, role::weights};
    }
    return {};
}

/// End pads, and where they would be negative for a transposed op, output_padding instead. A
/// convolution's negative end pad needs no words: the rounding of its output size covers it.
void set_pads(op &node, op_kind kind, const problem_string &p) {
    dims begin, end, output;
    for (std::size_t i = static_cast<std::size_t>(3 - p.rank); i < 3; ++i) {
        const dim e = end_pad(p.x[i], p.deconv);
        begin.push_back(p.x[i].pad);
        end.push_back(std::max<dim>(e, 0));
        output.push_back(std::max<dim>(-e, 0));
    }
    node.set("pads_begin", std::move(begin)).set("pads_end", std::move(end));
    if (is_transposed(kind)) node.set("output_padding", std::move(output));
}

/// The shape of a tensor by role.
dims shape_of(role which, const op_case &c, const geometry &g) {
    if (which == role::bias) return {g.oc};
    if (which == role::weights) return weights_shape(c.weights, g);
    const bool src = which == role::src;
    const dims x = collect(g, [&](const conv::axis &a) { return src ? a.src : a.dst; });
    return data_shape(c.data, g.mb, src ? g.ic : g.oc, x);
}

/// Shapes and strides, of the tensors and of the canonical problem.
void arrange(op_call &call, const op_case &c, const geometry &g, const arrangement &how) {
    std::vector<role> used = call.inputs;
    used.push_back(call.output);
    for (role which : used) {
        const auto at = static_cast<std::size_t>(which);
        dims &shape = call.shapes[at], &strides = call.strides[at];
        shape = shape_of(which, c, g);
        strides = draw_strides(shape, {how.what, how.seed * 3 + at}, which == call.output);
        call.elements[at] = product(shape);
        const dims &steps = strides.empty() ? packed_strides(shape) : strides;
        if (which == role::bias)
            call.problem.bias_stride = steps[0];
        else if (which == role::weights)
            call.problem.weights = weights_strides_of(c.weights, g, shape, steps);
        else
            (which == role::src ? call.problem.src : call.problem.dst) =
                data_strides_of(c.data, shape, steps);
    }
}

void set_attributes(op &node, const op_case &c, const geometry &g) {
    node.set("strides", collect(g, [](const conv::axis &a) { return a.stride; }));
    node.set("dilations", collect(g, [](const conv::axis &a) { return a.dilation; }));
    set_pads(node, c.kind, *c.problem);
    node.set("groups", attribute_value(c.problem->groups));
    node.set("weights_format", std::string(to_string(c.weights)));
}

void add_extras(op_call &call, const geometry &g) {
    call.problem.accumulate = true;
    call.node.set("accumulate", 1);
    if (call.output != role::weights && call.output != role::bias) return;
    call.problem.out_type = call.problem.diff_bias_type = data_type::f32;
    if (call.output == role::bias) return;
    const bool from_src = call.inputs[1] == role::src;  // diff_dst is a gradient's second input
    call.problem.diff_bias =
        from_src ? conv::bias_gradient::from_src : conv::bias_gradient::from_dst;
    call.bias_elements = from_src ? g.ic : g.oc;
}

}  // namespace

bool is_transposed(op_kind kind) {
    return ops::roles_of(kind).transposed;
}

conv::pass pass_of(op_kind kind) {
    switch (roles_of(kind).output) {
    case role::dst:
        return conv::pass::forward;
    case role::src:
        return conv::pass::backward_data;
    case role::weights:
        return conv::pass::backward_weights;
    case role::bias:
        break;
    }
    return conv::pass::backward_bias;
}

std::vector<weights_format> weights_formats_of(op_kind kind) {
    if (!has_weights(kind)) return {weights_format::xio};
    if (is_transposed(kind)) return {weights_format::xoi, weights_format::iox};
    return {weights_format::xio, weights_format::oix};
}

std::string_view weights_text(const op_case &c) {
    return has_weights(c.kind) ? to_string(c.weights) : "-";
}

std::string engine_name(const engine_choice &on) {
    if (on.kind == engine_kind::cpu) return "cpu";
    return fmt::format("cuda:{}{}", on.device, on.cudnn ? cudnn_suffix : "");
}

std::string selecting_options(const op_case &c, int engine_threads) {
    std::string text = fmt::format("--op {} --dtype {} --data-format {}", to_string(c.kind),
        to_string(c.type), to_string(c.data));
    if (has_weights(c.kind)) text += fmt::format(" --weights-format {}", to_string(c.weights));
    if (c.on.kind == engine_kind::cpu)
        text += fmt::format(" --threads {} --isa {}", engine_threads, to_string(c.on.max_isa));
    else
        text += fmt::format(" --engine {}", engine_name(c.on));
    if (c.on.math != math_mode::accurate) text += fmt::format(" --math {}", to_string(c.on.math));
    return fmt::format("{} '{}'", text, to_text(*c.problem));
}

std::vector<op_kind> computed_ops() {
    std::vector<op_kind> kinds;
    for (const ops::op_schema &s : ops::all_schemas())
        if (!s.epilogue) kinds.push_back(s.kind);
    return kinds;
}

bool is_gradient(op_kind kind) {
    return !ops::roles_of(kind).is_layer();
}

bool has_weights(op_kind kind) {
    return ops::roles_of(kind).weights.exists();
}

op_call make_call(const op_case &c, bool with_bias, bool with_extras, const arrangement &how) {
    const problem_string &p = *c.problem;
    const geometry g = geometry_of(p);
    const roles r = roles_of(c.kind);
    op_call call{op(0, c.kind), has_weights(c.kind) ? canonical(c, g) : canonical_sum(c, g),
        r.inputs, r.output, {}, 0, {}, {}};
    arrange(call, c, g, how);

    call.node.set("data_format", std::string(to_string(c.data)));
    if (has_weights(c.kind)) set_attributes(call.node, c, g);
    // An empty batch or channel has no place in a shape attribute; the output says it itself.
    const auto tensor_of = [&](std::size_t id, data_type type, role which) {
        const auto at = static_cast<std::size_t>(which);
        return logical_tensor(id, type, call.shapes[at], call.strides[at]);
    };
    const dims &out_shape = call.shapes[static_cast<std::size_t>(r.output)];
    if (std::find(out_shape.begin(), out_shape.end(), 0) == out_shape.end()) {
        if (r.output == role::weights) call.node.set("weights_shape", out_shape);
        if (c.kind == op_kind::convolution_backward_data) call.node.set("dst_shape", out_shape);
    }

    for (std::size_t i = 0; i < r.inputs.size(); ++i)
        call.node.add_input(tensor_of(i, c.type, r.inputs[i]));
    if (with_bias && !is_gradient(c.kind)) {
        call.bias_elements = r.output == role::dst ? g.oc : g.ic;
        call.problem.bias = true;
        call.node.add_input(logical_tensor(2, c.type, {call.bias_elements}));
    }
    if (with_extras && is_gradient(c.kind)) add_extras(call, g);
    if (with_extras && !is_gradient(c.kind)) {
        call.problem.add = true;
        call.problem.add_strides = r.output == role::dst ? call.problem.dst : call.problem.src;
    }
    call.node.add_output(tensor_of(3, call.problem.out_type, r.output));
    if (r.output == role::weights && call.problem.diff_bias != conv::bias_gradient::none)
        call.node.add_output(logical_tensor(4, data_type::f32, {call.bias_elements}));
    return call;
}

double bytes_of(const op_call &call) {
    double elements = 0;
    for (dim n : call.elements) elements += static_cast<double>(n);
    const double bytes = elements * static_cast<double>(size_of(call.problem.type));
    const double output = static_cast<double>(call.elements_of(call.output))
                          * static_cast<double>(size_of(call.problem.out_type));
    return call.problem.accumulate || call.problem.add ? bytes + output : bytes;
}

double terms_of(const conv::problem &p) {
    const auto real = [](dim d) { return static_cast<double>(d); };
    double terms = 1;
    switch (p.what) {
    case conv::pass::forward:
        terms = real(p.ic);
        for (const conv::axis &a : p.x) terms *= real(a.kernel);
        break;
    case conv::pass::backward_data:
        terms = real(p.oc);
        for (const conv::axis &a : p.x) terms *= real((a.kernel + a.stride - 1) / a.stride);
        break;
    case conv::pass::backward_weights:
    case conv::pass::backward_bias:
        terms = real(p.mb);
        for (const conv::axis &a : p.x) terms *= real(a.dst);
        break;
    }
    return terms;
}

std::array<dim, 5> output_extents(const conv::problem &p) {
    const auto &[d, h, w] = p.x;
    switch (p.what) {
    case conv::pass::forward:
        return {p.mb, p.groups * p.oc, d.dst, h.dst, w.dst};
    case conv::pass::backward_data:
        return {p.mb, p.groups * p.ic, d.src, h.src, w.src};
    case conv::pass::backward_bias:
        return {p.groups * p.oc, 1, 1, 1, 1};
    case conv::pass::backward_weights:
        break;
    }
    return {p.groups * p.oc, p.ic, d.kernel, h.kernel, w.kernel};
}

dim offset_of(const conv::problem &p, const conv::point &at) {
    if (p.what == conv::pass::backward_bias) return at.a * p.bias_stride;
    dim offset = 0;
    if (p.what == conv::pass::backward_weights) {
        offset = at.a / p.oc * p.weights.g + at.a % p.oc * p.weights.o + at.b * p.weights.i;
        for (std::size_t i = 0; i < 3; ++i) offset += at.x[i] * p.weights.k[i];
        return offset;
    }
    const conv::data_strides &s = p.what == conv::pass::forward ? p.dst : p.src;
    offset = at.a * s.n + at.b * s.c;
    for (std::size_t i = 0; i < 3; ++i) offset += at.x[i] * s.x[i];
    return offset;
}

std::string index_text(const op_case &c, const conv::problem &p, const conv::point &at) {
    const auto first = static_cast<std::size_t>(3 - c.problem->rank);
    const std::vector<dim> x(at.x + first, at.x + 3);
    dims index;
    if (p.what == conv::pass::backward_bias)
        index = {at.a};
    else if (p.what != conv::pass::backward_weights)
        index = data_shape(c.data, at.a, at.b, x);
    else if (kernel_first(c.weights)) {
        index = x;
        index.insert(index.end(), {at.b, at.a});
    } else {
        index = {at.a, at.b};
        index.insert(index.end(), x.begin(), x.end());
    }
    return fmt::format("[{}]", fmt::join(index, ", "));
}

}  // namespace convgrad::cli
