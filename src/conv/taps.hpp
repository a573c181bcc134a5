// Taps of a kernel: all of them, and which lie inside the input.
#pragma once

#include <algorithm>

#include "conv/problem.hpp"

namespace convgrad::conv {

/// Which of `count` positions from input index `first` on, `step` apart, exist.
inline void clip(dim first, dim step, dim count, dim length, dim &lo, dim &hi) {
    const auto steps = [step](dim distance) { return (distance + step - 1) / step; };
    lo = first >= 0 ? 0 : std::min(count, steps(-first));
    hi = first >= length ? lo : std::max(lo, std::min(count, steps(length - first)));
}

struct tap_counts {
    double pairs = 0;  // of a position of dst and a tap that lies inside src
    double taps = 0;   // those that have such a position
};

/// Along one axis. Of very many taps some are looked at.
inline tap_counts count_taps(const axis &a) {
    constexpr dim most = 64;
    const dim looks = std::min(a.kernel, most);
    tap_counts found;
    for (dim i = 0; i < looks; ++i) {
        const dim k = looks == a.kernel ? i : (2 * i + 1) * (a.kernel / (2 * looks));
        const dim first = k * a.dilation - a.pad;
        dim lo, hi;
        if (a.stride == 1) {  // without a division
            lo = std::clamp<dim>(-first, 0, a.dst);
            hi = std::clamp<dim>(a.src - first, lo, a.dst);
        } else {
            clip(first, a.stride, a.dst, a.src, lo, hi);
        }
        found.pairs += static_cast<double>(hi - lo);
        found.taps += hi > lo ? 1 : 0;
    }
    const double share =
        static_cast<double>(a.kernel) / static_cast<double>(std::max<dim>(looks, 1));
    return {found.pairs * share, found.taps * share};
}

/// Calls body(number of the tap, its offset in the weights), in the order of the axes.
template <typename Body>
void for_each_tap(const problem &p, const Body &body) {
    dim number = 0;
    for (dim d = 0; d < p.x[0].kernel; ++d)
        for (dim h = 0; h < p.x[1].kernel; ++h)
            for (dim w = 0; w < p.x[2].kernel; ++w)
                body(number++, d * p.weights.k[0] + h * p.weights.k[1] + w * p.weights.k[2]);
}

}  // namespace convgrad::conv
