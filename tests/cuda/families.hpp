// Layers of the families that have kernels of their own, with sizes around tiles, strips and
// pieces.
#pragma once

#include "support/problems.hpp"

namespace convgrad::test::families {

using conv::pass;
using conv::problem;

inline constexpr pass all_passes[] = {pass::forward, pass::backward_data, pass::backward_weights};
inline constexpr pass first_passes[] = {pass::forward, pass::backward_weights};
inline constexpr data_type all_types[] = {data_type::f32, data_type::bf16, data_type::f16};

/// Calls body for depthwise layers of every kernel that is unrolled, with sizes around the strips
/// and segments.
template <typename Body>
void for_each_depthwise(rng &random, Body &&body) {
    for (const dim kernel : {3, 5, 7})
        for (const dim stride : {1, 2})
            for (const pass what : all_passes)
                for (const data_type type : all_types)
                    for (const data_layout layout : all_data_layouts)
                        for (int round = 0; round < 3; ++round) {
                            problem p;
                            p.what = what;
                            p.type = type;
                            p.mb = random.pick<dim>({1, 2, 5});
                            p.groups = random.pick<dim>({1, 2, 31, 33, 64});
                            p.ic = 1;
                            p.oc = what == pass::backward_data ? 1 : random.pick<dim>({1, 1, 2, 3});
                            for (std::size_t d = 1; d < 3; ++d)
                                p.x[d] =
                                    make_axis(random.pick<dim>({1, 6, 7, 8, 13, 15, 29, 36, 70}),
                                        kernel, stride, 1, random.between(kernel / 2, kernel + 1),
                                        random.between(kernel / 2, kernel + 1));
                            // What networks have: as many columns as before.
                            if (random.chance(0.6))
                                p.x[2] = make_axis(random.pick<dim>({1, 2, 7, 8, 14, 28, 33, 34, 36,
                                                       56, 136, 140}),
                                    kernel, stride, 1, kernel / 2, kernel / 2);
                            set_random_extras(random, p);
                            set_layouts(p, layout,
                                random.pick({weights_layout::oix, weights_layout::xio,
                                    weights_layout::gaps}),
                                random.chance(0.8) ? layout : data_layout::ncx);
                            body(p);
                        }
}

/// Calls body for planes as large as their outputs: small and large ones, in one box or several.
template <typename Body>
void for_each_plane(rng &random, Body &&body) {
    constexpr dim sizes[][2] = {{1, 1}, {2, 3}, {7, 7}, {9, 5}, {8, 8}, {14, 14}, {13, 17},
        {28, 28}, {31, 56}, {3, 224}, {120, 36}};
    for (const dim kernel : {3, 5, 7})
        for (const pass what : all_passes)
            for (const data_type type : all_types)
                for (const auto &size : sizes) {
                    problem p;
                    p.what = what;
                    p.type = p.out_type = type;
                    p.mb = random.pick<dim>({1, 2, 5});
                    p.groups = random.pick<dim>({1, 3, 31, 40, 64});
                    p.ic = p.oc = 1;
                    for (std::size_t d = 0; d < 2; ++d)
                        p.x[d + 1] = make_axis(size[d], kernel, 1, 1, kernel / 2, kernel / 2);
                    if (what == pass::backward_weights)
                        set_random_extras(random, p);
                    else
                        p.bias = what == pass::forward && random.chance(0.5);
                    set_layouts(p, data_layout::ncx,
                        random.pick(
                            {weights_layout::oix, weights_layout::xio, weights_layout::gaps}),
                        data_layout::ncx);
                    // Between channels, too, memory that belongs to nobody.
                    if (random.chance(0.2))
                        for (conv::data_strides *s : {&p.src, &p.dst}) {
                            s->c += 5;
                            s->n = s->c * p.groups + 3;
                        }
                    body(p);
                }
}

/// Calls body for first layers of every kind, with sizes around boxes, tiles and pieces.
template <typename Body>
void for_each_first(rng &random, Body &&body) {
    for (const pass what : first_passes)
        for (const data_type type : all_types)
            for (const data_layout layout : all_data_layouts)
                for (const dim channels : {1, 2, 3, 4})
                    for (int round = 0; round < 2; ++round) {
                        problem p;
                        p.what = what;
                        p.type = type;
                        p.mb = random.pick<dim>({1, 2, 3});
                        p.ic = channels;
                        p.oc = random.pick<dim>({1, 7, 8, 16, 24, 32, 33, 40, 64, 72, 96, 104});
                        for (std::size_t d = 1; d < 3; ++d) {
                            const dim kernel = random.pick<dim>({1, 2, 3, 3, 4, 5, 7, 7, 9, 11});
                            p.x[d] = make_axis(
                                random.pick<dim>({1, 2, 7, 8, 13, 16, 24, 29, 32, 40}), kernel,
                                random.pick<dim>({1, 1, 2, 2, 3, 4, 5}), 1,
                                random.pick<dim>({0, kernel / 2, kernel - 1, kernel, kernel + 2}),
                                random.pick<dim>({kernel - 1, kernel, kernel + 2}));
                        }
                        // What networks have.
                        if (random.chance(0.4)) {
                            const dim kernel = random.pick<dim>({3, 4, 7});
                            const dim stride = kernel == 4 ? 4 : random.between(1, 2);
                            for (std::size_t d = 1; d < 3; ++d)
                                p.x[d] = make_axis(random.pick<dim>({16, 32, 48}), kernel, stride,
                                    1, stride == 4 ? 0 : kernel / 2, stride == 4 ? 0 : kernel / 2);
                        }
                        set_random_extras(random, p);
                        set_layouts(p, layout,
                            random.pick(
                                {weights_layout::oix, weights_layout::xio, weights_layout::gaps}),
                            random.chance(0.7) ? layout
                                               : random.pick({data_layout::ncx, data_layout::nxc}));
                        body(p);
                    }
}

/// An axis of a random kernel: short, long or longer than the input.
inline conv::axis random_axis(rng &random) {
    const dim kernel = random.pick<dim>({1, 2, 3, 4, 5, 7, 8, 9, 11, 17, 31});
    const dim stride = random.pick<dim>({1, 1, 1, 2, 2, 3, 4}),
              dilation = random.pick<dim>({1, 1, 1, 2, 3, 4});
    const dim pad =
        random.chance(0.7) ? (kernel - 1) * dilation / 2 : random.between(0, kernel * dilation + 2);
    const dim least = (kernel - 1) * dilation + 1 - 2 * pad;
    return make_axis(std::max<dim>(least, random.pick<dim>({1, 5, 8, 14, 17, 33, 40})), kernel,
        stride, dilation, pad, pad);
}

/// Calls body for depthwise layers of any kernel.
template <typename Body>
void for_each_sliding(rng &random, int rounds, Body &&body) {
    for (const pass what : all_passes)
        for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
            for (const data_layout layout : all_data_layouts)
                for (int round = 0; round < rounds; ++round) {
                    problem p;
                    p.what = what;
                    p.type = p.out_type = type;
                    p.mb = random.pick<dim>({1, 2, 3});
                    p.groups = random.pick<dim>({1, 2, 5, 33, 64});
                    p.ic = 1;
                    p.oc = random.pick<dim>({1, 1, 1, 2, 3});
                    const int axes = static_cast<int>(random.between(1, 3));
                    for (int d = 3 - axes; d < 3; ++d)
                        p.x[static_cast<std::size_t>(d)] = random_axis(random);
                    // Three long axes are more than a reference has time for.
                    if (axes == 3) p.x[0] = make_axis(3, 2, 1, 1, 1, 0);
                    if (conv::macs(p) > 3e7) p.groups = 2;
                    set_random_extras(random, p);
                    set_layouts(p, layout,
                        random.pick(
                            {weights_layout::oix, weights_layout::xio, weights_layout::gaps}),
                        random.chance(0.8) ? layout : data_layout::ncx);
                    body(p);
                }
}

struct sum_shape {
    dim mb, channels, rows, columns;
};
// One element, runs that 16 bytes do not divide, one channel, more channels than a block has.
inline constexpr sum_shape sum_shapes[] = {{1, 1, 1, 1}, {3, 1, 7, 7}, {2, 5, 33, 9},
    {4, 8, 64, 64}, {2, 300, 20, 3}, {7, 24, 1, 1}, {5, 96, 56, 57}};

/// Calls body for bias gradients of every type and layout.
template <typename Body>
void for_each_sum(Body &&body) {
    for (const sum_shape &s : sum_shapes)
        for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
            for (const data_layout layout : all_data_layouts)
                for (const conv::bias_gradient of :
                    {conv::bias_gradient::from_dst, conv::bias_gradient::from_src}) {
                    problem p;
                    p.what = pass::backward_weights;
                    p.type = p.out_type = type;
                    p.diff_bias = of;
                    p.diff_bias_type = data_type::f32;
                    p.bias_stride = 1;
                    p.mb = s.mb;
                    p.groups = s.channels;
                    p.ic = p.oc = 1;
                    p.x[1] = make_axis(s.rows, 1, 1, 1, 0, 0);
                    p.x[2] = make_axis(s.columns, 1, 1, 1, 0, 0);
                    set_layouts(p, layout, weights_layout::oix, layout);
                    body(p);
                }
}

}  // namespace convgrad::test::families
