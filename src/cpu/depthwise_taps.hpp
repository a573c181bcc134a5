// How the taps of depthwise problems become the lines and chains of the depthwise kernels.
#pragma once

#include <vector>

#include "cpu/kernels/depthwise_args.hpp"
#include "cpu/phases.hpp"

namespace convgrad::cpu {

/// One phase of the axis along which a kernel's positions lie. Its positions are walked in classes,
/// `spread` apart, so that taps which are dilated by `spread` meet the same slots.
struct chained_phase {
    dim count = 0, first = 0;  // as in axis_phase
    dim spread = 1;
    dim slot = 1;                  // input indices between slots
    std::vector<dim> k;            // of each tap, in the order of the chains
    dim chains = 0;                // per class
    std::vector<tap_chain> parts;  // [class][chain]

    [[nodiscard]] const tap_chain *of_class(dim c) const { return parts.data() + c * chains; }
};

/// `in_stride`: bytes between input indices; `pitch`: floats of a tap's weights.
chained_phase chain_taps(const axis_walk &walk, const axis_phase &phase, dim in_stride, dim pitch);

/// Positions with few channels, side by side, that fill a pair together: all taps of such a
/// position lie inside the input, and neighbours share the weights, repeated. 1: one at a time.
struct merged_columns {
    dim each = 1;                   // positions of a pair
    dim begin = 0, end = 0;         // positions whose taps all lie inside
    std::vector<tap_chain> chains;  // of one tap each

    [[nodiscard]] bool some() const { return each > 1 && begin < end; }
};

/// `in`, `out`: elements between positions.
merged_columns merge_columns(const axis_walk &walk, const chained_phase &chained, dim in, dim out,
    dim channels, dim pair, dim size);

/// From the elements of a pair's first position (at most one vector, in memory order) those of all
/// its positions, and in `ordered` the same as a whole pair has them.
void repeat_pair(float *pair, float *ordered, dim length, data_type type, dim channels, dim times);

/// The taps of one phase of the other two axes, outer first. Lines of one outer tap lie together.
struct line_list {
    const axis_phase *outer = nullptr, *inner = nullptr;
    std::vector<tap_line> lines;
    struct indices {
        dim k[2];
    };
    std::vector<indices> taps;

    /// Elements from a position's input to the row beyond the furthest that it reads.
    [[nodiscard]] dim furthest(dim outer_stride, dim inner_stride) const;
    /// The lines whose outer tap is inside the input at outer position t: [first, last).
    void at_outer(const axis_walk &walk, dim t, dim &first, dim &last) const;
};

/// `pitch`: floats of a line's weights.
line_list make_lines(const axis_phase &outer, dim outer_stride, const axis_walk &inner_walk,
    const axis_phase &inner, dim inner_stride, dim pitch);

/// Whether the tensors exceed half of the last cache and few enough taps share what is read, so
/// that memory decides.
bool worth_fetching_ahead(const conv::problem &p);

/// Widest pair of any instruction set, in elements.
inline constexpr dim max_pair = 32;

/// `count` elements, `stride` apart from index `at` on, as one pair in the kernels' order (of data
/// passes); the rest of the pair is zero.
void load_pair(
    float *to, dim pair, const void *from, data_type type, dim at, dim stride, dim count);

}  // namespace convgrad::cpu
