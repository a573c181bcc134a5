#include "cpu/depthwise_planes.hpp"

#include <algorithm>

#include "conv/simplify.hpp"
#include "cpu/fits.hpp"
#include "cpu/tiled.hpp"

namespace convgrad::cpu {
namespace {

constexpr dim most_planes = 16;
constexpr dim widest_tile = 1024;
constexpr dim most_multiplier = 16;

/// Positions before and after those of a segment that exist in the input, over a whole axis.
void padding_of(const axis_walk &walk, const axis_patch::segment &s, dim &before, dim &after) {
    dim lo, hi;
    clip(s.in, walk.in_step, s.count, walk.in_length, lo, hi);
    before = lo;
    after = s.count - hi;
}

}  // namespace

bool fits_planes(const conv::problem &p, std::string *why) {
    if (p.ic != 1) return refuse(why, "more than one input channel per group");
    if (p.oc > most_multiplier)
        return refuse(why, "more than ", most_multiplier, " output channels per group");
    if (p.src.x[2] != 1 || p.dst.x[2] != 1 || (p.add && p.add_strides.x[2] != 1))
        return refuse(why, "columns do not lie side by side");
    return true;
}

dim plane_layout::copy_floats() const {
    // Whole pairs may be read from any tap of the last row on.
    return round_up_to(span[0] * plane_floats() + patch.length + 64, 16);
}

plane_driver::plane_driver(const conv::problem &p, const kernel_set &kernels)
    : p_(p), kernels_(kernels), roles_(p), pair_(2 * kernels.lanes) {
    const conv::axis trivial;
    if (p_.x[0] == trivial && p_.mb > 1) {  // the batch as depth: one call for several images
        p_.x[0].src = p_.x[0].dst = p_.mb;
        p_.src.x[0] = p_.src.n;
        p_.dst.x[0] = p_.dst.n;
        p_.add_strides.x[0] = p_.add_strides.n;
        p_.mb = 1;
        roles_ = data_roles(p_);
    }
    const bool back = p.what == conv::pass::backward_data;
    for (std::size_t a = 0; a < 3; ++a)
        walk_[a] = back ? walk_backward(p_.x[a]) : walk_forward(p_.x[a]);
}

void plane_driver::choose_layout(dim bytes, dim copies) {
    plane_layout &l = layout_;
    l.tile[2] = std::min(walk_[2].longest, widest_tile);
    // The fewest planes that waste about as little as any number does.
    const auto use = [&](dim planes) {
        l.planes = planes;
        l.tile[0] = l.tile[1] = 1;
        settle();
        return static_cast<double>(planes * l.tile[2])
               / static_cast<double>(round_up_to(l.lanes, pair_));
    };
    double best = 0;
    dim chosen = 1;
    const dim most =
        l.tile[2] < pair_ && l.tile[2] == walk_[2].longest ? std::min(most_planes, p_.groups) : 1;
    for (dim planes = 1; planes <= most; ++planes)
        if (const double share = use(planes); share > 1.1 * best) best = share, chosen = planes;
    static_cast<void>(use(chosen));
    const dim floats = bytes / 4 / copies;
    const auto fit = [&](dim a, dim each) {
        const dim halo = l.span[a] - 1;
        const dim tile = (floats / std::max<dim>(each, 1) - halo) / walk_[a].in_step;
        const dim length = walk_[a].longest;
        l.tile[a] = std::clamp<dim>(tile, std::min<dim>(length, a == 1 ? 8 : 1), length);
        l.tile[a] = div_up(length, div_up(length, l.tile[a]));
    };
    fit(1, l.row);
    settle();
    fit(0, l.plane_floats());
    settle();
}

void plane_driver::settle() {
    plane_layout &l = layout_;
    l.patch = make_patch(walk_[2], l.tile[2]);
    l.pitch = l.patch.length;
    if (l.patch.segments.size() == 1 && l.tile[2] == walk_[2].longest) {
        dim before, after;
        padding_of(walk_[2], l.patch.segments[0], before, after);
        l.pitch = std::max(l.pitch - std::min(before, after), l.tile[2]);
    }
    l.lanes = (l.planes - 1) * l.pitch + l.tile[2];
    // Copies write whole vectors.
    l.row = round_up_to((l.planes - 1) * l.pitch + l.patch.length + kernels_.lanes - 1, 16);
    l.blocks = div_up(p_.groups, l.planes);
    for (std::size_t a = 0; a < 2; ++a) {
        dim least = walk_[a].phases[0].taps[0].off, most = least;
        for (const axis_phase &f : walk_[a].phases)
            for (const axis_tap &tap : f.taps) {
                least = std::min(least, tap.off);
                most = std::max(most, tap.off);
            }
        l.low[a] = least;
        l.span[a] = (l.tile[a] - 1) * walk_[a].in_step + most - least + 1;
    }
    for (std::size_t a = 0; a < 3; ++a) l.tiles[a] = div_up(walk_[a].longest, l.tile[a]);
}

bool plane_driver::shrink() {
    plane_layout &l = layout_;
    dim *const what[] = {&l.tile[0], &l.tile[1], &l.planes, &l.tile[2]};
    for (dim *value : what) {
        if (*value == 1) continue;
        *value = div_up(*value, 2);
        settle();
        return true;
    }
    return false;
}

plane_task plane_driver::make_task(dim index) const {
    plane_task t{};
    for (std::size_t a = 3; a-- > 0;) {
        t.t0[a] = index % layout_.tiles[a] * layout_.tile[a];
        t.length[a] = std::min(layout_.tile[a], walk_[a].longest - t.t0[a]);
        index /= layout_.tiles[a];
    }
    t.n = index % p_.mb;
    t.group = index / p_.mb * layout_.planes;
    t.planes = std::min(layout_.planes, p_.groups - t.group);
    return t;
}

bool plane_driver::copy_in(const plane_task &t, const void *in, const conv::data_strides &s,
    dim channel, dim step, float *to) const {
    const plane_layout &l = layout_;
    const dim size = static_cast<dim>(size_of(p_.type));
    const bool edges = l.tiles[2] > 1;  // otherwise what is padding once stays padding
    const dim top = t.t0[1] * walk_[1].in_step + l.low[1];
    const dim rows =
        (t.length[1] - 1) * walk_[1].in_step + l.span[1] - (l.tile[1] - 1) * walk_[1].in_step;
    const dim first = std::max<dim>(top, 0), last = std::min(top + rows, walk_[1].in_length);
    const dim depths = l.span[0] - (l.tile[0] - t.length[0]) * walk_[0].in_step;
    bool finite = true;
    const dim front = t.t0[0] * walk_[0].in_step + l.low[0];
    const dim first_depth = std::max<dim>(front, 0),
              last_depth = std::min(front + depths, walk_[0].in_length);
    if (first >= last || first_depth >= last_depth) return true;
    for (dim plane = 0; plane < t.planes; ++plane)
        for (const axis_patch::segment &seg : l.patch.segments) {
            const dim x = t.t0[2] * walk_[2].in_step + seg.in;
            dim lo, hi;
            clip(x, walk_[2].in_step, seg.count, walk_[2].in_length, lo, hi);
            float *out = to + (first_depth - front) * l.plane_floats() + (first - top) * l.row
                         + plane * l.pitch + seg.at;
            const char *from =
                static_cast<const char *>(in)
                + size
                      * (t.n * s.n + (channel + plane * step) * s.c + first_depth * s.x[0]
                          + first * s.x[1] + (x + lo * walk_[2].in_step) * s.x[2]);
            if (hi > lo)
                finite &= kernels_.widen_rows({from, p_.type, size * s.x[0], size * s.x[1],
                    last_depth - first_depth, last - first, hi - lo, walk_[2].in_step, out + lo,
                    l.plane_floats(), l.row, p_.what == conv::pass::backward_weights});
            for (dim d = 0; edges && d < last_depth - first_depth; ++d)
                for (dim r = 0; r < last - first; ++r) {
                    float *row = out + d * l.plane_floats() + r * l.row;
                    std::fill(row, row + lo, 0.0F);
                    std::fill(row + hi, row + seg.count, 0.0F);
                }
        }
    return finite;
}

dim plane_driver::start_bytes(const plane_task &t, dim row_index) const {
    return 4
           * ((row_index - t.t0[1] * walk_[1].in_step - layout_.low[1]) * layout_.row
               - layout_.low[0] * layout_.plane_floats());
}

}  // namespace convgrad::cpu
