// How far a result of Winograd's algorithm may be from the exact one. It is stable by norm, not
// element by element: the bound knows the largest operands, not each.
#pragma once

#include <algorithm>
#include <cmath>

#include "cpu/kernels/winograd.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {

/// For the points 0, ±p…, ∞ of an axis with m results: max over results (or taps) of
/// Σ_points |Aᵀ| · ‖G‖ · ‖Bᵀ‖, rows by their sums of magnitudes. (F(2, 3): 6; F(4, 3): 73.)
inline double winograd_growth(int m) { return m == 2 ? 6 : 75; }

/// What compare_bounded() lets pass: each of `terms` + 40 roundings (transforms included) may cost
/// 2^-24 of the largest sum that the points can hold.
inline leniency winograd_leniency(const workbench &bench, cpu::winograd_tile tile) {
    const conv::problem &p = bench.problem();
    double largest[2] = {}, positions = 0;
    int found = 0;
    for (const role r : {role::src, role::weights, role::dst}) {
        if (r == output_of(p)) continue;
        for_each_element(extents_of(p, r), [&](const auto &, dim offset) {
            const double v = std::fabs(bench.read(r, offset));
            if (std::isfinite(v)) largest[found] = std::max(largest[found], v);
        });
        ++found;
    }
    const bool weights = p.what == conv::pass::backward_weights;
    positions = static_cast<double>(p.mb * (p.x[1].dst + 4) * (p.x[2].dst + 4));
    const double channels = static_cast<double>(p.what == conv::pass::forward ? p.ic : p.oc);
    const double terms = weights ? positions : channels;
    const double growth = winograd_growth(cpu::winograd_rows(tile))
                          * winograd_growth(cpu::winograd_columns(tile));
    leniency allowed;
    allowed.absolute =
        0x1p-24 * (std::sqrt(terms) + 10) * growth * terms * largest[0] * largest[1];
    return allowed;
}

}  // namespace convgrad::test
