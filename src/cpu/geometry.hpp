// How output positions meet input positions along one axis.
//
// Forward and strided backward data are the same walk: position t of a phase is output index
// first + t·out_step and reads input index t·in_step + off for each of the phase's taps. Forward
// has one phase and in_step = stride; backward data has a phase per residue modulo the stride and
// in_step = 1, so that no zero is ever inserted and only taps that meet are visited.
#pragma once

#include <vector>

#include "conv/problem.hpp"

namespace convgrad::cpu {

struct axis_tap {
    dim k;    // index into the weights
    dim off;  // input index at t = 0; may be negative or beyond the end
};

struct axis_phase {
    dim first = 0;  // output index of t = 0
    dim count = 0;  // number of positions
    std::vector<axis_tap> taps;
};

struct axis_walk {
    dim in_length = 1, out_length = 1;
    dim in_step = 1, out_step = 1;
    dim longest = 0;  // largest count of a phase
    /// Phases with at least one tap that some position reads inside the input; phases without any
    /// (stride larger than the kernel, pads larger than it) are not listed.
    std::vector<axis_phase> phases;
};

axis_walk walk_forward(const conv::axis &a);
axis_walk walk_backward(const conv::axis &a);

/// The part of an input axis that a tile of positions needs, gathered into one array: position t of
/// a tap is at start + t. Taps whose ranges overlap share a segment, others get their own, so that
/// neither strides nor large dilations make the array longer than what is read.
///
/// Patches of three axes lie one row after the other. If the last axis keeps its segments apart,
/// all rows of its first segment come before those of the second, so that a walk over several rows
/// of one tap passes nothing that belongs to another.
struct axis_patch {
    struct segment {
        dim at;     // index in the array
        dim in;     // input index of its first element, for a tile that starts at t = 0
        dim count;  // elements, in_step apart in the input
    };
    dim length = 0;
    dim row =
        0;  // positions from one row to the next: a segment's if they are apart, or the length
    std::vector<segment> segments;
    std::vector<std::vector<dim>> start;  // [phase][tap]
};

axis_patch make_patch(const axis_walk &walk, dim tile, bool apart = false);
/// With a segment for each tap, however they overlap: a row of it is as long as the tile's.
axis_patch patch_of_taps(const axis_walk &walk, dim tile);

/// Where position (d, h, w) of three patches lies.
inline dim patch_index(const axis_patch (&patch)[3], dim d, dim h, dim w) {
    const dim row = patch[2].row, segment = w / row;
    return ((segment * patch[0].length + d) * patch[1].length + h) * row + w % row;
}

/// True if some tap of some position in [t0, t0 + tile) lies outside the input.
bool touches_padding(const axis_walk &walk, dim t0, dim tile);

/// Whether output index `x` belongs to a listed phase; if not, its value is that of an empty sum.
bool is_reached(const axis_walk &walk, dim x);

inline dim div_up(dim a, dim b) {
    return (a + b - 1) / b;
}
inline dim div_down(dim a, dim b) {
    return a >= 0 ? a / b : -((-a + b - 1) / b);
}
inline dim round_up_to(dim a, dim b) {
    return div_up(a, b) * b;
}

}  // namespace convgrad::cpu
