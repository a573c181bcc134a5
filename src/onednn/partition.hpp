// Partitions: one or more ops that run as a unit, and what to do for them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "onednn/op.hpp"

namespace convgrad::onednn {

/// What all partitions of a graph share.
struct graph_settings {
    engine_kind_value engine = engine_kind_value::cpu;
    fpmath_mode fpmath = fpmath_mode::strict;
};

struct partition_body {
    std::size_t id = 0;
    graph_settings settings;
    std::vector<std::shared_ptr<const client_op>> ops;  // in topological order
    std::vector<tensor_description> inputs, outputs;    // each tensor once
    std::vector<fused_stage> stages;                    // empty: not computed here
    /// In front of oneDNN: it supports the partition, and runs it where that is better.
    bool delegable = false;
    /// In front of oneDNN: several of its partitions, none of which it supports.
    bool joined = false;
    /// Why the library has no stages for it.
    std::string foreign;

    [[nodiscard]] bool is_supported() const { return delegable || !stages.empty(); }
    /// "Convolution:conv1+ReLU:relu1", for the trace.
    [[nodiscard]] std::string describe() const;
};

/// What a client holds.
struct client_partition {
    std::shared_ptr<const partition_body> body;
};

/// Ids that no two partitions of a process share.
std::size_t next_partition_id();

/// The ops as the graph core sees them, and what their tensors are.
std::vector<graph_node> nodes_of(const std::vector<graph_op> &ops);
graph_tensors tensors_of(const std::vector<graph_node> &nodes);

/// A partition of the ops of `group`, without an id.
std::shared_ptr<partition_body> make_body(
    const std::vector<graph_op> &ops, op_group group, const graph_settings &settings);

/// The partitions of a graph whose ops have no cycle, in topological order. Without `fuse` each op
/// is one.
std::vector<std::shared_ptr<const partition_body>> make_partitions(
    const std::vector<graph_op> &ops, const graph_settings &settings, bool fuse);

}  // namespace convgrad::onednn
