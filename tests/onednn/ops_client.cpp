// All six ops in all types and layouts through oneDNN's C++ header.
#include "client.hpp"

namespace convgrad::test {
namespace {

enum class role { forward, backward_data, backward_weights };

op_kind kind_of(const layer &l, role r) {
    const auto first = l.transposed ? op_kind::conv_transpose : op_kind::convolution;
    return static_cast<op_kind>(static_cast<int>(first) + static_cast<int>(r));
}

/// Shapes of input 0, input 1 and output 0.
std::array<dims, 3> shapes_of(const layer &l, role r) {
    if (r == role::forward) return {l.src, l.weights, l.dst};
    if (r == role::backward_data) return {l.dst, l.weights, l.src};
    return {l.src, l.dst, l.weights};
}

struct variant {
    data_type type;
    bool permuted;     // strides that are not row-major
    bool ask_for_any;  // the output's layout is left to the library
    bool with_bias;
};

void check_op(const layer &l, role r, const variant &v) {
    const op_kind kind = kind_of(l, r);
    const auto shapes = shapes_of(l, r);
    SCOPED_TRACE(std::string(to_string(kind)) + " " + std::string(to_string(v.type)) + " "
                 + std::string(to_string(l.attrs.data_format)) + " "
                 + std::string(to_string(*l.attrs.weights_format)) + " "
                 + std::string(to_string(l.attrs.auto_pad)) + " groups "
                 + std::to_string(l.attrs.groups) + " rank " + std::to_string(l.src.size())
                 + (v.permuted ? " permuted" : "") + (v.ask_for_any ? " any" : "")
                 + (v.with_bias ? " bias" : ""));
    const auto strides = [&](const dims &shape) {
        return v.permuted ? strides_with_inner(shape, 1) : dims{};
    };
    operand in0(0, v.type, shapes[0], strides(shapes[0]));
    operand in1(1, v.type, shapes[1], strides(shapes[1]));
    operand bias(2, v.type, {l.channels_out});
    operand out(3, v.type, shapes[2], strides(shapes[2]));
    in0.fill(1);
    in1.fill(2);
    bias.fill(3);
    std::vector<operand *> inputs = {&in0, &in1};
    if (v.with_bias) inputs.push_back(&bias);

    // The graph knows ranks at most; compiling is told the inputs' shapes.
    dg::op op = make_op(7, kind, l.attrs);
    if (r == role::backward_data && !l.transposed)
        op.set_attr<std::vector<int64_t>>(dg::op::attr::dst_shape, shapes[2]);
    if (r == role::backward_weights)
        op.set_attr<std::vector<int64_t>>(dg::op::attr::weights_shape, shapes[2]);
    for (const operand *o : inputs)
        op.add_input(
            {o->lt.id, to_client(v.type), static_cast<int>(o->lt.shape->size()), lt_layout::undef});
    op.add_output({out.lt.id, to_client(v.type), lt_layout::undef});
    const auto partitions = partitions_of({op});
    ASSERT_EQ(partitions.size(), 1U);
    ASSERT_TRUE(partitions[0].is_supported());

    const dnnl::engine engine = cpu_engine();
    std::vector<dg::logical_tensor> described;
    for (const operand *o : inputs) described.push_back(o->described());
    const dg::logical_tensor open(out.lt.id, to_client(v.type), lt_layout::any);
    const auto compiled =
        partitions[0].compile(described, {v.ask_for_any ? open : out.described()}, engine);
    const auto queried = compiled.query_logical_tensor(out.lt.id);
    ASSERT_EQ(queried.get_dims(), shapes[2]);
    ASSERT_EQ(queried.get_layout_type(), lt_layout::strided);
    ASSERT_EQ(queried.get_mem_size(), out.bytes.size());
    if (v.ask_for_any) out.lt.strides = queried.get_strides();

    std::vector<dg::tensor> tensors;
    for (operand *o : inputs) tensors.push_back(o->on(engine));
    dnnl::stream stream(engine);
    compiled.execute(stream, tensors, {dg::tensor(queried, engine, out.bytes.data())});
    stream.wait();

    operand expected = out.blank();
    compute_reference(kind, l.attrs, in0, in1, expected, {.bias = v.with_bias ? &bias : nullptr});
    EXPECT_EQ(out.bytes, expected.bytes);
}

void check_layer(const layer &l) {
    for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
        for (const bool permuted : {false, true}) {
            check_op(l, role::forward, {type, permuted, !permuted, false});
            check_op(l, role::forward, {type, permuted, permuted, true});
            check_op(l, role::backward_data, {type, permuted, !permuted, false});
            check_op(l, role::backward_weights, {type, permuted, !permuted, false});
        }
}

void check_formats(bool transposed, const std::vector<std::string_view> &weights_formats) {
    for (std::size_t axes = 1; axes <= 3; ++axes)
        for (const std::string_view data_format : {"NCX", "NXC"})
            for (const std::string_view weights_format : weights_formats)
                for (const dim groups : {1, 2})
                    for (const std::string_view auto_pad :
                        {"None", "SAME_UPPER", "SAME_LOWER", "VALID"})
                        check_layer(make_layer(
                            transposed, axes, data_format, weights_format, groups, auto_pad));
}

TEST(OpsClient, Convolution) {
    check_formats(false, {"OIX", "XIO"});
}

TEST(OpsClient, TransposedConvolution) {
    check_formats(true, {"IOX", "XOI"});
}

// oneDNN loses dilations in the gradients of transposed convolutions.
TEST(OpsClient, Dilations) {
    for (const bool transposed : {false, true})
        check_layer(make_layer(transposed, 2, "NCX", transposed ? "IOX" : "OIX", 1, "None", 2));
}

TEST(OpsClient, OutputPaddingOfAllTransposedOps) {
    layer l = make_layer(true, 2, "NCX", "IOX", 1, "None");
    l.attrs.output_padding = {1, 0};
    l.dst[2] += 1;
    check_layer(l);
}

// oneDNN's default is a list of twelve zeros, which clients send along.
TEST(OpsClient, OutputPaddingMayBeTooLong) {
    layer l = make_layer(true, 2, "NCX", "IOX", 1, "None");
    operand in0(0, data_type::f32, l.src), in1(1, data_type::f32, l.weights);
    operand out(2, data_type::f32, l.dst);
    in0.fill(1);
    in1.fill(2);
    dg::op op = make_op(1, op_kind::conv_transpose, l.attrs);
    op.set_attr<std::vector<int64_t>>(dg::op::attr::output_padding, dims(12, 0));
    op.add_inputs({in0.described(), in1.described()});
    op.add_output(out.described());
    run(partitions_of({op})[0], {&in0, &in1}, {&out});
    operand expected = out.blank();
    compute_reference(op_kind::conv_transpose, l.attrs, in0, in1, expected);
    EXPECT_EQ(out.bytes, expected.bytes);
}

// oneDNN takes a shape input into the graph and then cannot compute it.
TEST(OpsClient, ShapeInputs) {
    const layer l = make_layer(false, 2, "NCX", "OIX", 1, "None");
    for (const role r : {role::backward_data, role::backward_weights}) {
        const op_kind kind = kind_of(l, r);
        const auto shapes = shapes_of(l, r);
        operand in0(0, data_type::f32, shapes[0]), in1(1, data_type::f32, shapes[1]);
        operand shape(2, data_type::s32, {4});
        operand out(3, data_type::f32, shapes[2]);
        in0.fill(1);
        in1.fill(2);
        for (std::size_t i = 0; i < 4; ++i) {
            const auto value = static_cast<std::int32_t>(shapes[2][i]);
            std::memcpy(&shape.bytes[4 * i], &value, 4);
        }
        dg::op op = make_op(1, kind, l.attrs);
        op.add_inputs({in0.described(), in1.described(), shape.described()});
        op.add_output(out.described());
        const auto partitions = partitions_of({op});
        ASSERT_TRUE(partitions[0].is_supported());
        run(partitions[0], {&in0, &in1, &shape}, {&out});
        operand expected = out.blank();
        compute_reference(kind, l.attrs, in0, in1, expected);
        EXPECT_EQ(out.bytes, expected.bytes);

        // The output's shape may also wait until execution.
        const dnnl::engine engine = cpu_engine();
        const auto compiled =
            partitions[0].compile({in0.described(), in1.described(), shape.described()},
                {dg::logical_tensor(3, lt_type::f32, lt_layout::strided)}, engine);
        operand late = out.blank();
        dnnl::stream stream(engine);
        compiled.execute(
            stream, {in0.on(engine), in1.on(engine), shape.on(engine)}, {late.on(engine)});
        EXPECT_EQ(late.bytes, expected.bytes);
    }
}

// oneDNN never looks at output_padding of this op, and its own test inputs set it out of range.
TEST(OpsClient, OutputPaddingOutOfRangeIsIgnoredByBackwardData) {
    const layer l = make_layer(false, 2, "NCX", "OIX", 1, "None");
    operand in0(0, data_type::f32, l.dst), in1(1, data_type::f32, l.weights);
    operand out(2, data_type::f32, l.src);
    in0.fill(1);
    in1.fill(2);
    dg::op op = make_op(1, op_kind::convolution_backward_data, l.attrs);
    op.set_attr<std::vector<int64_t>>(dg::op::attr::output_padding, {2, 2});
    op.set_attr<std::vector<int64_t>>(dg::op::attr::dst_shape, l.src);
    op.add_inputs({in0.described(), in1.described()});
    op.add_output(out.described());
    run(partitions_of({op})[0], {&in0, &in1}, {&out});
    operand expected = out.blank();
    compute_reference(op_kind::convolution_backward_data, l.attrs, in0, in1, expected);
    EXPECT_EQ(out.bytes, expected.bytes);
}

}  // namespace
}  // namespace convgrad::test
