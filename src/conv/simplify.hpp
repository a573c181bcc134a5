// An equal problem with as few and as long axes as possible.
#pragma once

#include "conv/problem.hpp"

namespace convgrad::conv {

/// Makes channels of the taps of patches (stride and kernel the same, no padding) along an axis
/// that continues the channels: 4×4 patches of three channels, NXC, are four taps of twelve. Merges
/// neighbouring axes (and the batch) that a pointwise kernel walks in step, moves the batch into an
/// axis of length 1, and puts a real axis last. Results keep their meaning element by element, so
/// drivers see fewer special shapes: a 1×1 convolution on NXC data is one long row.
problem simplify(problem p);

/// The batch in place of a trivial first axis, where there is one: tiles may then hold several
/// images.
problem batch_as_axis(problem p);

/// The same with the batch as the last axis: positions of several images lie side by side.
problem batch_as_last_axis(problem p);

/// Names axes a and b the other way round.
void swap_axes(problem &p, std::size_t a, std::size_t b);

}  // namespace convgrad::conv
