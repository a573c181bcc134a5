// The structure of a graph: edges, order, and which ops run together.
#include <algorithm>
#include <queue>

#include "graph/graph.hpp"
#include "graph/tensors.hpp"
#include "op/message.hpp"
#include "op/schema.hpp"

namespace convgrad {
namespace {

[[noreturn]] void refuse(const std::string &text) {
    throw error(error_code::invalid_graph, "invalid graph: " + text);
}

/// Joins one more description of a tensor with what is known; remembers who described it first.
void describe_tensor(graph_edges &edges, std::map<std::size_t, const op *> &first,
    const logical_tensor &lt, const op &node) {
    const auto [place, is_new] = edges.tensors.try_emplace(lt.id, lt);
    if (is_new)
        first[lt.id] = &node;
    else if (!join(place->second, lt))
        refuse(ops::cat("tensor ", lt.id, " is described in two ways: as ", describe(place->second),
            " by op ", op_label(*first.at(lt.id)), ", as ", describe(lt), " by op ",
            op_label(node)));
}

std::vector<std::size_t> count_predecessors(
    const std::vector<std::vector<std::size_t>> &successors) {
    std::vector<std::size_t> counts(successors.size(), 0);
    for (const auto &list : successors)
        for (std::size_t to : list) ++counts[to];
    return counts;
}

/// Kahn's algorithm, always taking the earliest ready node. Shorter than the graph if it has
/// cycles.
std::vector<std::size_t> order_of(const std::vector<std::vector<std::size_t>> &successors) {
    std::vector<std::size_t> waiting = count_predecessors(successors), order;
    std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
    for (std::size_t i = 0; i < waiting.size(); ++i)
        if (waiting[i] == 0) ready.push(i);
    while (!ready.empty()) {
        const std::size_t at = ready.top();
        ready.pop();
        order.push_back(at);
        for (std::size_t to : successors[at])
            if (--waiting[to] == 0) ready.push(to);
    }
    return order;
}

/// Names the ops and tensors of one cycle. Every op outside `order` has a predecessor outside of
/// it, so walking back from any of them must come around.
[[noreturn]] void refuse_cycle(const std::vector<graph_node> &nodes, const graph_edges &edges,
    const std::vector<std::size_t> &order) {
    std::vector<bool> stuck(nodes.size(), true);
    for (std::size_t at : order) stuck[at] = false;
    std::vector<std::size_t> path, tensors;
    std::size_t at =
        static_cast<std::size_t>(std::find(stuck.begin(), stuck.end(), true) - stuck.begin());
    while (std::find(path.begin(), path.end(), at) == path.end()) {
        path.push_back(at);
        for (const logical_tensor &lt : nodes[at].node->inputs()) {
            const auto producer = edges.producers.find(lt.id);
            if (producer == edges.producers.end() || !stuck[producer->second]) continue;
            tensors.push_back(lt.id);
            at = producer->second;
            break;
        }
    }
    std::string text = "the ops ";
    const auto begin = std::find(path.begin(), path.end(), at);
    for (auto i = path.end(); i-- != begin;)
        text += ops::cat(op_label(*nodes[*i].node), i == begin ? "" : ", ");
    text += " form a cycle through the tensors ";
    const auto skipped = static_cast<std::size_t>(begin - path.begin());
    for (std::size_t i = tensors.size(); i-- > skipped;)
        text += ops::cat(tensors[i], i == skipped ? "" : ", ");
    refuse(text);
}

bool reaches(
    const std::vector<std::vector<std::size_t>> &successors, std::size_t from, std::size_t to) {
    std::vector<bool> seen(successors.size(), false);
    std::vector<std::size_t> open{from};
    while (!open.empty()) {
        const std::size_t at = open.back();
        open.pop_back();
        for (std::size_t next : successors[at]) {
            if (next == to) return true;
            if (!seen[next]) open.push_back(next);
            seen[next] = true;
        }
    }
    return false;
}

bool all_zero(const std::optional<dims> &list) {
    return !list || std::all_of(list->begin(), list->end(), [](dim d) { return d == 0; });
}

/// Whether a data and a weights gradient can belong to the same layer.
bool same_layer(const ops::parsed_attributes &data, const ops::parsed_attributes &weights) {
    const bool plain = data.auto_pad == ops::auto_pad::none;
    const bool transposed = data.kind == op_kind::conv_transpose_backward_data;
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

op_kind partner_of(op_kind data_gradient) {
    return data_gradient == op_kind::convolution_backward_data
               ? op_kind::convolution_backward_weights
               : op_kind::conv_transpose_backward_weights;
}

bool is_data_gradient(op_kind kind) {
    return kind == op_kind::convolution_backward_data
           || kind == op_kind::conv_transpose_backward_data;
}

/// Joins node `b` to node `a`; they must not reach each other, so no cycle arises.
void contract(std::vector<std::vector<std::size_t>> &successors, std::size_t a, std::size_t b) {
    successors[a].insert(successors[a].end(), successors[b].begin(), successors[b].end());
    successors[b].clear();
    for (auto &list : successors) std::replace(list.begin(), list.end(), b, a);
}

}  // namespace

graph_edges analyse(const std::vector<graph_node> &nodes) {
    graph_edges edges;
    std::map<std::size_t, const op *> first;
    for (std::size_t at = 0; at < nodes.size(); ++at) {
        const op &node = *nodes[at].node;
        for (const logical_tensor &lt : node.inputs()) describe_tensor(edges, first, lt, node);
        for (const logical_tensor &lt : node.outputs()) {
            describe_tensor(edges, first, lt, node);
            const auto [place, is_new] = edges.producers.try_emplace(lt.id, at);
            if (!is_new)
                refuse(ops::cat("tensor ", lt.id, " has two producers: op ",
                    op_label(*nodes[place->second].node), " and op ", op_label(node)));
        }
    }
    edges.successors.resize(nodes.size());
    for (std::size_t at = 0; at < nodes.size(); ++at)
        for (const logical_tensor &lt : nodes[at].node->inputs())
            if (const auto from = edges.producers.find(lt.id); from != edges.producers.end())
                edges.successors[from->second].push_back(at);
    return edges;
}

std::vector<std::size_t> topological_order(
    const std::vector<graph_node> &nodes, const graph_edges &edges) {
    std::vector<std::size_t> order = order_of(edges.successors);
    if (order.size() != nodes.size()) refuse_cycle(nodes, edges, order);
    return order;
}

std::vector<std::vector<std::size_t>> group_ops(
    const std::vector<graph_node> &nodes, const graph_edges &edges) {
    std::vector<std::vector<std::size_t>> members(nodes.size());
    for (std::size_t i = 0; i < nodes.size(); ++i) members[i] = {i};
    std::multimap<std::size_t, std::size_t> readers;  // diff_dst → weights gradients that read it
    for (std::size_t i = 0; i < nodes.size(); ++i)
        if (ops::roles_of(nodes[i].attrs.kind).what == conv::pass::backward_weights)
            readers.emplace(nodes[i].node->inputs()[1].id, i);

    auto successors = edges.successors;
    for (std::size_t d = 0; d < nodes.size(); ++d) {
        if (!is_data_gradient(nodes[d].attrs.kind)) continue;
        const auto [begin, end] = readers.equal_range(nodes[d].node->inputs()[0].id);
        for (auto candidate = begin; candidate != end; ++candidate) {
            const std::size_t w = candidate->second;
            if (nodes[w].attrs.kind != partner_of(nodes[d].attrs.kind) || members[w].size() != 1
                || !same_layer(nodes[d].attrs, nodes[w].attrs) || reaches(successors, d, w)
                || reaches(successors, w, d))
                continue;
            const std::size_t keep = std::min(d, w), gone = std::max(d, w);
            contract(successors, keep, gone);
            members[keep] = {keep, gone};
            members[gone].clear();
            break;
        }
    }

    std::vector<std::vector<std::size_t>> groups;
    for (std::size_t at : order_of(successors))
        if (!members[at].empty()) groups.push_back(members[at]);
    return groups;
}

}  // namespace convgrad
