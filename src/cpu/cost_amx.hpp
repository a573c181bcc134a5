// Predictions for the matrix engine; see cost_model.hpp.
#pragma once

#include "cpu/cost_model.hpp"

namespace convgrad::cpu {

/// Seconds of one thread.
double amx_tiled_seconds(const problem_sizes &s, const kernel_set &amx);
double amx_folded_seconds(const problem_sizes &s, const kernel_set &amx);
double amx_merged_seconds(const problem_sizes &s, const kernel_set &amx);

}  // namespace convgrad::cpu
