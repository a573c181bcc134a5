// Compiling: tensors by id, unknown shapes, shape inputs, both gradients as one partition.
#include "graph/helpers.hpp"

namespace convgrad::test {
namespace {

using enum error_code;

partition only_partition(const op &node) {
    graph g;
    g.add(node).finalize();
    return g.partitions().at(0);
}

partition forward_partition() {
    op node = padded(1, op_kind::convolution, "conv");
    node.add_input(f32(10, {unknown_dim, 5, 5, 3})).add_input(f32(11, {3, 3, 3, 4}));
    node.add_output(f32(12));
    return only_partition(node);
}

std::vector<float> run(
    const compiled_partition &compiled, std::vector<const_tensor> inputs, dims shape) {
    buffer out = buffer::filled(std::move(shape), 99.0F);
    compiled.execute(stream(), inputs, {out.view()});
    return out.values();
}

TEST(compile, keeps_the_order_of_the_call) {
    const layer l;
    buffer expected({2, 5, 5, 4});
    convolution(l.src.view(), l.weights.view(), {}, expected.view(), l.attrs);
    const partition p = forward_partition();
    const compiled_partition forth = p.compile({f32(10, {2, 5, 5, 3}), f32(11)}, {f32(12)});
    EXPECT_EQ(run(forth, {l.src.view(), l.weights.view()}, {2, 5, 5, 4}), expected.values());
    const compiled_partition back = p.compile({f32(11), f32(10, {2, 5, 5, 3})}, {});
    EXPECT_EQ(back.inputs()[0].id, 11U);
    EXPECT_EQ(run(back, {l.weights.view(), l.src.view()}, {2, 5, 5, 4}), expected.values());
    // Tensors left out follow those given.
    const compiled_partition part = p.compile({f32(10, {2, 5, 5, 3})}, {});
    EXPECT_EQ(part.inputs()[1].id, 11U);
    EXPECT_EQ(run(part, {l.src.view(), l.weights.view()}, {2, 5, 5, 4}), expected.values());
}

TEST(compile, tells_what_it_inferred) {
    const compiled_partition c = forward_partition().compile({f32(10, {2, 5, 5, 3})}, {});
    EXPECT_EQ(c.query(12).shape, (dims{2, 5, 5, 4}));
    EXPECT_EQ(c.query(10).shape, (dims{2, 5, 5, 3}));
    EXPECT_EQ(c.outputs()[0], c.query(12));
    EXPECT_NE(c.describe().find("Convolution \"conv\": "), std::string::npos) << c.describe();
    expect_error(
        invalid_argument, {"id 99", "10, 11, 12"}, [&] { static_cast<void>(c.query(99)); });
}

TEST(compile, serves_many_shapes_from_one_partition) {
    const partition p = forward_partition();
    for (dim n : {0, 1, 3})
        EXPECT_EQ(
            p.compile({f32(10, {n, 5, 5, 3})}, {f32(12)}).query(12).shape, (dims{n, 5, 5, 4}));
    // What is given replaces what the graph knew.
    EXPECT_EQ(p.compile({f32(10, {2, 8, 9, 3})}, {}).query(12).shape, (dims{2, 8, 9, 4}));
}

TEST(compile, needs_the_shapes_of_inputs) {
    const partition p = forward_partition();
    expect_error(invalid_shape, {"Convolution \"conv\"", "input 0 (src, id 10)", "[?, 5, 5, 3]"},
        [&] { static_cast<void>(p.compile()); });
    expect_error(invalid_shape, {"input 0"}, [&] { static_cast<void>(p.compile({f32(10)}, {})); });
}

TEST(compile, refuses_tensors_that_are_not_its_own) {
    const partition p = forward_partition();
    expect_error(
        invalid_argument, {"1 (Convolution \"conv\")", "tensor 7", "inputs (10, 11)"}, [&] {
            static_cast<void>(p.compile({f32(7, {2, 5, 5, 3})}, {}));
        });
    expect_error(invalid_argument, {"tensor 10", "outputs (12)"},
        [&] { static_cast<void>(p.compile({}, {f32(10)})); });
    expect_error(invalid_argument, {"input 10", "twice"}, [&] {
        static_cast<void>(p.compile({f32(10), f32(10)}, {}));
    });
    expect_error(invalid_argument, {"input 10", "bf16", "f32"}, [&] {
        static_cast<void>(p.compile({{10, data_type::bf16, {2, 5, 5, 3}}}, {}));
    });
}

TEST(compile, refuses_outputs_that_contradict) {
    expect_error(invalid_shape, {"Convolution \"conv\"", "dst", "6"}, [&] {
        static_cast<void>(
            forward_partition().compile({f32(10, {2, 5, 5, 3})}, {f32(12, {2, 6, 5, 4})}));
    });
}

TEST(compile, honours_strides) {
    const layer l;
    buffer expected({2, 5, 5, 4});
    convolution(l.src.view(), l.weights.view(), {}, expected.view(), l.attrs);
    // dst with two more channels per pixel, which must stay as they are.
    const dims strides = {5 * 5 * 6, 5 * 6, 6, 1};
    const compiled_partition c = forward_partition().compile(
        {f32(10, {2, 5, 5, 3})}, {{12, data_type::f32, {2, 5, 5, 4}, strides}});
    buffer wide = buffer::filled({2, 5, 5, 6}, 99.0F);
    c.execute(stream(), {l.src.view(), l.weights.view()},
        {{wide.values().data(), {2, 5, 5, 4}, strides}});
    for (std::size_t pixel = 0; pixel < 50; ++pixel)
        for (std::size_t ch = 0; ch < 6; ++ch)
            EXPECT_EQ(
                wide.values()[pixel * 6 + ch], ch < 4 ? expected.values()[pixel * 4 + ch] : 99.0F);
}

TEST(compile, computes_both_gradients_as_one_partition) {
    const layer l;
    graph g;
    op d = padded(1, op_kind::convolution_backward_data, "dgrad");
    op w = padded(2, op_kind::convolution_backward_weights, "wgrad");
    d.add_input(l.diff_dst.described(0)).add_input(l.weights.described(1)).add_output(f32(2));
    w.add_input(l.src.described(3)).add_input(l.diff_dst.described(0));
    w.add_output(l.weights.described(4)).add_output(f32(5));
    g.add(d).add(w).finalize();
    ASSERT_EQ(g.partitions().size(), 1U);
    const compiled_partition c = g.partitions()[0].compile();
    EXPECT_EQ(c.query(2).shape, l.src.shape());
    EXPECT_EQ(c.query(5).shape, dims{4});
    EXPECT_NE(c.describe().find("dgrad"), std::string::npos);
    EXPECT_NE(c.describe().find("wgrad"), std::string::npos);
    buffer diff_src(l.src.shape()), diff_weights(l.weights.shape()), diff_bias({4});
    c.execute(stream(), {l.diff_dst.view(), l.weights.view(), l.src.view()},
        {diff_src.view(), diff_weights.view(), diff_bias.view()});
    EXPECT_EQ(diff_src.values(), l.diff_src());
    EXPECT_EQ(diff_weights.values(), l.diff_weights());
    float first = 0;
    for (std::size_t i = 0; i < 50; ++i) first += l.diff_dst.values()[i * 4];
    EXPECT_EQ(diff_bias.values()[0], first);
    expect_error(invalid_argument, {"same data pointer"}, [&] {
        c.execute(stream(), {l.diff_dst.view(), l.weights.view(), l.src.view()},
            {l.src.view(), diff_weights.view(), diff_bias.view()});
    });
    expect_error(invalid_argument, {"same data pointer"}, [&] {
        buffer big({2, 5, 5, 4});
        c.execute(stream(), {l.diff_dst.view(), l.weights.view(), l.src.view()},
            {{big.values().data(), l.src.shape()}, {big.values().data(), l.weights.shape()},
                diff_bias.view()});
    });
}

// ---- shape inputs ----

op gradient_with_shape_input(const logical_tensor &shape, const logical_tensor &output) {
    const layer l;
    op node = padded(1, op_kind::convolution_backward_weights, "wgrad");
    node.add_input(l.src.described(0)).add_input(l.diff_dst.described(1)).add_input(shape);
    node.add_output(output);
    return node;
}

const logical_tensor open_shape(9, data_type::s32, {4});

TEST(shape_input, is_used_when_known) {
    const layer l;
    const compiled_partition c =
        only_partition(gradient_with_shape_input(logical_tensor::constant(9, {3, 3, 3, 4}), f32(2)))
            .compile();
    EXPECT_EQ(c.query(2).shape, (dims{3, 3, 3, 4}));
    const std::int32_t same[] = {3, 3, 3, 4}, other[] = {3, 3, 3, 5};
    const tensor unread(static_cast<void *>(nullptr), data_type::s32, {4});
    EXPECT_EQ(run(c, {l.src.view(), l.diff_dst.view(), unread}, {3, 3, 3, 4}), l.diff_weights());
    EXPECT_EQ(
        run(c, {l.src.view(), l.diff_dst.view(), {same, {4}}}, {3, 3, 3, 4}), l.diff_weights());
    expect_error(invalid_argument, {"weights_shape", "[3, 3, 3, 5]", "[3, 3, 3, 4]"}, [&] {
        run(c, {l.src.view(), l.diff_dst.view(), {other, {4}}}, {3, 3, 3, 4});
    });
}

TEST(shape_input, may_be_known_only_at_execution) {
    const layer l;
    const compiled_partition c =
        only_partition(gradient_with_shape_input(open_shape, f32(2))).compile();
    EXPECT_FALSE(c.query(2).is_known());
    EXPECT_NE(c.describe().find("at execution"), std::string::npos) << c.describe();
    const std::int32_t shape[] = {3, 3, 3, 4};
    const auto with = [&](const std::int32_t *value, const dims &out) {
        return run(c, {l.src.view(), l.diff_dst.view(), {value, {4}}}, out);
    };
    EXPECT_EQ(with(shape, {3, 3, 3, 4}), l.diff_weights());
    expect_error(invalid_shape, {"wgrad", "[3, 3, 3, 4]", "[1, 1, 3, 4]"}, [&] {
        with(shape, {1, 1, 3, 4});
    });
    const std::int32_t wrong[] = {3, 3, 7, 4}, negative[] = {3, 3, -3, 4};
    expect_error(invalid_shape, {"wgrad"}, [&] { with(wrong, {3, 3, 7, 4}); });
    expect_error(invalid_shape, {"wgrad"}, [&] { with(negative, {3, 3, 3, 4}); });
    expect_error(invalid_argument, {"weights_shape", "null"}, [&] { with(nullptr, {3, 3, 3, 4}); });
}

TEST(shape_input, at_execution_must_agree_with_a_compiled_output) {
    const layer l;
    const compiled_partition c =
        only_partition(gradient_with_shape_input(open_shape, f32(2, {3, 3, 3, 4}))).compile();
    const std::int32_t right[] = {3, 3, 3, 4}, wrong[] = {1, 3, 3, 4};
    EXPECT_EQ(
        run(c, {l.src.view(), l.diff_dst.view(), {right, {4}}}, {3, 3, 3, 4}), l.diff_weights());
    expect_error(invalid_shape, {"wgrad", "[1, 3, 3, 4]", "[3, 3, 3, 4]"}, [&] {
        run(c, {l.src.view(), l.diff_dst.view(), {wrong, {4}}}, {3, 3, 3, 4});
    });
    expect_error(invalid_argument, {"diff_weights", "[1, 3, 3, 4]"}, [&] {
        run(c, {l.src.view(), l.diff_dst.view(), {wrong, {4}}}, {1, 3, 3, 4});
    });
}

TEST(shape_input, at_execution_overrides_the_attribute) {
    // 6×6 or 5×5 pixels both become 3×3 with stride 2: only the shape input tells.
    op node = padded(1, op_kind::convolution_backward_data, "dgrad");
    node.set("strides", dims{2, 2}).set("dst_shape", dims{1, 5, 5, 2});
    node.add_input(f32(0, {1, 3, 3, 4})).add_input(f32(1, {3, 3, 2, 4})).add_input(open_shape);
    node.add_output(f32(2));
    const compiled_partition c = only_partition(node).compile();
    buffer diff_dst({1, 3, 3, 4}, 1), weights({3, 3, 2, 4}, 2);
    for (std::int32_t size : {5, 6}) {
        const std::int32_t value[] = {1, size, size, 2};
        buffer expected({1, size, size, 2});
        convolution_backward_data(diff_dst.view(), weights.view(), expected.view(),
            {.strides = {2, 2}, .pads_begin = {1, 1}, .pads_end = {1, 1}});
        EXPECT_EQ(run(c, {diff_dst.view(), weights.view(), {value, {4}}}, {1, size, size, 2}),
            expected.values());
    }
}

TEST(shape_input, reaches_the_workspace_of_late_plans) {
    const layer l;
    const compiled_partition c =
        only_partition(gradient_with_shape_input(open_shape, f32(2))).compile();
    const std::int32_t shape[] = {3, 3, 3, 4};
    alignas(64) std::byte given[64];
    buffer out({3, 3, 3, 4});
    c.execute(stream(), {l.src.view(), l.diff_dst.view(), {shape, {4}}}, {out.view()}, given);
    EXPECT_EQ(out.values(), l.diff_weights());
}

// Both gradients of a layer in one call keep the algorithms, and the bits, that they have alone.
TEST(compile, both_gradients_by_winograd_in_turn) {
    const buffer src({2, 14, 13, 64}, 1), weights({3, 3, 64, 64}, 2), diff_dst({2, 14, 13, 64}, 3);
    const attributes attrs{.pads_begin = {1, 1}, .pads_end = {1, 1}};
    const stream on{default_engine()};
    const compiled_partition both = compile_backward(op_kind::convolution,
        {src.described(0), diff_dst.described(1), weights.described(2)},
        {src.described(3), weights.described(4)}, attrs);
    const compiled_partition data = compile(op_kind::convolution_backward_data,
        {diff_dst.described(0), weights.described(1)}, {src.described(2)}, attrs);
    const compiled_partition sums = compile(op_kind::convolution_backward_weights,
        {src.described(0), diff_dst.described(1)}, {weights.described(2)}, attrs);
    EXPECT_EQ(both.describe(), data.describe() + '\n' + sums.describe());
    EXPECT_NE(data.describe().find(": winograd"), std::string::npos) << data.describe();
    EXPECT_NE(sums.describe().find(": winograd"), std::string::npos) << sums.describe();
    EXPECT_EQ(both.workspace_size(), std::max(data.workspace_size(), sums.workspace_size()));

    buffer diff_src = buffer::filled(src.shape(), 99.0F), alone = diff_src;
    buffer diff_weights = buffer::filled(weights.shape(), 99.0F), weights_alone = diff_weights;
    both.execute(
        on, {src.view(), diff_dst.view(), weights.view()}, {diff_src.view(), diff_weights.view()});
    data.execute(on, {diff_dst.view(), weights.view()}, {alone.view()});
    sums.execute(on, {src.view(), diff_dst.view()}, {weights_alone.view()});
    EXPECT_EQ(diff_src.values(), alone.values());
    EXPECT_EQ(diff_weights.values(), weights_alone.values());
}

}  // namespace
}  // namespace convgrad::test
