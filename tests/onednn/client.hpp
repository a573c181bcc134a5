// What the C++ clients share: ops and tensors by oneDNN's own header, expected values by the
// library's reference.
#pragma once

#include <array>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <convgrad/eager.hpp>
#include <gtest/gtest.h>
#include <oneapi/dnnl/dnnl_graph.hpp>

#include "conv/convert.hpp"
#include "op/lower.hpp"
#include "support/random.hpp"
#include "tools/reference.hpp"

namespace convgrad::test {

namespace dg = dnnl::graph;
using client_tensor = dg::tensor;
using lt_type = dg::logical_tensor::data_type;
using lt_layout = dg::logical_tensor::layout_type;

inline lt_type to_client(data_type type) {
    return type == data_type::f32    ? lt_type::f32
           : type == data_type::bf16 ? lt_type::bf16
           : type == data_type::f16  ? lt_type::f16
                                     : lt_type::s32;
}

/// Strides that put axis `inner` innermost and leave the others in order.
inline dims strides_with_inner(const dims &shape, std::size_t inner) {
    dims strides(shape.size());
    dim packed = 1;
    const auto take = [&](std::size_t axis) {
        strides[axis] = packed;
        packed *= std::max(shape[axis], dim{1});
    };
    take(inner);
    for (std::size_t i = shape.size(); i-- > 0;)
        if (i != inner) take(i);
    return strides;
}

/// A tensor with memory of its own. Small integers: every sum of products is exact.
struct operand {
    logical_tensor lt;
    std::vector<std::byte> bytes;

    operand() = default;
    operand(std::size_t id, data_type type, dims shape, dims strides = {})
        : lt(id, type, std::move(shape), std::move(strides)) {
        dim last = 1;
        for (std::size_t i = 0; i < lt.shape->size(); ++i) {
            const dim size = (*lt.shape)[i];
            if (lt.strides.empty()) last *= size;
            if (!lt.strides.empty()) last += (std::max(size, dim{1}) - 1) * lt.strides[i];
        }
        bytes.resize(static_cast<std::size_t>(last) * size_of(type));
    }

    operand &fill(std::uint64_t seed) {
        rng random(seed);
        const std::size_t size = size_of(lt.type);
        for (std::size_t at = 0; at < bytes.size(); at += size) {
            const auto value = static_cast<double>(random.between(-3, 3));
            const auto put = [&](auto element) { std::memcpy(&bytes[at], &element, size); };
            if (lt.type == data_type::f32) put(conv::round_to<float>(value));
            if (lt.type == data_type::bf16) put(conv::round_to<bf16>(value));
            if (lt.type == data_type::f16) put(conv::round_to<f16>(value));
        }
        return *this;
    }

    [[nodiscard]] dg::logical_tensor described() const {
        if (lt.strides.empty()) return {lt.id, to_client(lt.type), *lt.shape, lt_layout::strided};
        return {lt.id, to_client(lt.type), *lt.shape, lt.strides};
    }
    [[nodiscard]] dg::tensor on(const dnnl::engine &engine) {
        return {described(), engine, bytes.data()};
    }
    /// Same id, type and layout; not a trace of values.
    [[nodiscard]] operand blank() const { return {lt.id, lt.type, *lt.shape, lt.strides}; }
};

/// An op with the attributes of `attrs`, which must be complete.
inline dg::op make_op(std::size_t id, op_kind kind, const attributes &attrs) {
    dg::op op(id, static_cast<dg::op::kind>(kind), "op" + std::to_string(id));
    op.set_attr<std::vector<int64_t>>(dg::op::attr::strides, attrs.strides);
    op.set_attr<std::vector<int64_t>>(dg::op::attr::pads_begin, attrs.pads_begin);
    op.set_attr<std::vector<int64_t>>(dg::op::attr::pads_end, attrs.pads_end);
    op.set_attr<std::vector<int64_t>>(dg::op::attr::dilations, attrs.dilations);
    op.set_attr<std::string>(dg::op::attr::auto_pad, std::string(to_string(attrs.auto_pad)));
    op.set_attr<std::string>(dg::op::attr::data_format, std::string(to_string(attrs.data_format)));
    op.set_attr<std::string>(
        dg::op::attr::weights_format, std::string(to_string(*attrs.weights_format)));
    op.set_attr<int64_t>(dg::op::attr::groups, attrs.groups);
    if (!attrs.output_padding.empty())
        op.set_attr<std::vector<int64_t>>(dg::op::attr::output_padding, attrs.output_padding);
    return op;
}

/// Extras of the reference.
struct epilogue {
    operand *bias = nullptr, *add = nullptr;
    bool relu = false;
    operand *diff_bias = nullptr;
};

/// What `out` has to hold.
inline void compute_reference(op_kind kind, const attributes &attrs, operand &in0, operand &in1,
    operand &out, const epilogue &extra = {}) {
    const auto parsed = ops::parse(kind, attrs, in0.lt.shape->size(),
        {.diff_bias = extra.diff_bias != nullptr, .relu = extra.relu, .add = extra.add != nullptr});
    std::vector<logical_tensor> inputs = {in0.lt, in1.lt};
    if (extra.bias != nullptr || extra.add != nullptr)
        inputs.push_back(extra.bias != nullptr ? extra.bias->lt : logical_tensor{});
    if (extra.add != nullptr) inputs.push_back(extra.add->lt);
    std::vector<logical_tensor> outputs = {out.lt};
    if (extra.diff_bias != nullptr) outputs.push_back(extra.diff_bias->lt);
    ops::infer_shapes(parsed, inputs, outputs);
    const auto data = [](operand *o) -> void * { return o != nullptr ? o->bytes.data() : nullptr; };
    const std::array<void *, 4> in = {data(&in0), data(&in1), data(extra.bias), data(extra.add)};
    const std::array<void *, 2> to = {data(&out), data(extra.diff_bias)};
    conv::reference(ops::lower(parsed, inputs, outputs), ops::bind(kind, in, to));
}

inline dnnl::engine cpu_engine() {
    return {dnnl::engine::kind::cpu, 0};
}

/// Compiles and runs a partition; each tensor's id finds its operand.
inline void run(const dg::partition &partition, const std::vector<operand *> &inputs,
    const std::vector<operand *> &outputs, const dnnl::engine &engine = cpu_engine()) {
    std::vector<dg::logical_tensor> in, out;
    for (const operand *o : inputs) in.push_back(o->described());
    for (const operand *o : outputs) out.push_back(o->described());
    const auto compiled = partition.compile(in, out, engine);
    std::vector<dg::tensor> in_tensors, out_tensors;
    for (operand *o : inputs) in_tensors.push_back(o->on(engine));
    for (operand *o : outputs) out_tensors.push_back(o->on(engine));
    dnnl::stream stream(engine);
    compiled.execute(stream, in_tensors, out_tensors);
    stream.wait();
}

/// The partitions of these ops.
inline std::vector<dg::partition> partitions_of(
    const std::vector<dg::op> &ops, dg::partition::policy policy = dg::partition::policy::fusion) {
    dg::graph graph(dnnl::engine::kind::cpu);
    for (const dg::op &op : ops) graph.add_op(op);
    graph.finalize();
    return graph.get_partitions(policy);
}

/// The status that a call of oneDNN's C++ header ends with.
template <typename Call>
dnnl_status_t status_of(Call &&call) {
    try {
        call();
    } catch (const dnnl::error &e) {
        return e.status;
    }
    return dnnl_success;
}

/// Shapes of one layer.
struct layer {
    bool transposed;
    attributes attrs;
    dims src, weights, dst;
    dim channels_out;
};

/// A layer of `axes` spatial axes with something of everything.
inline layer make_layer(bool transposed, std::size_t axes, std::string_view data_format,
    std::string_view weights_format, dim groups, std::string_view auto_pad, dim dilation = 1) {
    layer made{.transposed = transposed,
        .attrs = {},
        .src = {},
        .weights = {},
        .dst = {},
        .channels_out = 6};
    const dim ic = 4, oc = made.channels_out;
    made.attrs = {.strides = dims(axes, 2),
        .pads_begin = dims(axes, 1),
        .pads_end = dims(axes, 1),
        .dilations = dims(axes, dilation),
        .auto_pad = auto_pad,
        .groups = groups,
        .data_format = data_format,
        .weights_format = weights_format};
    made.attrs.strides.back() = axes > 1 ? 1 : 2;
    const dims lengths = {9, 7, 8}, kernel = {3, 2, 3};
    const dims x(lengths.end() - static_cast<dim>(axes), lengths.end());
    const dims k(kernel.end() - static_cast<dim>(axes), kernel.end());
    const auto data = [&](dim c, const dims &spatial) {
        dims shape = {2};
        if (data_format == "NCX") shape.push_back(c);
        shape.insert(shape.end(), spatial.begin(), spatial.end());
        if (data_format == "NXC") shape.push_back(c);
        return shape;
    };
    made.src = data(ic, x);
    if (weights_format == "OIX") made.weights = {oc, ic / groups};
    if (weights_format == "IOX") made.weights = {ic, oc / groups};
    made.weights.insert(made.weights.end(), k.begin(), k.end());
    if (weights_format == "XIO") made.weights.insert(made.weights.end(), {ic / groups, oc});
    if (weights_format == "XOI") made.weights.insert(made.weights.end(), {oc / groups, ic});
    made.dst = infer_shape(transposed ? op_kind::conv_transpose : op_kind::convolution, made.src,
        made.weights, made.attrs);
    return made;
}

}  // namespace convgrad::test
