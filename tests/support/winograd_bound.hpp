// How far a result of Winograd's algorithm may be from the exact one. It is stable by norm, not
// element by element: the bound knows the largest operands, not each.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "cpu/winograd.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {

/// How rounding errors at the points of an axis grow on their way into a result, by root mean
/// square: the largest, over tiles and edges of F(m, r), of √Σ_points Aᵀ² · ‖G‖² · ‖Bᵀ‖² (rows by
/// their Euclidean norms), and of the same with G and A changing places, which the gradient of the
/// filter has.
inline double winograd_growth(int points, int taps) {
    if (points == 1) return 1;
    if (points == 4) return taps == 2 ? 2.24 : 2.65;
    return taps == 2 ? 5.4 : taps == 3 ? 5.13 : taps == 4 ? 5.16 : 5.86;
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
    const bool forward = p.what == conv::pass::forward;
    const double channels = static_cast<double>(
        (forward ? p.ic * p.x[1].stride * p.x[2].stride : p.oc) * p.x[0].kernel);
    const double terms = weights ? positions : channels;
    const cpu::winograd_taps taps = cpu::taps_for(p);
    const double growth =
        winograd_growth(cpu::winograd_points(tile, 0, taps.rows), taps.rows)
        * winograd_growth(cpu::winograd_points(tile, 1, taps.columns), taps.columns);
    leniency allowed;
    allowed.absolute = 0x1p-24 * 12 * growth * std::sqrt(terms) * largest[0] * largest[1];
    return allowed;
}

/// The tile of an algorithm's name, e.g. "winograd4x2.fma".
inline std::optional<cpu::winograd_tile> winograd_tile_of(std::string_view algorithm) {
    for (const cpu::winograd_tile t : cpu::all_winograd_tiles)
        if (algorithm.starts_with("winograd" + std::to_string(cpu::winograd_results(t, 0, 3)) + "x"
                                  + std::to_string(cpu::winograd_results(t, 1, 3))))
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
