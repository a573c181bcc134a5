// The oracle: plain loops, f64 sums, any legal problem, any strides. Tests and `convgrad verify`
// use it; fast code never does.
#pragma once

#include "conv/problem.hpp"

namespace convgrad::conv {

/// Computes the whole problem, with bias, add, ReLU, accumulate and bias gradient, rounding once.
/// `accumulate` holds for every output, the bias gradient included.
void reference(const problem &p, const buffers &data);

/// One output element (before rounding, in f64), evaluated on its own. Coordinates by pass:
/// forward (n, o, y...), backward data (n, i, x...), backward weights (o over all groups, i within
/// its group, k...), backward bias (channel). Channels of data run over all groups.
struct point {
    dim a = 0, b = 0;
    dim x[3] = {0, 0, 0};
};
struct reference_value {
    double value = 0;      // the result, all epilogues applied
    double magnitude = 0;  // Σ |term|, for error bounds
    dim terms = 0;         // number of in-range products
};
reference_value reference_at(const problem &p, const buffers &data, const point &at);

/// One element of the bias gradient, channel over all groups.
reference_value reference_bias_at(const problem &p, const buffers &data, dim channel);

}  // namespace convgrad::conv
