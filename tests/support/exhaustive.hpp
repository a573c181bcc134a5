// Small problems, all of them: for each engine against the reference.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "support/problems.hpp"

namespace convgrad::test {

/// Every axis with kernel 1-3, stride 1-3, dilation 1-2, begin pad 0-2, end pad -2 to 2 and length
/// 1-7: 877.
inline std::vector<conv::axis> all_axes() {
    std::vector<conv::axis> axes;
    for (dim kernel = 1; kernel <= 3; ++kernel)
        for (dim stride = 1; stride <= 3; ++stride)
            for (dim dilation = 1; dilation <= (kernel == 1 ? 1 : 2); ++dilation)
                for (dim pad = 0; pad <= 2; ++pad)
                    for (dim src = 1; src <= 7; ++src)
                        for (dim end = -2; end <= 2; ++end) {
                            const auto a = make_axis(src, kernel, stride, dilation, pad, end);
                            // Different end pads may mean the same axis.
                            if (a.dst >= 1 && (axes.empty() || axes.back() != a)) axes.push_back(a);
                        }
    return axes;
}

/// Channels for groups of 1, 2 and C, per group. Now and then wide enough for whole vectors.
inline void set_channels(conv::problem &p, int groups, std::uint64_t variety) {
    static constexpr dim pairs[3][4][2] = {{{3, 5}, {4, 4}, {1, 3}, {17, 18}},
        {{2, 3}, {1, 1}, {3, 2}, {9, 16}}, {{1, 1}, {1, 2}, {1, 1}, {1, 1}}};
    const auto &chosen = pairs[groups][variety % 16 == 0 ? 3 : variety % 3];
    p.groups = groups == 0 ? 1 : groups == 1 ? 2 : variety % 16 == 0 ? 19 : 4;
    p.ic = chosen[0];
    p.oc = chosen[1];
}

inline constexpr data_type exhaustive_types[] = {data_type::f32, data_type::bf16, data_type::f16};
inline constexpr data_layout exhaustive_formats[] = {data_layout::nxc, data_layout::ncx};
inline constexpr weights_layout exhaustive_weights_formats[] = {
    weights_layout::oix, weights_layout::xio, weights_layout::o_gi_x, weights_layout::x_gi_o};

/// Everything but pass and axes by chance.
inline conv::problem problem_with(
    rng &random, conv::pass what, std::initializer_list<conv::axis> axes) {
    conv::problem p;
    p.what = what;
    p.type = p.out_type = exhaustive_types[random.next() % 3];
    p.mb = random.chance(0.8) ? 1 : 2;
    set_channels(p, static_cast<int>(random.next() % 3), random.next());
    std::ranges::copy(axes, p.x.end() - static_cast<std::ptrdiff_t>(axes.size()));
    set_random_extras(random, p);
    if (random.chance(0.1)) {
        set_random_layouts(random, p);
    } else {
        const data_layout format = exhaustive_formats[random.next() % 2];
        set_layouts(p, format, exhaustive_weights_formats[random.next() % 4], format);
    }
    return p;
}

/// Calls check(problem, number) for every one-dimensional problem, until it returns false.
template <typename Check>
void for_each_one_dimension(conv::pass what, data_type type, Check &&check) {
    std::uint64_t number = 0;
    for (const conv::axis &a : all_axes())
        for (int groups = 0; groups < 3; ++groups)
            for (const data_layout format : exhaustive_formats)
                for (const weights_layout weights_format : exhaustive_weights_formats) {
                    rng random(++number);
                    conv::problem p;
                    p.what = what;
                    p.type = p.out_type = type;
                    p.mb = random.between(1, 2);
                    set_channels(p, groups, random.next());
                    p.x[2] = a;
                    set_random_extras(random, p);
                    set_layouts(p, format, weights_format, format);
                    if (!check(p, number)) return;
                }
}

}  // namespace convgrad::test
