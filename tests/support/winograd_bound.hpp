// How far a result of Winograd's algorithm may be from the exact one. It is stable by norm, not
// element by element: the bound knows the largest operands, not each.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "cpu/kernels/winograd.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {

/// How rounding errors at the points of an axis with m results grow on their way into a result, by
/// root mean square: the largest of √Σ_points Aᵀ² · ‖G‖² · ‖Bᵀ‖² (rows by their Euclidean norms),
/// and of the same with G and A changing places, which the gradient of the filter has. Tiles at an
/// edge, with fewer points, stay below 4.96 for m = 4; the single result for m = 2 has 2.65.
inline double winograd_growth(int m) {
    return m == 2 ? 2.65 : 5.13;
}

/// What compare_bounded() lets pass: six standard deviations of the error of a sum over points
/// whose operands are as large as the largest, rounded a few times on the way (twice, by root mean
/// square).
inline leniency winograd_leniency(const workbench &bench, cpu::winograd_tile tile) {
    const conv::problem &p = bench.problem();
    double largest[2] = {};
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
    const double positions =
        static_cast<double>(p.mb * p.x[0].dst * (p.x[1].dst + 4) * (p.x[2].dst + 4));
    const double channels =
        static_cast<double>((p.what == conv::pass::forward ? p.ic : p.oc) * p.x[0].kernel);
    const double terms = weights ? positions : channels;
    const double growth =
        winograd_growth(cpu::winograd_rows(tile)) * winograd_growth(cpu::winograd_columns(tile));
    leniency allowed;
    allowed.absolute = 0x1p-24 * 12 * growth * std::sqrt(terms) * largest[0] * largest[1];
    return allowed;
}

/// The tile of an algorithm's name, e.g. "winograd4x2.fma".
inline std::optional<cpu::winograd_tile> winograd_tile_of(std::string_view algorithm) {
    for (const cpu::winograd_tile t : cpu::all_winograd_tiles)
        if (algorithm.starts_with("winograd" + std::to_string(cpu::winograd_rows(t)) + "x"
                                  + std::to_string(cpu::winograd_columns(t))))
            return t;
    return std::nullopt;
}

/// `allowed`, and for Winograd's algorithm what it needs.
inline leniency leniency_of(
    const workbench &bench, std::string_view algorithm, leniency allowed = {}) {
    if (const auto tile = winograd_tile_of(algorithm))
        allowed.absolute = winograd_leniency(bench, *tile).absolute;
    return allowed;
}

/// Whether sums of small integers come out exactly: the points of larger tiles are fractions.
inline bool exact_on_integers(std::string_view algorithm) {
    return winograd_tile_of(algorithm).value_or(cpu::winograd_tile::f2x2)
           == cpu::winograd_tile::f2x2;
}

/// After a run on integers: bit for bit, or (larger tiles) within the bound.
inline std::string compare_integers(const workbench &bench, std::string_view algorithm) {
    if (exact_on_integers(algorithm)) return bench.compare_exact();
    return bench.compare_bounded(leniency_of(bench, algorithm));
}

}  // namespace convgrad::test
