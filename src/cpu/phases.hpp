// The phases of all three axes together, with their taps: what forward and backward data walk over.
#pragma once

#include <vector>

#include "conv/problem.hpp"
#include "cpu/geometry.hpp"

namespace convgrad::cpu {

/// One combination of a phase per axis, with its range in the lists of taps.
struct conv_phase {
    const axis_phase *axis[3];
    dim first_tap, taps;
};

struct phase_list {
    std::vector<conv_phase> phases;
    // Per tap: elements from a filter's first weight; positions from a patch's start; elements in
    // the input from where position 0 is.
    std::vector<dim> weights, patch, input;
};

/// `walk` must outlive the list.
phase_list list_phases(const axis_walk (&walk)[3], const axis_patch (&patch)[3],
    const conv::weights_strides &weights, const conv::data_strides &in);

/// Whether the taps of a filter lie side by side in their natural order (OIX, IOX).
bool taps_side_by_side(const conv::problem &p);

/// Combinations of a phase per axis.
dim count_phases(const axis_walk (&walk)[3]);
/// Taps of all phases.
dim count_taps(const axis_walk (&walk)[3]);
/// Positions of the longest phase.
dim count_positions(const axis_walk (&walk)[3]);

/// What the two data passes read and write.
struct data_roles {
    bool forward;
    dim in_c, out_c;  // channels per group
    conv::data_strides in, out;
    dim weights_in, weights_out;  // weights strides of the reduced and of the output channel

    explicit data_roles(const conv::problem &p);
    [[nodiscard]] const void *input(const conv::buffers &data) const {
        return forward ? data.src : data.dst;
    }
    [[nodiscard]] void *output(const conv::buffers &data) const {
        return forward ? data.dst : data.src;
    }
};

/// Whether some tap of an output element lies outside the input and has a weight that is not
/// finite: there a packed zero would make NaN of the sum. It depends on the element alone, never on
/// its tile. Arguments as for careful_sum().
bool needs_care(const conv::problem &p, const data_roles &roles, const axis_walk (&walk)[3],
    const conv_phase &f, const conv::buffers &data, dim group, dim channel, const dim (&t)[3]);

/// The plain sum of one output element over taps inside the input only, straight from the tensors:
/// for weights with infinities or NaNs beside padding, where 0 · ∞ of a packed zero would be NaN.
/// Slow, and rare. `t` is the position within the phase, `channel` the output channel within its
/// group.
float careful_sum(const conv::problem &p, const data_roles &roles, const axis_walk (&walk)[3],
    const conv_phase &f, const conv::buffers &data, dim n, dim group, dim channel,
    const dim (&t)[3]);

/// Taps of the weights gradient as offsets in diff_weights (elements): those that meet src
/// somewhere, in the order of the walks' taps, and those that never do, whose gradient is an empty
/// sum.
struct gradient_taps {
    std::vector<dim> kept, empty;
    gradient_taps() = default;
    gradient_taps(const conv::problem &p, const axis_walk (&walk)[3]);
    /// Writes the empty sums.
    void write_zeros(const conv::problem &p, const conv::buffers &data) const;
};

/// Part of the weights gradient from one tile, for one pair of channels (within their group) and
/// one tap: like the other careful_sum, for infinities and NaNs in dst beside padding.
float careful_sum(const conv::problem &p, const axis_walk (&walk)[3],
    const axis_tap *const (&taps)[3], const conv::buffers &data, dim n, dim group, dim i, dim o,
    const dim (&t0)[3], const dim (&length)[3]);

/// Writes the output positions that no tap reaches, or all if `nothing_to_sum`: empty sums, to
/// which bias, add and old contents still apply.
struct kernel_set;
class executor;
struct work_stage;
void fill_unreached(const conv::problem &p, const data_roles &roles, const axis_walk (&walk)[3],
    const kernel_set &kernels, bool nothing_to_sum, const conv::buffers &data,
    const executor &threads);
/// The same as a stage of work; no tasks where every position is reached.
work_stage unreached_stage(const conv::problem &p, const data_roles &roles,
    const axis_walk (&walk)[3], bool nothing_to_sum, int workers);

}  // namespace convgrad::cpu
