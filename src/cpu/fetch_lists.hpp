// Lists of lines for product_args::fetch: a box of a tensor, pairs of lines along its longest axis.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "cpu/geometry.hpp"
#include "cpu/kernels/kernels.hpp"

namespace convgrad::cpu {

class fetch_lists {
public:
    struct axis {
        dim count, stride;  // in bytes
    };

    fetch_lists() = default;
    /// Runs of `run` bytes, the first at `from`, repeated along up to four axes (count ≤ 1: none).
    fetch_lists(const char *from, dim run, const std::array<axis, 4> &axes) {
        if (run <= 0) return;
        const auto before = static_cast<dim>(reinterpret_cast<std::uintptr_t>(from) % 64);
        from_ = from - before;
        axes_[0] = {div_up(run + before, pair), pair};
        for (std::size_t a = 0; a < 4; ++a)
            axes_[a + 1] = {std::max<dim>(axes[a].count, 1), axes[a].stride};
        std::stable_sort(axes_.begin(), axes_.end(),
            [](const axis &a, const axis &b) { return a.count > b.count; });
        pairs_ = 1;
        for (const axis &a : axes_) pairs_ *= a.count;
    }

    /// How many are left.
    [[nodiscard]] dim pairs() const { return pairs_; }

    /// The length of lists of which there are at most `blocks`, if that is possible.
    [[nodiscard]] dim share(dim blocks) const {
        if (pairs_ == 0) return 0;
        const dim lines = pairs_ / axes_[0].count;
        return div_up(axes_[0].count, std::max<dim>(blocks / lines, 1));
    }

    /// The next list, of at most `most` pairs.
    product_args::soon next(dim most) {
        const dim n = std::min({most, pairs_, axes_[0].count - index_[0]});
        if (n <= 0) return {};
        const product_args::soon list{from_, axes_[0].stride, n};
        pairs_ -= n;
        index_[0] += n;
        from_ += n * axes_[0].stride;
        for (std::size_t a = 0; a + 1 < axes_.size() && index_[a] == axes_[a].count; ++a) {
            index_[a] = 0;
            ++index_[a + 1];
            from_ += axes_[a + 1].stride - axes_[a].count * axes_[a].stride;
        }
        return list;
    }

private:
    static constexpr dim pair = 128;

    const char *from_ = nullptr;
    dim pairs_ = 0;
    std::array<axis, 5> axes_{};  // the longest first
    std::array<dim, 5> index_{};
};

/// Two boxes that are asked for while some blocks are multiplied.
class fetch_ahead {
public:
    fetch_ahead() = default;
    fetch_ahead(const fetch_lists &one, const fetch_lists &other, dim blocks)
        : boxes_{one, other}, each_{one.share(blocks), other.share(blocks)} {}

    /// What the next block asks for.
    void fill(product_args &args) {
        for (int i = 0; i < 2; ++i) args.fetch[i] = boxes_[i].next(each_[i]);
    }

private:
    fetch_lists boxes_[2];
    dim each_[2] = {};
};

}  // namespace convgrad::cpu
