// Partitions: one or more ops that run as a unit, and what to do for them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "onednn/op.hpp"

namespace convgrad::onednn {

struct partition_body {
    std::size_t id = 0;
    engine_kind_value engine = engine_kind_value::cpu;
    fpmath_mode fpmath = fpmath_mode::strict;
    std::vector<std::shared_ptr<const client_op>> ops;  // in topological order
    std::vector<tensor_description> inputs, outputs;    // each tensor once
    std::vector<fused_stage> stages;                    // empty: not supported

    [[nodiscard]] bool is_supported() const { return !stages.empty(); }
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

/// The partitions of a graph whose ops have no cycle, in topological order. Without `fuse` each op
/// is one.
std::vector<std::shared_ptr<const partition_body>> make_partitions(
    const std::vector<graph_op> &ops, engine_kind_value engine, fpmath_mode fpmath, bool fuse);

}  // namespace convgrad::onednn
