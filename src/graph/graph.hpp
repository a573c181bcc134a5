// What graphs and partitions hold.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include <convgrad/graph.hpp>

#include "graph/compiled.hpp"

namespace convgrad {

struct partition::impl {
    std::size_t id = 0;
    std::vector<std::shared_ptr<const op>> ops;
    std::vector<stage> stages;
    std::vector<logical_tensor> inputs, outputs;  // with what the graph inferred
    /// Outputs as the user described them. Compiling for other inputs starts from these.
    std::vector<logical_tensor> declared_outputs;
};

/// One op of a graph under construction.
struct graph_node {
    std::shared_ptr<const op> node;
    ops::parsed_attributes attrs;
};

/// Joins of ops by tensors, found by analyse().
struct graph_edges {
    std::map<std::size_t, logical_tensor> tensors;     // all descriptions of an id joined
    std::map<std::size_t, std::size_t> producers;      // tensor id → position of the op
    std::vector<std::vector<std::size_t>> successors;  // op position → op positions
};

struct graph::impl {
    std::vector<graph_node> nodes;
    bool finalized = false;
    std::vector<partition> partitions;
};

/// Joins descriptions and finds producers. Throws invalid_graph for contradicting descriptions and
/// for a second producer.
graph_edges analyse(const std::vector<graph_node> &nodes);

/// Positions so that producers come before consumers, otherwise in the order in which the ops were
/// added. Throws invalid_graph for a cycle.
std::vector<std::size_t> topological_order(
    const std::vector<graph_node> &nodes, const graph_edges &edges);

/// Which ops run together: lists of positions, in topological order.
std::vector<std::vector<std::size_t>> group_ops(
    const std::vector<graph_node> &nodes, const graph_edges &edges);

/// `3 "layer1"`: an op in messages about graphs.
std::string op_label(const op &node);

}  // namespace convgrad
