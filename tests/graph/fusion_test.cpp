// Graphs with BiasAdd, Add and ReLU behind convolutions, and gradients with their bias gradient:
// what runs as one, and that it computes the same.
#include "graph/helpers.hpp"

namespace convgrad::test {
namespace {

const stream &queue() {
    static const stream made{default_engine()};
    return made;
}

/// A layer's tensors, and the ops behind it.
struct chain {
    layer l;
    buffer bias{{4}, 5}, added{{2, 5, 5, 4}, 6};

    enum id : std::size_t {
        src,
        weights,
        bias_id,
        added_id,
        conv_out,
        bias_out,
        add_out,
        relu_out
    };

    [[nodiscard]] op conv() const {
        return padded(1, op_kind::convolution, "conv")
            .add_input(l.src.described(src))
            .add_input(l.weights.described(weights))
            .add_output(f32(conv_out));
    }
    [[nodiscard]] op bias_add(std::size_t from) const {
        return op(2, op_kind::bias_add, "bias")
            .set("data_format", "NXC")
            .add_input(f32(from))
            .add_input(bias.described(bias_id))
            .add_output(f32(bias_out));
    }
    [[nodiscard]] op add(std::size_t from) const {
        return op(3, op_kind::add, "sum")
            .add_input(f32(from))
            .add_input(added.described(added_id))
            .add_output(f32(add_out));
    }
    static op relu(std::size_t from) {
        return op(4, op_kind::relu, "relu").add_input(f32(from)).add_output(f32(relu_out));
    }
};

std::vector<partition> partitions_of(std::initializer_list<op> ops) {
    graph g;
    for (const op &node : ops) g.add(node);
    g.finalize();
    return g.partitions();
}

using ids = std::vector<std::size_t>;

TEST(fusion, every_chain_is_one_partition_and_computes_as_one_call) {
    for (int bits = 0; bits < 8; ++bits) {
        SCOPED_TRACE(bits);
        const chain c;
        const bool with_bias = (bits & 1) != 0, with_add = (bits & 2) != 0,
                   with_relu = (bits & 4) != 0;
        graph g;
        ids members{1};
        std::size_t last = chain::conv_out;
        std::vector<tensor> inputs{c.l.src.view(), c.l.weights.view()};
        g.add(c.conv());
        if (with_bias) g.add(c.bias_add(last)), last = chain::bias_out, members.push_back(2);
        if (with_add) g.add(c.add(last)), last = chain::add_out, members.push_back(3);
        if (with_relu) g.add(chain::relu(last)), last = chain::relu_out, members.push_back(4);
        if (with_bias) inputs.push_back(c.bias.view());
        if (with_add) inputs.push_back(c.added.view());
        g.finalize();
        ASSERT_EQ(g.partitions().size(), 1u);
        const partition p = g.partitions()[0];
        EXPECT_TRUE(p.is_supported());
        EXPECT_EQ(p.ops(), members);
        ASSERT_EQ(p.outputs().size(), 1u);
        EXPECT_EQ(p.outputs()[0].id, last);
        EXPECT_EQ(p.outputs()[0].shape, (dims{2, 5, 5, 4}));
        ASSERT_EQ(p.inputs().size(), inputs.size());

        buffer out({2, 5, 5, 4}, 9), expected({2, 5, 5, 4}, 8);
        p.compile().execute(queue(), inputs, {{out.view()}});
        const tensor added = c.added.view();
        convolution(c.l.src.view(), c.l.weights.view(), with_bias ? c.bias.view() : tensor{},
            expected.view(), c.l.attrs, {.relu = with_relu, .add = with_add ? &added : nullptr});
        EXPECT_EQ(out.values(), expected.values());
    }
}

TEST(fusion, the_tensor_to_add_is_broadcast) {
    for (const dims &shape : {dims{4}, {1}, {5, 1}, {5, 5, 4}, {2, 1, 1, 4}, {2, 5, 5, 1},
             {1, 5, 1, 4}, {1, 1, 1, 1}, {2, 1, 5, 1}}) {
        SCOPED_TRACE(testing::PrintToString(shape));
        chain c;
        c.added = buffer(shape, 6);
        const auto made =
            partitions_of({c.conv(), c.add(chain::conv_out), chain::relu(chain::add_out)});
        ASSERT_EQ(made.size(), 1u);
        buffer out({2, 5, 5, 4}), expected({2, 5, 5, 4}), large({2, 5, 5, 4});
        made[0].compile().execute(
            queue(), {{c.l.src.view(), c.l.weights.view(), c.added.view()}}, {{out.view()}});
        const dims whole{2, 5, 5, 4};
        for (std::size_t i = 0; i < large.values().size(); ++i) {
            std::size_t rest = i, from = 0, step = 1;
            for (std::size_t d = 4; d-- > 0; rest /= static_cast<std::size_t>(whole[d])) {
                if (d + shape.size() < 4) continue;
                const dim size = shape[d + shape.size() - 4];
                if (size != 1) from += rest % static_cast<std::size_t>(whole[d]) * step;
                step *= static_cast<std::size_t>(size);
            }
            large.values()[i] = c.added.values()[from];
        }
        const tensor added = large.view();
        convolution(c.l.src.view(), c.l.weights.view(), {}, expected.view(), c.l.attrs,
            {.relu = true, .add = &added});
        EXPECT_EQ(out.values(), expected.values());
    }
    // A small tensor in the place of the result would be overwritten while it is read.
    chain c;
    c.added = buffer({4}, 6);
    const compiled_partition ready = partitions_of({c.conv(), c.add(chain::conv_out)})[0].compile();
    buffer out({2, 5, 5, 4});
    expect_error(error_code::invalid_argument, {"must not overlap"}, [&] {
        ready.execute(queue(),
            {{c.l.src.view(), c.l.weights.view(), tensor{out.values().data(), {4}}}},
            {{out.view()}});
    });
}

TEST(fusion, what_has_no_place_is_not_supported_and_says_so) {
    const chain c;
    // Alone, behind a gradient, in the wrong order, and where another op reads the result too.
    const auto alone = partitions_of(
        {op(4, op_kind::relu, "lonely").add_input(f32(0, {2, 3})).add_output(f32(1))});
    ASSERT_EQ(alone.size(), 1u);
    EXPECT_FALSE(alone[0].is_supported());
    EXPECT_EQ(alone[0].outputs()[0].shape, (dims{2, 3}));
    expect_error(error_code::unsupported,
        {"4 (ReLU \"lonely\")", "behind a Convolution or ConvTranspose", "nothing else reads"},
        [&] { (void)alone[0].compile(); });

    const auto late =
        partitions_of({c.conv(), chain::relu(chain::conv_out), c.add(chain::relu_out)});
    ASSERT_EQ(late.size(), 2u);
    EXPECT_EQ(late[0].ops(), (ids{1, 4}));
    EXPECT_TRUE(late[0].is_supported());
    EXPECT_EQ(late[1].ops(), (ids{3}));
    EXPECT_FALSE(late[1].is_supported());

    const auto shared =
        partitions_of({c.conv(), chain::relu(chain::conv_out), c.add(chain::conv_out)});
    ASSERT_EQ(shared.size(), 3u);
    EXPECT_TRUE(shared[0].is_supported());
    EXPECT_FALSE(shared[1].is_supported());
    EXPECT_FALSE(shared[2].is_supported());

    // The other tensor is the larger one.
    chain small;
    small.added = buffer({3, 2, 5, 5, 4}, 6);
    EXPECT_EQ(partitions_of({small.conv(), small.add(chain::conv_out)}).size(), 2u);
    // A bias along another axis.
    op other = c.bias_add(chain::conv_out);
    other.set("data_format", "NCX");
    expect_error(error_code::invalid_shape, {"bias has 4 elements", "5 channels"}, [&] {
        partitions_of({c.conv(), other});
    });
}

TEST(fusion, a_sum_of_two_convolutions_runs_in_one_of_them) {
    const chain c;
    op second = padded(7, op_kind::convolution)
                    .add_input(c.l.src.described(chain::src))
                    .add_input(c.l.weights.described(chain::weights))
                    .add_output(f32(20));
    op sum =
        op(3, op_kind::add).add_input(f32(chain::conv_out)).add_input(f32(20)).add_output(f32(21));
    const auto made = partitions_of({c.conv(), second, sum});
    ASSERT_EQ(made.size(), 2u);
    EXPECT_EQ(made[0].ops(), (ids{7}));
    EXPECT_EQ(made[1].ops(), (ids{1, 3}));
    buffer between({2, 5, 5, 4}), out({2, 5, 5, 4});
    made[0].compile().execute(queue(), {{c.l.src.view(), c.l.weights.view()}}, {{between.view()}});
    made[1].compile().execute(
        queue(), {{c.l.src.view(), c.l.weights.view(), between.view()}}, {{out.view()}});
    for (std::size_t i = 0; i < out.values().size(); ++i)
        ASSERT_EQ(out.values()[i], 2 * between.values()[i]);
}

TEST(fusion, three_gradients_of_a_layer_are_one_partition) {
    const layer l;
    const op data = padded(1, op_kind::convolution_backward_data)
                        .add_input(l.diff_dst.described(0))
                        .add_input(l.weights.described(1))
                        .add_output(l.src.described(2));
    const op weights = padded(2, op_kind::convolution_backward_weights)
                           .add_input(l.src.described(3))
                           .add_input(l.diff_dst.described(0))
                           .add_output(l.weights.described(4));
    const op bias =
        op(3, op_kind::bias_add_backward).add_input(l.diff_dst.described(0)).add_output(f32(5));
    for (const auto &order : {std::vector<op>{data, weights, bias}, {bias, weights, data}}) {
        graph g;
        for (const op &node : order) g.add(node);
        g.finalize();
        ASSERT_EQ(g.partitions().size(), 1u);
        const partition p = g.partitions()[0];
        const compiled_partition ready =
            p.compile({{f32(0), f32(1), f32(3)}}, {{f32(2), f32(4), f32(5)}});
        buffer diff_src(l.src.shape()), diff_weights(l.weights.shape()), diff_bias({4}),
            expected({4});
        ready.execute(queue(), {{l.diff_dst.view(), l.weights.view(), l.src.view()}},
            {{diff_src.view(), diff_weights.view(), diff_bias.view()}});
        bias_add_backward(l.diff_dst.view(), expected.view());
        EXPECT_EQ(diff_src.values(), l.diff_src());
        EXPECT_EQ(diff_weights.values(), l.diff_weights());
        EXPECT_EQ(diff_bias.values(), expected.values());
    }
    // One that adds up does not go with one that overwrites.
    op adding = bias;
    adding.set("accumulate", 1);
    EXPECT_EQ(partitions_of({data, weights, adding}).size(), 2u);
}

TEST(fusion, partners_are_told_by_pads_only_where_pads_count) {
    const layer l;
    op data = padded(1, op_kind::convolution_backward_data)
                  .add_input(l.diff_dst.described(0))
                  .add_input(l.weights.described(1))
                  .add_output(l.src.described(2));
    op weights = padded(2, op_kind::convolution_backward_weights)
                     .add_input(l.src.described(3))
                     .add_input(l.diff_dst.described(0))
                     .add_output(l.weights.described(4));
    EXPECT_EQ(partitions_of({data, weights}).size(), 1u);
    // Automatic padding ignores what the lists say.
    data.set("auto_pad", "same_upper").set("pads_begin", dims{0, 0});
    weights.set("auto_pad", "SAME_UPPER");
    EXPECT_EQ(partitions_of({data, weights}).size(), 1u);
    weights.set("auto_pad", "same_lower");
    EXPECT_EQ(partitions_of({data, weights}).size(), 2u);
}

}  // namespace
}  // namespace convgrad::test
