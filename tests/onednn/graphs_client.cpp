// The same graphs through both front ends, the library's own graphs and the drop-in: the same
// partitions.
#include <algorithm>

#include <convgrad/graph.hpp>

#include "client.hpp"

namespace convgrad::test {
namespace {

using test::to_client;  // of types, beside those for tensors and ops

dg::op::attr attribute_of(std::string_view name) {
    using enum dg::op::attr;
    static const std::pair<std::string_view, dg::op::attr> all[] = {{"strides", strides},
        {"dilations", dilations}, {"pads_begin", pads_begin}, {"pads_end", pads_end},
        {"auto_pad", auto_pad}, {"output_padding", output_padding}, {"data_format", data_format},
        {"weights_format", weights_format}, {"groups", groups}, {"auto_broadcast", auto_broadcast},
        {"weights_shape", weights_shape}};
    for (const auto &[known, attribute] : all)
        if (name == known) return attribute;
    throw std::logic_error("no attribute " + std::string(name));
}

dg::logical_tensor to_client(const logical_tensor &lt) {
    if (!lt.shape) return {lt.id, to_client(lt.type), lt_layout::strided};
    return {lt.id, to_client(lt.type), *lt.shape, lt_layout::strided};
}

dg::op to_client(const op &node) {
    dg::op made(node.id(), static_cast<dg::op::kind>(node.kind()), node.name());
    for (const auto &[name, value] : node.attributes()) {
        const dg::op::attr attribute = attribute_of(name);
        if (const auto *list = std::get_if<dims>(&value))
            made.set_attr<std::vector<int64_t>>(attribute, *list);
        if (const auto *text = std::get_if<std::string>(&value))
            made.set_attr<std::string>(attribute, *text);
        if (const auto *number = std::get_if<std::int64_t>(&value))
            made.set_attr<int64_t>(attribute, *number);
    }
    for (const logical_tensor &lt : node.inputs()) made.add_input(to_client(lt));
    for (const logical_tensor &lt : node.outputs()) made.add_output(to_client(lt));
    return made;
}

/// What a front end says about one partition.
struct summary {
    std::vector<std::size_t> ops, inputs, outputs;
    bool supported;
    friend bool operator==(const summary &, const summary &) = default;
};

std::string to_text(const std::vector<summary> &all) {
    std::string text;
    const auto put = [&](const std::vector<std::size_t> &list) {
        for (const std::size_t id : list) text += " " + std::to_string(id);
    };
    for (const summary &s : all) {
        text += "[";
        put(s.ops);
        text += " |";
        put(s.inputs);
        text += " >";
        put(s.outputs);
        text += s.supported ? " ] " : " ]! ";
    }
    return text;
}

std::vector<summary> by_library(const std::vector<op> &ops) {
    graph g;
    for (const op &node : ops) g.add(node);
    g.finalize();
    std::vector<summary> all;
    for (const partition &p : g.partitions()) {
        summary s{p.ops(), {}, {}, p.is_supported()};
        for (const logical_tensor &lt : p.inputs()) s.inputs.push_back(lt.id);
        for (const logical_tensor &lt : p.outputs()) s.outputs.push_back(lt.id);
        all.push_back(std::move(s));
    }
    return all;
}

std::vector<summary> by_client(const std::vector<op> &ops) {
    std::vector<dg::op> made;
    for (const op &node : ops) made.push_back(to_client(node));
    std::vector<summary> all;
    for (const dg::partition &p : partitions_of(made)) {
        summary s{p.get_ops(), {}, {}, p.is_supported()};
        for (const dg::logical_tensor &lt : p.get_input_ports()) s.inputs.push_back(lt.get_id());
        for (const dg::logical_tensor &lt : p.get_output_ports()) s.outputs.push_back(lt.get_id());
        all.push_back(std::move(s));
    }
    return all;
}

/// Graphs in which every op fits behind every other: all data tensors have one shape.
class random_graph {
public:
    explicit random_graph(std::uint64_t seed) : random_(seed) {
        const auto count = static_cast<std::size_t>(random_.between(1, 9));
        data_.push_back(new_data());
        data_.push_back(new_data());
        for (std::size_t i = 0; i < count; ++i) add_one();
        for (std::size_t i = ops.size(); i > 1; --i)
            std::swap(ops[i - 1],
                ops[static_cast<std::size_t>(random_.between(0, static_cast<dim>(i) - 1))]);
    }

    std::vector<op> ops;

private:
    logical_tensor new_tensor(dims shape) { return {next_id_++, data_type::f32, std::move(shape)}; }
    logical_tensor new_data() { return new_tensor({1, 4, 4, 3}); }
    logical_tensor new_weights() { return new_tensor({3, 3, 3, 3}); }
    logical_tensor new_bias() { return new_tensor({3}); }
    /// One that exists, most likely a late one.
    logical_tensor some_data() {
        if (random_.chance(0.6)) return data_.back();
        return data_[static_cast<std::size_t>(
            random_.between(0, static_cast<dim>(data_.size()) - 1))];
    }
    op layer_op(op_kind kind) {
        op node(ops.size(), kind, "op");
        node.set("strides", dims{1, 1}).set("dilations", dims{1, 1});
        const bool automatic = random_.chance(0.3);
        node.set("auto_pad", automatic ? "same_upper" : "none");
        const dim pad = automatic && random_.chance(0.5) ? 0 : 1;  // not looked at if automatic
        node.set("pads_begin", dims{pad, pad}).set("pads_end", dims{1, 1});
        return node;
    }
    void put(op node, const logical_tensor &output) {
        node.add_output(output);
        ops.push_back(std::move(node));
    }
    void put_data(op node) {
        data_.push_back(new_data());
        put(std::move(node), data_.back());
    }

    void add_one() {
        const logical_tensor from = some_data();
        const dim what = random_.between(0, 9);
        if (what <= 2) {
            op node = layer_op(what == 0 ? op_kind::conv_transpose : op_kind::convolution);
            node.add_input(from).add_input(new_weights());
            if (random_.chance(0.3)) node.add_input(new_bias());
            put_data(std::move(node));
        } else if (what == 3) {
            op node(ops.size(), op_kind::bias_add, "op");
            if (random_.chance(0.5)) node.set("data_format", "NXC");
            put_data(node.add_input(from).add_input(new_bias()));
        } else if (what == 4) {
            op node(ops.size(), op_kind::add, "op");
            const logical_tensor other = random_.chance(0.3) ? new_bias() : some_data();
            const bool first = random_.chance(0.5);
            put_data(node.add_input(first ? from : other).add_input(first ? other : from));
        } else if (what == 5) {
            put_data(op(ops.size(), op_kind::relu, "op").add_input(from));
        } else if (what == 6) {
            op node = layer_op(op_kind::convolution_backward_data);
            if (random_.chance(0.2)) node.set("output_padding", dims{0, 0});
            put_data(node.add_input(from).add_input(new_weights()));
        } else if (what <= 8) {
            op node = layer_op(op_kind::convolution_backward_weights);
            put(node.add_input(some_data()).add_input(from), new_weights());
        } else {
            put(op(ops.size(), op_kind::bias_add_backward, "op").add_input(from), new_bias());
        }
    }

    rng random_;
    std::size_t next_id_ = 100;
    std::vector<logical_tensor> data_;
};

TEST(GraphsClient, BothFrontEndsFindTheSamePartitions) {
    std::size_t fused = 0, unsupported = 0, joint = 0;
    for (std::uint64_t seed = 0; seed < 1000; ++seed) {
        const random_graph g(seed);
        const auto mine = by_library(g.ops), theirs = by_client(g.ops);
        ASSERT_EQ(to_text(mine), to_text(theirs)) << "seed " << seed;
        ASSERT_EQ(mine, theirs);
        for (const summary &s : mine) {
            fused += s.ops.size() > 1;
            unsupported += !s.supported;
            joint += s.ops.size() > 1 && s.outputs.size() > 1;
        }
    }
    // All that can happen did.
    EXPECT_GT(fused, 300U);
    EXPECT_GT(unsupported, 100U);
    EXPECT_GT(joint, 30U);
}

TEST(GraphsClient, PadsDoNotTellPartnersApartWhereTheyAreAutomatic) {
    const logical_tensor src(1, data_type::f32, {1, 4, 4, 3}),
        diff_dst(2, data_type::f32, {1, 4, 4, 3}), weights(3, data_type::f32, {3, 3, 3, 3}),
        diff_src(4, data_type::f32, {1, 4, 4, 3}), diff_weights(5, data_type::f32, {3, 3, 3, 3});
    const auto layer_op = [](std::size_t id, op_kind kind, const char *pad, dim begin) {
        op node(id, kind, "op");
        node.set("strides", dims{1, 1}).set("dilations", dims{1, 1});
        node.set("pads_begin", dims{begin, begin}).set("pads_end", dims{1, 1});
        node.set("auto_pad", pad);
        return node;
    };
    const auto partitions = [&](const char *pad, dim begin, const dims &padding) {
        op data = layer_op(1, op_kind::convolution_backward_data, pad, begin);
        if (!padding.empty()) data.set("output_padding", padding);
        data.add_input(diff_dst).add_input(weights).add_output(diff_src);
        op gradient = layer_op(2, op_kind::convolution_backward_weights, pad, 1);
        gradient.add_input(src).add_input(diff_dst).add_output(diff_weights);
        const std::vector<op> ops = {data, gradient};
        EXPECT_EQ(by_library(ops), by_client(ops));
        return by_client(ops).size();
    };
    EXPECT_EQ(partitions("none", 1, {}), 1U);
    EXPECT_EQ(partitions("same_upper", 1, {}), 1U);
    EXPECT_EQ(partitions("same_upper", 0, {}), 1U);
    EXPECT_EQ(partitions("same_upper", 0, {0, 0}), 1U);
}

}  // namespace
}  // namespace convgrad::test
