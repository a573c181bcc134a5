// Building and finalising graphs.
#include "graph/graph.hpp"

#include "graph/tensors.hpp"
#include "op/guard.hpp"
#include "op/message.hpp"

namespace convgrad {
namespace {

[[noreturn]] void refuse(const std::string &text) {
    throw error(error_code::invalid_graph, "invalid graph: " + text);
}

/// Fills in shapes along the graph; returns all tensors with what is known about them.
std::map<std::size_t, logical_tensor> infer(const std::vector<graph_node> &nodes,
    const std::vector<std::size_t> &order, std::map<std::size_t, logical_tensor> tensors) {
    for (std::size_t at : order) {
        const graph_node &n = nodes[at];
        std::vector<logical_tensor> inputs, outputs;
        for (const logical_tensor &lt : n.node->inputs()) inputs.push_back(tensors.at(lt.id));
        for (const logical_tensor &lt : n.node->outputs()) outputs.push_back(tensors.at(lt.id));
        ops::infer_shapes(n.attrs, inputs, outputs);
        for (logical_tensor &lt : outputs) {
            const std::size_t id = lt.id;
            tensors[id] = std::move(lt);
        }
    }
    return tensors;
}

/// Position of `id` in `list`, added at the end if it is new.
std::size_t position_of(std::vector<logical_tensor> &list, const logical_tensor &lt) {
    for (std::size_t i = 0; i < list.size(); ++i)
        if (list[i].id == lt.id) return i;
    list.push_back(lt);
    return list.size() - 1;
}

partition make_partition(std::size_t id, const std::vector<graph_node> &nodes,
    const std::vector<std::size_t> &members, const std::map<std::size_t, logical_tensor> &declared,
    const std::map<std::size_t, logical_tensor> &inferred) {
    auto made = std::make_shared<partition::impl>();
    made->id = id;
    for (std::size_t at : members) {
        const graph_node &n = nodes[at];
        stage s{.node = n.node, .attrs = n.attrs, .inputs = {}, .outputs = {}};
        for (const logical_tensor &lt : n.node->inputs())
            s.inputs.push_back(position_of(made->inputs, inferred.at(lt.id)));
        for (const logical_tensor &lt : n.node->outputs()) {
            s.outputs.push_back(position_of(made->outputs, inferred.at(lt.id)));
            made->declared_outputs.push_back(declared.at(lt.id));
        }
        made->ops.push_back(n.node);
        made->stages.push_back(std::move(s));
    }
    return partition(std::move(made));
}

}  // namespace

std::string op_label(const op &node) {
    std::string text = ops::cat(node.id(), " (", to_string(node.kind()));
    if (!node.name().empty()) text += ops::cat(" ", ops::quoted{node.name()});
    return text + ")";
}

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
        const graph_edges edges = analyse(nodes);
        const auto inferred = infer(nodes, topological_order(nodes, edges), edges.tensors);
        std::vector<partition> made;
        for (const auto &members : group_ops(nodes, edges))
            made.push_back(make_partition(made.size(), nodes, members, edges.tensors, inferred));
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
