// Which ops become one partition, and what such partitions compute.
#include "client.hpp"

namespace convgrad::test {
namespace {

dg::op make_other(std::size_t id, dg::op::kind kind, const std::vector<const operand *> &inputs,
    const operand &output) {
    dg::op op(id, kind, "other" + std::to_string(id));
    for (const operand *o : inputs) op.add_input(o->described());
    op.add_output(output.described());
    return op;
}

/// A forward op, and BiasAdd, Add and ReLU behind it as asked for.
struct forward_chain {
    layer l;
    operand src, weights, bias, added;
    std::array<operand, 4> results;  // after the op, BiasAdd, Add, ReLU
    bool bias_input, bias_add, add, relu, add_first = false;

    forward_chain(bool transposed, data_type type, bool bias_input_, bool bias_add_, bool add_,
        bool relu_, const dims &add_shape = {})
        : l(make_layer(transposed, 2, "NCX", transposed ? "IOX" : "OIX", 1, "None")),
          src(0, type, l.src), weights(1, type, l.weights), bias(2, type, {l.channels_out}),
          added(3, type, add_shape.empty() ? l.dst : add_shape), bias_input(bias_input_),
          bias_add(bias_add_), add(add_), relu(relu_) {
        for (std::size_t i = 0; i < results.size(); ++i) results[i] = operand(10 + i, type, l.dst);
        src.fill(1);
        weights.fill(2);
        bias.fill(3);
        added.fill(4);
    }

    [[nodiscard]] op_kind kind() const {
        return l.transposed ? op_kind::conv_transpose : op_kind::convolution;
    }
    /// The ops, and the position of the last result.
    std::pair<std::vector<dg::op>, std::size_t> ops() const {
        dg::op main = make_op(0, kind(), l.attrs);
        main.add_inputs({src.described(), weights.described()});
        if (bias_input) main.add_input(bias.described());
        main.add_output(results[0].described());
        std::vector<dg::op> made = {main};
        std::size_t last = 0;
        if (bias_add) {
            made.push_back(
                make_other(1, dg::op::kind::BiasAdd, {&results[last], &bias}, results[1]));
            made.back().set_attr<std::string>(dg::op::attr::data_format, "NCX");
            last = 1;
        }
        if (add) {
            const operand *mine = &results[last];
            made.push_back(add_first
                               ? make_other(2, dg::op::kind::Add, {&added, mine}, results[2])
                               : make_other(2, dg::op::kind::Add, {mine, &added}, results[2]));
            last = 2;
        }
        if (relu) {
            made.push_back(make_other(3, dg::op::kind::ReLU, {&results[last]}, results[3]));
            last = 3;
        }
        return {made, last};
    }
    [[nodiscard]] std::vector<operand *> inputs() {
        std::vector<operand *> list = {&src, &weights};
        if (bias_input || bias_add) list.push_back(&bias);
        if (add) list.push_back(&added);
        return list;
    }

    void check() {
        const auto [made, last] = ops();
        const auto partitions = partitions_of(made);
        ASSERT_EQ(partitions.size(), 1U);
        ASSERT_TRUE(partitions[0].is_supported());
        EXPECT_EQ(partitions[0].get_ops_num(), made.size());
        EXPECT_EQ(partitions[0].get_input_ports().size(), inputs().size());
        ASSERT_EQ(partitions[0].get_output_ports().size(), 1U);
        EXPECT_EQ(partitions[0].get_output_ports()[0].get_id(), results[last].lt.id);
        operand out = results[last].blank(), expected = results[last].blank();
        run(partitions[0], inputs(), {&out});
        operand large = spread();
        compute_reference(kind(), l.attrs, src, weights, expected,
            {.bias = bias_input || bias_add ? &bias : nullptr,
                .add = add ? &large : nullptr,
                .relu = relu});
        EXPECT_EQ(out.bytes, expected.bytes);
    }

    /// The tensor to add in the result's shape.
    [[nodiscard]] operand spread() const {
        operand large(3, added.lt.type, l.dst);
        const std::size_t size = size_of(large.lt.type);
        const dims &small = *added.lt.shape;
        dims at(l.dst.size(), 0);
        for (std::size_t to = 0; to < large.bytes.size(); to += size) {
            dim from = 0;
            for (std::size_t i = 0; i < small.size(); ++i) {
                const dim place = at[l.dst.size() - small.size() + i];
                from = from * small[i] + (small[i] == 1 ? 0 : place);
            }
            std::memcpy(
                &large.bytes[to], &added.bytes[static_cast<std::size_t>(from) * size], size);
            for (std::size_t i = at.size(); i-- > 0;) {
                if (++at[i] < l.dst[i]) break;
                at[i] = 0;
            }
        }
        return large;
    }
};

TEST(FusionClient, EveryPrefixOfBiasAddAddRelu) {
    for (const bool transposed : {false, true})
        for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
            for (int bits = 0; bits < 16; ++bits) {
                const bool bias_input = (bits & 1) != 0, bias_add = (bits & 2) != 0;
                if (bias_input && bias_add) continue;
                SCOPED_TRACE(std::string(to_string(type)) + " " + std::to_string(bits));
                forward_chain(
                    transposed, type, bias_input, bias_add, (bits & 4) != 0, (bits & 8) != 0)
                    .check();
            }
}

TEST(FusionClient, BiasAddIsInTheFormatOfTheConvolution) {
    forward_chain chain(false, data_type::f32, false, true, false, false);
    auto [made, last] = chain.ops();
    made[1] = make_other(1, dg::op::kind::BiasAdd, {&chain.results[0], &chain.bias},
        chain.results[1]);  // says nothing
    EXPECT_EQ(partitions_of(made).size(), 1U);
    made[1].set_attr<std::string>(dg::op::attr::data_format, "NXC");
    EXPECT_EQ(partitions_of(made).size(), 2U);
}

TEST(FusionClient, AddTakesEitherSide) {
    forward_chain chain(false, data_type::f32, false, false, true, true);
    chain.add_first = true;
    chain.check();
}

TEST(FusionClient, AddIsBroadcast) {
    const dims dst = make_layer(false, 2, "NCX", "OIX", 1, "None").dst;
    for (const data_type type : {data_type::f32, data_type::f16})
        for (const dims &shape : {dims{1, 1, 1, 1}, dims{1, dst[1], 1, 1}, dims{1},
                 dims{dst[2], dst[3]}, dims{dst[0], 1, dst[2], 1}}) {
            forward_chain(false, type, true, false, true, true, shape).check();
            forward_chain(false, type, false, true, true, false, shape).check();
        }
}

TEST(FusionClient, DebugPolicyFusesNothing) {
    const auto [made, last] = forward_chain(false, data_type::f32, false, true, true, true).ops();
    const auto partitions = partitions_of(made, dg::partition::policy::debug);
    ASSERT_EQ(partitions.size(), 4U);
    EXPECT_TRUE(partitions[0].is_supported());
    for (std::size_t i = 1; i < 4; ++i) EXPECT_FALSE(partitions[i].is_supported());
}

TEST(FusionClient, WhatIsReadElsewhereStays) {
    forward_chain chain(false, data_type::f32, false, false, false, true);
    auto [made, last] = chain.ops();
    const operand end_result(50, data_type::f32, chain.l.dst);
    made.push_back(make_other(9, dg::op::kind::Sigmoid, {&chain.results[0]}, end_result));
    const auto partitions = partitions_of(made);
    ASSERT_EQ(partitions.size(), 3U);
    EXPECT_TRUE(partitions[0].is_supported());
    EXPECT_FALSE(partitions[1].is_supported());
    EXPECT_FALSE(partitions[2].is_supported());
}

TEST(FusionClient, OrderCountsForTheChain) {
    // ReLU, then Add: the Add stays outside.
    forward_chain chain(false, data_type::f32, false, false, false, true);
    auto [made, last] = chain.ops();
    const operand sum(50, data_type::f32, chain.l.dst);
    made.push_back(make_other(9, dg::op::kind::Add, {&chain.results[3], &chain.added}, sum));
    const auto partitions = partitions_of(made);
    ASSERT_EQ(partitions.size(), 2U);
    EXPECT_EQ(partitions[0].get_ops_num(), 2U);
    EXPECT_FALSE(partitions[1].is_supported());
}

TEST(FusionClient, AddOfTwoConvolutions) {
    forward_chain first(false, data_type::f32, false, false, true, false);
    auto [made, last] = first.ops();
    // The tensor to add is another convolution's result, which is added to the graph last.
    dg::op other = make_op(7, op_kind::convolution, first.l.attrs);
    operand src(20, data_type::f32, first.l.src), weights(21, data_type::f32, first.l.weights);
    src.fill(5);
    weights.fill(6);
    other.add_inputs({src.described(), weights.described()});
    other.add_output(first.added.described());
    made.push_back(other);
    const auto partitions = partitions_of(made);
    ASSERT_EQ(partitions.size(), 2U);
    EXPECT_EQ(partitions[0].get_ops(), std::vector<std::size_t>{7});
    EXPECT_EQ(partitions[1].get_ops(), (std::vector<std::size_t>{0, 2}));
    operand result = first.results[2].blank(), expected = result.blank();
    run(partitions[0], {&src, &weights}, {&first.added});
    run(partitions[1], {&first.src, &first.weights, &first.added}, {&result});
    compute_reference(op_kind::convolution, first.l.attrs, first.src, first.weights, expected,
        {.add = &first.added});
    EXPECT_EQ(result.bytes, expected.bytes);
}

TEST(FusionClient, ResultMayReplaceTheTensorToAdd) {
    forward_chain chain(false, data_type::f32, true, false, true, true);
    const auto [made, last] = chain.ops();
    const dnnl::engine engine = cpu_engine();
    operand &out = chain.results[last];
    const auto compiled =
        partitions_of(made)[0].compile({chain.src.described(), chain.weights.described(),
                                           chain.bias.described(), chain.added.described()},
            {out.described()}, engine);
    const auto pairs = compiled.get_inplace_ports();
    ASSERT_EQ(pairs.size(), 1U);
    EXPECT_EQ(pairs[0].first, chain.added.lt.id);
    EXPECT_EQ(pairs[0].second, out.lt.id);

    operand expected = out.blank();
    compute_reference(op_kind::convolution, chain.l.attrs, chain.src, chain.weights, expected,
        {.bias = &chain.bias, .add = &chain.added, .relu = true});
    dnnl::stream stream(engine);
    compiled.execute(stream,
        {chain.src.on(engine), chain.weights.on(engine), chain.bias.on(engine),
            chain.added.on(engine)},
        {dg::tensor(out.described(), engine, chain.added.bytes.data())});
    EXPECT_EQ(chain.added.bytes, expected.bytes);
}

/// The gradients of one layer.
struct gradients {
    layer l;
    operand src, diff_dst, weights, diff_src, diff_weights, diff_bias;

    gradients(bool transposed, data_type type)
        : l(make_layer(transposed, 2, "NXC", transposed ? "XOI" : "XIO", 1, "None")),
          src(0, type, l.src), diff_dst(1, type, l.dst), weights(2, type, l.weights),
          diff_src(3, type, l.src), diff_weights(4, type, l.weights),
          diff_bias(5, type, {l.channels_out}) {
        src.fill(1);
        diff_dst.fill(2);
        weights.fill(3);
    }
    [[nodiscard]] op_kind kind(int which) const {
        return static_cast<op_kind>(
            static_cast<int>(l.transposed ? op_kind::conv_transpose : op_kind::convolution)
            + which);
    }
    [[nodiscard]] dg::op data_op() const {
        dg::op op = make_op(1, kind(1), l.attrs);
        if (!l.transposed) op.set_attr<std::vector<int64_t>>(dg::op::attr::dst_shape, l.src);
        op.add_inputs({diff_dst.described(), weights.described()});
        op.add_output(diff_src.described());
        return op;
    }
    [[nodiscard]] dg::op weights_op() const {
        dg::op op = make_op(2, kind(2), l.attrs);
        op.set_attr<std::vector<int64_t>>(dg::op::attr::weights_shape, l.weights);
        op.add_inputs({src.described(), diff_dst.described()});
        op.add_output(diff_weights.described());
        return op;
    }
    [[nodiscard]] dg::op bias_op() const {
        return make_other(3, dg::op::kind::BiasAddBackward, {&diff_dst}, diff_bias);
    }
};

TEST(FusionClient, GradientsThatShareDiffDst) {
    for (const bool transposed : {false, true})
        for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
            for (const bool with_bias : {false, true}) {
                gradients g(transposed, type);
                std::vector<dg::op> ops;
                if (with_bias) ops.push_back(g.bias_op());
                ops.push_back(g.data_op());
                ops.push_back(g.weights_op());
                std::vector<operand *> outputs = {&g.diff_src, &g.diff_weights};
                if (with_bias) outputs.push_back(&g.diff_bias);
                const auto partitions = partitions_of(ops);
                ASSERT_EQ(partitions.size(), 1U);
                ASSERT_TRUE(partitions[0].is_supported());
                EXPECT_EQ(partitions[0].get_output_ports().size(), outputs.size());
                run(partitions[0], {&g.src, &g.diff_dst, &g.weights}, outputs);

                operand diff_src = g.diff_src.blank(), diff_weights = g.diff_weights.blank();
                operand diff_bias = g.diff_bias.blank();
                compute_reference(g.kind(1), g.l.attrs, g.diff_dst, g.weights, diff_src);
                compute_reference(g.kind(2), g.l.attrs, g.src, g.diff_dst, diff_weights,
                    {.diff_bias = with_bias ? &diff_bias : nullptr});
                EXPECT_EQ(g.diff_src.bytes, diff_src.bytes);
                EXPECT_EQ(g.diff_weights.bytes, diff_weights.bytes);
                EXPECT_EQ(g.diff_bias.bytes, diff_bias.bytes);  // zeros without
            }
}

TEST(FusionClient, BiasGradientGoesWithTheWeightsGradientOrAlone) {
    gradients g(false, data_type::f32);
    const auto both = partitions_of({g.weights_op(), g.bias_op()});
    ASSERT_EQ(both.size(), 1U);
    operand expected_weights = g.diff_weights.blank(), expected_bias = g.diff_bias.blank();
    run(both[0], {&g.src, &g.diff_dst}, {&g.diff_bias, &g.diff_weights});
    compute_reference(
        g.kind(2), g.l.attrs, g.src, g.diff_dst, expected_weights, {.diff_bias = &expected_bias});
    EXPECT_EQ(g.diff_bias.bytes, expected_bias.bytes);

    const auto alone = partitions_of({g.data_op(), g.bias_op()});
    ASSERT_EQ(alone.size(), 2U);
    ASSERT_TRUE(alone[1].is_supported());
    g.diff_bias = g.diff_bias.blank();
    run(alone[1], {&g.diff_dst}, {&g.diff_bias});
    EXPECT_EQ(g.diff_bias.bytes, expected_bias.bytes);  // whole numbers: the same in any order
}

TEST(FusionClient, BiasGradientOfPlanes) {
    operand diff_dst(1, data_type::f32, {2, 3, 4, 5}), diff_bias(5, data_type::f32, {3});
    diff_dst.fill(2);
    dg::op op = make_other(3, dg::op::kind::BiasAddBackward, {&diff_dst}, diff_bias);
    op.set_attr<std::string>(dg::op::attr::data_format, "NCX");
    const auto partitions = partitions_of({op});
    ASSERT_EQ(partitions.size(), 1U);
    run(partitions[0], {&diff_dst}, {&diff_bias});
    const auto at = [](const operand &o, std::size_t i) {
        float value = 0;
        std::memcpy(&value, &o.bytes[i * sizeof value], sizeof value);
        return value;
    };
    for (std::size_t c = 0; c < 3; ++c) {
        float sum = 0;
        for (std::size_t x = 0; x < 20; ++x)
            sum += at(diff_dst, c * 20 + x) + at(diff_dst, 60 + c * 20 + x);
        EXPECT_EQ(at(diff_bias, c), sum) << c;
    }
    op.set_attr<std::string>(dg::op::attr::data_format, "NHWC");
    dg::graph graph(dnnl::engine::kind::cpu);
    EXPECT_THROW(graph.add_op(op), dnnl::error);
}

TEST(FusionClient, GradientsThatDependOnEachOtherStayApart) {
    // diff_src becomes, by way of a ReLU, the src of the weights gradient.
    gradients g(false, data_type::f32);
    const auto partitions = partitions_of(
        {g.weights_op(), g.data_op(), make_other(9, dg::op::kind::ReLU, {&g.diff_src}, g.src)});
    ASSERT_EQ(partitions.size(), 3U);
    EXPECT_EQ(partitions[0].get_ops(), std::vector<std::size_t>{1});
    EXPECT_EQ(partitions[1].get_ops(), std::vector<std::size_t>{9});
    EXPECT_EQ(partitions[2].get_ops(), std::vector<std::size_t>{2});
}

TEST(FusionClient, OtherKindsAreReturnedUnsupported) {
    const operand a(0, data_type::f32, {2, 3}), b(1, data_type::f32, {2, 3});
    for (int kind = 0; kind < dnnl_graph_op_last_symbol; ++kind) {
        if (kind >= dnnl_graph_op_convolution
            && kind <= dnnl_graph_op_conv_transpose_backward_weights)
            continue;
        if (kind == dnnl_graph_op_bias_add_backward) continue;
        const auto partitions =
            partitions_of({make_other(0, static_cast<dg::op::kind>(kind), {&a}, b)});
        ASSERT_EQ(partitions.size(), 1U) << kind;
        EXPECT_FALSE(partitions[0].is_supported()) << kind;
        EXPECT_EQ(status_of([&] {
            return partitions[0].compile({a.described()}, {b.described()}, cpu_engine());
        }),
            dnnl_invalid_arguments);
    }
}

}  // namespace
}  // namespace convgrad::test
