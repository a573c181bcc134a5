// Partitions: one or more ops that run as a unit, and what to do for them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "onednn/op.hpp"

namespace convgrad::onednn {

/// An op of a graph. Ops of other kinds have no `family`.
struct graph_op {
    std::shared_ptr<const client_op> given;
    std::optional<family_op> family;
};

/// Checks and copies. Throws invalid_op.
graph_op make_graph_op(const client_op &given);

/// One call of the library: an op of the family with everything that was fused into it.
struct fused_stage {
    family_op main;
    /// Ids of the tensors, in the order of the library's op; nothing where an optional one is left
    /// out in front of another. With main.attrs.add the last one is the tensor to add.
    std::vector<std::optional<std::size_t>> inputs;
    std::vector<std::size_t> outputs;
};

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

/// The partitions of a graph whose ops have no cycle, in topological order. Without `fuse` each op
/// is one.
std::vector<std::shared_ptr<const partition_body>> make_partitions(
    const std::vector<graph_op> &ops, engine_kind_value engine, fpmath_mode fpmath, bool fuse);

}  // namespace convgrad::onednn
