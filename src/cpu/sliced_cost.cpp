#include "cpu/sliced_cost.hpp"

#include <algorithm>
#include <cmath>

#include "cpu/cost_counts.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {
namespace {

// Nanoseconds on a nominal core, vectors of 16 lanes; shorter ones take longer in proportion.
constexpr double copied = 0.05, shuffled = 0.12, transposed = 0.13;  // an element
constexpr double call = 250, tap = 12;                               // of a pair of slices
constexpr double weight = 1.5, sum = 1;                              // held, or written

/// An element of a tensor on its way to its slice, or back.
double element(const problem_sizes &s, slice_lanes along, const conv::data_strides &t, double c) {
    if (along == slice_lanes::images || t.c != 1) return transposed;
    if (s.groups * c > 1 && c == 1) return copied;
    return c <= number(most_shuffled) ? shuffled : transposed * std::max(1.0, 16 / c);
}

double seconds_along(const problem_sizes &s, const kernel_set &k, slice_lanes along) {
    const bool groups = along == slice_lanes::groups;
    const double lanes = groups ? s.groups : s.images, sets = groups ? 1 : s.groups,
                 items = groups ? s.images : 1;
    const dim all_lanes = groups ? s.p.groups : s.p.mb, all_items = groups ? s.p.mb : 1;
    const bool summed = sums_slices(s.p);
    const problem_sizes one(summed ? sum_problem(s.p, along, all_lanes, all_items, {0, 0})
                                   : slice_problem(s.p, along, all_lanes, all_items));
    const double wide = 16 / number(k.lanes),
                 pairs = sets * (summed ? s.weights ? s.oc : s.out_c : s.ic * s.oc);
    const double blocks = parts_of(lanes, 2.0 * k.lanes);
    const double src = s.maps * s.ic * s.src_positions, dst = s.maps * s.oc * s.dst_positions;
    const double full = whole(lanes, number(k.lanes)) / lanes;
    double ns = 1e9 * pairs * predict_depthwise(one, k).seconds;
    // Every product loads; planes of images side by side come from L2 then (6 → 16 channels of 5×5
    // on 14×14, Zen 5: 1.3 to 1.5 times as long as 8×8 says).
    constexpr double first_cache = 32 << 10, farther = 1.35;
    const double planes = 4 * 2.0 * k.lanes * (s.src_positions + s.dst_positions);
    if (!groups && !s.weights && s.ic > 1 && planes > first_cache) ns *= farther;
    ns += full * wide
          * (src * element(s, along, s.p.src, s.ic) + dst * element(s, along, s.p.dst, s.oc));
    constexpr double piece = 256 << 10;
    const double image =
        4 * 2.0 * k.lanes * sets * (s.ic * s.src_positions + s.oc * s.dst_positions);
    const double pieces = groups ? parts_of(items, std::max(1.0, floor_of(piece / image))) : 1;
    // Slices that leave L2 before they are used, or before they leave.
    constexpr double kept = 640 << 10, kept_at_all = 2 << 20;
    const double held = groups ? image : image / 2;  // see the driver
    if (held > kept)
        ns += full * wide * (src + dst) * (!groups ? 0.25 : held <= kept_at_all ? 0.06 : 0.4);
    ns += blocks * pieces * pairs * (call + tap * one.taps);
    ns += s.groups * s.ic * s.oc * s.taps * (s.weights ? sum : weight);
    // Depthwise layers need not become f32 (7×7 and 14×14: 1.1 to 1.4 times as long as turned
    // ones).
    if (groups && s.ic * s.oc == 1) ns *= 1.4;
    constexpr double measured = 0.85;  // of these, in the median
    return 1e-9 * measured * ns;
}

/// How much longer a layer takes on 16 threads or 64, if it has the work for so many, where slices
/// make too few pieces: blocks of images are not cut along rows.
double idle(const conv::problem &p, const kernel_set &k, dim pieces) {
    constexpr double fair = 0.9;
    double share = 1;
    for (const int threads : {16, most_cut_threads})
        if (threads <= cut_threads(p, k))
            share = std::min(share, fair_share_on(pieces, 1, threads));
    return share < fair ? fair / share : 1;
}

}  // namespace

sliced_choice choose_slices(const problem_sizes &s, const kernel_set &kernels) {
    const double groups = s.groups > 1 ? seconds_along(s, kernels, slice_lanes::groups) : HUGE_VAL;
    const double images =
        images_fit(s.p) ? seconds_along(s, kernels, slice_lanes::images) : HUGE_VAL;
    if (groups <= images) return {slice_lanes::groups, groups};
    return {slice_lanes::images, images};
}

prediction predict_sliced(const problem_sizes &s, const kernel_set &k) {
    if (s.empty) return {10 * nothing.seconds, 0};  // slices would be copied for nothing
    const sliced_choice choice = choose_slices(s, k);
    const bool groups = choice.along == slice_lanes::groups;
    const bool leave_alone = s.weights || (s.forward ? s.p.dst : s.p.src).c != 1;
    const double pieces =
        (groups ? s.images * parts_of(s.groups, (s.weights ? 2.0 : 1.0) * k.lanes)
                : parts_of(s.images, number(k.lanes)) * (leave_alone ? s.groups : 1))
        * (leave_alone ? s.out_c : 1);
    return {choice.seconds * idle(s.p, k, static_cast<dim>(pieces)), 512 << 10, pieces};
}

}  // namespace convgrad::cpu
