// Building graphs: what is refused, what is inferred, which ops run together.
#include "graph/helpers.hpp"

namespace convgrad::test {
namespace {

using enum op_kind;
using enum error_code;

op forward(std::size_t id, std::size_t src, std::size_t weights, std::size_t dst) {
    op node = padded(id, convolution, "layer" + std::to_string(id));
    node.add_input(f32(src)).add_input(f32(weights)).add_output(f32(dst));
    return node;
}

op data_gradient(std::size_t id, std::size_t diff_dst, std::size_t weights, std::size_t diff_src,
    op_kind kind = convolution_backward_data) {
    op node = padded(id, kind);
    node.add_input(f32(diff_dst)).add_input(f32(weights)).add_output(f32(diff_src));
    return node;
}

op weights_gradient(std::size_t id, std::size_t src, std::size_t diff_dst, std::size_t diff_weights,
    op_kind kind = convolution_backward_weights) {
    op node = padded(id, kind);
    node.add_input(f32(src)).add_input(f32(diff_dst)).add_output(f32(diff_weights));
    return node;
}

std::vector<std::vector<std::size_t>> grouped(const std::vector<op> &ops) {
    graph g;
    for (const op &node : ops) g.add(node);
    g.finalize();
    std::vector<std::vector<std::size_t>> ids;
    for (const partition &p : g.partitions()) {
        EXPECT_EQ(p.id(), ids.size());
        EXPECT_TRUE(p.is_supported());
        ids.push_back(p.ops());
    }
    return ids;
}

using groups = std::vector<std::vector<std::size_t>>;

TEST(graph, checks_ops_when_they_are_added) {
    graph g;
    op node = padded(1, convolution, "first");
    expect_error(invalid_op, {"Convolution", "\"first\"", "inputs"}, [&] { g.add(node); });
    g.finalize();
    EXPECT_TRUE(g.partitions().empty());
}

// finalize() refuses the graph for one op; without it, or with another in its place, it is good.
TEST(graph, drops_an_op_that_does_not_fit) {
    graph g;
    g.add(forward(1, 0, 1, 2));
    op bad = padded(2, convolution, "bad");
    bad.add_input(f32(2, {1, 8, 8, 4})).add_input(f32(3, {3, 3, 5, 6})).add_output(f32(4));
    g.add(bad);
    expect_error(invalid_shape, {"\"bad\""}, [&] { g.finalize(); });
    EXPECT_FALSE(g.is_finalized());
    expect_error(invalid_graph, {"op 7", "no op of this id"}, [&] { g.remove(7); });
    g.remove(2).add(forward(2, 2, 3, 4));
    g.finalize();
    EXPECT_EQ(g.partitions().size(), 2U);
    expect_error(invalid_graph, {"op 1", "finalized"}, [&] { g.remove(1); });
}

// What finalizing cannot know, compiling may be told.
TEST(graph, a_length_that_does_not_follow_is_given_when_compiling) {
    op node(1, convolution_backward_data);
    node.set("strides", dims{5}).set("dilations", dims{1});
    node.set("pads_begin", dims{2}).set("pads_end", dims{2});
    node.add_input(f32(0, {1, 1, 1})).add_input(f32(1, {2, 1, 1})).add_output(f32(2));
    graph g;
    g.add(node);
    g.finalize();
    const partition part = g.partitions()[0];
    expect_error(
        invalid_shape, {"diff_src", "negative"}, [&] { static_cast<void>(part.compile()); });
    const logical_tensor output = f32(2, {1, 1, 1});
    const compiled_partition compiled = part.compile(part.inputs(), {&output, 1});
    const float diff_dst[] = {3}, weights[] = {5, 7};
    float diff_src[] = {9};
    const const_tensor in[] = {{diff_dst, {1, 1, 1}}, {weights, {2, 1, 1}}};
    const tensor out[] = {{diff_src, {1, 1, 1}}};
    compiled.execute(stream(), in, out);
    EXPECT_EQ(diff_src[0], 0);  // the taps lie in the padding
}

TEST(graph, refuses_two_ops_with_one_id) {
    graph g;
    g.add(forward(1, 0, 1, 2));
    expect_error(invalid_graph, {"1 (Convolution \"layer1\")", "same id"},
        [&] { g.add(forward(1, 2, 3, 4)); });
}

TEST(graph, refuses_change_after_finalizing) {
    graph g;
    EXPECT_FALSE(g.is_finalized());
    expect_error(invalid_graph, {"finalize()"}, [&] { static_cast<void>(g.partitions()); });
    g.add(forward(1, 0, 1, 2)).finalize();
    EXPECT_TRUE(g.is_finalized());
    expect_error(invalid_graph, {"2 (Convolution \"layer2\")", "finalized"},
        [&] { g.add(forward(2, 2, 3, 4)); });
    g.finalize();
    EXPECT_EQ(g.partitions().size(), 1U);
}

TEST(graph, refuses_one_tensor_described_in_two_ways) {
    const auto described = [](const logical_tensor &a, const logical_tensor &b) {
        graph g;
        op first = padded(1, convolution, "a"), second = padded(2, convolution, "b");
        first.add_input(f32(0)).add_input(f32(1)).add_output(a);
        second.add_input(b).add_input(f32(3)).add_output(f32(4));
        g.add(first).add(second).finalize();
    };
    const auto refused = [&](const logical_tensor &a, const logical_tensor &b,
                             std::initializer_list<std::string_view> parts) {
        expect_error(invalid_graph, {"tensor 2", "two ways", "1 (Convolution \"a\")", "\"b\""},
            [&] { described(a, b); });
        expect_error(invalid_graph, parts, [&] { described(a, b); });
    };
    refused(f32(2, {1, 5, 5, 4}), f32(2, {1, 5, 6, 4}), {"[1, 5, 5, 4]", "[1, 5, 6, 4]"});
    refused(f32(2, {1, 5, 5, 4}), f32(2, {1, 5, 4}), {"[1, 5, 4]"});
    refused(f32(2, {1, 5, 5, 4}), {2, data_type::f32, {1, 5, 5, 4}, {200, 40, 8, 1}},
        {"strides [200, 40, 8, 1]"});
    // What says less, or the same in other words, is no contradiction.
    described(f32(2, {1, 5, 5, 4}), f32(2));
    described(f32(2, {unknown_dim, 5, 5, 4}), f32(2, {1, 5, 5, unknown_dim}));
    described(f32(2, {1, 5, 5, 4}), {2, data_type::f32, {1, 5, 5, 4}, {7, 20, 4, 1}});
    described({2, data_type::f32, {1, 5, 5, 4}, {200, 40, 8, 1}}, f32(2));
}

TEST(graph, refuses_types_and_constants_that_differ) {
    graph g;
    op a = padded(1, convolution_backward_data, "a"), b = padded(2, convolution_backward_data, "b");
    a.add_input(f32(0)).add_input(f32(1)).add_input(logical_tensor::constant(9, {1, 5, 5, 3}));
    b.add_input(f32(2)).add_input(f32(3)).add_input(logical_tensor::constant(9, {1, 5, 6, 3}));
    a.add_output(f32(4));
    b.add_output(f32(5));
    g.add(a).add(b);
    expect_error(invalid_graph, {"tensor 9", "[1, 5, 6, 3]"}, [&] { g.finalize(); });

    graph h;
    op c = padded(3, convolution, "c");
    c.add_input({4, data_type::bf16})
        .add_input({7, data_type::bf16})
        .add_output({8, data_type::bf16});
    h.add(data_gradient(1, 0, 1, 4)).add(c);
    expect_error(invalid_graph, {"tensor 4", "f32", "bf16"}, [&] { h.finalize(); });
}

TEST(graph, refuses_two_producers) {
    graph g;
    g.add(forward(1, 0, 1, 2)).add(forward(5, 3, 1, 2));
    expect_error(invalid_graph,
        {"tensor 2", "two producers", "1 (Convolution \"layer1\")", "5 (Convolution \"layer5\")"},
        [&] { g.finalize(); });
}

TEST(graph, refuses_cycles_and_names_them) {
    graph g;
    g.add(forward(1, 0, 9, 1)).add(forward(2, 1, 9, 2)).add(forward(3, 2, 9, 0));
    g.add(forward(4, 2, 9, 7));  // behind the cycle, not on it
    expect_error(invalid_graph, {"cycle", "\"layer1\"", "\"layer2\"", "\"layer3\"", "tensors"},
        [&] { g.finalize(); });
    try {
        g.finalize();
    } catch (const error &e) {
        EXPECT_EQ(std::string(e.what()).find("layer4"), std::string::npos) << e.what();
    }
    graph own;
    own.add(forward(1, 0, 1, 0));
    expect_error(invalid_graph, {"cycle", "tensors 0"}, [&] { own.finalize(); });
}

TEST(graph, infers_shapes_from_op_to_op) {
    graph g;
    op a = padded(1, convolution), b = padded(2, convolution);
    a.set("strides", dims{2, 2});
    a.add_input(f32(0, {2, 9, 9, 3})).add_input(f32(1, {3, 3, 3, 8})).add_output(f32(2));
    b.add_input(f32(2)).add_input(f32(3, {3, 3, 8, 4})).add_output(f32(4));
    g.add(b).add(a).finalize();
    const std::vector<partition> parts = g.partitions();
    EXPECT_EQ(parts[0].ops(), std::vector<std::size_t>{1});
    EXPECT_EQ(parts[0].outputs()[0].shape, (dims{2, 5, 5, 8}));
    EXPECT_EQ(parts[1].inputs()[0].shape, (dims{2, 5, 5, 8}));
    EXPECT_EQ(parts[1].outputs()[0].shape, (dims{2, 5, 5, 4}));
}

TEST(graph, reports_shapes_that_do_not_fit_and_stays_open) {
    graph g;
    op a = padded(1, convolution, "a");
    a.add_input(f32(0, {2, 9, 9, 3})).add_input(f32(1, {3, 3, 4, 8})).add_output(f32(2));
    g.add(a);
    expect_error(invalid_shape, {"Convolution \"a\""}, [&] { g.finalize(); });
    EXPECT_FALSE(g.is_finalized());
}

TEST(graph, moved_from_graph_is_empty) {
    graph g;
    g.add(forward(1, 0, 1, 2));
    graph h = std::move(g);
    h.finalize();
    EXPECT_EQ(h.partitions().size(), 1U);
    g.add(forward(1, 0, 1, 2)).finalize();  // NOLINT(bugprone-use-after-move): what is tested
    EXPECT_EQ(g.partitions().size(), 1U);
}

TEST(partitions, come_in_topological_order) {
    EXPECT_EQ(grouped({forward(3, 2, 9, 3), forward(2, 1, 9, 2), forward(1, 0, 9, 1),
                  forward(4, 0, 9, 4)}),
        (groups{{1}, {2}, {3}, {4}}));
}

TEST(partitions, join_gradients_that_share_diff_dst) {
    EXPECT_EQ(grouped({data_gradient(1, 0, 1, 2), weights_gradient(2, 3, 0, 4)}), (groups{{1, 2}}));
    EXPECT_EQ(grouped({weights_gradient(2, 3, 0, 4), data_gradient(1, 0, 1, 2)}), (groups{{2, 1}}));
    EXPECT_EQ(grouped({data_gradient(1, 0, 1, 2, conv_transpose_backward_data),
                  weights_gradient(2, 3, 0, 4, conv_transpose_backward_weights)}),
        (groups{{1, 2}}));
}

TEST(partitions, keep_apart_what_is_not_one_layer) {
    // Another diff_dst, another family, other attributes.
    EXPECT_EQ(
        grouped({data_gradient(1, 0, 1, 2), weights_gradient(2, 3, 9, 4)}), (groups{{1}, {2}}));
    EXPECT_EQ(grouped({data_gradient(1, 0, 1, 2),
                  weights_gradient(2, 3, 0, 4, conv_transpose_backward_weights)}),
        (groups{{1}, {2}}));
    for (const char *attribute : {"strides", "dilations", "pads_begin", "pads_end"}) {
        op w = weights_gradient(2, 3, 0, 4);
        w.set(attribute, dims{3, 1});
        EXPECT_EQ(grouped({data_gradient(1, 0, 1, 2), w}), (groups{{1}, {2}})) << attribute;
    }
    op grouped_weights = weights_gradient(2, 3, 0, 4), other_format = weights_gradient(2, 3, 0, 4);
    grouped_weights.set("groups", 2);
    other_format.set("weights_format", "OIX");
    EXPECT_EQ(grouped({data_gradient(1, 0, 1, 2), grouped_weights}), (groups{{1}, {2}}));
    EXPECT_EQ(grouped({data_gradient(1, 0, 1, 2), other_format}), (groups{{1}, {2}}));
}

TEST(partitions, ignore_pads_that_auto_pad_overrides) {
    op d = data_gradient(1, 0, 1, 2), w = weights_gradient(2, 3, 0, 4);
    d.set("auto_pad", "SAME_UPPER").set("pads_begin", dims{7, 7});
    w.set("auto_pad", "same_upper");
    EXPECT_EQ(grouped({d, w}), (groups{{1, 2}}));
    d.set("output_padding", dims{0, 0});
    EXPECT_EQ(grouped({d, w}), (groups{{1, 2}}));
}

TEST(partitions, pair_each_op_once) {
    EXPECT_EQ(grouped({data_gradient(1, 0, 1, 2), weights_gradient(2, 3, 0, 4),
                  weights_gradient(3, 5, 0, 6), data_gradient(4, 0, 1, 7)}),
        (groups{{1, 2}, {3, 4}}));
}

TEST(partitions, do_not_join_across_a_dependency) {
    // The weights gradient reads what the data gradient writes, directly or through another op.
    EXPECT_EQ(
        grouped({data_gradient(1, 0, 1, 2), weights_gradient(2, 2, 0, 4)}), (groups{{1}, {2}}));
    EXPECT_EQ(
        grouped({data_gradient(1, 0, 1, 2), weights_gradient(3, 5, 0, 4), forward(2, 2, 9, 5)}),
        (groups{{1}, {2}, {3}}));
    // Two pairs, each harmless alone: op 1 feeds op 3, op 4 feeds op 2. Joining both is a cycle.
    EXPECT_EQ(grouped({data_gradient(1, 0, 1, 10), weights_gradient(2, 20, 0, 11),
                          data_gradient(3, 5, 10, 12), weights_gradient(4, 6, 5, 20)})
                  .size(),
        3U);
}

TEST(partitions, list_each_tensor_once) {
    graph g;
    g.add(data_gradient(1, 0, 1, 2)).add(weights_gradient(2, 3, 0, 4)).finalize();
    const partition p = g.partitions()[0];
    ASSERT_EQ(p.inputs().size(), 3U);
    EXPECT_EQ(p.inputs()[0].id, 0U);
    EXPECT_EQ(p.inputs()[1].id, 1U);
    EXPECT_EQ(p.inputs()[2].id, 3U);
    ASSERT_EQ(p.outputs().size(), 2U);
    EXPECT_EQ(p.outputs()[0].id, 2U);
    EXPECT_EQ(p.outputs()[1].id, 4U);
}

}  // namespace
}  // namespace convgrad::test
