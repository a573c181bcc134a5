// The one cost model behind every choice of an algorithm: how long each would take on one thread.
//
// A prediction counts what an algorithm does (steps of kernels, elements that are packed, results
// that leave, …) and multiplies by what each of these takes, measured once (cost_rates.cpp). Only
// the problem and the kernels go in: neither threads nor caches of the machine at hand can move a
// choice, and with it the bits. Everything is arithmetic on doubles, without overflow, and takes
// some ten nanoseconds.
#pragma once

#include <array>
#include <cstdint>

#include "conv/problem.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/kernels/winograd.hpp"

namespace convgrad::cpu {

inline double number(dim v) {
    return static_cast<double>(v);
}

/// What predictions ask about one axis.
struct axis_sizes {
    double src = 1, dst = 1, kernel = 1;  // taps that reach the input
    double stride = 1, dilation = 1, pad = 0;
    double pairs = 1;    // of a position and a tap inside the input
    double results = 1;  // positions of the output that some tap reaches
    double phases = 1;   // of backward data: residues modulo the stride that taps reach
    double length = 1;   // output positions of a phase
    double patch = 1;    // inputs that one phase's positions span; backward: of all of a tap's
    double touched = 1;  // inputs that are read
};

/// What predictions ask about a problem, worked out once for all rows.
struct problem_sizes {
    explicit problem_sizes(const conv::problem &asked);

    conv::problem p;  // simplified
    bool empty;       // nothing to multiply
    bool weights, forward;
    bool f32;
    double size;  // bytes of an element
    double images, groups, maps;
    double ic, oc, taps;
    double all_taps;  // those that never reach the input too
    std::array<axis_sizes, 3> x;
    double src_positions, dst_positions;
    // Input and output of the pass; of a weights gradient: src and dst.
    double in_c, out_c, in_positions, out_positions;
    bool in_last, out_last;  // channels lie side by side
    double in_pitch;         // elements between positions of the input that follow each other
    double in_step;          // input positions between results that follow each other
    double patch_rows;       // rows of a map's input that are packed one by one
    double segments;         // that a row of input is packed in

    /// Of src, in the rows that are read.
    [[nodiscard]] double line_positions() const { return x[0].touched * x[1].touched * x[2].src; }
};

/// What a choice is made by.
struct prediction {
    double seconds;     // of one thread of a nominal core, above 0
    double bytes;       // of workspace that one worker takes, roughly
    double pieces = 0;  // that threads share, roughly; 0: as many as they like
};

/// What an algorithm does for a problem.
struct work_counts {
    double steps = 0;          // cycles of the kernels' inner loops, see step_cost()
    double runs = 0;           // that kernels go through, for each block
    double calls = 0;          // of kernels
    double tasks = 0;          // tiles
    double rows = 0;           // packed one by one
    double direct = 0;         // elements used where they lie,
    double copied = 0;         // copied in their order,
    double turned = 0;         // transposed on the way,
    double gathered = 0;       // every other of a row, or
    double far = 0;            // fewer than that
    double lines = 0;          // positions whose channels are read together
    double results_last = 0;   // that leave through a buffer, channels side by side
    double results_apart = 0;  // or in planes
    double result_lines = 0;   // positions whose channels are written together
    double weights = 0;        // packed, or written
    double partial = 0;        // sums that a tile adds to
    double spilled = 0;        // packed elements that leave the first two caches again
};

/// The drivers, each with rates of its own.
enum class cost_kind : std::uint8_t {
    tiled_data,
    tiled_weights,
    folded_data,
    folded_weights,
    narrow_data,
    narrow_weights,
    merged_weights,
    pointwise_data,
    depthwise_data,
    depthwise_weights,
    plane_data,
    plane_weights,
    winograd_data,
    winograd_weights,
    grouped_weights,
    shifted_data,
};

/// Nanoseconds of each on a nominal core. Formats fma and dot2 only.
const work_counts &work_rates(cost_kind kind, const kernel_set &kernels);

/// For a problem without a product.
inline constexpr prediction nothing{1e-6, 0};

/// Sum of all counts times their rates, in seconds.
double seconds_of(const work_counts &counts, const work_counts &nanoseconds);

/// Whether the dense problem of one that fits gathered planes is for pointwise_data (else for the
/// tiled drivers), and how long that takes.
struct gathered_choice {
    bool pointwise;
    prediction cost;
};
gathered_choice choose_gathered(
    const conv::problem &dense, const kernel_set &kernels);  // gathered.cpp

/// For problems that the drivers fit.
prediction predict_tiled(const problem_sizes &s, const kernel_set &kernels);
/// Whether tiles of data passes have the batch as their last axis: `stacked` in tiled_layout.hpp.
bool worth_stacking(const conv::problem &p, const kernel_set &kernels);
prediction predict_folded(const problem_sizes &s, const kernel_set &kernels);
prediction predict_narrow(const problem_sizes &s, const kernel_set &kernels);
prediction predict_grouped(const problem_sizes &s, const kernel_set &kernels);
prediction predict_merged(const problem_sizes &s, const kernel_set &kernels);
prediction predict_pointwise(
    const problem_sizes &s, const kernel_set &kernels);  // pointwise_cost.cpp
prediction predict_shifted(const problem_sizes &s, const kernel_set &kernels);   // the same
prediction predict_gathered(const problem_sizes &s, const kernel_set &kernels);  // gathered.cpp
/// Whether positions of few channels go several at a time (merge_columns()).
bool merges_columns(const problem_sizes &s, const kernel_set &k);
prediction predict_depthwise(const problem_sizes &s, const kernel_set &kernels);
prediction predict_planes(const problem_sizes &s, const kernel_set &kernels);
prediction predict_turned(const problem_sizes &s, const kernel_set &kernels);  // turned.cpp
prediction predict_sliced(const problem_sizes &s, const kernel_set &kernels);  // sliced_cost.cpp
prediction predict_long(const problem_sizes &s, const kernel_set &kernels);
prediction predict_sums(const problem_sizes &s, const kernel_set &kernels);
prediction predict_winograd(
    const problem_sizes &s, winograd_tile tile, const kernel_set &kernels);  // winograd_cost.cpp

}  // namespace convgrad::cpu
