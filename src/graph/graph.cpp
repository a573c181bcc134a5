// Building and finalising graphs.
#include "graph/graph.hpp"

#include <algorithm>

#include "graph/tensors.hpp"
#include "op/guard.hpp"
#include "op/message.hpp"

namespace convgrad {
namespace {

[[noreturn]] void refuse(const std::string &text) {
    throw error(error_code::invalid_graph, "invalid graph: " + text);
}

/// All descriptions of each tensor joined. Throws invalid_graph where they contradict each other.
graph_tensors join_descriptions(const std::vector<graph_node> &nodes) {
    graph_tensors tensors;
    std::map<std::size_t, const op *> first;
    for (const graph_node &n : nodes)
        for (const auto *ports : {&n.node->inputs(), &n.node->outputs()})
            for (const logical_tensor &lt : *ports) {
                const auto [place, is_new] = tensors.try_emplace(lt.id, lt);
                if (is_new)
                    first[lt.id] = n.node.get();
                else if (!join(place->second, lt))
                    refuse(ops::cat("tensor ", lt.id, " is described in two ways: as ",
                        describe(place->second), " by op ", op_label(*first.at(lt.id)), ", as ",
                        describe(lt), " by op ", op_label(*n.node)));
            }
    return tensors;
}

/// Fills in shapes along the graph; returns all tensors with what is known about them.
graph_tensors infer(const std::vector<graph_node> &nodes, const std::vector<std::size_t> &order,
    graph_tensors tensors) {
    for (std::size_t at : order) {
        const graph_node &n = nodes[at];
        std::vector<logical_tensor> inputs, outputs;
        for (const logical_tensor &lt : n.node->inputs()) inputs.push_back(tensors.at(lt.id));
        for (const logical_tensor &lt : n.node->outputs()) outputs.push_back(tensors.at(lt.id));
        ops::infer_shapes(*n.attrs, inputs, outputs);
        for (logical_tensor &lt : outputs) {
            const std::size_t id = lt.id;
            tensors[id] = std::move(lt);
        }
    }
    return tensors;
}

std::size_t position_of(const std::vector<std::size_t> &list, std::size_t id) {
    return static_cast<std::size_t>(std::find(list.begin(), list.end(), id) - list.begin());
}

partition make_partition(std::size_t id, const std::vector<graph_node> &nodes,
    const op_group &group, const graph_tensors &declared, const graph_tensors &inferred) {
    auto made = std::make_shared<partition::impl>();
    made->id = id;
    for (const std::size_t at : group.members) made->ops.push_back(nodes[at].node);
    for (const std::size_t t : group.inputs) made->inputs.push_back(inferred.at(t));
    for (const std::size_t t : group.outputs) {
        made->outputs.push_back(inferred.at(t));
        made->declared_outputs.push_back(declared.at(t));
    }
    for (const fused_stage &from : group.stages) {
        stage s{.node = from.node, .attrs = from.attrs, .inputs = {}, .outputs = {}};
        for (const auto &t : from.inputs)
            s.inputs.push_back(t ? position_of(group.inputs, *t) : stage::absent);
        for (const std::size_t t : from.outputs) s.outputs.push_back(position_of(group.outputs, t));
        made->stages.push_back(std::move(s));
    }
    return partition(std::move(made));
}

}  // namespace

graph::graph() : impl_(guarded("graph", [] { return std::make_unique<impl>(); })) {}
graph::~graph() = default;
graph::graph(graph &&other) noexcept = default;
graph &graph::operator=(graph &&other) noexcept = default;

graph &graph::add(const op &node) {
    return guarded("graph::add", [&]() -> graph & {
        if (impl_ == nullptr) impl_ = std::make_unique<impl>();  // moved from: an empty graph again
        if (impl_->finalized)
            refuse(ops::cat("op ", op_label(node), " cannot be added; the graph is finalized"));
        for (const graph_node &n : impl_->nodes)
            if (n.node->id() == node.id())
                refuse(ops::cat("ops ", op_label(*n.node), " and ", op_label(node),
                    " have the same id; ids of ops must be unique"));
        // The parsed attributes refer to the name of the copy that the graph keeps.
        auto kept = std::make_shared<const op>(node);
        ops::parsed_attributes attrs = ops::check_op(*kept);
        impl_->nodes.push_back({std::move(kept), std::move(attrs)});
        return *this;
    });
}

graph &graph::remove(std::size_t op_id) {
    return guarded("graph::remove", [&]() -> graph & {
        if (is_finalized())
            refuse(ops::cat("op ", op_id, " cannot be removed; the graph is finalized"));
        const auto has_id = [&](const graph_node &n) { return n.node->id() == op_id; };
        if (impl_ == nullptr || std::erase_if(impl_->nodes, has_id) == 0)
            refuse(ops::cat("op ", op_id, " cannot be removed; the graph has no op of this id"));
        return *this;
    });
}

void graph::finalize() {
    guarded("graph::finalize", [&] {
        if (impl_ == nullptr) impl_ = std::make_unique<impl>();
        if (impl_->finalized) return;
        const std::vector<graph_node> &nodes = impl_->nodes;
        const graph_tensors declared = join_descriptions(nodes);
        const graph_edges edges(nodes);
        const graph_tensors inferred = infer(nodes, topological_order(nodes, edges), declared);
        std::vector<partition> made;
        for (const op_group &group : group_ops(nodes, edges, inferred))
            made.push_back(make_partition(made.size(), nodes, group, declared, inferred));
        impl_->partitions = std::move(made);
        impl_->finalized = true;
    });
}

bool graph::is_finalized() const noexcept {
    return impl_ != nullptr && impl_->finalized;
}

std::vector<partition> graph::partitions() const {
    return guarded("graph::partitions", [&] {
        if (!is_finalized()) refuse("partitions() needs a finalized graph; call finalize() first");
        return impl_->partitions;
    });
}

}  // namespace convgrad
