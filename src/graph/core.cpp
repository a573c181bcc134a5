// Edges and order.
#include "graph/core.hpp"

#include <algorithm>
#include <numeric>
#include <queue>
#include <set>

#include <convgrad/error.hpp>

#include "op/message.hpp"

namespace convgrad {
namespace {

[[noreturn]] void refuse(const std::string &text) {
    throw error(error_code::invalid_graph, "invalid graph: " + text);
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
            const std::size_t producer = edges.producer(lt.id);
            if (producer == graph_edges::none || !stuck[producer]) continue;
            tensors.push_back(lt.id);
            at = producer;
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

}  // namespace

graph_edges::graph_edges(const std::vector<graph_node> &nodes) {
    for (std::size_t at = 0; at < nodes.size(); ++at) {
        const op &node = *nodes[at].node;
        for (const logical_tensor &lt : node.inputs()) consumers_[lt.id].push_back(at);
        for (const logical_tensor &lt : node.outputs()) {
            const auto [place, is_new] = producers_.emplace(lt.id, at);
            if (!is_new)
                refuse(ops::cat("tensor ", lt.id, " has two producers: op ",
                    op_label(*nodes[place->second].node), " and op ", op_label(node)));
        }
    }
}

std::size_t graph_edges::producer(std::size_t tensor) const {
    const auto found = producers_.find(tensor);
    return found == producers_.end() ? none : found->second;
}

const std::vector<std::size_t> &graph_edges::consumers(std::size_t tensor) const {
    static const std::vector<std::size_t> nobody;
    const auto found = consumers_.find(tensor);
    return found == consumers_.end() ? nobody : found->second;
}

// Kahn's algorithm, always taking the group that is ready and begins earliest.
std::vector<std::size_t> order_groups(const std::vector<graph_node> &nodes,
    const graph_edges &edges, const std::vector<std::size_t> &group_of, std::size_t count) {
    std::vector<std::set<std::size_t>> successors(count);
    std::vector<std::size_t> waiting_for(count, 0);
    std::vector<std::size_t> first(count, graph_edges::none);
    for (std::size_t at = 0; at < nodes.size(); ++at) {
        first[group_of[at]] = std::min(first[group_of[at]], at);
        for (const logical_tensor &lt : nodes[at].node->outputs())
            for (const std::size_t reader : edges.consumers(lt.id)) {
                const std::size_t from = group_of[at], to = group_of[reader];
                // An op that reads its own output waits for itself.
                const bool own = reader == at;
                if ((own || from != to) && successors[from].insert(to).second) ++waiting_for[to];
            }
    }
    using entry = std::pair<std::size_t, std::size_t>;  // first op, group
    std::priority_queue<entry, std::vector<entry>, std::greater<>> ready;
    for (std::size_t group = 0; group < count; ++group)
        if (waiting_for[group] == 0) ready.emplace(first[group], group);
    std::vector<std::size_t> order;
    while (!ready.empty()) {
        const std::size_t group = ready.top().second;
        ready.pop();
        order.push_back(group);
        for (const std::size_t next : successors[group])
            if (--waiting_for[next] == 0) ready.emplace(first[next], next);
    }
    return order;
}

std::vector<std::size_t> topological_order(
    const std::vector<graph_node> &nodes, const graph_edges &edges) {
    std::vector<std::size_t> each(nodes.size());
    std::iota(each.begin(), each.end(), std::size_t{0});
    std::vector<std::size_t> order = order_groups(nodes, edges, each, nodes.size());
    if (order.size() != nodes.size()) refuse_cycle(nodes, edges, order);
    return order;
}

std::string op_label(const op &node) {
    std::string text = ops::cat(node.id(), " (", to_string(node.kind()));
    if (!node.name().empty()) text += ops::cat(" ", ops::quoted{node.name()});
    return text + ")";
}

}  // namespace convgrad
