// The matrix engine: what it does for a problem, and what that takes.
//
// The rates come from an Intel Xeon with AMX-BF16 (16 cores, 2.9 TFLOP/s of bf16 each), one thread,
// all training shapes and 400 problems of `convgrad bench --scan`, all ops, types and layouts:
// 9,200 cases with the times of every algorithm. That machine was shared, and ran three times
// slower for seconds on end; so times are fitted in terms of those that vectors took beside them,
// whose rates (cost_rates.cpp) hold there too: within a factor that all FMA algorithms have in
// common they are off by a fifth, as on the processor that they were measured on. The choice by
// these rates costs 4 to 7 parts of a hundred on average against the fastest of each case.
#include "cpu/cost_amx.hpp"

#include <algorithm>

#include "cpu/cost_counts.hpp"
#include "cpu/folded_data.hpp"
#include "cpu/merged_weights.hpp"

namespace convgrad::cpu {
namespace {

// Nanoseconds; of bf16, f16 (four products of parts) and f32 (six).
using type_rates = work_counts[3];

constexpr type_rates tiled_data_rates = {
    // bf16
    {.steps = 0.88,
        .calls = 32.2,
        .rows = 61.6,
        .copied = 0.156,
        .turned = 0.16,
        .gathered = 0.386,
        .far = 0.422,
        .results_last = 0.151,
        .results_apart = 0.31,
        .result_lines = 1.4,
        .weights = 0.172},
    // f16
    {.steps = 0.695,
        .rows = 50.6,
        .copied = 0.272,
        .turned = 0.306,
        .gathered = 0.655,
        .far = 0.936,
        .results_last = 0.56,
        .results_apart = 0.554,
        .weights = 0.308},
    // f32
    {.steps = 0.951,
        .rows = 86.4,
        .copied = 0.415,
        .turned = 0.468,
        .gathered = 0.895,
        .far = 1.11,
        .results_last = 0.968,
        .results_apart = 0.783,
        .weights = 0.509},
};
constexpr type_rates tiled_weights_rates = {
    // bf16
    {.steps = 1.1,
        .runs = 0.0821,
        .rows = 53.4,
        .copied = 0.298,
        .turned = 0.286,
        .gathered = 0.976,
        .far = 1.09,
        .lines = 0.879,
        .weights = 0.258,
        .partial = 0.15},
    // f16
    {.steps = 0.961,
        .runs = 0.191,
        .rows = 66.4,
        .copied = 0.737,
        .turned = 0.614,
        .gathered = 1.55,
        .far = 1.29,
        .lines = 1.81,
        .weights = 0.252,
        .partial = 0.289},
    // f32
    {.steps = 0.961,
        .runs = 13.1,
        .rows = 48,
        .copied = 0.867,
        .turned = 0.853,
        .gathered = 1.72,
        .far = 1.68,
        .lines = 0.66,
        .weights = 0.41,
        .partial = 0.228},
};
constexpr type_rates folded_data_rates = {
    // bf16
    {.steps = 1.8,
        .runs = 4.88,
        .calls = 48.4,
        .direct = 0.00407,
        .copied = 0.241,
        .turned = 0.526,
        .gathered = 0.812,
        .far = 0.912,
        .results_last = 0.197,
        .results_apart = 0.405,
        .weights = 0.839},
    // f16
    {.steps = 1.63,
        .calls = 83.3,
        .direct = 0.0243,
        .copied = 0.434,
        .turned = 0.895,
        .gathered = 1.02,
        .far = 1.04,
        .results_last = 0.66,
        .results_apart = 0.618,
        .weights = 1.32},
    // f32
    {.steps = 1.47,
        .runs = 6.02,
        .calls = 132,
        .copied = 0.37,
        .turned = 1.34,
        .gathered = 0.981,
        .far = 1.66,
        .results_last = 0.474,
        .results_apart = 0.589,
        .result_lines = 2.64,
        .weights = 1.43},
};
constexpr type_rates merged_weights_rates = {
    // bf16
    {.steps = 0.685,
        .calls = 0.0101,
        .rows = 44.6,
        .copied = 0.392,
        .turned = 0.233,
        .gathered = 0.573,
        .far = 0.798,
        .results_last = 12.9,
        .partial = 0.0186},
    // f16
    {.steps = 0.464,
        .runs = 0.348,
        .calls = 0.738,
        .rows = 42.5,
        .copied = 0.166,
        .turned = 0.402,
        .gathered = 0.688,
        .far = 1.15,
        .lines = 4.32,
        .results_last = 11.4,
        .partial = 0.163},
    // f32
    {.steps = 0.598,
        .runs = 0.162,
        .rows = 112,
        .copied = 0.424,
        .turned = 0.409,
        .gathered = 0.665,
        .far = 1.58,
        .lines = 0.778,
        .results_last = 10.6,
        .partial = 0.0527},
};

double seconds_with(const type_rates &rates, const work_counts &counts, data_type type) {
    const int row = type == data_type::bf16 ? 0 : type == data_type::f16 ? 1 : 2;
    return seconds_of(counts, rates[row]);
}

/// Products of tiles that make up one of elements; math mode fast takes three of f32.
double products_of(const problem_sizes &s, const kernel_set &amx) {
    return amx.parts == 1 ? 1 : amx.parts == 3 ? 6 : s.f32 ? 3 : 4;
}

/// A step multiplies one position by 32 × 16 weights, or one channel by 32 positions × 16 channels.
work_counts amx_data_work(const problem_sizes &s, const kernel_set &amx) {
    double positions = 1, phases = 1, pairs = 1;
    for (const axis_sizes &x : s.x) {
        positions *= x.length;
        phases *= x.phases;
        pairs *= x.dst * x.kernel;
    }
    work_counts w;
    w.steps = products_of(s, amx) * s.maps * pairs * parts_of(s.in_c, 32) * parts_of(s.out_c, 16);
    w.calls = s.maps * phases * parts_of(positions, 32) * parts_of(s.out_c, 32);
    w.runs = w.calls * s.taps / phases;
    add(w, s.maps, {s.in_last, false, s.in_step, s.in_c, s.in_positions});
    w.rows = s.patch_rows * s.segments;
    add_results(w, s, false);
    w.weights = s.groups * s.taps * s.in_c * whole(s.out_c, 16);
    return w;
}

work_counts amx_weights_work(const problem_sizes &s, const kernel_set &amx, double together) {
    constexpr double tile_bytes = 768 << 10;
    const double ic = s.ic * together, oc = s.oc * together, groups = s.groups / together;
    const double maps = s.images * groups;
    const double tiles =
        maps
        * parts_of(s.dst_positions, tile_bytes / (4 * (std::min(ic, 512.0) + std::min(oc, 512.0))));
    work_counts w;
    w.steps =
        products_of(s, amx) * maps * s.dst_positions * s.taps * whole(ic, 16) * whole(oc, 16) / 512;
    w.calls = tiles * s.taps * parts_of(ic, 32) * parts_of(oc, 32);
    w.partial = tiles * s.taps * whole(ic, 16) * whole(oc, 16);
    w.runs = w.calls * s.x[1].dst;
    add_both(w, s, maps, ic, oc, false, false, s.in_step);
    w.rows = s.patch_rows / together * s.segments + maps * s.x[0].dst * s.x[1].dst;
    w.weights = groups * ic * oc * s.taps;
    return w;
}

work_counts amx_folded_work(const problem_sizes &s, const kernel_set &amx) {
    const dim folded = folded_taps(s.p);
    const double taps = number(folded), together = number(folded_groups(s.p, folded));
    const double rows = s.x[0].dst * s.x[0].kernel * s.x[1].dst * s.x[1].kernel;
    const double row_taps = s.x[2].kernel / taps;
    const double maps = s.maps / together;
    work_counts w;
    w.steps = products_of(s, amx) * maps * rows * s.x[2].dst * row_taps
              * parts_of(together * taps * s.in_c, 32) * parts_of(together * s.out_c, 16);
    w.calls = maps * s.x[0].dst * s.x[1].dst * parts_of(s.x[2].dst, 32)
              * parts_of(together * s.out_c, 32);
    w.runs = w.calls * s.x[0].kernel * s.x[1].kernel * row_taps;
    w.direct = s.maps * s.in_c * s.in_positions * taps;  // put together anew for each tap
    add(w, s.maps, {s.in_last, false, s.in_step, s.in_c, s.in_positions});
    w.rows = s.patch_rows;
    add_results(w, s, false);
    w.weights = s.groups * s.taps * s.in_c * whole(s.out_c, 16);
    return w;
}

}  // namespace

double amx_tiled_seconds(const problem_sizes &s, const kernel_set &amx) {
    if (s.weights) return seconds_with(tiled_weights_rates, amx_weights_work(s, amx, 1), s.p.type);
    return seconds_with(tiled_data_rates, amx_data_work(s, amx), s.p.type);
}

double amx_folded_seconds(const problem_sizes &s, const kernel_set &amx) {
    return seconds_with(folded_data_rates, amx_folded_work(s, amx), s.p.type);
}

double amx_merged_seconds(const problem_sizes &s, const kernel_set &amx) {
    work_counts w = amx_weights_work(s, amx, number(merged_groups(s.p)));
    w.results_last = s.groups * s.ic * s.oc * s.taps;  // picked out of the merged ones
    return seconds_with(merged_weights_rates, w, s.p.type);
}

}  // namespace convgrad::cpu
