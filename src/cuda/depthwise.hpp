// Depthwise layers: one input channel per group; most of them on two axes, with square kernels of
// 3, 5 or 7 taps.
#pragma once

#include "cuda/general.hpp"

namespace convgrad::cuda {

/// Whether columns lie side by side rather than channels.
inline bool takes_planes(const conv::problem &p) {
    return p.src.x[2] < p.src.c || p.groups == 1;
}

/// Sizes, strides and epilogue of a data pass, and of a weights gradient.
void set_data(depthwise_args &a, const conv::problem &p);
void set_weights(depthwise_args &a, const conv::problem &p);

/// Why a problem is none of these; empty if it is.
std::string refuse_depthwise(const conv::problem &p);
/// The same where each input channel has one output channel, nothing is empty, and pads are small.
std::string refuse_single(const conv::problem &p);

/// Planes, stride 1: all kernels for these were measured on one device in one run, from 2 to 100
/// MB.
bool copies_planes(const conv::problem &p);
/// Seconds until all multiprocessors are busy, and those that wait for the last ones, of a kernel
/// that takes so many for it: less where there is little to do at all.
double waves(const conv::problem &p, double most);

prediction predict_depthwise(
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);
std::unique_ptr<const engines::plan> make_depthwise_plan(std::string_view name,
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);

/// The same layers with their input through shared memory.
std::string refuse_staged(const conv::problem &p);
prediction predict_staged(
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);
std::unique_ptr<const engines::plan> make_staged_plan(std::string_view name, const conv::problem &p,
    const architecture &on, const engines::plan_limits &limits);

/// Those of 16-bit types and stride 1 on tensor cores. They need stores of turned matrices, and the
/// shared memory of large devices.
bool has_banded(const architecture &on);
std::string refuse_banded(const conv::problem &p);
prediction predict_banded(
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);
std::unique_ptr<const engines::plan> make_banded_plan(std::string_view name, const conv::problem &p,
    const architecture &on, const engines::plan_limits &limits);

/// Those of 3×3 taps whose channels lie side by side, by threads of four channels.
std::string refuse_quads(const conv::problem &p);
prediction predict_quads(
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);
std::unique_ptr<const engines::plan> make_quads_plan(std::string_view name, const conv::problem &p,
    const architecture &on, const engines::plan_limits &limits);

/// Those whose channels lie side by side, by warps that need nobody else.
std::string refuse_ring(const conv::problem &p);
prediction predict_ring(
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);
std::unique_ptr<const engines::plan> make_ring_plan(std::string_view name, const conv::problem &p,
    const architecture &on, const engines::plan_limits &limits);

/// Those of planes as large as their outputs, likewise.
std::string refuse_planes(const conv::problem &p);
prediction predict_planes(
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);
std::unique_ptr<const engines::plan> make_planes_plan(std::string_view name, const conv::problem &p,
    const architecture &on, const engines::plan_limits &limits);

/// Depthwise layers of any kernel, stride and dilation, on any axes.
std::string refuse_sliding(const conv::problem &p);
prediction predict_sliding(
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);
std::unique_ptr<const engines::plan> make_sliding_plan(std::string_view name,
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);

}  // namespace convgrad::cuda
