// Layers of networks in small: every pass, type, layout and math mode, the rest by chance.
#pragma once

#include "cuda/bulk.hpp"
#include "support/problems.hpp"

namespace convgrad::test::products {

struct layer {
    dim groups, ic, oc, size, kernel, stride, pad, dilation;
};
// Dense with one and several lines of channels and tiles of columns, merged groups of each size,
// stems, pads larger than the kernel, strides that do not divide.
inline constexpr layer layers[] = {{1, 64, 64, 9, 3, 1, 1, 1}, {1, 40, 72, 7, 3, 2, 1, 1},
    {1, 128, 130, 6, 1, 1, 0, 1}, {1, 200, 24, 5, 1, 2, 0, 1}, {1, 3, 33, 19, 7, 2, 3, 1},
    {1, 16, 16, 11, 4, 4, 0, 1}, {1, 24, 17, 8, 3, 1, 5, 1}, {1, 9, 8, 10, 3, 1, 2, 2},
    {8, 4, 4, 9, 3, 1, 1, 1}, {4, 8, 8, 10, 3, 2, 1, 1}, {6, 16, 16, 7, 3, 1, 1, 1},
    {3, 32, 32, 6, 3, 1, 1, 1}, {5, 4, 8, 8, 5, 1, 2, 1}, {12, 3, 5, 9, 3, 1, 0, 1},
    {2, 36, 20, 6, 3, 3, 1, 1}, {1, 64, 128, 15, 1, 1, 0, 1}, {1, 136, 64, 8, 1, 1, 0, 1},
    // Planes of one box and of several, the last of them in part.
    {1, 40, 300, 31, 1, 1, 0, 1}, {1, 72, 8, 6, 1, 1, 0, 1}, {1, 5, 70, 14, 1, 1, 0, 1},
    // First layers: patches with and without a rest, kernels shorter than the stride, many taps.
    {1, 3, 20, 18, 4, 4, 0, 1}, {1, 3, 8, 13, 2, 3, 1, 1}, {1, 3, 16, 9, 3, 2, 5, 1},
    {1, 3, 24, 31, 11, 4, 2, 1}, {1, 3, 12, 17, 3, 2, 2, 3}, {1, 3, 64, 20, 3, 1, 1, 1},
    {1, 4, 100, 14, 5, 3, 0, 1}};
inline constexpr conv::pass all_passes[] = {
    conv::pass::forward, conv::pass::backward_data, conv::pass::backward_weights};
inline constexpr data_type all_types[] = {data_type::f32, data_type::bf16, data_type::f16};
/// Plans that are made while it lives have one tile of cuda::bulk_tile_sizes.
struct only_tile {
    explicit only_tile(int index) { cuda::limit_tiles_for_testing(index); }
    ~only_tile() { cuda::limit_tiles_for_testing(-1); }
    only_tile(const only_tile &) = delete;
    only_tile &operator=(const only_tile &) = delete;
};

template <typename Body>
void for_each(rng &random, Body &&body) {
    for (const layer &l : layers)
        for (const conv::pass what : all_passes)
            for (const data_type type : all_types)
                for (const data_layout layout : {data_layout::nxc, data_layout::ncx})
                    for (const math_mode math : {math_mode::accurate, math_mode::fast}) {
                        conv::problem p;
                        p.what = what;
                        p.type = type;
                        p.math = math;
                        p.mb = random.pick<dim>({2, 3, 5});
                        p.groups = l.groups;
                        p.ic = l.ic;
                        p.oc = l.oc;
                        for (std::size_t d = 1; d < 3; ++d)
                            p.x[d] = make_axis(l.size + static_cast<dim>(d), l.kernel, l.stride,
                                l.dilation, l.pad, l.pad);
                        set_random_extras(random, p);
                        set_layouts(p, layout,
                            random.pick(
                                {weights_layout::oix, weights_layout::xio, weights_layout::gaps}),
                            random.chance(0.8) ? layout : data_layout::ncx);
                        body(p);
                    }
}

}  // namespace convgrad::test::products
