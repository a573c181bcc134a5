// Layouts that a client leaves to the library: the data tensors' channels come last, unless it
// gives one in another order.
#include <algorithm>

#include "client.hpp"

namespace convgrad::test {
namespace {

dg::logical_tensor left_open(const operand &o) {
    return {o.lt.id, to_client(o.lt.type), *o.lt.shape, lt_layout::any};
}

/// The two inputs and the output of an op.
struct call {
    dg::op op;
    op_kind kind;
    attributes attrs;
    operand in0, in1, out;
    bool open0 = true, open1 = true, open_out = true;

    call(op_kind what, const layer &l, const std::array<dims, 3> &shapes)
        : op(make_op(7, what, l.attrs)), kind(what), attrs(l.attrs),
          in0(0, data_type::f32, shapes[0]), in1(1, data_type::f32, shapes[1]),
          out(2, data_type::f32, shapes[2]) {
        using attr = dg::op::attr;
        if (what == op_kind::convolution_backward_data)
            op.set_attr<std::vector<int64_t>>(attr::dst_shape, shapes[2]);
        if (shapes[2] == l.weights)
            op.set_attr<std::vector<int64_t>>(attr::weights_shape, shapes[2]);
    }

    /// Compiles, takes the layouts that were chosen, executes and compares.
    void run() {
        op.add_inputs({in0.described(), in1.described()});
        op.add_output(out.described());
        const auto given = [](const operand &o, bool open) {
            return open ? left_open(o) : o.described();
        };
        const dnnl::engine engine = cpu_engine();
        const auto compiled = partitions_of({op}).at(0).compile(
            {given(in0, open0), given(in1, open1)}, {given(out, open_out)}, engine);
        for (operand *o : {&in0, &in1, &out}) {
            const dg::logical_tensor chosen = compiled.query_logical_tensor(o->lt.id);
            ASSERT_EQ(chosen.get_layout_type(), lt_layout::strided);
            o->lt.strides = chosen.get_strides();
        }
        in0.fill(1);
        in1.fill(2);
        dnnl::stream stream(engine);
        compiled.execute(stream, {in0.on(engine), in1.on(engine)}, {out.on(engine)});
        stream.wait();
        operand expected = out;
        std::fill(expected.bytes.begin(), expected.bytes.end(), std::byte{});
        compute_reference(kind, attrs, in0, in1, expected);
        EXPECT_EQ(out.bytes, expected.bytes);
    }
};

call forward_of(const layer &l) {
    return {op_kind::convolution, l, {l.src, l.weights, l.dst}};
}

dims packed(const operand &o) {
    return strides_with_inner(*o.lt.shape, o.lt.shape->size() - 1);
}
dims channels_last(const operand &o) {
    return strides_with_inner(*o.lt.shape, 1);
}

TEST(LayoutsClient, OpenOnesHaveTheirChannelsLast) {
    for (const bool transposed : {false, true})
        for (std::size_t axes = 1; axes <= 3; ++axes) {
            SCOPED_TRACE(std::to_string(axes) + (transposed ? " transposed" : ""));
            const layer l =
                make_layer(transposed, axes, "NCX", transposed ? "IOX" : "OIX", 1, "None");
            const auto kind = [&](int role) {
                return static_cast<op_kind>(
                    static_cast<int>(transposed ? op_kind::conv_transpose : op_kind::convolution)
                    + role);
            };
            call forward(kind(0), l, {l.src, l.weights, l.dst});
            forward.run();
            EXPECT_EQ(forward.in0.lt.strides, channels_last(forward.in0));
            EXPECT_EQ(forward.in1.lt.strides, packed(forward.in1)) << "weights";
            EXPECT_EQ(forward.out.lt.strides, channels_last(forward.out));
            call data(kind(1), l, {l.dst, l.weights, l.src});
            data.run();
            EXPECT_EQ(data.in0.lt.strides, channels_last(data.in0));
            EXPECT_EQ(data.out.lt.strides, channels_last(data.out));
            call weights(kind(2), l, {l.src, l.dst, l.weights});
            weights.run();
            EXPECT_EQ(weights.in0.lt.strides, channels_last(weights.in0));
            EXPECT_EQ(weights.in1.lt.strides, channels_last(weights.in1));
            EXPECT_EQ(weights.out.lt.strides, packed(weights.out));
        }
}

TEST(LayoutsClient, OpenOnesFollowTheGivenOne) {
    const layer l = make_layer(false, 2, "NCX", "OIX", 1, "None");
    call planes = forward_of(l);
    planes.open0 = false;
    planes.run();
    EXPECT_EQ(planes.out.lt.strides, packed(planes.out));

    call to_planes = forward_of(l);
    to_planes.open_out = false;
    to_planes.run();
    EXPECT_EQ(to_planes.in0.lt.strides, packed(to_planes.in0));

    call last = forward_of(l);
    last.open0 = false;
    last.in0 = operand(0, data_type::f32, l.src, strides_with_inner(l.src, 1));
    last.run();
    EXPECT_EQ(last.out.lt.strides, channels_last(last.out));
}

TEST(LayoutsClient, PackedIsChannelsLastInNxc) {
    const layer l = make_layer(false, 2, "NXC", "XIO", 1, "None");
    call forward = forward_of(l);
    forward.run();
    EXPECT_EQ(forward.in0.lt.strides, packed(forward.in0));
    EXPECT_EQ(forward.out.lt.strides, packed(forward.out));
}

TEST(LayoutsClient, NothingIsOpenInATensorOfOneChannelOrOfNone) {
    layer l = make_layer(false, 2, "NCX", "OIX", 1, "None");
    l.src[1] = l.weights[1] = 1;
    call one = forward_of(l);
    one.open0 = false;  // any order, and none
    one.run();
    EXPECT_EQ(one.out.lt.strides, channels_last(one.out));
    l.src[0] = l.dst[0] = 0;
    call empty = forward_of(l);
    empty.run();
}

/// Convolution + Add with the layouts as they are left or given.
struct sum_call {
    layer l = make_layer(false, 2, "NCX", "OIX", 1, "None");
    operand src{0, data_type::f32, l.src}, weights{1, data_type::f32, l.weights},
        sum{2, data_type::f32, l.dst}, added{3, data_type::f32, l.dst},
        dst{4, data_type::f32, l.dst};

    [[nodiscard]] dg::compiled_partition compile(bool added_is_open) const {
        dg::op conv = make_op(7, op_kind::convolution, l.attrs);
        conv.add_inputs({src.described(), weights.described()});
        conv.add_output(sum.described());
        dg::op add(8, dg::op::kind::Add, "add");
        add.add_inputs({sum.described(), added.described()});
        add.add_output(dst.described());
        return partitions_of({conv, add})
            .at(0)
            .compile({left_open(src), left_open(weights),
                         added_is_open ? left_open(added) : added.described()},
                {left_open(dst)}, cpu_engine());
    }
};

TEST(LayoutsClient, TheTensorToAddFollows) {
    const sum_call s;
    const auto open = s.compile(true);
    EXPECT_EQ(open.query_logical_tensor(3).get_strides(), channels_last(s.added));
    EXPECT_EQ(open.query_logical_tensor(4).get_strides(), channels_last(s.dst));
    EXPECT_EQ(open.get_inplace_ports().size(), 1U);
    // As with oneDNN: one in planes does not keep the result from being channels last, and cannot
    // be replaced by it.
    const auto given = s.compile(false);
    EXPECT_EQ(given.query_logical_tensor(4).get_strides(), channels_last(s.dst));
    EXPECT_TRUE(given.get_inplace_ports().empty());
}

}  // namespace
}  // namespace convgrad::test
