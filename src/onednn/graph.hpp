// Graphs under construction.
#pragma once

#include <unordered_map>

#include "onednn/partition.hpp"

namespace convgrad::onednn {

struct client_graph {
    engine_kind_value engine = engine_kind_value::cpu;
    fpmath_mode fpmath = fpmath_mode::strict;
    int fpmath_for_integers = 0;
    std::vector<graph_op> ops;
    bool finalized = false;
    std::vector<std::shared_ptr<const partition_body>> partitions;
};

/// How ops are joined by tensors.
class graph_edges {
public:
    /// Throws invalid_graph where a tensor has two producers.
    explicit graph_edges(const std::vector<graph_op> &ops);

    static constexpr std::size_t none = SIZE_MAX;
    /// Position of the op that writes this tensor, or none.
    [[nodiscard]] std::size_t producer(std::size_t tensor) const;
    /// Positions of the ops that read it, once for each port.
    [[nodiscard]] const std::vector<std::size_t> &consumers(std::size_t tensor) const;

private:
    std::unordered_map<std::size_t, std::size_t> producers_;
    std::unordered_map<std::size_t, std::vector<std::size_t>> consumers_;
};

/// Groups of ops (group_of[op] < count) in topological order, otherwise by the first op of each.
/// Where the groups have a cycle, some are missing.
std::vector<std::size_t> order_groups(const std::vector<graph_op> &ops, const graph_edges &edges,
    const std::vector<std::size_t> &group_of, std::size_t count);

}  // namespace convgrad::onednn
