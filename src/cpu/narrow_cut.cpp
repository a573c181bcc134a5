// How narrow_weights cuts a problem, by its sizes alone.
#include <algorithm>

#include "cpu/cost_counts.hpp"
#include "cpu/narrow_weights.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {
namespace {

/// Elements of a row of src that lie apart for its taps, each once.
double patch_of_row(const problem_sizes &s) {
    const axis_sizes &row = s.x[2];
    const double reach = (row.kernel - 1) * row.dilation + 1;
    const double beyond = std::max(0.0, (reach - s.segments) * s.segments / row.stride);
    return std::min(row.kernel * row.dst, s.segments * row.dst + beyond);
}

dst_reading choose_reading(const problem_sizes &s, const kernel_set &k, double blocks) {
    if (!s.f32 || s.empty || s.p.dst.x[2] != 1) return dst_reading::packed;
    const axis_sizes &row = s.x[2];
    const double vectors = parts_of(row.dst, k.lanes);
    // Whether a copy of src for each tap of a row takes less than what rows cost that are
    // multiplied one by one: their starts, and vectors that they do not fill. In cycles, of a row.
    constexpr double copied = 0.3, copy = 20, start = 9, block = 12;  // an element, ..., a vector
    const double more =
        s.ic * s.x[1].stride
        * (copied * (row.kernel * row.dst - patch_of_row(s)) + copy * (row.kernel - s.segments));
    const double unfilled = blocks * (start + block * (vectors - row.dst / k.lanes));
    if (s.p.dst.x[1] == s.p.x[2].dst && s.p.x[1].dst > 1 && more < unfilled)
        return dst_reading::planes;
    // Rows that fill their vectors about as well as rows that are packed with gaps between them.
    constexpr double worth = 0.8;  // of what packing would save in products
    return patch_of_row(s) >= worth * vectors * k.lanes ? dst_reading::rows : dst_reading::packed;
}

/// In place. Four channels of dst stay in the first cache while all rows of weights pass, and src
/// in the second (16 groups of 4 at a time: twice as long).
double positions_of(const problem_sizes &s, const narrow_cut &cut) {
    constexpr double most = 65536;  // floats
    constexpr double longest = 2048, shortest = 256;
    const double copies = cut.dst == dst_reading::planes ? s.x[2].kernel : s.segments;
    return std::clamp(
        floor_of(most / (cut.groups * s.ic * copies * s.x[1].stride)), shortest, longest);
}

/// In place.
void share_out(narrow_cut &cut, const problem_sizes &s, const kernel_set &k) {
    constexpr double each = 4;     // tasks for a thread
    constexpr double fewest = 32;  // channels of a task
    const double wanted = each * worthwhile_threads(s.p, k, most_cut_threads);
    const auto tasks = [&] {
        return s.images * parts_of(s.groups, cut.groups) * parts_of(s.dst_positions, cut.positions);
    };
    cut.cuts = std::clamp(parts_of(wanted, tasks()), 1.0, std::max(1.0, floor_of(s.oc / fewest)));
    if (cut.cuts * tasks() < wanted && cut.positions >= number(2 * shortest_in_place))
        cut.positions = floor_of(cut.positions / 2);
}

}  // namespace

narrow_cut cut_narrow_weights(const problem_sizes &s, const kernel_set &k) {
    narrow_cut cut;
    const double rows = s.ic * s.taps, column_blocks = parts_of(s.oc, 4);
    cut.columns = parts_of(s.oc, column_blocks);
    const double row_blocks = parts_of(rows, k.max_dot[static_cast<int>(cut.columns)]);
    cut.rows = parts_of(rows, row_blocks);
    cut.blocks = column_blocks * row_blocks;
    cut.dst = choose_reading(s, k, cut.blocks);
    // Several, so that lines of channels side by side are read for all that is in them.
    const bool in_place = cut.dst != dst_reading::packed;
    cut.groups = in_place && !s.in_last ? 1 : narrow_groups(s);
    if (!in_place) {
        constexpr double most = 65536;  // floats of both
        cut.positions = std::max(1.0, floor_of(most / (cut.groups * (s.ic + s.oc))));
        return cut;
    }
    if (cut.dst == dst_reading::planes) cut.copies = s.x[2].kernel * s.x[2].dst / patch_of_row(s);
    cut.positions = positions_of(s, cut);
    share_out(cut, s, k);
    return cut;
}

}  // namespace convgrad::cpu
