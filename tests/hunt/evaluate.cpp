#include "evaluate.hpp"

#include <cmath>

namespace hunt {
namespace {

/// Three axes, the missing ones of length 1.
std::array<axis, 3> three(const problem &p) {
    std::array<axis, 3> x;
    for (std::size_t i = 0; i < p.x.size(); ++i) x[3 - p.x.size() + i] = p.x[i];
    return x;
}

std::size_t index(dim i) {
    return static_cast<std::size_t>(i);
}

/// Calls use(tap, small position, large position) wherever large position = small position · stride
/// + tap · dilation − begin pad is inside.
template <typename Use>
void for_each_position(const std::array<axis, 3> &x, const Use &use) {
    const auto along = [](const axis &a, const auto &inside) {
        for (dim k = 0; k < a.kernel; ++k)
            for (dim y = 0; y < a.small; ++y) {
                const dim at = y * a.stride + k * a.dilation - a.pad_begin;
                if (at >= 0 && at < a.large) inside(k, y, at);
            }
    };
    const auto &[d, h, w] = x;
    along(d, [&, &hh = h, &ww = w](dim kd, dim yd, dim xd) {
        along(hh, [&](dim kh, dim yh, dim xh) {
            const dim tap = (kd * hh.kernel + kh) * ww.kernel;
            const dim small = (yd * hh.small + yh) * ww.small,
                      large = (xd * hh.large + xh) * ww.large;
            along(ww, [&](dim kw, dim yw, dim xw) { use(tap + kw, small + yw, large + xw); });
        });
    });
}

/// Calls use(large element, small element, weight) for every product.
template <typename Use>
void for_each_product(const problem &p, const Use &use) {
    const auto x = three(p);
    const dim lpg = p.large_per_group(), spg = p.small_per_group();
    dim taps = 1, small = 1, large = 1;
    for (const axis &a : x) {
        taps *= a.kernel;
        small *= a.small;
        large *= a.large;
    }
    for (dim n = 0; n < p.n; ++n)
        for (dim s = 0; s < p.small_c; ++s)
            for (dim l = 0; l < lpg; ++l) {
                const dim in_large = (n * p.large_c + s / spg * lpg + l) * large,
                          in_small = (n * p.small_c + s) * small, in_weights = (s * lpg + l) * taps;
                for_each_position(x, [&](dim tap, dim at_small, dim at_large) {
                    use(index(in_large + at_large), index(in_small + at_small),
                        index(in_weights + tap));
                });
            }
}

void add(expected &to, std::size_t at, double product) {
    to.sum[at] += product;
    to.size[at] += std::abs(product);
}

}  // namespace

void add_layer(const problem &p, const values &from, const values &weights, expected &to) {
    for_each_product(p, [&](std::size_t large, std::size_t small, std::size_t weight) {
        if (p.transposed)
            add(to, large, from[small] * weights[weight]);
        else
            add(to, small, from[large] * weights[weight]);
    });
}

void add_data_gradient(
    const problem &p, const values &diff_dst, const values &weights, expected &to) {
    for_each_product(p, [&](std::size_t large, std::size_t small, std::size_t weight) {
        if (p.transposed)
            add(to, small, diff_dst[large] * weights[weight]);
        else
            add(to, large, diff_dst[small] * weights[weight]);
    });
}

void add_weights_gradient(
    const problem &p, const values &src, const values &diff_dst, expected &to) {
    for_each_product(p, [&](std::size_t large, std::size_t small, std::size_t weight) {
        add(to, weight, p.transposed ? src[small] * diff_dst[large] : src[large] * diff_dst[small]);
    });
}

void add_bias_gradient(const problem &p, const values &diff_dst, expected &to) {
    const dim channels = p.transposed ? p.large_c : p.small_c;
    dim positions = 1;
    for (const axis &a : p.x) positions *= p.transposed ? a.large : a.small;
    for (std::size_t i = 0; i < diff_dst.size(); ++i)
        add(to, index(static_cast<dim>(i) / positions % channels), diff_dst[i]);
}

std::vector<std::size_t> data_order(const problem &p, dim channels, dim axis::*length) {
    dim positions = 1;
    for (const axis &a : p.x) positions *= a.*length;
    std::vector<std::size_t> order;
    for (dim n = 0; n < p.n; ++n)
        for (dim c = 0; c < channels; ++c)
            for (dim x = 0; x < positions; ++x)
                order.push_back(index(p.channels_first ? (n * channels + c) * positions + x
                                                       : (n * positions + x) * channels + c));
    return order;
}

std::vector<std::size_t> weights_order(const problem &p) {
    const dim lpg = p.large_per_group(), spg = p.small_per_group();
    dim taps = 1;
    for (const axis &a : p.x) taps *= a.kernel;
    const dim rows = p.second_form ? spg : p.small_c, columns = p.second_form ? p.large_c : lpg;
    std::vector<std::size_t> order;
    for (dim s = 0; s < p.small_c; ++s)
        for (dim l = 0; l < lpg; ++l)
            for (dim k = 0; k < taps; ++k) {
                const dim row = p.second_form ? s % spg : s;
                const dim column = p.second_form ? s / spg * lpg + l : l;
                order.push_back(index(p.channels_outer ? (row * columns + column) * taps + k
                                                       : (k * columns + column) * rows + row));
            }
    return order;
}

}  // namespace hunt
