// What Winograd's tiles do, counted for the cost model.
#include <algorithm>

#include "cpu/cost_model.hpp"
#include "cpu/tiled.hpp"
#include "cpu/winograd.hpp"

namespace convgrad::cpu {
namespace {

constexpr double block_bytes = 512 << 10;  // of a block of tiles, see winograd_data_plan.cpp
constexpr double near_block = 1 << 20;     // of which this much stays near the core
constexpr double near_filters = 2 << 20;   // and this much of transformed filters,
constexpr double kept_filters = 24 << 20;  // which with those they are made of stay in a cache
constexpr double kept_tiles = 12 << 20, one_block = 24 << 20, each_block = 6 << 20;  // of gradients

/// Steps of `rows` rows and all columns, in panels of two vectors.
double panel_steps(const kernel_set &k, dim rows, dim columns) {
    const dim vectors = div_up(columns, dim{k.lanes});
    return number(vectors / 2) * step_cost(k, rows, dim{2})
           + number(vectors % 2) * step_cost(k, rows, dim{1});
}

/// Points of tiles that are read where they lie, or go through a copy on the way. Positions that
/// are a multiple of 2 KiB apart fall on the same few sets of a cache.
void add_transforms(
    work_counts &w, const problem_sizes &s, const conv::data_strides &from, double elements) {
    const bool last = from.c == 1;
    double &how = last && s.f32 ? w.direct : last ? w.copied : w.turned;
    how += elements;
    if (last && s.f32 && from.x[2] % 512 == 0) w.gathered += elements;
}

/// Sources of strided planes are transformed from one copy, in which they interleave (3×3 with
/// stride 2, 64 to 512 channels: 1.6 times as long as planes without a stride, or longer).
constexpr double of_joined = 0.6;

/// Blocks of tiles; each goes through all transformed filters. Of one phase.
work_counts data_work(const problem_sizes &s, const winograd_map &map, const kernel_set &k) {
    const auto lanes = dim{k.lanes}, most_rows = dim{find_winograd(k.set)->most_rows};
    const dim in_c = s.forward ? s.p.ic : s.p.oc, out_c = s.forward ? s.p.oc : s.p.ic;
    const double points = number(map.points), tiles = number(map.count),
                 sources = number(map.sources), all = number(map.all_points());
    const double in = sources * number(round_up_to(in_c, lanes)),
                 out = number(round_up_to(out_c, lanes));
    const double filters = points * sources * s.in_c * out;
    const double tile = 4 * points * (in + 2 * k.lanes);
    const double least = (4 * filters > 4 << 20 ? 4.0 : 2.0) * number(most_rows);
    const double block = std::max(least, block_bytes / tile);
    const double blocks = std::max(1.0, tiles / block);
    const dim pieces = div_up(map.count, most_rows);
    work_counts w;
    // Tiles at the edges have fewer points.
    w.steps = s.groups * all / tiles * sources * map.multiplied() * s.in_c * number(pieces)
              * panel_steps(k, div_up(map.count, pieces), out_c);
    w.tasks = s.groups * blocks;
    add_transforms(w, s, s.forward ? s.p.src : s.p.dst, s.groups * all * in);
    // (AVX2's rate of what is turned is large enough.)
    if (s.forward && k.lanes >= 16 && map.joined_sources(s.p.src) > 1)
        w.turned += of_joined * s.groups * all * in;
    if (std::min(block, tiles) * tile > near_block) w.lines = s.groups * all * in;
    (s.out_last && s.f32 ? w.results_last : w.results_apart) = s.groups * all * out;
    if (!s.p.constant_weights) w.weights = s.groups * filters;
    if (streams_filters(4 * filters, number(map.phases) * s.groups * 4 * points * tiles * in))
        return w;
    if (4 * filters > near_filters) w.spilled = s.groups * blocks * filters;
    if (4 * filters + 36 * s.ic * s.oc > kept_filters)
        w.far = s.groups * ((s.p.constant_weights ? 0 : 1) + blocks) * filters;
    return w;
}

/// Tiles of src and dst, all or in blocks, whose products are summed at each point.
work_counts weights_work(const problem_sizes &s, const winograd_map &map, const kernel_set &k) {
    const auto lanes = dim{k.lanes}, rows = dim{find_winograd(k.set)->gradient_rows};
    const double points = number(map.points) * s.groups, sources = number(map.sources),
                 all = number(map.all_points()) * s.groups;
    const double ic = sources * number(round_up_to(s.p.ic, lanes)),
                 oc = number(round_up_to(s.p.oc, lanes));
    const double bytes = 4 * number(map.all_points()) * (ic + oc);
    work_counts w;
    w.steps = all * sources * map.multiplied() * number(div_up(s.p.ic, rows))
              * panel_steps(k, rows, s.p.oc);
    w.tasks = s.groups;
    add_transforms(w, s, s.p.src, all * ic);
    add_transforms(w, s, s.p.dst, all * oc);
    if (map.joined_sources(s.p.src) > 1) w.turned += of_joined * all * ic;
    if (bytes > kept_tiles) w.spilled = all * (ic + oc);
    w.weights = points * ic * oc;
    // Blocks are cut as if all tiles were whole.
    if (4 * number(map.points * map.count) * (ic + number(round_up_to(s.p.oc, 2 * lanes)))
        > one_block)
        w.partial = points * ic * oc * std::max(1.0, bytes / each_block);
    return w;
}

/// Results of interleaved maps leave apart from each other, and columns of their planes come and
/// go with whole lines of memory for every few (2 taps with dilation 8 on 4,096 columns: 1.3 to 2.2
/// times as long as without this; 3×3 with dilation 2 on 33×33).
double dilated_seconds(const problem_sizes &s, const winograd_map &map) {
    constexpr double result = 0.45e-9, column = 0.16e-9, most = 16;
    const double dilation = number(s.p.x[2].dilation);
    if (s.weights || dilation == 1) return 0;
    const double positions = number(map.count * map.rows * map.columns) * s.groups * s.out_c;
    const double points = number(map.count * map.points) * s.groups * s.in_c;
    const double far = column * std::min(dilation, most);
    return (s.out_last ? result : far) * positions + (s.in_last ? 0 : far) * points;
}

}  // namespace

prediction predict_winograd(const problem_sizes &s, winograd_tile tile, const kernel_set &k) {
    const winograd_map map(orient_for(s.p, tile), tile);
    const cost_kind kind = s.weights ? cost_kind::winograd_weights : cost_kind::winograd_data;
    const work_counts w = s.weights ? weights_work(s, map, k) : data_work(s, map, k);
    double seconds = number(map.phases) * seconds_of(w, work_rates(kind, k));
    // Products of residues that lack taps are shorter, which this counts in full (3×3 with stride
    // 2, 64 to 512 channels: 0.8 to 0.95 of what this says).
    if (map.lacks_taps() && s.forward) seconds *= 0.92;
    // Groups of two vectors or fewer: a map's few channels are transformed one after the other (32
    // groups of 32 channels on 7×7, measured; of larger maps data passes take no longer for it).
    constexpr double small_map = 400;
    if (s.groups > 1 && std::max(s.ic, s.oc) <= 2.0 * k.lanes
        && (s.weights || s.dst_positions < small_map))
        seconds *= 1.3;
    // A tile for each of many small maps: none shares what it reads, and direct sums leave out taps
    // in the padding (3×3 maps of a layer with dilation 12: 1.6 to 2.6 times as long as this says,
    // weights gradients 1.2 to 1.5).
    constexpr dim least_map = 8;
    const auto in_small_maps = [](const conv::axis &x) {
        return x.dilation > 1 && x.dst < least_map * x.dilation;
    };
    if (in_small_maps(s.p.x[1]) || in_small_maps(s.p.x[2])) seconds *= s.weights ? 1.35 : 2;
    // Columns of interleaved maps lie apart: planes are read one value at a time (64 channels on
    // 1,000 columns, 2 taps, dilation 8).
    if (s.weights && !s.in_last && s.p.x[2].dilation > 1) seconds *= 1.6;
    // Interleaved maps of 16-bit values are gathered one by one (512 channels, dilation 2, bf16:
    // 1.3 times as long as pairs where this says 0.9).
    if (!s.weights && !s.f32 && (s.p.x[1].dilation > 1 || s.p.x[2].dilation > 1)) seconds *= 1.5;
    seconds += dilated_seconds(s, map);
    // Filters whose taps lie side by side leave through a transpose (128 to 512 channels on 4×4 and
    // 7×7: 0.8 to 0.95 ns a weight beyond what this says).
    if (s.weights && s.p.weights.o != 1 && s.taps > 1)
        seconds += 0.8e-9 * s.groups * s.ic * s.oc * s.taps;
    // Filters in transformed form are most of the workspace.
    return {seconds, 4 * number(map.points * map.sources * map.phases) * s.ic * s.oc};
}

}  // namespace convgrad::cpu
