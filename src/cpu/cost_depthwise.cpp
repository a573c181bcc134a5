// What layers of one channel per group do, counted for the cost model.
#include <algorithm>

#include "cpu/cost_counts.hpp"
#include "cpu/cost_model.hpp"

namespace convgrad::cpu {

bool merges_columns(const problem_sizes &s, const kernel_set &k) {
    const bool along = s.x[2].kernel > 1 || s.x[1].kernel == 1;  // else the axes change places
    return along && fewest_merged * s.p.groups <= 2 * k.lanes && s.x[2].stride == 1
           && s.p.src.x[2] == s.p.groups && s.p.dst.x[2] == s.p.groups;
}

namespace {

/// Positions of a row, those that go together counted as one (merge_columns()).
double depthwise_positions(const problem_sizes &s, const kernel_set &k) {
    const double length = s.weights ? s.x[2].dst : s.x[2].length;
    if (!merges_columns(s, k)) return length;
    const double ends = std::min(length, (s.x[2].kernel - 1) * s.x[2].dilation);
    return ends + parts_of(length - ends, floor_of(2.0 * k.lanes / s.groups));
}

work_counts depthwise_work(const problem_sizes &s, const kernel_set &k) {
    // Pairs, of which a last vector goes alone, if it is not of several positions.
    const bool pairs = merges_columns(s, k);
    const double vectors =
        pairs ? 2 * parts_of(s.groups, 2.0 * k.lanes) : parts_of(s.groups, number(k.lanes));
    work_counts w;
    w.runs = s.images * vectors * s.x[0].pairs * s.x[1].pairs;
    w.steps = w.runs * s.x[2].kernel * depthwise_positions(s, k);
    // Incomplete pairs of merged positions are summed line by line and tap by tap.
    if (s.weights && merges_columns(s, k) && !divides(s.groups, 2.0 * k.lanes))
        w.runs *= s.x[2].kernel;
    w.direct = s.maps * (s.weights ? s.src_positions : s.in_positions);
    w.results_last = s.maps * s.out_positions;
    w.weights = s.groups * s.taps;
    return w;
}

work_counts planes_work(const problem_sizes &s, const kernel_set &k) {
    const double planes = s.maps * s.oc, stride = s.x[2].stride;
    work_counts w;
    w.runs = planes * s.x[0].pairs * s.x[1].pairs * s.x[2].kernel;
    w.steps = w.runs * parts_of(s.x[2].dst, k.lanes);
    // Taps of a column that share no row: each loads what it multiplies (7×7 with rows 6 apart: 1.9
    // and 3 times as long).
    if (s.x[1].kernel > 1 && s.x[1].dilation > s.x[1].stride) w.steps *= s.weights ? 3 : 1.9;
    double &how = stride > 2 ? w.far : stride == 2 ? w.gathered : w.turned;
    how = s.maps * (s.weights ? s.src_positions : s.in_positions);
    w.results_apart = planes * s.out_positions;
    w.tasks = s.groups * s.oc;
    return w;
}

}  // namespace

prediction predict_depthwise(const problem_sizes &s, const kernel_set &k) {
    if (s.empty) return nothing;
    const cost_kind kind = s.weights ? cost_kind::depthwise_weights : cost_kind::depthwise_data;
    return {seconds_of(depthwise_work(s, k), work_rates(kind, k)), 4 * s.groups * s.taps};
}

prediction predict_planes(const problem_sizes &s, const kernel_set &k) {
    if (s.empty) return nothing;
    const cost_kind kind = s.weights ? cost_kind::plane_weights : cost_kind::plane_data;
    // Strided sums over planes that the last cache does not hold (96 channels 112×112, f32: twice
    // as long as the counts say).
    constexpr double large = 16 << 20, byte = 0.04e-9;
    const double bytes = s.size * s.maps * (s.src_positions + s.oc * s.dst_positions);
    const double waits = s.weights && s.x[2].stride > 1 && bytes > large ? bytes * byte : 0;
    return {waits + seconds_of(planes_work(s, k), work_rates(kind, k)), 64 << 10};
}

}  // namespace convgrad::cpu
