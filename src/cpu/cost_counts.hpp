// What the counts of the cost model are made of.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/cost_model.hpp"
#include "cpu/streaming.hpp"
#include "cpu/tiled.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

/// Of what is not negative. The library's function is a call, which takes as long as the rest.
inline double floor_of(double v) {
    constexpr double most = 0x1p52;  // beyond, all are whole
    return v < most ? static_cast<double>(static_cast<std::int64_t>(v)) : v;
}
inline double parts_of(double all, double part) {
    const double ratio = all / part, low = floor_of(ratio);
    return low < ratio ? low + 1 : low;
}
inline bool divides(double part, double all) {
    return floor_of(all / part) * part == all;
}
inline double whole(double all, double part) {
    return parts_of(all, part) * part;
}

/// Lines of memory for each position, if positions are so many bytes apart. (Patches of one channel
/// have eight positions in a line; a line for each was half of what tiles were predicted to take.)
inline double lines_of(double bytes) {
    return std::min(1.0, bytes / number(line_bytes));
}

/// How elements come to a kernel: `maps` maps of `positions` positions of `channels` channels.
struct reading {
    bool last, as_stored;
    double stride;  // between elements that are packed side by side
    double channels, positions;
    double pitch = line_bytes;  // bytes from position to position, where they are as stored
};

inline void add(work_counts &w, double maps, const reading &r) {
    double &how = r.as_stored     ? w.direct
                  : r.last        ? w.copied
                  : r.stride > 2  ? w.far
                  : r.stride == 2 ? w.gathered
                                  : w.turned;
    how += maps * r.channels * r.positions;
    if (r.last) w.lines += maps * r.positions * (r.as_stored ? lines_of(r.pitch) : 1);
}

/// Groups of a task of the narrow drivers.
inline double narrow_groups(const problem_sizes &s) {
    return std::min(std::max(1.0, floor_of(64 / std::max(s.ic, s.oc))), s.groups);
}

inline void add_results(work_counts &w, const problem_sizes &s, bool straight) {
    const double all = s.maps * s.out_c * s.out_positions;
    if (s.out_last) w.result_lines = s.maps * s.out_positions;
    if (!s.out_last) w.results_apart = all;
    if (s.out_last && !straight) w.results_last = all;
}

/// Source and destination of a weights gradient.
inline void add_both(work_counts &w, const problem_sizes &s, double maps, double ic, double oc,
    bool src_as_stored, bool dst_as_stored, double stride) {
    add(w, maps, {s.in_last, src_as_stored, stride, ic, s.in_positions, s.size * s.in_pitch});
    add(w, maps,
        {s.out_last, dst_as_stored, 1, oc, s.dst_positions, s.size * number(s.p.dst.x[2])});
}

/// Cycles of one k step of all blocks of rows × columns, and how many blocks there are.
struct block_steps {
    double cycles = 0, blocks = 0;
    double vectors = 1;  // of a panel
};

inline block_steps in_panels(const kernel_set &k, double rows, double columns, double vectors) {
    const double all = parts_of(columns, k.lanes);
    const double pieces = parts_of(rows, k.max_m[static_cast<int>(vectors)]);
    const double m = parts_of(rows, pieces), full = floor_of(all / vectors);
    const double rest = all - full * vectors;
    return {pieces * (full * step_cost(k, m, vectors) + (rest > 0 ? step_cost(k, m, rest) : 0)),
        pieces * parts_of(all, vectors), vectors};
}

/// Rows in pieces of nearly equal height over `vectors` vectors.
inline block_steps in_pieces(const kernel_set &k, double rows, int vectors) {
    if (vectors == 0) return {};
    const double pieces = parts_of(rows, k.max_m[vectors]), low = floor_of(rows / pieces);
    const double higher = rows - low * pieces;
    return {
        (pieces - higher) * step_cost(k, low, vectors) + higher * step_cost(k, low + 1, vectors),
        pieces};
}

/// Rows over `positions` positions, a few vectors at a time.
inline block_steps along_positions(const kernel_set &k, double rows, double positions) {
    const int step = widest_vectors(k, static_cast<dim>(rows));
    const double vectors = parts_of(positions, k.lanes), full = floor_of(vectors / step);
    const block_steps each = in_pieces(k, rows, step);
    const block_steps rest = in_pieces(k, rows, static_cast<int>(vectors - step * full));
    return {full * each.cycles + rest.cycles, full * each.blocks + rest.blocks};
}

inline bool is_fma(const kernel_set &kernels) {
    return kernels.format == operand_format::fma;
}

inline double seconds_with(cost_kind kind, const work_counts &w, const kernel_set &kernels) {
    return seconds_of(w, work_rates(kind, kernels));
}

/// Bytes that one worker keeps: packed weights of a group, up to what the driver keeps of them, and
/// a tile of data.
inline double data_bytes(const problem_sizes &s, double weights, double most_weights, double tile) {
    const double map = 4 * (s.in_c * s.in_positions + s.out_c * s.out_positions);
    return std::min(4 * weights / s.groups, most_weights) + std::min(map, tile);
}

/// Tiles of whole rows of which the input takes so many bytes, of `together` groups, or smaller
/// ones where a thread would have fewer than `each_thread`; also of parts of rows, of `least`
/// positions, if that is given.
inline double data_pieces(
    const problem_sizes &s, double bytes, double each_thread, double together, double least = 0) {
    constexpr double usual = 64, threads = most_cut_threads;
    const double row = s.x[2].length, rows = s.x[0].length * s.x[1].length;
    const double maps = s.images * parts_of(s.groups, together);
    const double each = 4 * s.in_c * together * s.in_positions / (rows * row);
    const double tile = std::max(least > 0 ? least : usual,
        std::min(bytes / each, rows * row * maps / (each_thread * threads)));
    // Counted for narrow_data too, 1x1 layers on planes went there, which it predicts at half of
    // what they take.
    if (least > 0 && tile < row) return maps * rows * parts_of(row, floor_of(tile));
    return maps * parts_of(rows, std::max(1.0, floor_of(tile / row)));
}

}  // namespace convgrad::cpu
