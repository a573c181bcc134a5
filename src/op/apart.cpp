#include "op/apart.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace convgrad::ops {
namespace {

__extension__ typedef __int128 wide;

constexpr int most_tries = 1 << 16;  // some milliseconds

struct strided_axis {
    wide stride;
    wide most;  // length - 1
};

wide gcd_of(wide a, wide b) {
    while (b != 0) a = std::exchange(b, a % b);
    return a;
}

wide div_down(wide a, wide b) {
    return a / b - (a % b < 0 ? 1 : 0);
}

wide remainder_of(wide a, wide b) {
    return a - div_down(a, b) * b;
}

/// x with a·x ≡ 1 modulo m, which has no divisor in common with a.
wide inverse_of(wide a, wide m) {
    wide r0 = m, r1 = remainder_of(a, m), t0 = 0, t1 = 1;
    while (r1 != 0) {
        const wide q = r0 / r1;
        r0 = std::exchange(r1, r0 - q * r1);
        t0 = std::exchange(t1, t0 - q * t1);
    }
    return remainder_of(t0, m);
}

class search {
public:
    search(const dims &shape, const dims &strides) {
        for (std::size_t i = 0; i < shape.size(); ++i)
            if (shape[i] > 1) insert({strides[i], shape[i] - 1});
        merge();
        for (std::size_t i = 0; i < count_; ++i)
            reach_[i + 1] = reach_[i] + axes_[i].stride * axes_[i].most;
    }

    layout_kind run() {
        bool nested = true;
        for (std::size_t i = 0; i < count_; ++i) nested = nested && axes_[i].stride > reach_[i];
        if (nested) return layout_kind::apart;
        if (crowded()) return layout_kind::overlapping;
        // The axis of the largest stride along which the two elements differ.
        for (std::size_t i = 1; i < count_; ++i) {
            const strided_axis &a = axes_[i];
            const wide most = std::min(a.most, reach_[i] / a.stride);
            if (i == 1 && pair_meets()) return layout_kind::overlapping;
            for (wide d = 1; i > 1 && d <= most; ++d) {
                if (meets(i, d * a.stride)) return layout_kind::overlapping;
                if (tries_ > most_tries) return layout_kind::unclear;
            }
        }
        return layout_kind::apart;
    }

private:
    /// Keeps axes in order of their strides.
    void insert(const strided_axis &axis) {
        std::size_t at = count_++;
        for (; at > 0 && axes_[at - 1].stride > axis.stride; --at) axes_[at] = axes_[at - 1];
        axes_[at] = axis;
    }

    /// Axes that continue each other are one.
    void merge() {
        std::size_t kept = 0;
        for (std::size_t i = 0; i < count_; ++i) {
            strided_axis &last = axes_[kept == 0 ? 0 : kept - 1];
            if (kept > 0 && axes_[i].stride == last.stride * (last.most + 1))
                last.most += axes_[i].most * (last.most + 1);
            else
                axes_[kept++] = axes_[i];
        }
        count_ = kept;
    }

    /// More elements than places for them.
    [[nodiscard]] bool crowded() const {
        const wide places = reach_[count_] + 1;
        wide elements = 1;
        for (std::size_t i = 0; i < count_ && elements <= places; ++i)
            elements *= axes_[i].most + 1;
        return elements > places;
    }

    /// Whether steps along the first two axes cancel each other.
    [[nodiscard]] bool pair_meets() const {
        const wide common = gcd_of(axes_[0].stride, axes_[1].stride);
        return axes_[1].stride / common <= axes_[0].most
               && axes_[0].stride / common <= axes_[1].most;
    }

    /// Whether distances along the first `n` ≥ 2 axes sum up to `rest`.
    bool meets(std::size_t n, wide rest) {
        ++tries_;
        const strided_axis &a = axes_[n - 1];
        const wide first = std::max(-a.most, -div_down(reach_[n - 1] - rest, a.stride));
        const wide last = std::min(a.most, div_down(reach_[n - 1] + rest, a.stride));
        if (n == 2) return pair_sums(rest, first, last);
        for (wide d = first; d <= last && tries_ <= most_tries; ++d)
            if (meets(n - 1, rest - d * a.stride)) return true;
        return false;
    }

    /// The same for two axes, with the second one's distance in [first, last]: it must leave a
    /// multiple of the first one's stride.
    [[nodiscard]] bool pair_sums(wide rest, wide first, wide last) const {
        const wide common = gcd_of(axes_[0].stride, axes_[1].stride);
        if (rest % common != 0) return false;
        const wide modulus = axes_[0].stride / common;
        const wide wanted = remainder_of(
            remainder_of(rest / common, modulus) * inverse_of(axes_[1].stride / common, modulus),
            modulus);
        return first + remainder_of(wanted - first, modulus) <= last;
    }

    std::array<strided_axis, 5> axes_{};
    std::size_t count_ = 0;
    std::array<wide, 6> reach_{};  // of the axes before
    int tries_ = 0;
};

}  // namespace

layout_kind judge_layout(const dims &shape, const dims &strides) {
    return search(shape, strides).run();
}

}  // namespace convgrad::ops
