#include "conv/simplify.hpp"

#include <utility>

namespace convgrad::conv {
namespace {

bool pointwise(const axis &a) {
    return a.kernel == 1 && a.stride == 1 && a.pad == 0 && a.src == a.dst;
}

bool trivial(const axis &a) {
    return pointwise(a) && a.src == 1;
}

/// Calls body(strides) for every tensor that has data positions.
template <typename Body>
void for_each_data(problem &p, Body &&body) {
    body(p.src);
    body(p.dst);
    if (p.add) body(p.add_strides);
}

/// Axis `outer` continues axis `inner` in every tensor.
bool continues(problem &p, std::size_t outer, std::size_t inner) {
    bool all = true;
    for_each_data(
        p, [&](data_strides &s) { all = all && s.x[outer] == s.x[inner] * p.x[inner].src; });
    return all;
}

/// Whether channels continue along axis `a` of a tensor shaped like src. One channel lies so in any
/// layout: it is channels last if dst is, since planes have drivers of their own.
bool runs_on(const problem &p, const data_strides &s, std::size_t a) {
    return s.x[a] == p.ic && (p.ic == 1 ? p.oc > 1 && p.dst.c == 1 : s.c == 1);
}

/// Taps that neither overlap nor leave a gap, of channels side by side: the channels of a patch.
bool patches(const problem &p, std::size_t a) {
    const axis &x = p.x[a];
    const bool data = p.what == pass::backward_data;
    if (p.groups != 1 || x.kernel == 1 || x.kernel != x.stride || x.dilation != 1 || x.pad != 0)
        return false;
    // What lies behind the last patch is left alone, but a gradient of it is zero.
    if (x.src < x.dst * x.kernel || (data && x.src != x.dst * x.kernel)) return false;
    // Per channel of src, which are no longer those.
    if ((data && p.bias) || p.diff_bias == bias_gradient::from_src) return false;
    return runs_on(p, p.src, a) && (!data || !p.add || runs_on(p, p.add_strides, a))
           && (p.ic == 1 || p.weights.k[a] == p.ic * p.weights.i);
}

/// The taps of axis `a`, along which there are patches, become channels.
void fold_taps(problem &p, std::size_t a) {
    axis &x = p.x[a];
    const auto fold = [&](data_strides &s) {
        s.c = 1;
        s.x[a] *= x.kernel;
    };
    fold(p.src);
    if (p.add && p.what == pass::backward_data) fold(p.add_strides);
    if (p.ic == 1) p.weights.i = p.weights.k[a];
    p.weights.k[a] = 0;
    p.ic *= x.kernel;
    x = {x.dst, x.dst, 1, 1, 1, 0};
}

}  // namespace

void swap_axes(problem &p, std::size_t a, std::size_t b) {
    std::swap(p.x[a], p.x[b]);
    std::swap(p.weights.k[a], p.weights.k[b]);
    for_each_data(p, [&](data_strides &s) { std::swap(s.x[a], s.x[b]); });
}

problem batch_as_axis(problem p) {
    if (p.mb <= 1 || !trivial(p.x[0])) return p;
    p.x[0].src = p.x[0].dst = p.mb;
    for_each_data(p, [&](data_strides &s) { s.x[0] = s.n; });
    p.mb = 1;
    return p;
}

problem batch_as_last_axis(problem p) {
    if (p.mb <= 1 || !trivial(p.x[0])) return p;
    p = batch_as_axis(p);
    swap_axes(p, 0, 1);
    swap_axes(p, 1, 2);
    return p;
}

problem simplify(problem p) {
    for (std::size_t a = 3; a-- > 0;)
        if (patches(p, a)) fold_taps(p, a);
    for (std::size_t a = 0; a < 3; ++a) {
        if (!trivial(p.x[a])) continue;
        p.x[a] = axis{};
        p.weights.k[a] = 0;
        for_each_data(p, [&](data_strides &s) { s.x[a] = 0; });
    }
    // Real axes last, in their order.
    for (int round = 0; round < 2; ++round)
        for (std::size_t a = 2; a > 0; --a)
            if (trivial(p.x[a]) && !trivial(p.x[a - 1])) swap_axes(p, a, a - 1);
    // Merge a pointwise axis into the one inside it.
    for (std::size_t a = 2; a > 0; --a)
        while (pointwise(p.x[a]) && pointwise(p.x[a - 1]) && !trivial(p.x[a - 1])
               && continues(p, a - 1, a)) {
            p.x[a].src = p.x[a].dst = p.x[a].src * p.x[a - 1].src;
            p.x[a - 1] = axis{};
            for_each_data(p, [&](data_strides &s) { s.x[a - 1] = 0; });
            if (a == 2) swap_axes(p, 0, 1);
        }
    // The batch as an axis: in place of a trivial last axis, or merged into a pointwise one.
    if (p.mb > 1 && trivial(p.x[2])) {
        p.x[2].src = p.x[2].dst = p.mb;
        for_each_data(p, [&](data_strides &s) { s.x[2] = s.n; });
        p.mb = 1;
    } else if (p.mb > 1 && pointwise(p.x[2]) && trivial(p.x[1]) && trivial(p.x[0])) {
        bool all = true;
        for_each_data(p, [&](data_strides &s) { all = all && s.n == s.x[2] * p.x[2].src; });
        if (all) {
            p.x[2].src = p.x[2].dst = p.x[2].src * p.mb;
            p.mb = 1;
        }
    }
    return p;
}

}  // namespace convgrad::conv
