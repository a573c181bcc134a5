// Who runs a partition that both this library and the oneDNN behind it could run.
#pragma once

#include <string>

#include "graph/compiled.hpp"
#include "onednn/partition.hpp"

namespace convgrad::onednn {

/// Which partitions this library takes: CONVGRAD_ONEDNN_POLICY, whose words stand in this order.
/// Read once.
enum class takeover {
    always,   ///< all that it computes
    faster,   ///< those that are predicted to be faster than oneDNN is known to be, and `correct`
    correct,  ///< those that oneDNN does not compute, or not right
};
takeover policy();

/// Attributes that oneDNN ends the process on: dividing by a stride of 0, reading lists without
/// entries.
bool would_crash(const client_op &op);

/// What oneDNN is known to compute wrongly in this partition; empty: nothing.
std::string known_fault(const partition_body &partition);

/// How long oneDNN is known to take for it, in terms of what this library is predicted to take:
/// above 1 this library is faster. 0: nothing is known. `free_layouts`: oneDNN may choose how
/// tensors lie.
double predicted_gain(const compiled_partition::impl &ours, bool free_layouts);

/// The least gain that is taken for one: predictions are that far off at times.
inline constexpr double least_gain = 1.1;

}  // namespace convgrad::onednn
