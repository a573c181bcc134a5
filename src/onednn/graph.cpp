#include "onednn/graph.hpp"

#include <atomic>
#include <unordered_map>

#include "onednn/behind.hpp"
#include "onednn/description.hpp"
#include "onednn/front.hpp"
#include "onednn/guard.hpp"
#include "onednn/runtime.hpp"
#include "op/message.hpp"

namespace convgrad::onednn {

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
    const std::vector<graph_node> nodes = nodes_of(graph.ops);
    topological_order(nodes, graph_edges(nodes));
    graph.finalized = true;
}

bool is_mode(fpmath_mode mode) {
    return mode >= fpmath_mode::strict && mode <= fpmath_mode::tf32;
}

/// The clients' descriptions of the tensors with these ids.
std::vector<tensor_description> describe_ports(
    const std::vector<graph_op> &ops, const op_group &group, const std::vector<std::size_t> &ids) {
    std::vector<tensor_description> found;
    for (const std::size_t id : ids) {
        const std::size_t before = found.size();
        for (const std::size_t at : group.members)
            for (const auto *ports : {&ops[at].given->inputs, &ops[at].given->outputs})
                for (const tensor_description &lt : *ports)
                    if (lt.id == id && found.size() == before) found.push_back(lt);
    }
    return found;
}

}  // namespace

std::size_t next_partition_id() {
    static std::atomic<std::size_t> next = 0;
    return next++;
}

std::string partition_body::describe() const {
    std::string text;
    for (const auto &op : ops) {
        if (!text.empty()) text += '+';
        text += name_of(op->kind) + ":" + op->name;
    }
    return text;
}

std::vector<graph_node> nodes_of(const std::vector<graph_op> &ops) {
    std::vector<graph_node> nodes;
    for (const graph_op &op : ops) nodes.push_back(op.node);
    return nodes;
}

graph_tensors tensors_of(const std::vector<graph_node> &nodes) {
    graph_tensors tensors;
    for (const graph_node &n : nodes)
        for (const auto *ports : {&n.node->inputs(), &n.node->outputs()})
            for (const logical_tensor &lt : *ports) tensors.try_emplace(lt.id, lt);
    return tensors;
}

std::shared_ptr<partition_body> make_body(
    const std::vector<graph_op> &ops, op_group group, const graph_settings &settings) {
    auto body = std::make_shared<partition_body>();
    body->settings = settings;
    for (const std::size_t at : group.members) body->ops.push_back(ops[at].given);
    body->inputs = describe_ports(ops, group, group.inputs);
    body->outputs = describe_ports(ops, group, group.outputs);
    if (settings.engine == engine_kind_value::cpu) body->stages = std::move(group.stages);
    return body;
}

std::vector<std::shared_ptr<const partition_body>> make_partitions(
    const std::vector<graph_op> &ops, const graph_settings &settings, bool fuse) {
    const std::vector<graph_node> nodes = nodes_of(ops);
    std::vector<std::shared_ptr<const partition_body>> made;
    for (op_group &group : group_ops(nodes, graph_edges(nodes), tensors_of(nodes), fuse)) {
        const auto body = make_body(ops, std::move(group), settings);
        body->id = next_partition_id();
        made.push_back(body);
    }
    return made;
}

}  // namespace convgrad::onednn

using namespace convgrad::onednn;

namespace {

template <typename Create>
status create_graph_in_front(const library &next, client_graph **made,
    const graph_settings &settings, const Create &create) {
    return create_and_note("graph_create", made, create, next.graph_destroy, [&] {
        auto known = std::make_shared<client_graph>();
        known->settings = settings;
        return known;
    });
}

}  // namespace

CONVGRAD_ONEDNN_API status dnnl_graph_graph_create_with_fpmath_mode(
    client_graph **made, engine_kind_value engine, fpmath_mode mode) {
    if (made == nullptr) return status::invalid_arguments;
    if (const library *next = behind())
        return create_graph_in_front(*next, made, {engine, mode}, [&](client_graph **theirs) {
            return next->graph_create_with_fpmath_mode(theirs, engine, mode);
        });
    if (!is_mode(mode)) return status::invalid_arguments;
    return guarded("graph_create", [&] {
        auto graph = std::make_unique<client_graph>();
        graph->settings = {engine, mode};
        *made = graph.release();
        return status::success;
    });
}

CONVGRAD_ONEDNN_API status dnnl_graph_graph_create(client_graph **made, engine_kind_value engine) {
    if (made == nullptr) return status::invalid_arguments;
    if (const library *next = behind())
        return create_graph_in_front(*next, made, {engine, default_fpmath_mode()},
            [&](client_graph **theirs) { return next->graph_create(theirs, engine); });
    return dnnl_graph_graph_create_with_fpmath_mode(made, engine, default_fpmath_mode());
}

CONVGRAD_ONEDNN_API status dnnl_graph_graph_destroy(client_graph *graph) {
    if (const library *next = behind()) {
        notes<client_graph>::get().drop(graph);
        return next->graph_destroy(graph);
    }
    delete graph;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_graph_set_fpmath_mode(
    client_graph *graph, fpmath_mode mode, int apply_to_int) {
    if (graph == nullptr) return status::invalid_arguments;
    if (const library *next = behind()) {
        const status said = call_later(next->graph_set_fpmath_mode, graph, mode, apply_to_int);
        const auto known = notes<client_graph>::get().find(graph);
        if (said == status::success && known != nullptr) known->settings.fpmath = mode;
        return said;
    }
    if (graph->finalized) return status::invalid_graph;
    if (!is_mode(mode)) return status::invalid_arguments;
    graph->settings.fpmath = mode;
    graph->fpmath_for_integers = apply_to_int;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_graph_get_fpmath_mode(
    client_graph *graph, fpmath_mode *mode, int *apply_to_int) {
    if (graph == nullptr) return status::invalid_arguments;
    if (const library *next = behind())
        return call_later(next->graph_get_fpmath_mode, graph, mode, apply_to_int);
    if (graph->finalized) return status::invalid_graph;
    if (mode != nullptr) *mode = graph->settings.fpmath;
    if (apply_to_int != nullptr) *apply_to_int = graph->fpmath_for_integers;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_add_op(client_graph *graph, const client_op *op) {
    if (any_null(graph, op)) return status::invalid_arguments;
    if (const library *next = behind()) return add_op_in_front(*next, graph, op);
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
    if (const library *next = behind()) return next->graph_finalize(graph);
    return guarded("graph_finalize", [&] {
        if (!graph->finalized) finalize(*graph);
        return status::success;
    });
}

CONVGRAD_ONEDNN_API status dnnl_graph_graph_is_finalized(
    client_graph *graph, std::uint8_t *finalized) {
    if (any_null(graph, finalized)) return status::invalid_arguments;
    if (const library *next = behind()) return next->graph_is_finalized(graph, finalized);
    *finalized = graph->finalized ? 1 : 0;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_graph_filter(client_graph *graph, partition_policy policy) {
    if (graph == nullptr) return status::invalid_graph;
    if (const library *next = behind()) return filter_in_front(*next, graph, policy);
    if (!graph->finalized) return status::invalid_graph;
    return guarded("graph_filter", [&] {
        graph->partitions =
            make_partitions(graph->ops, graph->settings, policy != partition_policy::debug);
        return status::success;
    });
}

CONVGRAD_ONEDNN_API status dnnl_graph_graph_get_partition_num(
    const client_graph *graph, std::size_t *count) {
    if (any_null(graph, count)) return status::invalid_graph;
    if (const library *next = behind()) {
        const auto known = notes<client_graph>::get().find(graph);
        if (known == nullptr || known->places.empty())
            return next->graph_get_partition_num(graph, count);
        *count = known->places.size();
        return status::success;
    }
    *count = graph->partitions.size();
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_graph_get_partitions(
    client_graph *graph, std::size_t count, client_partition **made) {
    if (any_null(graph, made) || count == 0) return status::invalid_graph;
    if (const library *next = behind()) return get_partitions_in_front(*next, graph, count, made);
    if (count != graph->partitions.size()) return status::invalid_arguments;
    return guarded("graph_get_partitions", [&] {
        std::vector<std::unique_ptr<client_partition>> partitions;
        for (const auto &body : graph->partitions)
            partitions.push_back(std::make_unique<client_partition>(client_partition{body}));
        for (std::size_t i = 0; i < count; ++i) made[i] = partitions[i].release();
        return status::success;
    });
}
