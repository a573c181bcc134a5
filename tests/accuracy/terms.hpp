// The terms of one output's sum, in the order in which one would write the loops.
#pragma once

#include <array>

#include "conv/problem.hpp"

namespace convgrad::accuracy {

using position = std::array<dim, 3>;

inline dim offset_of(const conv::data_strides &s, dim n, dim c, const position &x) {
    return n * s.n + c * s.c + x[0] * s.x[0] + x[1] * s.x[1] + x[2] * s.x[2];
}
inline dim offset_of(const conv::weights_strides &s, dim g, dim o, dim i, const position &k) {
    return g * s.g + o * s.o + i * s.i + k[0] * s.k[0] + k[1] * s.k[1] + k[2] * s.k[2];
}

template <typename Body>
void for_each_position(const position &lengths, Body &&body) {
    position i{};
    for (i[0] = 0; i[0] < lengths[0]; ++i[0])
        for (i[1] = 0; i[1] < lengths[1]; ++i[1])
            for (i[2] = 0; i[2] < lengths[2]; ++i[2]) body(i);
}

/// The src position that dst position y meets through tap k; false if that is padding.
inline bool src_of(const conv::problem &p, const position &y, const position &k, position &x) {
    for (std::size_t d = 0; d < 3; ++d) {
        x[d] = y[d] * p.x[d].stride + k[d] * p.x[d].dilation - p.x[d].pad;
        if (x[d] < 0 || x[d] >= p.x[d].src) return false;
    }
    return true;
}

/// The other way round.
inline bool dst_of(const conv::problem &p, const position &x, const position &k, position &y) {
    for (std::size_t d = 0; d < 3; ++d) {
        const dim from = x[d] + p.x[d].pad - k[d] * p.x[d].dilation;
        y[d] = from / p.x[d].stride;
        if (from < 0 || from % p.x[d].stride != 0 || y[d] >= p.x[d].dst) return false;
    }
    return true;
}

/// Calls body with the offsets of both operands: src and weights, dst and weights, or src and dst;
/// of a bias gradient those of dst and of a one.
/// `at` is an output element in the coordinates of test::for_each_element.
template <typename Body>
void for_each_term(const conv::problem &p, const std::array<dim, 6> &at, Body &&body) {
    const position taps = {p.x[0].kernel, p.x[1].kernel, p.x[2].kernel};
    if (p.what == conv::pass::backward_weights) {
        const dim g = at[0], o = g * p.oc + at[1], i = g * p.ic + at[2];
        for (dim n = 0; n < p.mb; ++n)
            for_each_position({p.x[0].dst, p.x[1].dst, p.x[2].dst}, [&](const position &y) {
                position x;
                if (src_of(p, y, {at[3], at[4], at[5]}, x))
                    body(offset_of(p.src, n, i, x), offset_of(p.dst, n, o, y));
            });
        return;
    }
    if (p.what == conv::pass::backward_bias) {
        for (dim n = 0; n < p.mb; ++n)
            for_each_position({p.x[0].dst, p.x[1].dst, p.x[2].dst},
                [&](const position &y) { body(offset_of(p.dst, n, at[0], y), 0); });
        return;
    }
    const bool forward = p.what == conv::pass::forward;
    const dim mine = forward ? p.oc : p.ic, others = forward ? p.ic : p.oc;
    const dim g = at[1] / mine, c = at[1] % mine;
    for_each_position(taps, [&](const position &k) {
        position there;
        const position here = {at[2], at[3], at[4]};
        if (!(forward ? src_of(p, here, k, there) : dst_of(p, here, k, there))) return;
        for (dim j = 0; j < others; ++j)
            if (forward)
                body(offset_of(p.src, at[0], g * others + j, there),
                    offset_of(p.weights, g, c, j, k));
            else
                body(offset_of(p.dst, at[0], g * others + j, there),
                    offset_of(p.weights, g, j, c, k));
    });
}

}  // namespace convgrad::accuracy
