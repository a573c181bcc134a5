// The layers on which the error of Winograd's tiles is measured: one source for the table of
// docs/accuracy.md and for the tests that bound it.
#pragma once

#include <vector>

#include "accuracy/subject.hpp"
#include "cpu/winograd.hpp"

namespace convgrad::accuracy {

inline constexpr std::string_view winograd_names[] = {
    "winograd2x2.fma", "winograd4x2.fma", "winograd4x4.fma"};

struct winograd_layer {
    conv::problem p;
    dim length;  // of a sum: channels, or positions of a weights gradient
};
/// f32, 3×3 taps, one for each length of the sum.
std::vector<winograd_layer> winograd_layers(conv::pass what);

/// The same on maps of which tiles stand over.
std::vector<winograd_layer> winograd_edge_layers(conv::pass what);

/// The same with stride 2.
std::vector<winograd_layer> winograd_stride_layers(conv::pass what, dim kernel);

/// The same with stride 1 and other taps, on two axes or (`line`) on one.
std::vector<winograd_layer> winograd_tap_layers(conv::pass what, dim kernel, bool line);

/// Root mean square error of a tile in terms of the plain sum's.
double winograd_factor(const conv::problem &p, cpu::winograd_tile tile, isa set, flavour f);

}  // namespace convgrad::accuracy
