#include "cpu/winograd.hpp"

#include "conv/simplify.hpp"
#include "cpu/tiled.hpp"
#include "cpu/winograd_data.hpp"
#include "cpu/winograd_weights.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {
namespace {

using conv::pass;

constexpr dim stage_channels = 64;  // that transform_run() copies at a time: they stay in L1 and L2

double as_double(dim v) {
    return static_cast<double>(v);
}

/// Products that a result sums up.
dim sum_length(const conv::problem &p) {
    switch (p.what) {
    case pass::forward:
        return p.ic * p.x[0].kernel;
    case pass::backward_data:
        return p.oc * p.x[0].kernel;
    case pass::backward_weights:
    case pass::backward_bias:  // refused before
        break;
    }
    return p.mb * p.x[0].dst * p.x[1].dst * p.x[2].dst;
}

}  // namespace

std::string refuse_winograd(const conv::problem &p, winograd_tile tile, const kernel_set &kernels,
    std::size_t workspace_limit) {
    if (find_winograd(kernels.set) == nullptr) return "no kernels for this instruction set";
    for (std::size_t a = 1; a < 3; ++a)
        if (p.x[a].kernel != 3 || p.x[a].stride != 1) return "not 3x3 taps with stride 1";
    if (p.x[0].stride != 1) return "planes with a stride";
    const dim reduced = p.what == pass::backward_data ? p.oc : p.ic;
    if (p.x[0].kernel > 1 && reduced % kernels.lanes != 0)
        return "more than one plane, and channels do not fill vectors";
    if (p.mb == 0 || p.groups == 0 || p.ic == 0 || p.oc == 0) return "nothing to sum";
    for (const conv::axis &x : p.x)
        if (x.src < 1 || x.dst < 1 || x.kernel < 1) return "nothing to sum";
    if (workspace_limit == std::numeric_limits<std::size_t>::max()) return {};
    const std::size_t least = p.what == pass::backward_weights
                                  ? winograd_weights::least_workspace(p, kernels, tile)
                                  : winograd_data::least_workspace(p, kernels, tile);
    if (least > workspace_limit) return "no workspace for the points of a tile";
    return {};
}

/// Measured (docs/winograd.md): the error of the tiles hardly grows with the sum, the plain one's
/// does.
bool winograd_is_accurate(const conv::problem &p, winograd_tile tile) {
    // Results of 16 bits are rounded far more coarsely than any of these.
    if (p.out_type != data_type::f32) return true;
    constexpr dim least_channels[] = {32, 96, 384}, least_positions[] = {256, 768, 2048};
    const auto t = static_cast<std::size_t>(tile);
    return sum_length(p)
           >= (p.what == pass::backward_weights ? least_positions[t] : least_channels[t]);
}

double winograd_seconds(const conv::problem &p, winograd_tile tile, const kernel_set &kernels) {
    const conv::problem o = orient_for(p, tile);
    const winograd_map map(o, tile);
    const auto lanes = dim{kernels.lanes};
    const double in = as_double(round_up_to(p.ic, lanes)),
                 out = as_double(round_up_to(p.oc, lanes));
    // In multiply-adds: a point of a transform takes as long as this many products (measured).
    constexpr double of_data = 10, of_filters = 14, share = 0.9;
    const double tiles = as_double(map.all_points()), filters = as_double(map.points * map.taps),
                 planes = as_double(map.taps);
    const bool back = p.what == pass::backward_data;
    const double read = planes * (back ? out : in), made = back ? in : out;
    const double work =
        as_double(p.groups)
        * (tiles * (read * made + of_data * (read + made)) + filters * of_filters * in * out);
    return work / (share * nominal_speed(kernels));
}

std::string winograd_rival(
    const conv::problem &p, winograd_tile tile, const kernel_set &kernels, double direct) {
    constexpr dim least_channels = 16;
    if (p.math == math_mode::strict) return "only plain f32 sums are asked for";
    const auto allowed = [&](winograd_tile t) {
        return p.math == math_mode::fast || winograd_is_accurate(p, t);
    };
    if (!allowed(tile)) return "its error would exceed a plain f32 sum's";
    if (std::min(p.ic, p.oc) < least_channels)
        return "fewer than " + std::to_string(least_channels) + " channels per group";
    // A tile for each: none shares what it reads, and direct sums leave out taps in the padding
    // (3×3 maps of a layer with dilation 12 took 1.2 to 2 times as long).
    constexpr dim least_map = 8;
    for (std::size_t a = 1; a < 3; ++a)
        if (p.x[a].dilation > 1 && p.x[a].dst < least_map * p.x[a].dilation)
            return "dilation leaves small maps";
    const double mine = winograd_seconds(p, tile, kernels);
    // Of the direct time. Beside pairs of 16-bit values the memory of transformed filters shows, of
    // which the prediction knows nothing (512 channels on 7×7: 0.87 predicted, 1.09 measured).
    const bool pairs = direct > nominal_speed(kernels) && p.what != pass::backward_weights;
    const double worthwhile = pairs ? 0.8 : 0.95;
    if (mine > worthwhile * conv::macs(p) / (0.95 * direct)) return "direct sums are as fast";
    for (const winograd_tile other : all_winograd_tiles)
        if (other != tile && allowed(other) && winograd_seconds(p, other, kernels) < mine)
            return "another tile is faster";
    return {};
}

conv::problem orient_for(const conv::problem &p, winograd_tile tile) {
    if (winograd_rows(tile) == winograd_columns(tile) || p.src.c != 1 || p.dst.c != 1) return p;
    conv::problem turned = p;
    conv::swap_axes(turned, 1, 2);
    return winograd_map(turned, tile).all_points() < winograd_map(p, tile).all_points() ? turned
                                                                                        : p;
}

winograd_map::winograd_map(const conv::problem &p, winograd_tile tile)
    : rows(winograd_rows(tile)), columns(winograd_columns(tile)), points(winograd_points(tile)) {
    const bool back = p.what == pass::backward_data;
    // Backward the filter is turned round.
    const auto in_length = [&](const conv::axis &x) { return back ? x.dst : x.src; };
    const auto out_length = [&](const conv::axis &x) { return back ? x.src : x.dst; };
    const auto pad_of = [&](const conv::axis &x) {
        return back ? (x.kernel - 1) * x.dilation - x.pad : x.pad;
    };
    for (std::size_t a = 0; a < 2; ++a) {
        const conv::axis &x = p.x[a + 1];
        in_[a] = in_length(x);
        out_[a] = out_length(x);
        pad_[a] = pad_of(x);
        step[a] = x.dilation;
        phases_[a] = std::min(x.dilation, out_[a]);
        const dim each = a == 0 ? rows : columns, length = div_up(out_[a], step[a]);
        tiles[a] = div_up(length, each);
        last[a] =
            winograd_edge(static_cast<int>(each), static_cast<int>(length - (tiles[a] - 1) * each));
    }
    taps = p.x[0].kernel;
    in_depth_ = in_length(p.x[0]);
    out_depth_ = out_length(p.x[0]);
    depth_pad_ = pad_of(p.x[0]);
    depth_step_ = p.x[0].dilation;
    count = p.mb * out_depth_ * phases_[0] * phases_[1] * tiles[0] * tiles[1];
}

winograd_map::place winograd_map::place_of(dim map) const {
    place at{};
    at.to[1] = map % phases_[1];
    map /= phases_[1];
    at.to[0] = map % phases_[0];
    map /= phases_[0];
    at.plane = map % out_depth_;
    at.n = map / out_depth_;
    for (int a = 0; a < 2; ++a) {
        at.pad[a] = -div_down(at.to[a] - pad_[a], step[a]);
        at.from[a] = at.to[a] - pad_[a] + at.pad[a] * step[a];
        at.in[a] = div_up(std::max<dim>(in_[a] - at.from[a], 0), step[a]);
        at.out[a] = div_up(out_[a] - at.to[a], step[a]);
    }
    return at;
}

bool winograd_map::meets(dim tap, dim row, dim column) const {
    const auto some = [](dim in, dim out, dim back) {
        return std::max<dim>(0, back) < std::min(out, in + back);
    };
    return some(in_depth_, out_depth_, depth_pad_ - tap * depth_step_)
           && some(in_[0], out_[0], pad_[0] - row * step[0])
           && some(in_[1], out_[1], pad_[1] - column * step[1]);
}

void winograd_map::count_kinds(dim tiles_before, dim sign, dim (&counts)[kinds]) const {
    const dim image = tiles[0] * tiles[1], images = tiles_before / image;
    const dim row = tiles_before % image / tiles[1], column = tiles_before % tiles[1];
    const dim whole_down = whole_tiles(0), whole_across = whole_tiles(1);
    const dim down = images * whole_down + std::min(row, whole_down);  // whole rows of tiles
    const dim edges = images * (tiles[0] - whole_down);
    const bool at_edge = row >= whole_down;
    counts[whole_rows] += sign * down * (tiles[1] - whole_across);
    counts[whole] += sign * (down * whole_across + (at_edge ? 0 : column));
    counts[whole_columns] += sign * (edges * whole_across + (at_edge ? column : 0));
    counts[corner] += sign * edges * (tiles[1] - whole_across);
}

winograd_map::block winograd_map::block_at(dim first, dim some) const {
    dim counts[kinds] = {};
    count_kinds(first + some, 1, counts);
    count_kinds(first, -1, counts);
    block b{first, some, {}};
    for (int k = 0; k < kinds; ++k) b.begin[k + 1] = b.begin[k] + counts[k];
    return b;
}

winograd_map::block winograd_map::part_of(const block &b, dim from, dim some) const {
    dim before[kinds] = {};
    count_kinds(b.first + from, 1, before);
    count_kinds(b.first, -1, before);
    block part{b.first + from, some, {}};
    for (int k = 0; k < kinds; ++k) part.begin[k] = b.begin[k] + before[k];
    return part;
}

std::pair<dim, dim> winograd_map::slots(const block &b, dim point) const {
    const auto everywhere = [](dim m, dim results, dim at) {
        return winograd_edge_has(
            static_cast<int>(m), static_cast<int>(results), static_cast<int>(at));
    };
    const bool in_last_row = everywhere(rows, last[0], point / (columns + 2)),
               in_last_column = everywhere(columns, last[1], point % (columns + 2));
    return {b.begin[in_last_column ? whole_rows : whole],
        b.begin[(in_last_row ? (in_last_column ? corner : whole_columns) : whole) + 1]};
}

dim winograd_map::points_of(const block &b) const {
    dim sum = 0;
    for (int k = 0; k < kinds; ++k)
        sum += (b.begin[k + 1] - b.begin[k]) * points_of(static_cast<kind>(k));
    return sum;
}

dim winograd_stage_floats(const winograd_map &map, const kernel_set &kernels, dim tiles) {
    return (map.rows + 2) * (tiles * map.columns + 2) * round_up_to(stage_channels, kernels.lanes);
}

namespace {

/// Through a copy, in which padding is zeros and channels lie in vectors.
void transform_staged(const kernel_set &kernels, void (*transform)(const winograd_tile_args &),
    const winograd_source &s, const winograd_map::run &run, dim channel, dim channels, float *stage,
    const winograd_slots &to) {
    const dim lanes = kernels.lanes, size = static_cast<dim>(size_of(s.type));
    const dim y0 = run.y + s.shift[0], x0 = run.x + s.shift[1];
    const dim width = (run.tiles - 1) * s.step + s.columns, vector = s.rows * width * lanes;
    dim lo, hi;
    clip(x0, 1, width, s.length[1], lo, hi);
    for (dim c = 0; c < channels; c += stage_channels) {
        const dim some = std::min(stage_channels, channels - c);
        for (dim r = 0; r < s.rows; ++r) {
            const bool inside = y0 + r >= 0 && y0 + r < s.length[0] && hi > lo;
            const dim at =
                (channel + c) * s.strides.c + (y0 + r) * s.strides.x[1] + x0 * s.strides.x[2];
            const pack_args args{bytes_at(s.tensor) + size * at, s.type, s.strides.c,
                s.strides.x[2], some, width, inside ? lo : 0, inside ? hi : 0,
                static_cast<char *>(static_cast<void *>(stage + r * width * lanes))};
            kernels.pack_positions(args, {nullptr, 0, 0}, lanes, 4 * vector, 0);
        }
        transform({stage, to.out + c / lanes * to.vector, run.tiles, div_up(some, lanes),
            width * lanes, lanes, s.step * lanes, vector, to.point, to.slot, to.vector});
    }
}

}  // namespace

void transform_run(const kernel_set &kernels, void (*transform)(const winograd_tile_args &),
    const winograd_source &s, const winograd_map::run &run, dim channel, dim channels, float *stage,
    const winograd_slots &to) {
    const dim lanes = kernels.lanes;
    const dim y0 = run.y + s.shift[0], x0 = run.x + s.shift[1];
    const auto part = [&](dim first, dim last) {
        winograd_map::run some = run;
        some.x += first * s.step;
        some.tiles = last - first;
        const winograd_slots there{to.out + first * to.slot, to.point, to.slot, to.vector};
        if (first < last)
            transform_staged(kernels, transform, s, some, channel, channels, stage, there);
    };
    const bool as_stored = s.type == data_type::f32 && s.strides.c == 1 && channels % lanes == 0
                           && y0 >= 0 && y0 + s.rows <= s.length[0];
    if (!as_stored) return part(0, run.tiles);
    // Tiles [lo, hi) without padding are read where they lie.
    const dim lo = x0 >= 0 ? 0 : std::min(run.tiles, div_up(-x0, s.step));
    const dim fit = div_down(s.length[1] - s.columns - x0, s.step) + 1;
    const dim hi = std::clamp(fit, lo, run.tiles);
    part(0, lo);
    if (lo < hi) {
        const auto *in = static_cast<const float *>(s.tensor) + channel + y0 * s.strides.x[1]
                         + (x0 + lo * s.step) * s.strides.x[2];
        transform({in, to.out + lo * to.slot, hi - lo, channels / lanes, s.strides.x[1],
            s.strides.x[2], s.step * s.strides.x[2], lanes, to.point, to.slot, to.vector});
    }
    part(hi, run.tiles);
}

}  // namespace convgrad::cpu
