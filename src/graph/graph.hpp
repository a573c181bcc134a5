// What graphs and partitions hold.
#pragma once

#include <memory>
#include <vector>

#include <convgrad/graph.hpp>

#include "graph/compiled.hpp"
#include "graph/core.hpp"

namespace convgrad {

struct partition::impl {
    std::size_t id = 0;
    std::vector<std::shared_ptr<const op>> ops;
    std::vector<stage> stages;                    // empty: not supported
    std::vector<logical_tensor> inputs, outputs;  // with what the graph inferred
    /// Outputs as the user described them. Compiling for other inputs starts from these.
    std::vector<logical_tensor> declared_outputs;
};

struct graph::impl {
    std::vector<graph_node> nodes;
    bool finalized = false;
    std::vector<partition> partitions;
};

}  // namespace convgrad
