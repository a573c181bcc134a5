// The core of graphs: how ops hang together, in which order they run, and which of them run as one.
//
// Layer: above src/op; below both front ends, the library's own graphs (graph.cpp) and the drop-in
// (src/onednn), which only differ in how ops and tensors are described.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include <convgrad/op.hpp>

#include "op/lower.hpp"

namespace convgrad {

/// One op of a graph.
struct graph_node {
    /// Of a foreign op only the id, the name and the ids of its tensors mean something.
    std::shared_ptr<const op> node;
    /// Refers to the node's name. Nothing: a foreign op, which no pattern has a place for.
    std::optional<ops::parsed_attributes> attrs;
};

/// How ops are joined by tensors.
class graph_edges {
public:
    /// Throws invalid_graph where a tensor has two producers.
    explicit graph_edges(const std::vector<graph_node> &nodes);

    static constexpr std::size_t none = SIZE_MAX;
    /// Position of the op that writes this tensor, or none.
    [[nodiscard]] std::size_t producer(std::size_t tensor) const;
    /// Positions of the ops that read it, once for each port.
    [[nodiscard]] const std::vector<std::size_t> &consumers(std::size_t tensor) const;

private:
    std::unordered_map<std::size_t, std::size_t> producers_;
    std::unordered_map<std::size_t, std::vector<std::size_t>> consumers_;
};

/// Positions so that producers come before consumers, otherwise in the order in which the ops were
/// added. Throws invalid_graph for a cycle.
std::vector<std::size_t> topological_order(
    const std::vector<graph_node> &nodes, const graph_edges &edges);

/// The same for groups of ops (group_of[op] < count), otherwise by the first op of each. Where the
/// groups have a cycle, some are missing.
std::vector<std::size_t> order_groups(const std::vector<graph_node> &nodes,
    const graph_edges &edges, const std::vector<std::size_t> &group_of, std::size_t count);

/// What is known about the tensors of a graph, by id.
using graph_tensors = std::map<std::size_t, logical_tensor>;

/// One call of the library: an op with everything that was fused into it.
struct fused_stage {
    std::shared_ptr<const op> node;  // owns the name that attrs.op_name refers to
    ops::parsed_attributes attrs;
    /// Ids of the tensors, in the order of the op; nothing where an optional one is left out in
    /// front of another. With attrs.add the last one is the tensor to add.
    std::vector<std::optional<std::size_t>> inputs;
    std::vector<std::size_t> outputs;
};

/// Ops that run as one.
struct op_group {
    std::vector<std::size_t> members;  // positions, in topological order
    std::vector<fused_stage> stages;   // empty: not computed
    /// Ids of tensors that come from outside, and of those that are read outside or by nobody: each
    /// once, in the order of the members' ports.
    std::vector<std::size_t> inputs, outputs;
};

/// The groups of a graph without cycles, in topological order. Without `fuse` each op is one.
std::vector<op_group> group_ops(const std::vector<graph_node> &nodes, const graph_edges &edges,
    const graph_tensors &tensors, bool fuse = true);

/// `3 (Convolution "layer1")`: an op in messages about graphs.
std::string op_label(const op &node);

}  // namespace convgrad
