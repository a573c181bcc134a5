// Kernels of more taps than are listed: chosen by themselves, by name on small problems, plans of
// no size, and every pass exact.
#include <gtest/gtest.h>

#include <limits>

#include <malloc.h>

#include "support/sanitizers.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

constexpr std::string_view name = "long.fma";
constexpr pass passes[] = {pass::forward, pass::backward_data, pass::backward_weights};
constexpr data_type types[] = {data_type::f32, data_type::bf16, data_type::f16};

void expect_exact(workbench &bench, const problem &p, std::uint64_t seed, bool by_name) {
    bench.load(p, fill::integers, seed);
    bench.run_reference();
    for (const isa set : usable_fma_isas()) {
        for (const int threads : {1, 3}) {
            const run_report ran = bench.run({.max_isa = set,
                .threads = threads,
                .algorithm = by_name ? name : std::string_view()});
            ASSERT_EQ(ran.algorithm, name);
            ASSERT_EQ(ran.set, set);
            ASSERT_EQ(bench.compare_exact(), "") << to_string(set) << " threads " << threads;
        }
    }
}

TEST(long_kernel, strides_dilation_and_pads_by_name) {
    workbench bench;
    const conv::axis axes[] = {make_axis(9, 3, 1, 1, 1, 1), make_axis(150, 140, 1, 1, 3, 2),
        make_axis(300, 70, 2, 3, 20, 20), make_axis(131, 11, 6, 4, 30, 9),
        make_axis(40, 30, 5, 1, 45, 45), make_axis(3, 70, 4, 1, 40, 40),
        make_axis(64, 2, 9, 1, 0, 0), {60, 3, 4, 7, 5, 2}};
    std::uint64_t seed = 0;
    for (const pass what : passes)
        for (const data_type type : types)
            for (const conv::axis &x : axes)
                for (const bool rows : {false, true}) {
                    problem p = sized(what, type, 2, ++seed % 3 == 0 ? 2 : 1, 3, 4);
                    p.x[2] = x;
                    if (rows) p.x[1] = make_axis(6, 3, 2, 1, 1, 1);
                    const data_layout data = all_data_layouts[seed % 5];
                    p.bias = p.add = p.relu = what != pass::backward_weights && seed % 2 == 0;
                    p.accumulate = seed % 5 == 0;
                    set_layouts(p, data, all_weights_layouts[seed % 6], data);
                    expect_exact(bench, p, seed, true);
                    if (HasFatalFailure()) return;
                }
}

TEST(long_kernel, many_rows_and_reduced_channels) {
    workbench bench;
    std::uint64_t seed = 0;
    for (const pass what : passes)
        for (const dim channels : {1, 14, 57, 120}) {
            problem p = sized(what, data_type::f32, 2, 1, channels, 121 - channels);
            p.x[2] = make_axis(200, 66, 1, 1, 5, 5);
            set_layouts(p, data_layout::ncx, weights_layout::oix, data_layout::ncx);
            expect_exact(bench, p, ++seed, true);
        }
}

/// Few outputs of many terms, or, for the weights gradient, the other way round.
conv::axis long_axis(pass what, dim kernel, dim stride) {
    if (what == pass::backward_data) return make_axis(3, kernel, stride, 1, kernel, kernel - 1);
    return make_axis(kernel + 2, kernel, stride, 1, 2, 1);
}

TEST(long_kernel, is_chosen_where_taps_are_many) {
    workbench bench;
    std::uint64_t seed = 0;
    for (const pass what : passes) {
        problem p = sized(what, data_type::f32, 1, 1, 1, 2);
        p.x[2] = long_axis(what, 65537, 1);
        set_layouts(p, data_layout::ncx, weights_layout::oix, data_layout::ncx);
        expect_exact(bench, p, ++seed, false);
        p.x[1] = long_axis(what, 300, 1);
        p.x[2] = long_axis(what, 225, 2);
        set_layouts(p, data_layout::nxc, weights_layout::xio, data_layout::nxc);
        expect_exact(bench, p, ++seed, false);
        p.x[1] = long_axis(what, 65600, 3);  // the longer one need not be the last
        p.x[2] = make_axis(3, 1, 1, 1, 0, 0);
        set_layouts(p, data_layout::nxc, weights_layout::xio, data_layout::nxc);
        expect_exact(bench, p, ++seed, false);
        if (HasFatalFailure()) return;
    }
}

// An infinite weight or gradient that meets nothing but padding contributes nothing.
TEST(long_kernel, infinities_beside_padding) {
    workbench bench;
    for (const pass what : passes)
        for (const data_type type : types) {
            problem p = sized(what, type, 2, 1, 2, 3);
            p.x[2] = make_axis(150, 9, 1, 1, 8, 8);
            set_layouts(p, data_layout::ncx, weights_layout::oix, data_layout::ncx);
            bench.load(p, fill::reals, 1);
            bench.write(what == pass::backward_weights ? role::dst : role::weights, 0,
                std::numeric_limits<double>::infinity());
            bench.run_reference();
            for (const isa set : usable_fma_isas()) {
                bench.run({.max_isa = set, .algorithm = name});
                ASSERT_EQ(bench.compare_bounded(), "") << to_string(set);
            }
        }
}

// A plan for 10^8 taps, or for more than could ever be listed, takes no memory to speak of.
TEST(long_kernel, plans_do_not_grow) {
    for (const pass what : passes)
        for (const dim kernel : {dim{10000}, dim{1} << 20}) {
            problem p = sized(what, data_type::bf16, 1, 1, kernel > 10000 ? 0 : 1, 1);
            p.x[1] = p.x[2] = make_axis(kernel + 5, kernel, 1, 1, 0, 0);
            set_layouts(p, data_layout::nxc, weights_layout::xio, data_layout::nxc);
            for (const isa set : usable_isas()) {
                const auto before = mallinfo2();
                const auto plan = cpu::make_plan(p, {.max_isa = set, .threads = 4});
                const auto after = mallinfo2();
                EXPECT_EQ(plan->algorithm(), name);
                EXPECT_LT(plan->workspace(), 1U << 20U);
                if (is_sanitized) continue;  // which keep books of their own
                EXPECT_LT(after.uordblks + after.hblkhd, before.uordblks + before.hblkhd + 65536);
            }
        }
}

}  // namespace
}  // namespace convgrad::test
