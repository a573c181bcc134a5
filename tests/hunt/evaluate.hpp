// The specification's section 6 in f64: every product, one after the other.
#pragma once

#include <vector>

#include "problem.hpp"

namespace hunt {

/// Values in the order (n, channel, positions) and (small channel, large channel within its group,
/// taps), whatever the layout.
using values = std::vector<double>;

/// What an output must be: the sum, and the sum of the absolute values of its terms.
struct expected {
    values sum, size;
};

/// The three sums over the same products.
void add_layer(const problem &p, const values &from, const values &weights, expected &to);
void add_data_gradient(
    const problem &p, const values &diff_dst, const values &weights, expected &to);
void add_weights_gradient(
    const problem &p, const values &src, const values &diff_dst, expected &to);
/// The sum of diff_dst over batch and space.
void add_bias_gradient(const problem &p, const values &diff_dst, expected &to);

/// Where element (n, c, position) of a data tensor and (small, large, taps) of a filter stand in
/// the rows of their shapes: for each value in the order above, the index of the element.
std::vector<std::size_t> data_order(const problem &p, dim channels, dim axis::*length);
std::vector<std::size_t> weights_order(const problem &p);

}  // namespace hunt
