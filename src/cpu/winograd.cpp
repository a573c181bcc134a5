#include "cpu/winograd.hpp"

#include <cmath>

#include "conv/simplify.hpp"
#include "cpu/fits.hpp"
#include "cpu/tiled.hpp"

namespace convgrad::cpu {
namespace {

using conv::pass;

constexpr dim stage_channels = 64;  // that transform_run() copies at a time: they stay in L1 and L2

/// Of each of so many sources.
dim channels_of_stage(dim sources, dim lanes) {
    return round_up_to(div_up(stage_channels, sources), lanes);
}

/// Sources of a result, see winograd_map.
dim sources_of(const conv::problem &p) {
    const dim strides = p.what == pass::backward_data ? 1 : p.x[1].stride * p.x[2].stride;
    return p.x[0].kernel * strides;
}

/// Whether some residues modulo the stride have fewer taps than others.
bool lacks_taps(const conv::problem &p) {
    return p.x[1].kernel % p.x[1].stride != 0 || p.x[2].kernel % p.x[2].stride != 0;
}

/// Products of the plain sum of a result (backward: of the phase with the fewest taps).
dim sum_length(const conv::problem &p) {
    const bool back = p.what == pass::backward_data;
    if (p.what == pass::backward_weights) return p.mb * p.x[0].dst * p.x[1].dst * p.x[2].dst;
    dim terms = back ? p.oc : p.ic;
    for (const conv::axis &x : p.x) terms *= back ? x.kernel / x.stride : x.kernel;
    return terms;
}

/// Null if there are none for these taps.
const winograd_kernels::transforms *winograd_kernels_for(
    const conv::problem &p, winograd_tile tile, const kernel_set &kernels) {
    return find_winograd(kernels.set)->find(taps_for(p), tile);
}

}  // namespace

winograd_taps taps_for(const conv::problem &p) {
    const auto of = [](const conv::axis &x) {
        constexpr dim most = 64;  // any number that no kernel has
        return static_cast<int>(std::min(div_up(x.kernel, x.stride), most));
    };
    const int rows = of(p.x[1]), columns = of(p.x[2]);
    return columns == 1 ? winograd_taps{columns, rows} : winograd_taps{rows, columns};
}

bool fits_winograd(
    const conv::problem &p, winograd_tile tile, const kernel_set &kernels, std::string *why) {
    if (find_winograd(kernels.set) == nullptr)
        return refuse(why, "no kernels for this instruction set");
    for (std::size_t a = 1; a < 3; ++a) {
        if (p.x[a].stride > 1 && p.x[a].dilation > 1) return refuse(why, "a stride and dilation");
        if (p.x[a].stride > p.x[a].kernel) return refuse(why, "fewer taps than strides");
    }
    if (winograd_kernels_for(p, tile, kernels) == nullptr)
        return refuse(why, "no tile of so many taps, for each residue modulo the stride");
    if (p.x[0].stride != 1) return refuse(why, "planes with a stride");
    const dim reduced = p.what == pass::backward_data ? p.oc : p.ic;
    if (sources_of(p) > 1 && reduced % kernels.lanes != 0)
        return refuse(why, "more than one plane or residue, and channels do not fill vectors");
    if (p.mb == 0 || p.groups == 0 || p.ic == 0 || p.oc == 0) return refuse(why, "nothing to sum");
    for (const conv::axis &x : p.x)
        if (x.src < 1 || x.dst < 1 || x.kernel < 1) return refuse(why, "nothing to sum");
    return true;
}

/// Measured (docs/winograd.md): the error of the tiles hardly grows with the sum, the plain one's
/// does.
bool winograd_is_accurate(const conv::problem &p, winograd_tile tile, isa set) {
    // Of so few the tables say nothing, and a direct sum of small integers would be exact.
    constexpr dim fewest_channels = 16;
    if (std::min(p.ic, p.oc) < fewest_channels) return false;
    // Results of 16 bits are rounded far more coarsely than any of these. Short sums of other taps
    // stay direct all the same, and so exact on small integers.
    const bool square = taps_for(p) == winograd_taps{3, 3} || taps_for(p) == winograd_taps{2, 2};
    if (p.out_type != data_type::f32 && square) return true;
    struct shortest {
        winograd_taps taps;
        bool lacking;               // some residues have fewer taps: zeros add errors, but no terms
        dim sums[3], gradients[3];  // plain sums, by tile
    };
    constexpr dim never = std::numeric_limits<dim>::max();
    constexpr shortest table[] = {
        {{2, 2}, false, {256, 1024, 6144}, {256, 768, 3072}},
        {{2, 2}, true, {288, 1152, never}, {256, 768, 3072}},
        {{3, 3}, false, {288, 864, 3456}, {256, 768, 2048}},
        {{3, 3}, true, {256, 1024, 6144}, {512, 2048, 4608}},
        {{4, 4}, false, {never, never, 3072}, {never, never, 3072}},
        {{5, 5}, false, {never, never, 6400}, {never, never, 3072}},
        {{1, 2}, false, {128, never, 512}, {128, never, 512}},
        {{1, 3}, false, {192, never, 576}, {256, never, 576}},
        {{1, 4}, false, {never, never, 384}, {never, never, 576}},
        {{1, 5}, false, {never, never, 480}, {never, never, 800}},
    };
    const winograd_taps taps = taps_for(p);
    const bool lacking = lacks_taps(p);
    const auto t = static_cast<std::size_t>(tile);
    for (const shortest &s : table)
        if (s.taps == taps && s.lacking == lacking) {
            const dim least = (p.what == pass::backward_weights ? s.gradients : s.sums)[t];
            // Without fused multiply-adds products are rounded by themselves.
            return sum_length(p)
                   >= (set == isa::portable && least != never ? least + least / 3 : least);
        }
    return false;
}

double winograd_error(const conv::problem &p, winograd_tile tile) {
    // By the length of the sum, from `first` on, each twice the one before; between them by its
    // logarithm. `make accuracy` measures them, a test holds these against it.
    constexpr int steps = 9;
    struct measured {
        double first;
        double tiles[3][steps];
    };
    // In the order of all_winograd_taps.
    constexpr measured of_sums[winograd_shapes] = {
        {144, {{1.00, 0.88, 0.67, 0.45, 0.34, 0.27, 0.27, 0.27, 0.27},
                  {1.83, 1.55, 1.14, 0.77, 0.58, 0.46, 0.46, 0.46, 0.46},
                  {2.95, 2.65, 1.98, 1.30, 0.99, 0.77, 0.77, 0.77, 0.77}}},
        {128, {{1.21, 0.90, 0.69, 0.50, 0.39, 0.30, 0.26, 0.26, 0.26},
                  {2.27, 1.63, 1.25, 0.90, 0.70, 0.54, 0.46, 0.46, 0.46},
                  {4.46, 3.20, 2.50, 1.75, 1.38, 1.00, 0.82, 0.82, 0.82}}},
        {256, {{}, {}, {2.41, 2.07, 1.66, 1.14, 0.84, 0.60, 0.51, 0.51, 0.51}}},
        {400, {{}, {}, {2.52, 2.38, 1.65, 1.22, 0.93, 0.68, 0.54, 0.54, 0.54}}},
        {32, {{1.28, 1.18, 0.89, 0.67, 0.50, 0.42, 0.30, 0.30, 0.30}, {},
                 {2.56, 2.25, 1.69, 1.24, 0.92, 0.76, 0.52, 0.52, 0.52}}},
        {48, {{1.12, 0.98, 0.77, 0.57, 0.40, 0.31, 0.25, 0.25, 0.25}, {},
                 {2.09, 1.77, 1.39, 1.01, 0.70, 0.52, 0.42, 0.42, 0.42}}},
        {64, {{}, {}, {1.82, 1.59, 1.10, 0.88, 0.65, 0.47, 0.36, 0.36, 0.36}}},
        {80, {{}, {}, {1.86, 1.49, 1.13, 0.82, 0.62, 0.49, 0.35, 0.35, 0.35}}}};
    constexpr measured of_positions[winograd_shapes] = {
        {16, {{2.67, 2.05, 1.60, 1.25, 0.96, 0.66, 0.51, 0.37, 0.27},
                 {4.00, 3.10, 2.35, 1.95, 1.54, 1.07, 0.79, 0.55, 0.42},
                 {6.60, 5.10, 3.90, 2.95, 2.30, 1.60, 1.28, 0.88, 0.63}}},
        {64, {{1.20, 1.00, 0.79, 0.54, 0.44, 0.32, 0.24, 0.24, 0.24},
                 {2.10, 1.90, 1.64, 1.11, 0.72, 0.58, 0.38, 0.38, 0.38},
                 {3.50, 3.25, 2.96, 2.26, 1.36, 1.13, 0.65, 0.65, 0.65}}},
        {64, {{}, {}, {3.63, 2.99, 2.32, 2.04, 1.34, 0.96, 0.60, 0.60, 0.60}}},
        {64, {{}, {}, {4.41, 4.25, 2.95, 1.95, 1.86, 1.08, 0.73, 0.73, 0.73}}},
        {64, {{1.01, 0.77, 0.66, 0.55, 0.39, 0.30, 0.26, 0.26, 0.26}, {},
                 {1.92, 1.53, 1.08, 0.88, 0.66, 0.47, 0.35, 0.35, 0.35}}},
        {64, {{1.09, 0.91, 0.66, 0.48, 0.42, 0.34, 0.27, 0.27, 0.27}, {},
                 {1.80, 1.49, 1.14, 0.80, 0.62, 0.51, 0.37, 0.37, 0.37}}},
        {64, {{}, {}, {1.69, 1.45, 1.11, 0.85, 0.62, 0.50, 0.40, 0.40, 0.40}}},
        {64, {{}, {}, {2.33, 1.68, 1.37, 0.97, 0.71, 0.60, 0.43, 0.43, 0.43}}}};
    const winograd_taps taps = taps_for(p);
    std::size_t shape = 0;
    while (shape + 1 < winograd_shapes && !(all_winograd_taps[shape] == taps)) ++shape;
    const measured &all = (p.what == pass::backward_weights ? of_positions : of_sums)[shape];
    const auto &row = all.tiles[static_cast<std::size_t>(tile)];
    const double at = std::log2(std::max(1.0, static_cast<double>(sum_length(p)) / all.first));
    const int low = std::min(static_cast<int>(at), steps - 1), high = std::min(low + 1, steps - 1);
    return row[low] + (row[high] - row[low]) * std::min(1.0, at - low);
}

conv::problem orient_for(const conv::problem &p, winograd_tile tile) {
    conv::problem turned = p;
    conv::swap_axes(turned, 1, 2);
    if (p.x[2].kernel <= p.x[2].stride) return turned;
    if (tile != winograd_tile::f4x2 || p.src.c != 1 || p.dst.c != 1) return p;
    return winograd_map(turned, tile).all_points() < winograd_map(p, tile).all_points() ? turned
                                                                                        : p;
}

winograd_map::winograd_map(const conv::problem &p, winograd_tile tile)
    : planes(p.x[0].kernel), back_(p.what == pass::backward_data) {
    // Backward the filter is turned round.
    const auto in_length = [&](const conv::axis &x) { return back_ ? x.dst : x.src; };
    const auto out_length = [&](const conv::axis &x) { return back_ ? x.src : x.dst; };
    const auto pad_of = [&](const conv::axis &x) {
        return back_ && x.stride == 1 ? (x.kernel - 1) * x.dilation - x.pad : x.pad;
    };
    const winograd_taps filter = taps_for(p);
    for (int a = 0; a < 2; ++a) {
        const conv::axis &x = p.x[static_cast<std::size_t>(a) + 1];
        in_[a] = in_length(x);
        out_[a] = out_length(x);
        pad_[a] = pad_of(x);
        kernel_[a] = x.kernel;
        stride_[a] = x.stride;
        in_step[a] = back_ ? x.dilation : x.dilation * x.stride;
        out_step[a] = back_ ? x.dilation * x.stride : x.dilation;
        maps_[a] = std::min(x.dilation, out_[a]);
        const int own = a == 0 ? filter.rows : filter.columns;
        const int each = winograd_results(tile, a, own);
        taps[a] = own;
        across[a] = winograd_points(tile, a, own);
        (a == 0 ? rows : columns) = each;
        (back_ ? phases : sources) *= x.stride;
        const dim length = div_up(out_[a], out_step[a]);
        tiles[a] = div_up(length, each);
        last[a] = winograd_edge(each, static_cast<int>(length - (tiles[a] - 1) * each));
    }
    sources *= planes;
    points = across[0] * across[1];
    in_depth_ = in_length(p.x[0]);
    out_depth_ = out_length(p.x[0]);
    depth_pad_ = pad_of(p.x[0]);
    depth_step_ = p.x[0].dilation;
    count = p.mb * out_depth_ * maps_[0] * maps_[1] * tiles[0] * tiles[1];
}

dim winograd_map::residue(int axis, dim phase, dim source) const {
    const dim which = back_ ? phase : source;
    const dim mine = (axis == 1 ? which : which / stride_[1]) % stride_[axis];
    return back_ ? (mine + pad_[axis]) % stride_[axis] : mine;
}

winograd_map::place winograd_map::place_of(dim map, dim phase, dim source) const {
    place at{};
    at.to[1] = map % maps_[1];
    map /= maps_[1];
    at.to[0] = map % maps_[0];
    map /= maps_[0];
    at.plane = map % out_depth_;
    at.n = map / out_depth_;
    const dim tap = back_ ? source : source / (stride_[0] * stride_[1]);
    at.in_plane = at.plane + tap * depth_step_ - depth_pad_;
    if (at.in_plane >= in_depth_) at.in_plane = -1;
    for (int a = 0; a < 2; ++a) {
        const dim first = residue(a, phase, source), stride = stride_[a];
        const dim own = div_up(kernel_[a] - first, stride);  // taps
        if (back_ && stride > 1) {
            at.to[a] = (a == 1 ? phase : phase / stride_[1]) % stride;
            at.pad[a] = taps[a] - 1 - (at.to[a] + pad_[a] - first) / stride;
            at.first_tap[a] = taps[a] - own;
        } else {
            const dim begin = at.to[a] + first - pad_[a];  // of tap 0 of result 0
            at.pad[a] = -div_down(begin, in_step[a]);
            at.from[a] = begin + at.pad[a] * in_step[a];
        }
        at.end_tap[a] = at.first_tap[a] + own;
        at.in[a] = div_up(std::max<dim>(in_[a] - at.from[a], 0), in_step[a]);
        at.out[a] = div_up(std::max<dim>(out_[a] - at.to[a], 0), out_step[a]);
        const bool all = !back_ && stride > 1;  // sources together
        at.reached_from[a] =
            all ? -div_down(kernel_[a] - 1 - pad_[a], stride) : at.pad[a] - at.end_tap[a] + 1;
        at.reached[a] =
            all ? -div_down(-in_[a] - pad_[a], stride) : at.in[a] + at.pad[a] - at.first_tap[a];
    }
    return at;
}

bool winograd_map::vanishes(dim phase, dim source, dim point) const {
    const dim at[2] = {point / across[1], point % across[1]};
    for (int a = 0; a < 2; ++a) {
        const bool lacks = div_up(kernel_[a] - residue(a, phase, source), stride_[a]) < taps[a];
        if (lacks && at[a] == (back_ ? 0 : across[a] - 1)) return true;
    }
    return false;
}

double winograd_map::multiplied() const {
    if (!lacks_taps()) return 1;
    dim all = 0, some = 0;
    for (dim i = 0; i < (back_ ? phases : stride_[0] * stride_[1]); ++i)
        for (dim q = 0; q < points; ++q) {
            ++all;
            some += vanishes(back_ ? i : 0, back_ ? 0 : i, q) ? 0 : 1;
        }
    return static_cast<double>(some) / static_cast<double>(all);
}

dim winograd_map::first_weight(const conv::weights_strides &w, dim phase, dim source) const {
    const dim tap = back_ ? planes - 1 - source : source / (stride_[0] * stride_[1]);
    return tap * w.k[0] + residue(0, phase, source) * w.k[1] + residue(1, phase, source) * w.k[2];
}

dim winograd_map::tap_weight(const conv::weights_strides &w, dim row, dim column) const {
    if (back_) row = taps[0] - 1 - row, column = taps[1] - 1 - column;
    return row * stride_[0] * w.k[1] + column * stride_[1] * w.k[2];
}

bool winograd_map::has(dim source, dim row, dim column) const {
    return residue(0, 0, source) + row * stride_[0] < kernel_[0]
           && residue(1, 0, source) + column * stride_[1] < kernel_[1];
}

bool winograd_map::meets(dim source, dim row, dim column) const {
    const auto some = [](dim in, dim out, dim back, dim stride) {
        return std::max<dim>(0, -div_down(-back, stride))
               < std::min(out, -div_down(-in - back, stride));
    };
    // With a stride neighbouring taps of a source are neighbours in its map, else `dilation` apart.
    const auto back = [&](int a, dim tap) {
        return pad_[a] - residue(a, 0, source) - tap * in_step[a];
    };
    return some(in_depth_, out_depth_,
               depth_pad_ - source / (stride_[0] * stride_[1]) * depth_step_, 1)
           && some(in_[0], out_[0], back(0, row), stride_[0])
           && some(in_[1], out_[1], back(1, column), stride_[1]);
}

winograd_source winograd_map::source_at(const place &at, kind what, const void *data,
    data_type type, const conv::data_strides &in) const {
    dim first = at.of_inputs(in);
    winograd_source s{};
    s.type = type;
    s.strides = input_strides(in);
    for (int a = 0; a < 2; ++a) {
        s.length[a] = at.in[a];
        s.shift[a] = -at.pad[a];
        if (joined_sources(in) == 1 || stride_[a] == 1) continue;
        const std::size_t axis = static_cast<std::size_t>(a) + 1;
        first -= at.from[a] * in.x[axis];
        s.strides.x[axis] = in.x[axis];
        s.length[a] = in_[a];
        s.shift[a] = -pad_[a];
        s.apart[a] = stride_[a];
    }
    s.tensor = bytes_at(data) + static_cast<dim>(size_of(type)) * first;
    if (at.in_plane < 0) s.length[0] = 0;
    s.rows = input_rows(what);
    s.columns = input_columns(what);
    s.step = columns;
    return s;
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
    const auto everywhere = [&](int a, dim at) {
        return winograd_edge_has(static_cast<int>(across[a]), static_cast<int>(taps[a]),
            static_cast<int>(last[a]), static_cast<int>(at));
    };
    const bool in_last_row = everywhere(0, point / across[1]),
               in_last_column = everywhere(1, point % across[1]);
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
    const dim together = map.residues();
    return (map.rows + map.taps[0] - 1) * (tiles * map.columns + map.taps[1] - 1) * together
           * channels_of_stage(together, kernels.lanes);
}

namespace {

/// Through a copy, in which padding is zeros and channels lie in vectors; of all sources that are
/// transformed together.
void transform_staged(const kernel_set &kernels, void (*transform)(const winograd_tile_args &),
    const winograd_source &s, const winograd_map::run &run, dim channel, dim channels, float *stage,
    const winograd_slots &to) {
    const dim lanes = kernels.lanes, size = static_cast<dim>(size_of(s.type));
    const dim down = s.apart[0], along = s.apart[1];
    const dim y0 = run.y * down + s.shift[0], x0 = run.x * along + s.shift[1];
    const dim width = ((run.tiles - 1) * s.step + s.columns) * along,
              vector = s.rows * down * width * lanes;
    const dim most = channels_of_stage(down * along, lanes);
    dim lo, hi;
    clip(x0, 1, width, s.length[1], lo, hi);
    for (dim c = 0; c < channels; c += most) {
        const dim some = std::min(most, channels - c);
        for (dim r = 0; r < s.rows * down; ++r) {
            const bool inside = y0 + r >= 0 && y0 + r < s.length[0] && hi > lo;
            const dim at =
                (channel + c) * s.strides.c + (y0 + r) * s.strides.x[1] + x0 * s.strides.x[2];
            const pack_args args{bytes_at(s.tensor) + size * at, s.type, s.strides.c,
                s.strides.x[2], some, width, inside ? lo : 0, inside ? hi : 0,
                static_cast<char *>(static_cast<void *>(stage + r * width * lanes))};
            kernels.pack_positions(args, {nullptr, 0, 0}, lanes, 4 * vector, 0);
        }
        for (dim i = 0; i < down * along; ++i)
            transform({stage + (i / along * width + i % along) * lanes,
                to.out + i * to.source + c / lanes * to.vector, run.tiles, div_up(some, lanes),
                down * width * lanes, along * lanes, s.step * along * lanes, vector, to.point,
                to.slot, to.vector});
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
        winograd_slots there = to;
        there.out += first * to.slot;
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
