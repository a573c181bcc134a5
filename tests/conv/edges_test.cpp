// Empty batches and channels, one pixel, strides beyond the kernel, and shapes at the border of
// what is legal, on every instruction set.
#include <limits>

#include <gtest/gtest.h>

#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

constexpr pass passes[] = {pass::forward, pass::backward_data, pass::backward_weights};
constexpr data_type types[] = {data_type::f32, data_type::bf16, data_type::f16};

void expect_exact(workbench &bench, const problem &p, std::uint64_t seed = 1) {
    bench.load(p, fill::integers, seed);
    bench.run_reference();
    for (const isa set : usable_isas())
        for (const int threads : {1, 3}) {
            bench.run({.max_isa = set, .threads = threads});
            ASSERT_EQ(bench.compare_exact(), "") << to_string(set) << " threads " << threads;
        }
}

template <typename Body>
void for_each_setting(Body &&body) {
    for (const pass what : passes)
        for (const data_type type : types)
            for (const data_layout data : all_data_layouts)
                for (const weights_layout weights : all_weights_layouts)
                    for (const bool accumulate : {false, true}) {
                        problem p;
                        p.what = what;
                        p.type = p.out_type = type;
                        p.accumulate = accumulate;
                        body(p, [&] { set_layouts(p, data, weights, data); });
                        if (testing::Test::HasFatalFailure()) return;
                    }
}

TEST(edges, empty_batch) {
    workbench bench;
    for_each_setting([&](problem &p, auto set) {
        p.mb = 0;
        p.ic = 5;
        p.oc = 17;
        p.x[2] = make_axis(6, 3, 1, 1, 1, 1);
        p.bias = p.what != pass::backward_weights;
        if (!p.bias) p.diff_bias = conv::bias_gradient::from_dst;
        set();
        expect_exact(bench, p);
        if (p.what != pass::backward_weights || p.accumulate) return;
        for_each_element(extents_of(p, role::weights),
            [&](const auto &, dim offset) { ASSERT_EQ(bench.read(role::weights, offset), 0); });
    });
}

TEST(edges, no_input_channels) {
    workbench bench;
    for_each_setting([&](problem &p, auto set) {
        p.mb = 2;
        p.groups = 3;
        p.ic = 0;
        p.oc = 6;
        p.x[2] = make_axis(6, 3, 1, 1, 1, 1);
        p.bias = p.what == pass::forward;
        if (p.what == pass::backward_weights) p.diff_bias = conv::bias_gradient::from_dst;
        set();
        expect_exact(bench, p);
        if (p.what != pass::forward || p.accumulate) return;
        for_each_element(extents_of(p, role::dst), [&](const auto &at, dim offset) {
            ASSERT_EQ(bench.read(role::dst, offset), bench.read(role::bias, at[1]));
        });
    });
}

TEST(edges, no_output_channels) {
    workbench bench;
    for_each_setting([&](problem &p, auto set) {
        p.mb = 2;
        p.ic = 4;
        p.oc = 0;
        p.x[1] = make_axis(3, 3, 1, 1, 1, 1);
        p.x[2] = make_axis(6, 3, 2, 1, 1, 1);
        p.bias = p.what == pass::backward_data;
        set();
        expect_exact(bench, p);
    });
}

// Plans weigh channels against vectors and blocks, which must not divide by those that are missing.
TEST(edges, no_channels_beside_any_number) {
    workbench bench;
    for (const pass what : passes)
        for (const data_type type : types)
            for (const dim many : {1, 2, 3, 8, 9, 16, 17, 24, 32, 33, 64, 65, 128, 130, 256})
                for (const bool inputs : {false, true})
                    for (const dim groups : {1, 3})
                        for (const dim kernel : {1, 3}) {
                            problem p;
                            p.what = what;
                            p.type = p.out_type = type;
                            p.mb = 2;
                            p.groups = groups;
                            p.ic = inputs ? many : 0;
                            p.oc = inputs ? 0 : many;
                            p.x[2] = make_axis(5, kernel, 1, 1, kernel / 2, kernel / 2);
                            set_layouts(p, data_layout::nxc, weights_layout::xio, data_layout::ncx);
                            expect_exact(bench, p);
                        }
}

TEST(edges, nothing_at_all) {
    workbench bench;
    for_each_setting([&](problem &p, auto set) {
        set();
        expect_exact(bench, p);
    });
}

TEST(edges, one_pixel) {
    workbench bench;
    for_each_setting([&](problem &p, auto set) {
        p.mb = 3;
        p.ic = 19;
        p.oc = 9;
        p.x[1] = p.x[2] = make_axis(1, 3, 1, 1, 1, 1);
        set();
        expect_exact(bench, p);
        p.x[1] = p.x[2] = make_axis(1, 1, 1, 1, 0, 0);
        set();
        expect_exact(bench, p);
    });
}

TEST(edges, stride_beyond_kernel) {
    workbench bench;
    for_each_setting([&](problem &p, auto set) {
        p.mb = 2;
        p.ic = 5;
        p.oc = 18;
        p.x[1] = make_axis(7, 1, 3, 1, 0, 0);
        p.x[2] = make_axis(23, 2, 7, 1, 1, 0);
        set();
        expect_exact(bench, p);
        if (p.what != pass::backward_data || p.accumulate) return;
        for_each_element(extents_of(p, role::src), [&](const auto &at, dim offset) {
            if (at[3] % 3 == 0) return;  // rows in between are reached by no tap
            ASSERT_EQ(bench.read(role::src, offset), 0);
        });
    });
}

TEST(edges, pads_far_beyond_the_input) {
    workbench bench;
    for_each_setting([&](problem &p, auto set) {
        p.mb = 1;
        p.ic = 3;
        p.oc = 4;
        p.x[1] = make_axis(2, 3, 2, 2, 9, 8);
        p.x[2] = make_axis(5, 2, 1, 1, 19, 20);
        set();
        expect_exact(bench, p);
    });
}

// The most that one output can miss of the input: src far longer than what dst reads.
TEST(edges, unread_input) {
    workbench bench;
    for_each_setting([&](problem &p, auto set) {
        p.mb = 2;
        p.ic = 3;
        p.oc = 4;
        p.x[2] = {50, 2, 3, 2, 1, 1};
        set();
        expect_exact(bench, p);
    });
}

TEST(edges, dilation_beyond_the_input) {
    workbench bench;
    for_each_setting([&](problem &p, auto set) {
        p.mb = 2;
        p.ic = 3;
        p.oc = 4;
        p.x[2] = make_axis(5, 3, 1, 9, 9, 9);
        set();
        expect_exact(bench, p);
    });
}

// Strides of axes of length one mean nothing, however odd.
TEST(edges, strides_of_unit_axes_mean_nothing) {
    workbench bench;
    for_each_setting([&](problem &p, auto set) {
        p.mb = 1;
        p.ic = p.oc = 1;
        p.groups = 17;
        p.x[2] = make_axis(12, 3, 1, 1, 1, 1);
        set();
        constexpr dim odd = dim{1} << 40;
        p.src.n = p.dst.n = odd;
        p.src.x[0] = p.src.x[1] = p.dst.x[0] = p.dst.x[1] = odd;
        p.weights.o = p.weights.i = p.weights.k[0] = p.weights.k[1] = odd;
        expect_exact(bench, p);
    });
}

// Weights gradients of small maps: tiles hold several images, the last of them fewer.
TEST(edges, several_images_in_a_tile) {
    workbench bench;
    std::uint64_t seed = 0;
    for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
        for (const data_layout layout : {data_layout::nxc, data_layout::ncx})
            for (const dim mb : {2, 9, 40})
                for (const dim taps : {1, 3}) {
                    problem p = sized(pass::backward_weights, type, mb, 2, 17, 5);
                    p.x[1] = make_axis(5, taps, 2, 1, taps / 2, taps / 2);
                    p.x[2] = make_axis(7, taps, 1, 1, taps / 2, taps / 2);
                    set_layouts(p, layout, weights_layout::xio, layout);
                    const auto check = [&](fill how) {
                        bench.load(p, how, ++seed);
                        if (how == fill::reals)  // beside padding, in the last image
                            bench.write(role::dst, (mb - 1) * p.dst.n,
                                std::numeric_limits<double>::infinity());
                        bench.run_reference();
                        for (const isa set : usable_isas())
                            for (const std::string_view name :
                                {"tiled.fma", "tiled.dot2", "tiled.amx"}) {
                                const bool amx = name == "tiled.amx", dot = name == "tiled.dot2";
                                if (amx != (set == isa::amx_bf16)) continue;
                                if (dot && (type != data_type::bf16 || set != isa::avx512_bf16))
                                    continue;
                                if (amx && mb > 9) continue;  // emulation is slow
                                for (const int threads : {1, 3}) {
                                    const run_report ran = bench.run(
                                        {.max_isa = set, .threads = threads, .algorithm = name});
                                    ASSERT_EQ(ran.algorithm, name);
                                    ASSERT_EQ(how == fill::integers ? bench.compare_exact()
                                                                    : bench.compare_bounded(),
                                        "")
                                        << name << ' ' << to_string(set) << ' ' << to_text(p);
                                }
                            }
                    };
                    check(fill::integers);
                    check(fill::reals);
                    if (testing::Test::HasFatalFailure()) return;
                }
}

}  // namespace
}  // namespace convgrad::test
