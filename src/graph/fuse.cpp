// Which ops run as one.
//
// Two patterns: a Convolution or ConvTranspose followed by BiasAdd, Add and ReLU (each may be
// missing, the order is this one), and gradients that read one diff_dst. A chain never closes a
// cycle, because nothing but its next op reads what an op of it writes; gradients may, and are kept
// apart then.
#include <algorithm>
#include <numeric>

#include "graph/core.hpp"
#include "op/geometry.hpp"

namespace convgrad {
namespace {

using conv::pass;
using ops::parsed_attributes;

bool is_layer(const graph_node &n) {
    return n.attrs && ops::roles_of(n.attrs->kind).is_layer();
}

bool computes(const graph_node &n, pass what) {
    if (!n.attrs) return false;
    const ops::op_schema &schema = ops::schema_of(n.attrs->kind);
    return !schema.epilogue && schema.roles.what == what;
}

/// Whether a bias op means the channels of `main`. One that does not say is taken to, as oneDNN
/// does: its clients leave the attribute out.
bool has_format_of(const parsed_attributes &main, const parsed_attributes &bias) {
    return !bias.says_data_format || bias.data_format == main.data_format;
}

bool all_zero(const std::optional<dims> &list) {
    return !list || std::all_of(list->begin(), list->end(), [](dim d) { return d == 0; });
}

/// Whether a data and a weights gradient can belong to the same layer.
bool same_layer(const parsed_attributes &data, const parsed_attributes &weights) {
    const bool plain = data.auto_pad == ops::auto_pad::none;
    const bool transposed = ops::roles_of(data.kind).transposed;
    if (transposed != ops::roles_of(weights.kind).transposed) return false;
    if (plain && (data.pads_begin != weights.pads_begin || data.pads_end != weights.pads_end))
        return false;
    // ConvolutionBackwardWeights has no output_padding; in its partner it changes automatic pads.
    const bool same_padding =
        data.output_padding == weights.output_padding
        || (all_zero(data.output_padding) && all_zero(weights.output_padding));
    if ((transposed || !plain) && !same_padding) return false;
    return data.strides == weights.strides && data.dilations == weights.dilations
           && data.auto_pad == weights.auto_pad && data.groups == weights.groups
           && data.data_format == weights.data_format
           && data.weights_format == weights.weights_format;
}

fused_stage alone(const graph_node &n) {
    fused_stage stage;
    stage.node = n.node;
    stage.attrs = *n.attrs;
    for (const logical_tensor &lt : n.node->inputs()) stage.inputs.emplace_back(lt.id);
    for (const logical_tensor &lt : n.node->outputs()) stage.outputs.push_back(lt.id);
    return stage;
}

/// A layer and what follows it, while it grows.
class chain {
public:
    chain(std::size_t start, const graph_node &first, const graph_tensors &tensors)
        : members{start}, stage(alone(first)), tensors_(tensors) {}

    std::vector<std::size_t> members;
    fused_stage stage;

    /// What the last member writes.
    [[nodiscard]] std::size_t result() const { return stage.outputs[0]; }

    /// Takes `next`, the only reader of the result, if it fits.
    bool take(std::size_t at, const graph_node &next) {
        if (!next.attrs || !fits(next)) return false;
        members.push_back(at);
        stage.outputs = {next.node->outputs()[0].id};
        return true;
    }

private:
    bool fits(const graph_node &next) {
        switch (next.attrs->kind) {
        case op_kind::bias_add:
            return take_bias(next);
        case op_kind::add:
            return take_add(next);
        case op_kind::relu:
            return take_relu();
        default:
            return false;
        }
    }

    [[nodiscard]] bool has_bias() const { return stage.inputs.size() > 2; }

    bool take_bias(const graph_node &next) {
        const std::vector<logical_tensor> &in = next.node->inputs();
        if (has_bias() || stage.attrs.add || stage.attrs.relu || in[0].id != result()
            || in[1].id == result() || !has_format_of(stage.attrs, *next.attrs))
            return false;
        stage.inputs.emplace_back(in[1].id);
        return true;
    }

    bool take_add(const graph_node &next) {
        if (stage.attrs.add || stage.attrs.relu) return false;
        const std::vector<logical_tensor> &in = next.node->inputs();
        const std::size_t other = in[in[0].id == result() ? 1 : 0].id;
        const bool numpy = next.attrs->auto_broadcast == ops::auto_broadcast::numpy;
        if (other == result() || !may_add(other, numpy)) return false;
        if (!has_bias()) stage.inputs.emplace_back(std::nullopt);
        stage.inputs.emplace_back(other);
        stage.attrs.add = true;
        stage.attrs.add_broadcasts = numpy;
        return true;
    }

    bool take_relu() {
        if (stage.attrs.relu) return false;
        stage.attrs.relu = true;
        return true;
    }

    /// Whether `other` fits onto the result, as far as the graph tells.
    [[nodiscard]] bool may_add(std::size_t other, bool numpy) const {
        const std::optional<dims> &mine = tensors_.at(result()).shape,
                                  &theirs = tensors_.at(other).shape;
        if (!mine || !theirs) return true;
        if (numpy) return ops::broadcasts_to(*theirs, *mine);
        return theirs->size() == mine->size()
               && std::equal(theirs->begin(), theirs->end(), mine->begin(),
                   [](dim a, dim b) { return a == b || a == unknown_dim || b == unknown_dim; });
    }

    const graph_tensors &tensors_;
};

/// The grouping while it is found: group_of[op], and the stages of each group.
class grouping {
public:
    grouping(const std::vector<graph_node> &nodes, const graph_edges &edges,
        const graph_tensors &tensors)
        : nodes_(nodes), edges_(edges), tensors_(tensors), group_of_(nodes.size()),
          stages_(nodes.size()) {
        std::iota(group_of_.begin(), group_of_.end(), std::size_t{0});
        for (std::size_t at = 0; at < nodes.size(); ++at)
            if (nodes[at].attrs && !ops::schema_of(nodes[at].attrs->kind).epilogue)
                stages_[at] = {alone(nodes[at])};
    }

    void fuse_chains() {
        for (std::size_t at = 0; at < nodes_.size(); ++at) {
            if (!is_layer(nodes_[at])) continue;
            chain found = make_chain(at);
            for (const std::size_t member : found.members) group_of_[member] = at;
            stages_[at] = {std::move(found.stage)};
        }
    }

    void fuse_gradients() {
        for (std::size_t at = 0; at < nodes_.size(); ++at)
            if (computes(nodes_[at], pass::backward_weights)) fuse_with_weights_gradient(at);
    }

    /// In topological order.
    [[nodiscard]] std::vector<op_group> result() const {
        const auto [dense, count] = dense_groups(group_of_);
        std::vector<op_group> groups(count);
        for (const std::size_t at : topological_order(nodes_, edges_))
            groups[dense[at]].members.push_back(at);
        for (std::size_t at = 0; at < nodes_.size(); ++at)
            if (group_of_[at] == at) groups[dense[at]].stages = stages_[at];
        for (op_group &group : groups) find_ports(group);
        std::vector<op_group> ordered;
        for (const std::size_t g : order_groups(nodes_, edges_, dense, count))
            ordered.push_back(std::move(groups[g]));
        return ordered;
    }

private:
    chain make_chain(std::size_t start) {
        chain made(start, nodes_[start], tensors_);
        for (;;) {
            const auto &readers = edges_.consumers(made.result());
            // The reader may belong to another chain: an Add of two convolutions.
            if (readers.size() != 1 || group_of_[readers[0]] != readers[0]
                || !made.take(readers[0], nodes_[readers[0]]))
                return made;
        }
    }

    static std::pair<std::vector<std::size_t>, std::size_t> dense_groups(
        const std::vector<std::size_t> &group_of) {
        std::vector<std::size_t> number(group_of.size(), graph_edges::none), dense;
        std::size_t count = 0;
        for (const std::size_t group : group_of) {
            if (number[group] == graph_edges::none) number[group] = count++;
            dense.push_back(number[group]);
        }
        return {std::move(dense), count};
    }

    /// Puts `other` into the group of `at`, unless that closes a cycle.
    bool join(std::size_t at, std::size_t other) {
        std::vector<std::size_t> tried = group_of_;
        tried[other] = group_of_[at];
        const auto [dense, count] = dense_groups(tried);
        // Members must not feed each other either: they run as one.
        for (std::size_t member = 0; member < nodes_.size(); ++member)
            if (tried[member] == tried[at])
                for (const logical_tensor &lt : nodes_[member].node->outputs())
                    for (const std::size_t reader : edges_.consumers(lt.id))
                        if (tried[reader] == tried[at]) return false;
        if (order_groups(nodes_, edges_, dense, count).size() != count) return false;
        group_of_ = std::move(tried);
        return true;
    }

    void fuse_with_weights_gradient(std::size_t at) {
        const std::size_t diff_dst = nodes_[at].node->inputs()[1].id;
        bool has_data = false, has_bias = nodes_[at].node->outputs().size() > 1;
        for (const std::size_t other : edges_.consumers(diff_dst)) {
            if (group_of_[other] != other || other == at) continue;
            if (!has_data && is_data_gradient(at, other) && join(at, other)) {
                has_data = true;
                stages_[at].insert(stages_[at].begin(), alone(nodes_[other]));
            } else if (!has_bias && is_bias_gradient(at, other) && join(at, other)) {
                has_bias = true;
                stages_[at].back().outputs.push_back(nodes_[other].node->outputs()[0].id);
            }
        }
    }

    /// Of the same layer and from the same diff_dst.
    [[nodiscard]] bool is_data_gradient(std::size_t at, std::size_t other) const {
        const graph_node &weights = nodes_[at], &data = nodes_[other];
        if (!data.attrs || data.node->inputs()[0].id != weights.node->inputs()[1].id) return false;
        const ops::op_roles &roles = ops::roles_of(data.attrs->kind);
        const bool gradient =
            computes(data, roles.transposed ? pass::forward : pass::backward_data);
        return gradient && !roles.is_layer() && same_layer(*data.attrs, *weights.attrs);
    }

    [[nodiscard]] bool is_bias_gradient(std::size_t at, std::size_t other) const {
        const graph_node &weights = nodes_[at], &bias = nodes_[other];
        return computes(bias, pass::backward_bias) && has_format_of(*weights.attrs, *bias.attrs)
               && bias.attrs->accumulate == weights.attrs->accumulate;
    }

    void find_ports(op_group &group) const {
        const auto inside = [&](std::size_t at) {
            return std::find(group.members.begin(), group.members.end(), at) != group.members.end();
        };
        const auto add_once = [](std::vector<std::size_t> &list, std::size_t id) {
            if (std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
        };
        for (const std::size_t at : group.members) {
            for (const logical_tensor &lt : nodes_[at].node->inputs())
                if (!inside(edges_.producer(lt.id))) add_once(group.inputs, lt.id);
            for (const logical_tensor &lt : nodes_[at].node->outputs()) {
                const auto &readers = edges_.consumers(lt.id);
                if (readers.empty() || !std::all_of(readers.begin(), readers.end(), inside))
                    add_once(group.outputs, lt.id);
            }
        }
    }

    const std::vector<graph_node> &nodes_;
    const graph_edges &edges_;
    const graph_tensors &tensors_;
    std::vector<std::size_t> group_of_;             // named by its first op
    std::vector<std::vector<fused_stage>> stages_;  // of the group with this name
};

}  // namespace

std::vector<op_group> group_ops(const std::vector<graph_node> &nodes, const graph_edges &edges,
    const graph_tensors &tensors, bool fuse) {
    grouping groups(nodes, edges, tensors);
    if (fuse) {
        groups.fuse_chains();
        groups.fuse_gradients();
    }
    return groups.result();
}

}  // namespace convgrad
