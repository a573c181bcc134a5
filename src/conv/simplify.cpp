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

problem simplify(problem p) {
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
