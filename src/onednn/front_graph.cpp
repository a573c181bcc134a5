// Graphs in front of oneDNN: all ops are in its graph, it partitions them, and this library sees
// which partitions it could run.
#include <algorithm>

#include "onednn/choice.hpp"
#include "onednn/front.hpp"
#include "onednn/guard.hpp"
#include "onednn/runtime.hpp"
#include "op/message.hpp"

namespace convgrad::onednn {
namespace {

/// An op of no kind with the ports of one that oneDNN refused; destroyed with this object.
class placeholder {
public:
    placeholder(const library &next, const client_op &op) : next_(next) {
        said = next.op_create(&made, op.id, graph_op_kind::wildcard, op.name.c_str());
        for (const tensor_description &lt : op.inputs)
            if (said == status::success) said = next.op_add_input(made, &lt);
        for (const tensor_description &lt : op.outputs)
            if (said == status::success) said = next.op_add_output(made, &lt);
    }
    ~placeholder() {
        if (made != nullptr) next_.op_destroy(made);
    }
    placeholder(const placeholder &) = delete;
    placeholder &operator=(const placeholder &) = delete;

    status said = status::success;
    client_op *made = nullptr;

private:
    const library &next_;
};

/// One of oneDNN's partitions.
struct their_partition {
    std::vector<std::size_t> ops;  // positions in the graph's list; ids of unknown ops are left out
    std::vector<std::size_t> outputs;  // ids of tensors
    std::size_t id = 0;
    bool supported = false;
    bool known = true;  // all ops are
};

/// Handles that are only asked.
class partition_handles {
public:
    partition_handles(const library &next, client_graph *graph) : partition_handles(next) {
        std::size_t count = 0;
        if (next.graph_get_partition_num(graph, &count) != status::success || count == 0) return;
        handles_.resize(count);
        if (next.graph_get_partitions(graph, count, handles_.data()) != status::success)
            handles_.clear();
    }
    ~partition_handles() {
        for (client_partition *handle : handles_) {
            if (handle == nullptr) continue;
            notes<client_partition>::get().drop(handle);
            next_.partition_destroy(handle);
        }
    }
    partition_handles(const partition_handles &) = delete;
    partition_handles &operator=(const partition_handles &) = delete;

    [[nodiscard]] std::size_t size() const { return handles_.size(); }
    [[nodiscard]] client_partition *at(std::size_t i) const { return handles_[i]; }
    client_partition *release(std::size_t i) { return std::exchange(handles_[i], nullptr); }

private:
    // The destructor runs if what comes after this one throws.
    explicit partition_handles(const library &next) : next_(next) {}

    const library &next_;
    std::vector<client_partition *> handles_;
};

std::size_t position_of(const std::vector<graph_op> &ops, std::size_t id) {
    const auto found = std::find_if(
        ops.begin(), ops.end(), [&](const graph_op &op) { return op.given->id == id; });
    return static_cast<std::size_t>(found - ops.begin());
}

their_partition ask(
    const library &next, client_partition *partition, const std::vector<graph_op> &ops) {
    their_partition said;
    std::uint8_t supported = 0;
    std::size_t count = 0;
    next.partition_get_id(partition, &said.id);
    if (next.partition_is_supported(partition, &supported) == status::success)
        said.supported = supported != 0;
    next.partition_get_op_num(partition, &count);
    std::vector<std::size_t> ids(count);
    if (count > 0) next.partition_get_ops(partition, count, ids.data());
    for (const std::size_t id : ids) {
        const std::size_t at = position_of(ops, id);
        if (at == ops.size())
            said.known = false;
        else
            said.ops.push_back(at);
    }
    count = 0;
    next.partition_get_output_ports_num(partition, &count);
    std::vector<tensor_description> ports(count);
    if (count > 0) next.partition_get_output_ports(partition, count, ports.data());
    for (const tensor_description &lt : ports) said.outputs.push_back(lt.id);
    return said;
}

bool same_set(std::vector<std::size_t> a, std::vector<std::size_t> b) {
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    return a == b;
}

/// Names of the ops that keep a partition from being ours.
std::string foreign_kinds(const std::vector<graph_op> &ops) {
    std::string kinds;
    for (const graph_op &op : ops)
        if (!op.node.attrs) kinds += (kinds.empty() ? "" : " ") + name_of(op.given->kind);
    return kinds.empty() ? "ops that are not fused here" : kinds + " not computed here";
}

/// A body for one of oneDNN's partitions: with stages, if the library runs these ops as one.
std::shared_ptr<partition_body> body_of(
    const client_graph &graph, const their_partition &theirs, bool usable) {
    std::vector<graph_op> ops;
    for (const std::size_t at : theirs.ops) ops.push_back(graph.ops[at]);
    std::vector<op_group> groups;
    const auto is_known = [](const graph_op &op) { return op.node.attrs.has_value(); };
    if (usable && theirs.known && std::all_of(ops.begin(), ops.end(), is_known)) {
        const std::vector<graph_node> nodes = nodes_of(ops);
        groups = group_ops(nodes, graph_edges(nodes), tensors_of(nodes));
    }
    std::shared_ptr<partition_body> body;
    if (groups.size() == 1 && !groups[0].stages.empty()
        && same_set(groups[0].outputs, theirs.outputs)) {
        body = make_body(ops, std::move(groups[0]), graph.settings);
    } else {
        body = std::make_shared<partition_body>();
        body->settings = graph.settings;
        for (const graph_op &op : ops) body->ops.push_back(op.given);
    }
    body->id = theirs.id;
    body->delegable = theirs.supported;
    if (body->stages.empty()) body->foreign = foreign_kinds(ops);
    return body;
}

/// The partitions of a graph while they are found.
class planner {
public:
    planner(client_graph &graph, std::vector<their_partition> theirs)
        : graph_(graph), theirs_(std::move(theirs)), nodes_(nodes_of(graph.ops)),
          part_of_(nodes_.size(), none) {
        for (std::size_t i = 0; i < theirs_.size(); ++i)
            for (const std::size_t at : theirs_[i].ops) part_of_[at] = i;
    }

    /// Every partition as oneDNN has it.
    void take_over(bool usable) {
        graph_.partitions.clear();
        graph_.places.clear();
        for (std::size_t i = 0; i < theirs_.size(); ++i) {
            graph_.partitions.push_back(body_of(graph_, theirs_[i], usable));
            graph_.places.push_back(i);
        }
    }

    /// Where oneDNN does not support ops that this library would run as one, they become one.
    void join_unsupported() {
        std::vector<graph_node> left = nodes_;
        for (std::size_t at = 0; at < left.size(); ++at)
            if (part_of_[at] == none || theirs_[part_of_[at]].supported) left[at].attrs.reset();
        const graph_edges edges(left);
        for (op_group &group : group_ops(left, edges, tensors_of(left)))
            if (group.members.size() > 1 && !group.stages.empty()) join(std::move(group));
        if (joined_) reorder(edges);
    }

private:
    static constexpr std::size_t none = SIZE_MAX;

    void join(op_group group) {
        const std::size_t first = part_of_[group.members[0]];
        for (const std::size_t at : group.members) part_of_[at] = first;
        const auto body = make_body(graph_.ops, std::move(group), graph_.settings);
        body->id = theirs_[first].id;
        body->joined = true;
        graph_.partitions[first] = body;
        joined_ = true;
    }

    /// Topological order, without the partitions that became part of others.
    void reorder(const graph_edges &edges) {
        std::vector<std::size_t> dense_of(theirs_.size(), none), parts, group_of;
        for (const std::size_t part : part_of_) {
            const bool fresh = part == none || dense_of[part] == none;
            if (fresh && part != none) dense_of[part] = parts.size();
            group_of.push_back(fresh ? parts.size() : dense_of[part]);
            if (fresh) parts.push_back(part);
        }
        std::vector<std::shared_ptr<const partition_body>> ordered;
        std::vector<std::size_t> places;
        for (const std::size_t group : order_groups(nodes_, edges, group_of, parts.size())) {
            if (parts[group] == none) continue;
            ordered.push_back(graph_.partitions[parts[group]]);
            places.push_back(parts[group]);
        }
        graph_.partitions = std::move(ordered);
        graph_.places = std::move(places);
    }

    client_graph &graph_;
    std::vector<their_partition> theirs_;
    std::vector<graph_node> nodes_;
    std::vector<std::size_t> part_of_;  // which of oneDNN's partitions has the op
    bool joined_ = false;
};

void plan_partitions(
    const library &next, client_graph *graph, client_graph &known, partition_policy policy) {
    const partition_handles handles(next, graph);
    std::vector<their_partition> theirs;
    for (std::size_t i = 0; i < handles.size(); ++i)
        theirs.push_back(ask(next, handles.at(i), known.ops));
    planner plan(known, std::move(theirs));
    try {
        plan.take_over(true);
        if (policy != partition_policy::debug) plan.join_unsupported();
    } catch (const error &e) {
        // A graph that this library would refuse (a tensor with two producers) is oneDNN's.
        if (e.code() != error_code::invalid_graph) throw;
        trace_error("graph_filter", e.what());
        plan.take_over(false);
    }
}

status note_partition(client_partition *handle, std::shared_ptr<const partition_body> body) {
    return guarded("get_partitions", [&] {
        notes<client_partition>::get().keep(
            handle, std::make_shared<client_partition>(client_partition{std::move(body)}));
        return status::success;
    });
}

}  // namespace

status add_op_in_front(const library &next, client_graph *graph, const client_op *op) {
    const auto known = notes<client_graph>::get().find(graph);
    const auto given = notes<client_op>::get().find(op);
    if (known == nullptr || given == nullptr) return next.add_op(graph, op);
    return guarded("add_op", [&] {
        for (const graph_op &other : known->ops)
            if (other.given->id == given->id) return next.add_op(graph, op);  // the first one stays
        if (known->ops.size() == known->ops.capacity())  // what oneDNN has is noted without fail
            known->ops.reserve(2 * known->ops.size() + 8);
        graph_op ours = make_foreign_op(*given);
        try {
            ours = make_graph_op(*given);
        } catch (const error &e) {
            trace_error("add_op", e.what());
            if (would_crash(*given)) return to_status(e.code());
        }
        status said = next.add_op(graph, op);
        if (said == status::invalid_graph_op && is_family(given->kind) && ours.node.attrs) {
            const placeholder instead(next, *given);
            said =
                instead.said == status::success ? next.add_op(graph, instead.made) : instead.said;
        }
        if (said == status::success) known->ops.push_back(std::move(ours));
        return said;
    });
}

status filter_in_front(const library &next, client_graph *graph, partition_policy policy) {
    const status said = next.graph_filter(graph, policy);
    const auto known = notes<client_graph>::get().find(graph);
    if (said != status::success || known == nullptr) return said;
    const status planned = guarded("graph_filter", [&] {
        plan_partitions(next, graph, *known, policy);
        return status::success;
    });
    if (planned == status::success) return said;
    // Filtered it is: without memory for more, partitions are oneDNN's as they are.
    known->partitions.clear();
    known->places.clear();
    return said;
}

status get_partitions_in_front(
    const library &next, client_graph *graph, std::size_t count, client_partition **made) {
    const auto known = notes<client_graph>::get().find(graph);
    if (known == nullptr || known->places.empty())
        return next.graph_get_partitions(graph, count, made);
    if (count != known->places.size()) return status::invalid_arguments;
    return guarded("graph_get_partitions", [&] {
        partition_handles handles(next, graph);
        for (std::size_t i = 0; i < count; ++i) {
            if (known->places[i] >= handles.size()) return status::invalid_graph;
            const status kept = note_partition(handles.at(known->places[i]), known->partitions[i]);
            if (kept != status::success) return kept;
        }
        for (std::size_t i = 0; i < count; ++i) made[i] = handles.release(known->places[i]);
        return status::success;
    });
}

status create_with_op_in_front(
    const library &next, client_partition **made, const client_op *op, engine_kind_value engine) {
    const auto given = notes<client_op>::get().find(op);
    if (given == nullptr) return next.partition_create_with_op(made, op, engine);
    client_partition *theirs = nullptr;
    const status created = guarded("partition_create_with_op", [&] {
        client_graph single;
        single.settings = {engine, default_fpmath_mode()};
        single.ops.push_back(make_foreign_op(*given));
        try {
            single.ops[0] = make_graph_op(*given);
        } catch (const error &e) {
            trace_error("partition_create_with_op", e.what());
            if (would_crash(*given)) return to_status(e.code());
        }
        status said = next.partition_create_with_op(&theirs, op, engine);
        if (said != status::success && is_family(given->kind) && single.ops[0].node.attrs) {
            const placeholder instead(next, *given);
            if (instead.said != status::success) return said;
            said = next.partition_create_with_op(&theirs, instead.made, engine);
        }
        if (said != status::success) return said;
        return note_partition(theirs, body_of(single, ask(next, theirs, single.ops), true));
    });
    if (created == status::success)
        *made = theirs;
    else if (theirs != nullptr)
        next.partition_destroy(theirs);
    return created;
}

}  // namespace convgrad::onednn
