#include "cpu/geometry.hpp"

#include <algorithm>

namespace convgrad::cpu {
namespace {

/// Whether some t in [0, count) gives an input index inside [0, length).
bool ever_inside(dim off, dim step, dim count, dim length) {
    const dim t = off >= 0 ? 0 : div_up(-off, step);
    return t < count && t * step + off < length;
}

void keep(axis_walk &walk, axis_phase phase) {
    std::erase_if(phase.taps, [&](const axis_tap &tap) {
        return !ever_inside(tap.off, walk.in_step, phase.count, walk.in_length);
    });
    if (phase.taps.empty()) return;
    walk.longest = std::max(walk.longest, phase.count);
    walk.phases.push_back(std::move(phase));
}

/// Gives every segment the length of the longest.
void set_apart(axis_patch &patch) {
    patch.row = 0;
    for (const auto &segment : patch.segments) patch.row = std::max(patch.row, segment.count);
    const auto old = patch.segments;
    for (auto &starts : patch.start)
        for (dim &start : starts) {
            const auto next = std::upper_bound(old.begin(), old.end(), start,
                [](dim at, const axis_patch::segment &segment) { return at < segment.at; });
            start += (next - old.begin() - 1) * patch.row - (next - 1)->at;
        }
    for (std::size_t i = 0; i < old.size(); ++i)
        patch.segments[i] = {static_cast<dim>(i) * patch.row, old[i].in, patch.row};
    patch.length = static_cast<dim>(old.size()) * patch.row;
}

}  // namespace

axis_walk walk_forward(const conv::axis &a) {
    axis_walk walk{a.src, a.dst, a.stride, 1, 0, {}};
    axis_phase phase{0, a.dst, {}};
    for (dim k = 0; k < a.kernel; ++k) phase.taps.push_back({k, k * a.dilation - a.pad});
    keep(walk, std::move(phase));
    return walk;
}

axis_walk walk_backward(const conv::axis &a) {
    axis_walk walk{a.dst, a.src, 1, a.stride, 0, {}};
    // Tap k reaches source index x = y·stride + k·dilation − pad: group the taps by x mod stride.
    struct tap_at {
        dim residue;
        axis_tap tap;
    };
    std::vector<tap_at> taps;
    for (dim k = 0; k < a.kernel; ++k) {
        const dim x = k * a.dilation - a.pad;
        const dim residue = x - div_down(x, a.stride) * a.stride;
        taps.push_back({residue, {k, (residue - x) / a.stride}});
    }
    std::stable_sort(taps.begin(), taps.end(),
        [](const tap_at &l, const tap_at &r) { return l.residue < r.residue; });
    for (std::size_t i = 0; i < taps.size();) {
        const dim first = taps[i].residue;
        axis_phase phase{first, first < a.src ? div_up(a.src - first, a.stride) : 0, {}};
        for (; i < taps.size() && taps[i].residue == first; ++i) phase.taps.push_back(taps[i].tap);
        keep(walk, std::move(phase));
    }
    return walk;
}

axis_patch make_patch(const axis_walk &walk, dim tile, bool apart) {
    struct want {
        dim residue, shift;  // off = shift·in_step + residue
        std::size_t phase, tap;
    };
    std::vector<want> wants;
    axis_patch patch;
    patch.start.resize(walk.phases.size());
    for (std::size_t p = 0; p < walk.phases.size(); ++p) {
        const auto &taps = walk.phases[p].taps;
        patch.start[p].resize(taps.size());
        for (std::size_t i = 0; i < taps.size(); ++i) {
            const dim shift = div_down(taps[i].off, walk.in_step);
            wants.push_back({taps[i].off - shift * walk.in_step, shift, p, i});
        }
    }
    std::sort(wants.begin(), wants.end(), [](const want &l, const want &r) {
        return l.residue != r.residue ? l.residue < r.residue : l.shift < r.shift;
    });
    dim residue = -1, first_shift = 0;
    for (const want &w : wants) {
        auto *last = patch.segments.empty() ? nullptr : &patch.segments.back();
        if (last == nullptr || w.residue != residue || w.shift - first_shift > last->count) {
            patch.segments.push_back({patch.length, w.shift * walk.in_step + w.residue, tile});
            last = &patch.segments.back();
            residue = w.residue;
            first_shift = w.shift;
        }
        last->count = std::max(last->count, w.shift - first_shift + tile);
        patch.start[w.phase][w.tap] = last->at + w.shift - first_shift;
        patch.length = last->at + last->count;
    }
    patch.row = patch.length;
    if (apart) set_apart(patch);
    return patch;
}

axis_patch patch_of_taps(const axis_walk &walk, dim tile) {
    axis_patch patch;
    for (const axis_phase &phase : walk.phases) {
        auto &start = patch.start.emplace_back();
        for (const axis_tap &tap : phase.taps) {
            start.push_back(patch.length);
            patch.segments.push_back({patch.length, tap.off, tile});
            patch.length += tile;
        }
    }
    patch.row = tile;
    return patch;
}

bool touches_padding(const axis_walk &walk, dim t0, dim tile) {
    for (const axis_phase &phase : walk.phases) {
        const dim t1 = std::min(t0 + tile, phase.count) - 1;
        if (t1 < t0) continue;
        for (const axis_tap &tap : phase.taps)
            if (t0 * walk.in_step + tap.off < 0 || t1 * walk.in_step + tap.off >= walk.in_length)
                return true;
    }
    return false;
}

bool is_reached(const axis_walk &walk, dim x) {
    const dim residue = x % walk.out_step;
    // Phases are listed by residue.
    const auto at = std::lower_bound(walk.phases.begin(), walk.phases.end(), residue,
        [](const axis_phase &phase, dim value) { return phase.first < value; });
    return at != walk.phases.end() && at->first == residue;
}

}  // namespace convgrad::cpu
