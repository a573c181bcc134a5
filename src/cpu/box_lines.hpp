// The lines of a box of a tensor, asked for a few at a time while something else is computed: short
// rows of many channels, which the hardware cannot follow.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "conv/problem.hpp"
#include "cpu/fetch_lists.hpp"
#include "cpu/geometry.hpp"
#include "cpu/prefetch.hpp"
#include "cpu/tiled.hpp"

namespace convgrad::cpu {

class box_lines {
public:
    struct axis {
        dim count, stride;  // in bytes
    };

    box_lines() = default;
    /// `bytes` at `from`, repeated along four axes in any order.
    box_lines(const void *from, dim bytes, std::array<axis, 4> axes)
        : from_(static_cast<const char *>(from)), run_(bytes) {
        std::sort(axes.begin(), axes.end(),
            [](const axis &a, const axis &b) { return a.stride < b.stride; });
        for (const axis &a : axes) {
            if (a.count <= 0) run_ = 0;
            if (a.count <= 1) continue;
            if (used_ == 0 && a.stride < run_ + line)  // what lies between is on the same lines
                run_ += (a.count - 1) * a.stride;
            else
                axes_[used_++] = a;
        }
        if (run_ <= 0) return;
        runs_ = 1;
        for (std::size_t a = 0; a < used_; ++a) runs_ *= axes_[a].count;
        begin();
    }

    /// How many are left, roughly.
    [[nodiscard]] dim lines() const { return runs_ * (run_ / line + 1); }

    /// The same lines for a kernel to ask for.
    [[nodiscard]] fetch_lists lists() const {
        std::array<fetch_lists::axis, 4> axes{};
        for (std::size_t a = 0; a < used_; ++a) axes[a] = {axes_[a].count, axes_[a].stride};
        return runs_ > 0 ? fetch_lists(from_, run_, axes) : fetch_lists();
    }

    /// Asks for the next `count`.
    void read(dim count) {
        next(count, [](const char *p) { expect_read(p, line); });
    }
    void write(dim count) {
        next(count, [](const char *p) { expect_write(p, line); });
    }
    template <typename Ask>
    void next(dim count, Ask &&ask) {
        for (; count > 0 && runs_ > 0; --count) {
            ask(from_ + at_);
            at_ += line;
            if (at_ >= run_) step();
        }
    }

private:
    static constexpr dim line = 64;

    /// A run starts with the whole line of its first byte.
    void begin() { at_ = -static_cast<dim>(reinterpret_cast<std::uintptr_t>(from_) % line); }
    void step() {
        --runs_;
        for (std::size_t a = 0; a < used_; ++a) {
            from_ += axes_[a].stride;
            if (++index_[a] < axes_[a].count) break;
            from_ -= axes_[a].count * axes_[a].stride;
            index_[a] = 0;
        }
        begin();
    }

    const char *from_ = nullptr;
    dim run_ = 0, at_ = 0;  // bytes side by side, and where in them
    dim runs_ = 0;          // that are left
    std::array<axis, 4> axes_{};
    std::array<dim, 4> index_{};
    std::size_t used_ = 0;
};

/// Whether src and dst are more than will be found in the last cache; otherwise asking costs more
/// than it gains.
bool worth_asking(const conv::problem &p);

/// Channels [first, first + count) of an image.
struct channel_range {
    dim n, first, count;
};

/// What the patch of a tile is made of: `tile` positions at most, and those of `place`.
box_lines patch_box(const void *data, data_type type, const conv::data_strides &strides,
    const channel_range &channels, const axis_walk (&walk)[3], const axis_patch (&patch)[3],
    const dim (&tile)[3], const tile_place &place);

/// The positions of a tile, all phases.
box_lines tile_box(const void *data, data_type type, const conv::data_strides &strides,
    const channel_range &channels, const axis_walk (&walk)[3], const tile_place &place);

}  // namespace convgrad::cpu
