// Data passes whose vectors run along positions, with results where they lie: 1×1 layers on planes
// (pointwise_data, packed_pointwise) and first layers (shifted_data).
#include <algorithm>

#include "cpu/cost_counts.hpp"

namespace convgrad::cpu {
namespace {

work_counts pointwise_work(const problem_sizes &s, const kernel_set &k) {
    const double positions = s.x[2].src, step = 2.0 * k.lanes;
    const block_steps b = in_pieces(k, s.out_c, 2);
    const double steps = parts_of(positions, step);
    work_counts w;
    w.steps = s.maps * parts_of(s.in_c, k.k_per_unit) * steps * b.cycles;
    w.calls = s.maps * steps * b.blocks;
    w.weights = s.groups * s.in_c * s.out_c;
    if (!is_fma(k)) {  // packed_pointwise
        w.turned = s.maps * s.in_c * positions;
        return w;
    }
    w.direct = s.maps * s.in_c * positions;
    if (!divides(step, positions)) w.copied = s.maps * s.in_c * step;
    constexpr double l1_bytes = 64 << 10;  // beyond, a step is read anew for each block of rows
    if (4 * s.in_c * step > l1_bytes) w.spilled = w.direct * (b.blocks - 1);
    return w;
}

work_counts shifted_work(const problem_sizes &s, const kernel_set &k) {
    const axis_sizes &d = s.x[0], &h = s.x[1], &w = s.x[2];
    const double vectors = parts_of(w.length, k.lanes), steps = floor_of(vectors / 2);
    const block_steps two = in_pieces(k, s.out_c, 2), one = in_pieces(k, s.out_c, 1);
    const double rows = s.maps * d.results * h.results;
    const bool odd = vectors > 2 * steps;
    work_counts c;
    c.steps = s.maps * d.pairs * h.pairs * w.kernel * s.in_c
              * (steps * two.cycles + (odd ? one.cycles : 0));
    c.calls = rows * two.blocks * (steps + (odd ? 1 : 0));
    c.runs = c.calls * d.kernel;
    c.tasks = rows;
    // A row is copied for each of its taps.
    const double copied =
        s.maps * s.in_c * d.touched * h.touched * w.kernel * whole(w.length, k.lanes);
    (w.stride == 1 ? c.copied : w.stride == 2 ? c.gathered : c.far) = copied;
    c.rows = s.maps * s.in_c * d.touched * h.touched * w.kernel;
    c.weights = s.groups * s.taps * s.in_c * s.out_c;
    return c;
}

}  // namespace

prediction predict_pointwise(const problem_sizes &s, const kernel_set &k) {
    const double weights = s.groups * s.ic * s.oc;
    return {seconds_with(cost_kind::pointwise_data, pointwise_work(s, k), k),
        data_bytes(s, weights, 4 * weights, 16 << 10)};
}

prediction predict_shifted(const problem_sizes &s, const kernel_set &k) {
    if (s.empty) return nothing;
    constexpr double patch = 192 << 10;
    const double weights = s.groups * s.taps * s.ic * s.oc;
    return {seconds_with(cost_kind::shifted_data, shifted_work(s, k), k),
        data_bytes(s, weights, 4 * weights, patch), data_pieces(s, patch / s.x[2].kernel, 4, 1)};
}

}  // namespace convgrad::cpu
