#include "cpu/cost_model.hpp"

#include <algorithm>

#include "conv/simplify.hpp"
#include "cpu/cost_amx.hpp"
#include "cpu/cost_counts.hpp"
#include "cpu/folded_data.hpp"
#include "cpu/merged_weights.hpp"
#include "cpu/narrow_weights.hpp"
#include "cpu/tiled.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

double seconds_of(const work_counts &c, const work_counts &n) {
    return 1e-9
           * (c.steps * n.steps + c.runs * n.runs + c.calls * n.calls + c.tasks * n.tasks
               + c.rows * n.rows + c.direct * n.direct + c.copied * n.copied + c.turned * n.turned
               + c.gathered * n.gathered + c.far * n.far + c.lines * n.lines
               + c.results_last * n.results_last + c.results_apart * n.results_apart
               + c.result_lines * n.result_lines + c.weights * n.weights + c.partial * n.partial
               + c.spilled * n.spilled);
}

namespace {

constexpr double tile_bytes = 384 << 10;  // what a tile of the dense drivers takes
constexpr double kept_bytes = 400 << 10;  // beyond, packed elements do not stay in L2
constexpr double most_pitch = 2048;       // bytes; beyond, the dense drivers pack what they read

/// The panel width that tiled drivers choose.
block_steps cheapest_panels(const kernel_set &k, double rows, double columns) {
    block_steps best = in_panels(k, rows, columns, 1);
    for (int v = 2; v <= k.max_vectors; ++v)
        if (const block_steps b = in_panels(k, rows, columns, v); b.cycles < best.cycles) best = b;
    return best;
}

/// The one that folded drivers choose.
block_steps widest_panels(const kernel_set &k, double rows, double columns) {
    const double all = parts_of(columns, k.lanes);
    return in_panels(k, rows, columns, parts_of(all, parts_of(all, widest_vectors(k))));
}

/// AVX2's rates are of tasks with several taps, whose rows begin and end anew for each. One tap of
/// channels that lie side by side is a run of positions (groups of 4 to 32 on 7×7 to 56×56: 2 to 9
/// times as fast as they say).
void one_long_run(work_counts &w) {
    w.tasks *= 0.03;
    w.calls *= 0.45;
    w.result_lines *= 0.4;
}

work_counts tiled_data_work(const problem_sizes &s, const kernel_set &k) {
    const double units = parts_of(s.in_c, k.k_per_unit), most_chunk = 256.0 * k.k_per_unit;
    const double chunks = parts_of(s.in_c, most_chunk);
    const block_steps b = cheapest_panels(k, s.x[2].length, s.out_c);
    const double row_taps = s.maps * s.x[0].pairs * s.x[1].pairs * s.x[2].kernel;
    const bool whole_units = is_fma(k) ? s.f32 : divides(2, s.in_c);
    const bool as_stored =
        s.in_last && whole_units && s.size * s.in_pitch * s.in_step <= most_pitch;
    const double volume = s.forward ? s.x[0].stride * s.x[1].stride * s.x[2].stride : 1;
    work_counts w;
    // FMA on panels of one vector loads as often as it multiplies: 1.1 to 1.4 times as long.
    const double loads = is_fma(k) && k.lanes >= 16 && b.vectors == 1 ? 1.12 : 1;
    w.steps = row_taps * b.cycles * units * loads;
    w.runs = row_taps * b.blocks * chunks;
    w.calls = s.maps * s.x[0].results * s.x[1].results * s.x[2].phases * b.blocks * chunks;
    add(w, s.maps, {s.in_last, as_stored, s.in_step, s.in_c, s.in_positions, s.size * s.in_pitch});
    if (!as_stored) w.rows = s.patch_rows * s.segments;
    add_results(w, s, s.f32 || !is_fma(k));
    const double chunk = std::min(s.in_c, 256.0);
    w.tasks = s.maps * parts_of(s.out_positions * 4 * (chunk + s.out_c), tile_bytes);
    w.weights = s.groups * s.taps * s.in_c * whole(s.out_c, k.lanes);
    const double tile = std::max(16.0,
        tile_bytes / (4 * std::min(s.in_c, most_chunk) / k.k_per_unit + 4 * b.vectors * k.lanes));
    if (!as_stored && volume > 1
        && 4 * chunk * std::min(s.in_positions, volume * tile) > kept_bytes)
        w.spilled = s.maps * s.in_c * s.in_positions;
    if (k.set == isa::avx2 && s.taps == 1 && as_stored) one_long_run(w);
    // Of pairs too (4 to 105 channels of 1×1: 0.5 to 0.9 of what their rates say).
    if (!is_fma(k) && s.groups == 1 && s.taps == 1 && as_stored) {
        w.lines *= 0.25;
        w.result_lines *= 0.25;
    }
    return w;
}

work_counts folded_data_work(const problem_sizes &s, const kernel_set &k) {
    const double phases = s.x[2].phases, taps = parts_of(s.x[2].kernel, phases);
    const double units = phases * parts_of(taps * s.in_c, k.k_per_unit);
    const block_steps b = widest_panels(k, s.x[2].length, s.out_c);
    const double row_taps = s.maps * s.x[0].pairs * s.x[1].pairs;
    const bool whole_rows = s.in_last && s.groups == 1;
    work_counts w;
    w.steps = row_taps * b.cycles * units;
    w.runs = row_taps * phases * b.blocks;
    w.calls = s.maps * s.x[0].results * s.x[1].results * phases * b.blocks;
    // Planes of a few channels are interleaved, others element by element.
    const double stride = s.in_c <= 4 && s.in_pitch == 1 ? 1 : 2;
    add(w, s.maps, {s.in_last, whole_rows, stride, s.in_c, s.in_positions});
    if (whole_rows) w.lines = 0;
    w.rows = s.patch_rows;
    add_results(w, s, is_fma(k) && s.f32);
    // Short rows leave planes as one vector for each channel, and 16-bit ones not in pairs then.
    if (!s.out_last && s.x[2].length <= k.lanes) {
        const double alone = is_fma(k) ? 1 : 3.4;
        w.results_apart *= alone * k.lanes / s.x[2].length;
    }
    w.tasks = s.maps * parts_of(4 * s.in_c * s.out_positions, 192 << 10);
    w.weights = s.groups * s.taps * s.in_c * whole(s.out_c, k.lanes);
    return w;
}

/// Rows of a map (second axis) whose taps all lie inside the input.
double inner_rows(const problem_sizes &s) {
    const axis_sizes &h = s.x[1];
    const double span = (h.kernel - 1) * h.dilation;
    if (!s.forward)
        return std::max(0.0, std::min(h.src, h.dst - h.pad) - std::max(0.0, span - h.pad));
    const double room = h.src - 1 - span + h.pad;
    if (room < 0) return 0;
    return std::max(
        0.0, std::min(h.dst, floor_of(room / h.stride) + 1) - parts_of(h.pad, h.stride));
}

/// Whether the input of a data pass has channels side by side, or planes without gaps.
bool regular_input(const problem_sizes &s) {
    const conv::data_strides &in = s.forward ? s.p.src : s.p.dst;
    const bool one_row = s.p.x[1] == conv::axis{};
    return s.in_last
           || (in.x[2] == 1 && (one_row || in.x[1] == (s.forward ? s.p.x[2].src : s.p.x[2].dst)));
}

/// Whether narrow_data has channels side by side (see quad_product).
bool narrow_quads(const problem_sizes &s, const kernel_set &k) {
    const double unit = 4.0 * k.k_per_unit;
    if (k.quad_product == nullptr || s.in_c > 64 || !divides(4, s.out_c)) return false;
    if (s.out_c * k.k_per_unit < 8) return false;
    if (!s.in_last)
        return !is_fma(k) && divides(unit, s.in_c) && s.p.x[0] == conv::axis{} && regular_input(s);
    return divides(unit, s.in_c) || (2 * s.in_c == unit && divides(2, s.groups));
}

/// The same by whole vectors of outputs.
bool narrow_vectors(const problem_sizes &s, const kernel_set &k) {
    return k.quad_product == nullptr && k.lanes >= 8 && s.in_last && s.in_c <= 64
           && divides(k.lanes, s.out_c);
}

/// Results of narrow_data, which leave a vector of channels at a time: as long as a whole one, of
/// however few channels. (The rates of shorter vectors were fitted to few.)
void add_narrow_results(work_counts &w, const problem_sizes &s, const kernel_set &k) {
    add_results(w, s, false);
    const double channels = narrow_groups(s) * s.out_c;
    if (k.lanes >= 16 && channels > 1) w.results_last *= whole(channels, k.lanes) / channels;
}

work_counts narrow_pixels_work(const problem_sizes &s, const kernel_set &k) {
    const axis_sizes &d = s.x[0], &h = s.x[1], &r = s.x[2];
    const bool quads = k.quad_product != nullptr;
    const double unit = quads ? 4.0 * k.k_per_unit : 1, together = s.in_c < unit ? 2 : 1;
    const double vectors = s.out_c / (quads ? 4 : k.lanes);
    const double step = quads ? 4 : parts_of(vectors, parts_of(vectors, 3));
    const double whole_steps = floor_of(vectors / step);
    const block_steps each = in_pieces(k, r.length, static_cast<int>(step));
    const block_steps rest = in_pieces(k, r.length, static_cast<int>(vectors - step * whole_steps));
    const double blocks = whole_steps * each.blocks + rest.blocks, maps = s.maps / together;
    const double row_taps = maps * d.pairs * h.pairs * r.kernel;
    work_counts w;
    w.steps = row_taps * parts_of(s.in_c, unit) * (whole_steps * each.cycles + rest.cycles);
    w.runs = row_taps * blocks;
    w.calls = maps * d.results * h.results * r.phases * blocks;
    add(w, s.maps, {s.in_last, false, s.in_step, s.in_c, s.in_positions});
    if (!s.in_last) w.copied = 2 * s.maps * s.in_c * s.in_positions;  // turned to another place
    w.rows = s.patch_rows * s.segments;
    // Rows of channels side by side are packed for all groups of a task (64 groups of 4 on 14×7
    // with stride 3: a third of what a row for each group would say).
    if (quads && s.in_last) w.rows /= narrow_groups(s);
    w.weights = s.groups * s.taps * s.in_c * s.out_c;
    // Whole groups of pairs leave from registers.
    const bool leaves = !is_fma(k) && together == 1 && divides(2, vectors);
    if (leaves || !quads)
        add_results(w, s, false);
    else
        add_narrow_results(w, s, k);
    if (quads) {
        // Each into a place of its own, 2.1 to 2.8 ns (groups of 8 and 16 on 7×7).
        w.weights = together > 1 ? 0 : w.weights * (is_fma(k) ? 1.6 : 1.5);
        return w;
    }
    // Positions that are packed, twice as long where a vector is left incomplete.
    const double groups = narrow_groups(s), channels = groups * s.in_c;
    w.tasks = s.maps / groups * s.in_positions * (divides(k.lanes, channels) ? 1 : 2);
    if (s.out_last) {  // the rates are of results that are transposed
        w.copied += w.results_last;
        w.results_last = 0;
    }
    return w;
}

work_counts narrow_data_work(const problem_sizes &s, const kernel_set &k) {
    if (narrow_quads(s, k) || narrow_vectors(s, k)) return narrow_pixels_work(s, k);
    const axis_sizes &d = s.x[0], &h = s.x[1], &r = s.x[2];
    const double chunks = parts_of(s.in_c, 64);
    const auto rows_cost = [&](double rows) {
        return along_positions(k, s.out_c, (rows - 1) * r.patch + r.length);
    };
    const block_steps b = rows_cost(h.length);
    double steps = h.kernel * b.cycles;
    if (chunks == 1 && (s.forward || h.stride == 1)) {  // rows at the border may go by themselves
        const double inner = inner_rows(s);
        const double cut = (h.pairs - inner * h.kernel) * rows_cost(1).cycles
                           + (inner > 0 ? h.kernel * rows_cost(inner).cycles : 0);
        steps = std::min(steps, cut);
    }
    const double volume = s.forward ? d.stride * h.stride * r.stride : 1;
    work_counts w;
    w.steps = s.maps * d.pairs * parts_of(s.in_c, k.k_per_unit) * r.kernel * steps;
    w.runs = s.maps * d.pairs * h.kernel * r.kernel * b.blocks * chunks;
    w.calls = s.maps * d.results * h.phases * r.phases * b.blocks * chunks;
    add(w, s.maps, {s.in_last, false, s.in_step, s.in_c, s.in_positions});
    w.rows = s.patch_rows * s.segments;
    add_narrow_results(w, s, k);
    w.weights = s.groups * s.taps * s.in_c * s.out_c;
    const double tile = volume * 65536 / (s.in_c + s.out_c);
    if (volume > 1 && 4 * s.in_c * std::min(s.in_positions, tile) > kept_bytes)
        w.spilled = s.maps * s.in_c * s.in_positions;
    return w;
}

/// `together` groups as one.
work_counts tiled_weights_work(const problem_sizes &s, const kernel_set &k, double together = 1) {
    const double ic = s.ic * together, oc = s.oc * together, groups = s.groups / together;
    const double maps = s.images * groups;
    const block_steps src_rows = cheapest_panels(k, ic, oc), dst_rows = cheapest_panels(k, oc, ic);
    const bool by_src = src_rows.cycles <= dst_rows.cycles;
    const block_steps b = by_src ? src_rows : dst_rows;
    const double row_taps = maps * s.x[0].pairs * s.x[1].pairs * s.x[2].kernel;
    const double tile = std::max(
        8.0, tile_bytes * k.k_per_unit / (4 * (std::min(ic, 512.0) + std::min(oc, 512.0))));
    const double tiles = maps * parts_of(s.dst_positions, tile);
    const bool near_src = s.in_last && 4 * s.in_pitch * s.in_step <= most_pitch,
               near_dst = s.out_last && 4 * number(s.p.dst.x[2]) <= most_pitch;
    const auto whole_vectors = [&](double channels) { return divides(k.lanes, channels); };
    const bool plain = is_fma(k) && s.f32;
    const bool src_as_stored = plain && near_src && (by_src || whole_vectors(ic)),
               dst_as_stored = plain && near_dst && (!by_src || whole_vectors(oc));
    work_counts w;
    w.steps = row_taps * parts_of(s.x[2].dst, k.k_per_unit) * b.cycles;
    if (is_fma(k)) w.steps = maps * s.x[0].pairs * s.x[1].pairs * s.x[2].pairs * b.cycles;
    w.runs = row_taps * b.blocks;
    w.calls = tiles * s.taps * b.blocks;
    w.partial = tiles * s.taps * (by_src ? ic * whole(oc, k.lanes) : oc * whole(ic, k.lanes));
    add_both(w, s, maps, ic, oc, src_as_stored, dst_as_stored, s.in_step);
    if (!src_as_stored) w.rows += s.patch_rows / together * s.segments;
    if (!dst_as_stored) w.rows += maps * s.x[0].dst * s.x[1].dst;
    if (k.set == isa::avx2 && s.taps == 1 && src_as_stored && dst_as_stored
        && 4 * s.in_pitch * s.in_step < most_pitch)
        w.lines *= 0.25;  // as in one_long_run()
    w.weights = groups * ic * oc * s.taps;
    return w;
}

work_counts folded_weights_work(const problem_sizes &s, const kernel_set &k) {
    const double rows = s.x[2].kernel * s.ic, planes = s.x[0].kernel * s.x[1].kernel;
    const block_steps b = widest_panels(k, rows, s.oc);
    const double width = whole(parts_of(s.oc, k.lanes), b.vectors) * k.lanes;
    const double tiles =
        s.maps * parts_of(s.dst_positions, std::max(32.0, k.k_per_unit * 8192 / width));
    const bool dst_as_stored = is_fma(k) && s.f32 && s.out_last && divides(k.lanes, s.oc);
    work_counts w;
    w.steps = s.maps * s.x[0].pairs * s.x[1].pairs * parts_of(s.x[2].dst, k.k_per_unit) * b.cycles;
    w.runs = s.maps * s.x[0].pairs * s.x[1].pairs * b.blocks;
    w.calls = tiles * planes * b.blocks;
    w.partial = tiles * planes * rows * whole(s.oc, k.lanes);
    // As in folded_data_work().
    const double stride = s.groups == 1 && s.ic <= 4 && s.in_pitch == 1 ? 1 : 2;
    add_both(w, s, s.maps, s.ic, s.oc, false, dst_as_stored, stride);
    w.rows = s.patch_rows + (dst_as_stored ? 0 : s.maps * s.x[0].dst * s.x[1].dst);
    w.weights = s.groups * s.ic * s.oc * s.taps;
    if (s.groups > 1) w.result_lines = s.groups * s.ic * s.taps;  // short rows of weights
    // Lines that several groups share come for each of them, those of src in whole rows.
    constexpr double shared = 2.5;  // times as long again
    if (s.groups > 1 && s.in_last && s.size * s.ic < line_bytes)
        w.lines += shared * s.patch_rows * s.x[2].src;
    if (s.groups > 1 && s.out_last && s.size * s.oc < line_bytes)
        w.lines += shared * s.maps * s.dst_positions;
    return w;
}

work_counts narrow_weights_work(
    const problem_sizes &s, const kernel_set &k, const narrow_cut &cut) {
    const bool in_place = cut.dst != dst_reading::packed, planes = cut.dst == dst_reading::planes;
    const double m = cut.rows, n = cut.columns, tile = cut.positions;
    const double tiles = s.maps * parts_of(s.dst_positions, tile);
    const double width = std::min(s.x[2].dst, tile),
                 height = std::clamp(tile / s.x[2].dst, 1.0, s.x[1].dst);
    const double pitch = planes ? width : s.x[2].patch;
    const double vectors = cut.dst == dst_reading::rows
                               ? height * parts_of(width, k.lanes)
                               : parts_of((height - 1) * pitch + width, k.lanes);
    const double steps = s.maps * s.dst_positions / (height * width) * vectors * cut.blocks;
    work_counts w;
    w.steps = steps * std::max(m * n, m + n);
    w.runs = steps * (m + n);  // loads
    w.calls = tiles * cut.blocks;
    constexpr double start = 0.04;  // of a row, of a call
    if (cut.dst == dst_reading::rows)
        w.calls += start * s.maps * s.x[0].dst * s.x[1].dst * cut.blocks;
    w.partial = tiles * s.ic * s.taps * s.oc;
    // Src for each task, in as many copies as taps of a row need.
    const double maps = s.maps * cut.cuts, step = s.in_step;
    add(w, maps, {s.in_last, false, step, s.ic, s.in_positions * cut.copies});
    if (!in_place) add(w, s.maps, {s.out_last, false, 1, s.oc, s.dst_positions});
    // Counted for patches only, of which no line is read twice (1 → 24 channels of 4×4: 1.6 times
    // as long as without).
    if (s.groups > 1 || s.x[1].stride == 1 || s.x[1].kernel > s.x[1].stride) w.lines = 0;
    w.rows = s.patch_rows * cut.cuts * (planes ? s.x[2].kernel : s.segments);
    // Of src alone, each channel's: 12 ns (groups of 1, 2 and 4 on 28×28 to 112×112).
    const double each = k.lanes >= 16 ? 5 : 1;
    if (in_place)
        w.rows *= each * s.ic;
    else
        w.rows += s.maps * s.x[0].dst * s.x[1].dst;
    w.weights = s.groups * s.ic * s.taps * s.oc;
    return w;
}

/// Groups of a task of the weights gradient of eight channels by eight, and positions of its tiles.
double eights_together(const problem_sizes &s) {
    return 2 * parts_of(32, 2 * std::min(s.ic, s.oc));
}
double eights_tile(const problem_sizes &s, const kernel_set &k) {
    return std::max(1.0, k.k_per_unit * 32768 / (eights_together(s) * (s.ic + s.oc)));
}

work_counts grouped_weights_work(const problem_sizes &s, const kernel_set &k) {
    const double blocks = s.ic / 8 * (s.oc / 8), planes = s.x[0].kernel * s.x[1].kernel;
    const double tiles = s.maps * parts_of(s.dst_positions, eights_tile(s, k));
    const double units = s.maps * s.x[0].pairs * s.x[1].pairs * s.x[2].dst / k.k_per_unit;
    work_counts w;
    w.steps = units * blocks * (s.x[2].kernel * 64 / k.lanes + parts_of(s.x[2].kernel, 3));
    w.runs = units / s.x[2].dst * blocks * parts_of(s.x[2].kernel, 3);
    w.calls = tiles * planes * blocks * parts_of(s.x[2].kernel, 3);
    w.partial = tiles * s.ic * s.oc * s.taps;
    add_both(w, s, s.maps, s.ic, s.oc, false, false, s.in_step);
    // Rows of channels side by side are packed for all groups of a task.
    const double together = std::min(eights_together(s), s.groups);
    w.rows = s.patch_rows * s.segments / (s.in_last ? together : 1)
             + s.maps * s.x[0].dst * s.x[1].dst / (s.out_last ? together : 1);
    w.weights = s.groups * s.ic * s.oc * s.taps;
    return w;
}

/// Of a weights gradient: one part of the sums, and a tile.
double gradient_bytes(const problem_sizes &s, double tile) {
    const double map = 4 * (s.ic * s.in_positions + s.oc * s.dst_positions);
    return 4 * s.groups * s.ic * s.oc * s.taps + std::min(map, tile);
}

/// Tiles of so many output positions of `together` groups, where each part of the sums has all
/// weights and all parts together have a limit.
double gradient_pieces(const problem_sizes &s, const kernel_set &k, double tile, double together) {
    constexpr double most = 6 << 20;
    const double rows = s.x[0].dst * s.x[1].dst;
    const double tiles = s.images * parts_of(rows, std::max(1.0, floor_of(tile / s.x[2].dst)));
    const double sums = 4 * s.groups * s.ic * whole(s.oc, k.lanes) * s.taps;
    return parts_of(s.groups, together) * std::min(tiles, std::max(1.0, floor_of(most / sums)));
}

/// Whether tiled_data can have the batch as its last axis, and may gain by it.
bool can_stack(const problem_sizes &s, const kernel_set &k) {
    constexpr double longest = 32;  // row
    // Few channels leave most of what is packed empty, and groups that share lines would fetch them
    // for each (AVX2, 32 groups of 8: half as fast).
    constexpr double least_units = 8;
    if (parts_of(s.in_c, k.k_per_unit) < least_units) return false;
    if (s.in_last && s.groups > 1 && s.size * s.in_c < line_bytes) return false;
    // What a row of results of some images needs must fit a tile.
    const double images = std::min(s.images, 16.0), chunk = std::min(s.in_c, 256.0 * k.k_per_unit);
    const double rows = std::min(s.x[1].touched, (s.x[1].kernel - 1) * s.x[1].dilation + 1);
    if (4 * parts_of(chunk, k.k_per_unit) * images * rows * s.x[2].touched > tile_bytes)
        return false;
    return !s.weights && !k.tiles() && s.p.mb > 1 && s.taps > 1 && s.p.x[0] == conv::axis{}
           && s.x[2].length <= longest && regular_input(s);
}

/// Of tiled_data, and whether images are stacked.
struct tiled_choice {
    double seconds;
    bool stacked;
};
tiled_choice choose_tiled(const problem_sizes &s, const kernel_set &k) {
    const auto seconds = [&](const work_counts &work) {
        return seconds_with(cost_kind::tiled_data, work, k);
    };
    const double plain = seconds(tiled_data_work(s, k));
    if (!can_stack(s, k)) return {plain, false};
    work_counts work = tiled_data_work(problem_sizes(conv::batch_as_last_axis(s.p)), k);
    // Of several chunks once for each block of output channels.
    constexpr double block_bytes = 512 << 10, shared = 24 << 20;
    const double weights = 4 * s.taps * parts_of(s.in_c, k.k_per_unit) * whole(s.out_c, k.lanes);
    if (s.in_c > 256.0 * k.k_per_unit || weights > shared)
        work.turned *= parts_of(weights, block_bytes);
    const double stacked = seconds(work);
    return stacked < plain ? tiled_choice{stacked, true} : tiled_choice{plain, false};
}

/// A data gradient with strides on planes: results of a phase leave with gaps between them. Above 2
/// they leave one by one, of narrow_data in 0.5 to 1 ns each beyond what its rates say, of tiled
/// ones in less.
double scattered_seconds(const problem_sizes &s, double above_two, double two) {
    if (s.forward || s.weights || s.out_last || s.x[2].stride == 1) return 0;
    return 1e-9 * (s.x[2].stride > 2 ? above_two : two) * s.maps * s.out_c * s.out_positions;
}

/// One tap with strides on planes: whole lines of memory come for each block of channels, or leave,
/// for every other element or fewer. Nothing else hides that.
double spread_seconds(const problem_sizes &s) {
    constexpr double read = 0.1e-9, written = 0.18e-9, summed = 0.3e-9;  // a byte
    if (s.taps > 1 || s.x[2].stride == 1 || s.p.src.c == 1) return 0;
    const double channels = s.size * s.maps * s.ic;
    if (s.weights) return summed * channels * s.line_positions() * parts_of(s.oc, 512);
    return s.forward ? read * channels * s.line_positions() * parts_of(s.oc, 256)
                     : written * channels * s.src_positions;
}

/// The same in weights gradients of a few channels at a time, whose lines are still there for the
/// next elements: groups of 4 and 8 on 14×14 to 56×56 a sixth or less, of 16 nearly all. Shorter
/// vectors' times are counted twice as long as these bytes.
double group_spread(const problem_sizes &s, const kernel_set &k) {
    const double share = std::clamp((std::max(s.ic, s.oc) - 6) / 12, 0.1, 1.0);
    return spread_seconds(s) * (k.lanes < 16 ? 1 : share);
}

}  // namespace

prediction predict_tiled(const problem_sizes &s, const kernel_set &k) {
    if (s.empty) return nothing;
    const double weights = s.groups * s.taps * s.ic * s.oc;
    const double bytes =
        s.weights ? gradient_bytes(s, tile_bytes) : data_bytes(s, weights, 4 << 20, tile_bytes);
    const double spread = spread_seconds(s);
    if (k.tiles()) return {spread + amx_tiled_seconds(s, k), bytes};
    if (s.weights) {
        // First layers, a few rows of sums for each tap: 1.15 to 1.25 times what the counts say,
        // with channels side by side 1.4, in pairs 1.5 (Zen 5, beside folded_weights).
        const bool own_type = s.f32 || !is_fma(k);
        const double longer = !s.in_last ? 1.2 : is_fma(k) ? 1.4 : 1.5;
        const double few = own_type && s.ic <= 8 && s.x[2].kernel > 1 ? longer : 1;
        return {spread + few * seconds_with(cost_kind::tiled_weights, tiled_weights_work(s, k), k),
            bytes};
    }
    const double scattered =
        is_fma(k) ? scattered_seconds(s, 0.15, 0) : scattered_seconds(s, 0.4, 0.15);
    return {spread + scattered + choose_tiled(s, k).seconds, bytes};
}

bool worth_stacking(const conv::problem &p, const kernel_set &kernels) {
    const problem_sizes s(p);
    return !s.empty && choose_tiled(s, kernels).stacked;
}

prediction predict_folded(const problem_sizes &s, const kernel_set &k) {
    if (s.empty) return nothing;
    if (s.weights) {
        // Pairs of positions that are picked one by one (1 channel, strides above 2: 1.6 to 1.9
        // with few taps, with 16 and more .9 to 1.1).
        const bool picked = !is_fma(k) && !s.in_last && s.ic * s.groups == 1 && s.x[2].stride > 2;
        const double far = picked && s.x[2].kernel < 8 ? 1.3 : 1;
        return {spread_seconds(s)
                    + far * seconds_with(cost_kind::folded_weights, folded_weights_work(s, k), k),
            gradient_bytes(s, 64 << 10),
            gradient_pieces(s, k, std::max(32.0, k.k_per_unit * 8192 / whole(s.oc, k.lanes)), 1)};
    }
    const double weights = s.groups * s.taps * s.ic * s.oc;
    constexpr double patch = 192 << 10;
    const double least = folded_least(s.taps * s.in_c * s.out_c);
    const double bytes = data_bytes(s, weights, 4 * weights, patch);
    if (k.tiles())
        return {amx_folded_seconds(s, k), bytes,
            data_pieces(s, patch, 4, number(folded_groups(s.p, folded_taps(s.p))), least)};
    return {spread_seconds(s) + seconds_with(cost_kind::folded_data, folded_data_work(s, k), k),
        bytes, data_pieces(s, patch, 4, 1, least)};
}

prediction predict_narrow(const problem_sizes &s, const kernel_set &k) {
    if (s.empty) return nothing;
    if (s.weights) {
        const narrow_cut cut = cut_narrow_weights(s, k);
        return {group_spread(s, k)
                    + seconds_with(cost_kind::narrow_weights, narrow_weights_work(s, k, cut), k),
            gradient_bytes(s, 256 << 10),
            cut.cuts * gradient_pieces(s, k, cut.positions, cut.groups)};
    }
    const work_counts w = narrow_data_work(s, k);
    // One channel fills half of each pair: 1.4 to 2.7 times as long as by FMA where this says 1.
    const double halves = !is_fma(k) && s.in_c == 1 ? 2 : 1;
    const double spread = s.forward ? spread_seconds(s) : 0;  // results leave together
    return {
        spread + scattered_seconds(s, 0.6, 0) + halves * seconds_with(cost_kind::narrow_data, w, k),
        data_bytes(s, w.weights, 1 << 20, 256 << 10),
        data_pieces(s, 256 << 10, 10, narrow_groups(s))};
}

prediction predict_grouped(const problem_sizes &s, const kernel_set &k) {
    if (s.empty) return nothing;
    return {group_spread(s, k)
                + seconds_with(cost_kind::grouped_weights, grouped_weights_work(s, k), k),
        gradient_bytes(s, 128 << 10),
        // Tiles are halved where they are few.
        gradient_pieces(
            s, k, std::min(eights_tile(s, k), s.dst_positions) / 2, eights_together(s))};
}

prediction predict_merged(const problem_sizes &s, const kernel_set &k) {
    if (s.empty) return nothing;
    const double together = number(merged_groups(s.p));
    const double bytes = gradient_bytes(s, tile_bytes) * together;
    if (k.tiles()) return {amx_merged_seconds(s, k), bytes};
    work_counts w = tiled_weights_work(s, k, together);
    w.results_last = s.groups * s.ic * s.oc * s.taps;
    return {seconds_with(cost_kind::merged_weights, w, k), bytes};
}

// The only one for bias gradients, so that no choice depends on it.
prediction predict_sums(const problem_sizes &s, const kernel_set &k) {
    constexpr double start = 1e-6, element = 1e-9;
    return {start + s.maps * s.oc * s.dst_positions * element / k.lanes, 8 * s.groups * s.oc};
}

// Not measured over layers: it is for kernels that the others cannot list, and must lose elsewhere.
// Lanes run along the last axis, and what is copied for them serves as many rows as there are
// channels.
prediction predict_long(const problem_sizes &s, const kernel_set &k) {
    constexpr double start = 5e-6, product = 16e-9, copies = 4;
    if (s.empty) return {start, 0};
    const double lanes = s.weights ? s.x[2].kernel : s.x[2].length;
    const double products = s.maps * s.ic * s.oc * s.x[0].pairs * s.x[1].pairs * s.x[2].pairs;
    const double waste = whole(lanes, k.lanes) / lanes * (1 + copies / s.out_c);
    return {start + products * waste * product / k.lanes, 0};
}

}  // namespace convgrad::cpu
