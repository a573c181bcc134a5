#include "onednn/graph.hpp"

#include <algorithm>
#include <numeric>
#include <queue>
#include <set>

#include "onednn/description.hpp"
#include "onednn/guard.hpp"
#include "onednn/runtime.hpp"
#include "op/message.hpp"

namespace convgrad::onednn {

graph_op make_graph_op(const client_op &given) {
    graph_op made;
    made.given = std::make_shared<client_op>(given);
    if (is_family(given.kind)) made.family = check(given);
    return made;
}

graph_edges::graph_edges(const std::vector<graph_op> &ops) {
    for (std::size_t at = 0; at < ops.size(); ++at) {
        for (const tensor_description &lt : ops[at].given->inputs) consumers_[lt.id].push_back(at);
        for (const tensor_description &lt : ops[at].given->outputs)
            if (!producers_.emplace(lt.id, at).second)
                throw error(error_code::invalid_graph,
                    ops::cat("invalid graph: tensor ", lt.id, " has two producers"));
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

std::vector<std::size_t> order_groups(const std::vector<graph_op> &ops, const graph_edges &edges,
    const std::vector<std::size_t> &group_of, std::size_t count) {
    std::vector<std::set<std::size_t>> successors(count);
    std::vector<std::size_t> waiting_for(count, 0);
    std::vector<std::size_t> first(count, graph_edges::none);
    for (std::size_t at = 0; at < ops.size(); ++at) {
        first[group_of[at]] = std::min(first[group_of[at]], at);
        for (const tensor_description &lt : ops[at].given->outputs)
            for (const std::size_t reader : edges.consumers(lt.id)) {
                const std::size_t from = group_of[at], to = group_of[reader];
                if (reader == at) return {};  // an op that reads its own output
                if (from != to && successors[from].insert(to).second) ++waiting_for[to];
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

namespace {

/// One id must mean one thing.
void check_descriptions(const std::vector<graph_op> &ops) {
    std::unordered_map<std::size_t, const tensor_description *> known;
    for (const graph_op &op : ops)
        for (const auto *ports : {&op.given->inputs, &op.given->outputs})
            for (const tensor_description &lt : *ports) {
                const auto [entry, fresh] = known.emplace(lt.id, &lt);
                if (!fresh && !same_description(*entry->second, lt))
                    throw error(error_code::invalid_graph,
                        ops::cat("invalid graph: tensor ", lt.id,
                            " is described in two ways; every op must describe it alike"));
            }
}

void finalize(client_graph &graph) {
    check_descriptions(graph.ops);
    const graph_edges edges(graph.ops);
    std::vector<std::size_t> each_alone(graph.ops.size());
    std::iota(each_alone.begin(), each_alone.end(), std::size_t{0});
    if (order_groups(graph.ops, edges, each_alone, graph.ops.size()).size() != graph.ops.size())
        throw error(error_code::invalid_graph, "invalid graph: the ops form a cycle");
    graph.finalized = true;
}

bool is_mode(fpmath_mode mode) {
    return mode >= fpmath_mode::strict && mode <= fpmath_mode::tf32;
}

}  // namespace
}  // namespace convgrad::onednn

using namespace convgrad::onednn;

CONVGRAD_ONEDNN_API status dnnl_graph_graph_create_with_fpmath_mode(
    client_graph **made, engine_kind_value engine, fpmath_mode mode) {
    if (made == nullptr || !is_mode(mode)) return status::invalid_arguments;
    return guarded("graph_create", [&] {
        auto graph = std::make_unique<client_graph>();
        graph->engine = engine;
        graph->fpmath = mode;
        *made = graph.release();
        return status::success;
    });
}

CONVGRAD_ONEDNN_API status dnnl_graph_graph_create(client_graph **made, engine_kind_value engine) {
    return dnnl_graph_graph_create_with_fpmath_mode(made, engine, default_fpmath_mode());
}

CONVGRAD_ONEDNN_API status dnnl_graph_graph_destroy(client_graph *graph) {
    delete graph;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_graph_set_fpmath_mode(
    client_graph *graph, fpmath_mode mode, int apply_to_int) {
    if (graph == nullptr) return status::invalid_arguments;
    if (graph->finalized) return status::invalid_graph;
    if (!is_mode(mode)) return status::invalid_arguments;
    graph->fpmath = mode;
    graph->fpmath_for_integers = apply_to_int;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_graph_get_fpmath_mode(
    client_graph *graph, fpmath_mode *mode, int *apply_to_int) {
    if (graph == nullptr) return status::invalid_arguments;
    if (graph->finalized) return status::invalid_graph;
    if (mode != nullptr) *mode = graph->fpmath;
    if (apply_to_int != nullptr) *apply_to_int = graph->fpmath_for_integers;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_add_op(client_graph *graph, const client_op *op) {
    if (any_null(graph, op)) return status::invalid_arguments;
    if (graph->finalized) return status::invalid_graph;
    return guarded("add_op", [&] {
        for (const graph_op &other : graph->ops)
            if (other.given->id == op->id) return status::success;  // the first one stays
        graph->ops.push_back(make_graph_op(*op));
        return status::success;
    });
}

CONVGRAD_ONEDNN_API status dnnl_graph_graph_finalize(client_graph *graph) {
    if (graph == nullptr) return status::invalid_arguments;
    return guarded("graph_finalize", [&] {
        if (!graph->finalized) finalize(*graph);
        return status::success;
    });
}

CONVGRAD_ONEDNN_API status dnnl_graph_graph_is_finalized(
    client_graph *graph, std::uint8_t *finalized) {
    if (any_null(graph, finalized)) return status::invalid_arguments;
    *finalized = graph->finalized ? 1 : 0;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_graph_filter(client_graph *graph, partition_policy policy) {
    if (graph == nullptr || !graph->finalized) return status::invalid_graph;
    return guarded("graph_filter", [&] {
        graph->partitions = make_partitions(
            graph->ops, graph->engine, graph->fpmath, policy != partition_policy::debug);
        return status::success;
    });
}

CONVGRAD_ONEDNN_API status dnnl_graph_graph_get_partition_num(
    const client_graph *graph, std::size_t *count) {
    if (any_null(graph, count)) return status::invalid_graph;
    *count = graph->partitions.size();
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_graph_get_partitions(
    client_graph *graph, std::size_t count, client_partition **made) {
    if (any_null(graph, made) || count == 0) return status::invalid_graph;
    if (count != graph->partitions.size()) return status::invalid_arguments;
    return guarded("graph_get_partitions", [&] {
        std::vector<std::unique_ptr<client_partition>> partitions;
        for (const auto &body : graph->partitions)
            partitions.push_back(std::make_unique<client_partition>(client_partition{body}));
        for (std::size_t i = 0; i < count; ++i) made[i] = partitions[i].release();
        return status::success;
    });
}
