#include "cuda/pixels_cut.hpp"

#include <algorithm>

namespace convgrad::cuda {
namespace {

using conv::pass;
using conv::problem;

constexpr int multiprocessors = 132;                       // of a nominal device
constexpr wide few_weights = 49152, many_weights = 98304;  // bytes of a block

int narrow(wide v) {
    return static_cast<int>(v);
}
int round_up(wide v, wide to) {
    return narrow(cover(v, to) * to);
}
bool is_f32(const problem &p) {
    return p.type == data_type::f32;
}
int element_bytes(const problem &p) {
    return is_f32(p) ? 4 : 2;
}

void set_sizes(pixels_args &a, const problem &p) {
    if (is_weights(p))
        a.weights = make_weights_args(p);
    else
        a.data = make_data_args(p, 1, 1);
    a.src_n = p.src.n;
    a.src_c = p.src.c;
    a.src_y = p.src.x[1];
    a.src_x = p.src.x[2];
    a.dst_n = p.dst.n;
    a.dst_c = p.dst.c;
    a.dst_y = p.dst.x[1];
    a.dst_x = p.dst.x[2];
    a.src_bytes = (p.mb - 1) * p.src.n + (p.ic - 1) * p.src.c + 1;
    for (std::size_t d = 1; d < 3; ++d) a.src_bytes += (p.x[d].src - 1) * p.src.x[d];
    a.src_bytes *= element_bytes(p);
    a.ic = narrow(p.ic);
    a.oc = narrow(p.oc);
    a.mb = narrow(p.mb);
    a.in_rows = narrow(p.x[1].src);
    a.in_columns = narrow(p.x[2].src);
    a.out_rows = narrow(p.x[1].dst);
    a.out_columns = narrow(p.x[2].dst);
    a.taps_y = narrow(p.x[1].kernel);
    a.taps_x = narrow(p.x[2].kernel);
    a.stride_y = narrow(p.x[1].stride);
    a.stride_x = narrow(p.x[2].stride);
    a.pad_y = narrow(p.x[1].pad);
    a.pad_x = narrow(p.x[2].pad);
    a.phases = is_f32(p) && !is_weights(p) ? a.stride_x : 1;
    a.phase_taps = a.taps_x / a.phases;
    a.phases_with_more = a.taps_x % a.phases;
    a.half = p.type == data_type::f16 ? 1 : 0;
    a.plain = p.add || p.accumulate ? 0 : 1;
    // Rows of whole pixels, or of planes; anything else is gathered into the former.
    const bool pixels = a.src_x == a.ic && (a.src_c == 1 || a.ic == 1);
    a.raw_inside = pixels || a.src_x != 1 ? 1 : 0;
    a.unit = pixels || a.src_x == 1 ? 16 : 0;
}

/// Tiles of output channels, as many as have room; 16-bit: of 8·`columns` channels.
void set_forward_tiles(pixels_cut &c, const problem &p, int columns, int threads, wide room) {
    pixels_args &a = c.args;
    c.columns = columns;
    c.threads = threads;
    wide channels = pixels_channels_f32,
         bytes = wide{a.taps_y} * a.taps_x * pixels_kernel_channels(a.ic) * channels * 4;
    if (!is_f32(p)) {
        a.row_steps = narrow(cover(a.taps_x, 4));
        channels = columns * 8;
        bytes = wide{a.taps_y} * a.row_steps * channels * 32;
    }
    // By registers.
    c.at_once = 512 / threads;
    const wide tiles = cover(p.oc, channels);
    a.channel_blocks = narrow(cover(tiles, std::max<wide>(1, room / bytes)));
    a.channel_tiles = narrow(cover(tiles, a.channel_blocks));
    a.channel_blocks = narrow(cover(tiles, a.channel_tiles));
    a.tap_blocks = 1;
    a.bias_at = narrow(std::min<wide>(bytes * a.channel_tiles, 1 << 20));
    a.places_at = a.bias_at + narrow(channels) * a.channel_tiles * 4;
}

/// What warps share out: channels, pairs of taps, positions.
void set_weights_shares(pixels_cut &c, const problem &p) {
    pixels_args &a = c.args;
    a.tap_tiles = narrow(a.taps_y * cover(a.taps_x, 2));
    c.rows = cover(p.oc, 64) * 64 - p.oc >= 32 ? 2 : 4;
    const int channels = c.rows * 16;
    const wide groups = cover(p.oc, channels);
    a.channel_blocks = narrow(cover(groups, 96 / channels));
    a.row_groups = narrow(cover(groups, a.channel_blocks));
    double least = 0;
    for (const int columns : {c.rows == 4 ? 4 : 8, 6}) {
        const int most_warps = pixels_weights_threads(c.rows, columns) / 32;
        for (int together = 1; together <= std::max(1, most_warps / a.row_groups); ++together) {
            const wide blocks = cover(a.tap_tiles, columns * together);
            const int sums = std::max(1, most_warps / (a.row_groups * together));
            // Products of tiles that are not there, warps, and what each block of taps reads again.
            const double cost =
                static_cast<double>(blocks * columns * together) / a.tap_tiles
                * (1 + 0.1 * static_cast<double>(blocks - 1))
                * (1 + 0.5 * (most_warps - a.row_groups * together * sums) / most_warps);
            if (c.columns != 0 && cost >= least) continue;
            least = cost;
            c.columns = columns;
            a.tap_groups = together;
            a.tap_blocks = narrow(blocks);
            a.sum_groups = sums;
        }
    }
    c.threads = 32 * a.row_groups * a.tap_groups * a.sum_groups;
    c.at_once = pixels_weights_blocks(c.rows, c.columns);
}

/// The same of threads, for f32.
void set_weights_units(pixels_cut &c, const problem &p) {
    pixels_args &a = c.args;
    const int channels = pixels_kernel_channels(a.ic), taps = pixels_own_taps(channels),
              sums = taps * channels * pixels_own_channels + 1;
    const wide groups = cover(p.oc, pixels_own_channels);
    a.channel_blocks = narrow(cover(groups, 12));
    a.row_groups = narrow(cover(groups, a.channel_blocks));
    a.tap_tiles = narrow(cover(wide{a.taps_y} * a.taps_x, taps));
    // Sums of all units have to fit into shared memory at the end.
    const int most_units = std::min(pixels_most_threads_f32, pixels_least_shared / 4 / sums);
    a.tap_blocks = narrow(cover(a.tap_tiles, most_units / a.row_groups));
    a.tap_groups = narrow(cover(a.tap_tiles, a.tap_blocks));
    const int units = a.row_groups * a.tap_groups;
    double best = 0;
    for (int groups_of_sums = 1; units * groups_of_sums <= pixels_most_threads_f32;
         ++groups_of_sums) {
        const int threads = round_up(units * groups_of_sums, 32),
                  at_once = pixels_most_threads_f32 / threads;
        // Threads that have work, and that there are many of them.
        const double worth = 1.0 * units * groups_of_sums / threads
                             * std::min(1.0, threads * std::min(2, at_once) / 384.0);
        if (worth <= best) continue;
        best = worth;
        a.sum_groups = groups_of_sums;
        c.threads = threads;
        c.at_once = std::min(2, at_once);
    }
}

/// All that follows from the size of a box.
void set_box(pixels_cut &c, const problem &p, int rows, int columns) {
    pixels_args &a = c.args;
    const bool weights = is_weights(p);
    const int element = element_bytes(p), pixel = 4 * element;
    a.box_rows = rows;
    a.box_columns = columns;
    a.positions = rows * columns;
    a.bands = narrow(cover(a.out_rows, rows));
    a.strips = narrow(cover(a.out_columns, columns));
    a.items = a.mb * a.bands * a.strips;
    a.padded_positions = round_up(a.positions, weights     ? (is_f32(p) ? 4 : 16)
                                               : is_f32(p) ? pixels_tile_f32
                                                           : pixels_tile);
    const int taps = is_f32(p) ? a.taps_x : round_up(a.taps_x, weights ? 2 : 4);
    a.line_rows = (rows - 1) * a.stride_y + a.taps_y;
    a.line_columns = (columns - 1) * a.stride_x + taps;
    // Copies that are one pixel apart take the banks that the other leaves.
    const bool copies = !is_f32(p) && a.stride_x % 2 != 0;
    a.phase_columns = narrow(cover(a.line_columns, a.phases));
    a.phase_pitch = a.phase_columns * pixel;
    a.pitch = is_f32(p) ? (a.phases * a.phase_pitch / 16 | 1) * 16
                        : round_up(a.line_columns + (copies ? 2 : 0), 2) * pixel;
    const int units = a.line_rows * a.pitch / 16;
    a.copy = copies ? (units + (11 - units % 8) % 8) * 16 : 0;

    const int tables = weights ? 0 : a.places_at;
    a.places_at = tables;
    a.outs_at = tables + round_up(a.padded_positions * 4, 16);
    a.cells_at = a.outs_at + round_up(a.padded_positions * 4, 16);
    a.raw_at = a.cells_at + round_up(a.padded_positions * 4, 16);
    const int across = a.raw_inside != 0 ? a.ic : 1, lines = a.raw_inside != 0 ? 1 : a.ic;
    a.raw_pitch = round_up(a.line_columns * across * element, 16) + 32;
    a.pixels_at = round_up(a.raw_at + a.line_rows * lines * a.raw_pitch, 128);
    const int end = a.pixels_at + (copies ? a.copy : 0) + a.line_rows * a.pitch;
    a.room_at = a.dst_at = round_up(end, 128);
    if (!weights) {
        const bool planes = a.dst_c != 1;
        const int room = is_f32(p) ? (planes ? 0 : 32 * pixels_room_pitch_f32)
                                   : (planes ? c.columns * 8 * pixels_room_pitch : 0);
        c.shared = a.room_at + c.threads / 32 * room;
        return;
    }
    const int channels = a.row_groups * (is_f32(p) ? pixels_own_channels : c.rows * 16);
    const bool planes = a.dst_c != 1;
    const int line = planes ? a.padded_positions : channels;
    a.dst_pitch = round_up(line * element, 16);
    if (planes || !is_f32(p)) a.dst_pitch = (a.dst_pitch / 16 | 1) * 16;
    a.dst_bytes = (planes ? channels : a.padded_positions) * a.dst_pitch;
    const int own = pixels_kernel_channels(a.ic);
    const int room = is_f32(p) ? a.row_groups * a.tap_groups
                                     * (pixels_own_taps(own) * own * pixels_own_channels + 1) * 4
                               : channels * a.tap_groups * c.columns * 8 * 4;
    c.shared = std::max(a.dst_at + 2 * a.dst_bytes, room);
}

int channels_of(const pixels_cut &c, const problem &p) {
    const pixels_args &a = c.args;
    if (is_weights(p)) return a.row_groups * (is_f32(p) ? pixels_own_channels : c.rows * 16);
    return a.channel_tiles * (is_f32(p) ? pixels_channels_f32 : c.columns * 8);
}

/// What two units take that work at the same time, mostly.
double overlap(double a, double b) {
    return std::max(a, b) + 0.25 * std::min(a, b);
}

/// Cycles of a multiprocessor for the arithmetic of an item, or for its reads of shared memory.
double compute_cycles(const pixels_cut &c, const problem &p) {
    const pixels_args &a = c.args;
    const double padded = a.padded_positions;
    const int warps = c.threads / 32;
    double cycles = 0;
    wide tasks = 1, takers = 1;  // of which some may be idle
    if (is_f32(p)) {
        constexpr double rate = 128 * 0.85;
        const int own = pixels_kernel_channels(a.ic);
        if (is_weights(p)) {
            tasks = a.padded_positions / 2;
            takers = a.sum_groups;
            cycles = padded / a.sum_groups * c.threads * pixels_own_taps(own) * own
                     * pixels_own_channels / rate;
        } else {
            tasks = a.padded_positions / pixels_tile_f32 * a.channel_tiles;
            takers = warps;
            cycles = padded * channels_of(c, p) * a.taps_y * a.taps_x * own / rate;
        }
    } else if (is_weights(p)) {
        tasks = a.padded_positions / 16;
        takers = a.sum_groups;
        cycles = padded / 16 * a.row_groups * a.tap_groups
                 * overlap(1.5 * c.rows * c.columns, 4 * (c.rows + c.columns / 2.0));
    } else {
        tasks = a.padded_positions / pixels_tile * a.channel_tiles;
        takers = warps;
        cycles = padded / 32 * a.taps_y * a.row_steps * a.channel_tiles
                 * overlap(3.0 * c.columns, (a.stride_x == 4 ? 16 : 8) + 2.0 * c.columns);
    }
    // Idle warps leave their share to others, of which there have to be enough.
    const double busy =
        static_cast<double>(tasks) / static_cast<double>(cover(tasks, takers) * takers);
    constexpr double enough = 12;
    return cycles / (c.at_once > 1 ? (1 + busy) / 2 : busy)
           * std::max(1.0, enough / (warps * busy * c.at_once));
}

/// Estimated cycles of a multiprocessor for an item: arithmetic or memory, and what puts pixels in
/// order; each block waits between items.
double item_cycles(const pixels_cut &c, const problem &p) {
    const pixels_args &a = c.args;
    const int element = element_bytes(p);
    const bool whole = a.dst_c == 1 ? a.oc % (16 / element) == 0 : has_whole_rows(a, 16 / element);
    const double results = 1.0 * a.positions * std::min(a.oc, channels_of(c, p));
    double moved = results * element / 16;
    if (!whole && (!is_f32(p) || is_weights(p))) moved *= is_f32(p) ? 2 : 4;
    double stage = a.line_rows * (a.line_columns * 0.2 + 10);
    if (is_weights(p)) stage += results * (whole ? element / 16.0 : 1) * 0.1;
    const double work = compute_cycles(c, p);
    constexpr double wait = 1500;
    if (c.at_once == 1) return std::max(work, moved) + stage + wait;
    // One block waits while another computes.
    return std::max(work + stage / 2, moved) + wait / c.at_once;
}

/// Blocks that a device computes at once, those of other channels and taps apart.
wide parts_at_once(const pixels_cut &c) {
    return std::max<wide>(
        1, wide{multiprocessors} * c.at_once / (c.args.channel_blocks * c.args.tap_blocks));
}

/// Replaces `best` by the box of the least effort, if there is a better one.
void choose_box(pixels_cut &best, const pixels_cut &start, const problem &p, int most_shared) {
    constexpr int shared = 227 * 1024, reserved = 1024;
    const wide most_rows = is_weights(p) ? 8 : 16, most_positions = 1024;
    const pixels_args &s = start.args;
    wide before = 0;
    for (wide strips = 1; strips <= s.out_columns; strips += cover(strips, 4)) {
        const wide columns = cover(s.out_columns, strips);
        if (columns == before || columns > most_positions) continue;
        before = columns;
        bool fits = false;
        for (wide rows = 1; rows <= std::min<wide>(most_rows, s.out_rows); rows += 1 + rows / 8) {
            pixels_cut c = start;
            set_box(c, p, narrow(rows), narrow(columns));
            if (rows * columns > most_positions || c.shared > most_shared) break;
            fits = true;
            c.at_once = std::min(c.at_once, shared / (c.shared + reserved));
            const wide rounds = cover(c.args.items, parts_at_once(c));
            c.cycles = static_cast<double>(rounds) * c.at_once * item_cycles(c, p);
            if (best.shared == 0 || c.cycles < best.cycles) best = c;
        }
        // Narrower boxes read more twice.
        if (fits && strips >= 4) break;
    }
}

/// How channels and taps are shared out first.
pixels_cut start_cut(const problem &p) {
    pixels_cut c;
    set_sizes(c.args, p);
    if (is_weights(p)) {
        is_f32(p) ? set_weights_units(c, p) : set_weights_shares(c, p);
    } else {
        // Eight columns, unless half of the last ones would be empty or weights are too many.
        const wide weights = c.args.taps_y * cover(c.args.taps_x, 4) * 64 * 32;
        const bool four = cover(p.oc, 64) * 64 - p.oc >= 32 || weights > 70 * 1024;
        set_forward_tiles(c, p, four ? 4 : 8, 128, few_weights);
    }
    return c;
}

}  // namespace

bool has_whole_rows(const pixels_args &a, int piece) {
    if (a.dst_x != 1 || a.dst_n % piece != 0 || a.dst_c % piece != 0) return false;
    if (a.box_columns % piece == 0) return a.dst_y % piece == 0;
    return a.strips == 1 && a.dst_y == a.box_columns && a.box_rows * a.dst_y % piece == 0;
}

bool fits_pixels(const problem &p) {
    pixels_cut c = start_cut(p);
    set_box(c, p, 1, 1);
    return c.shared <= pixels_least_shared;
}

pixels_cut cut_pixels(const problem &p, int most_shared, const engines::plan_limits &limits) {
    pixels_cut best, start = start_cut(p);
    choose_box(best, start, p, most_shared);
    if (!is_weights(p)) {
        for (const int threads : {128, 256})
            for (const wide room : {few_weights, many_weights}) {
                if (room == few_weights && threads == 128) continue;
                set_forward_tiles(start, p, start.columns, threads, room);
                choose_box(best, start, p, most_shared);
            }
    }
    pixels_args &a = best.args;
    wide parts = std::min<wide>(a.items, parts_at_once(best));
    if (is_weights(p)) parts = gradient_sums(p, parts, limits).parts();
    a.part_items = narrow(cover(a.items, parts));
    a.parts = narrow(cover(a.items, a.part_items));
    a.blocks = a.parts * a.channel_blocks * a.tap_blocks;
    return best;
}

}  // namespace convgrad::cuda
