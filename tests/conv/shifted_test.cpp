// The driver for first layers on f32 planes, by name, on every instruction set: rows that do not
// fill a vector, taps outside the input, strides, dilations, groups, views, epilogues, special
// values, and the same bits for any number of threads.
#include <limits>

#include <gtest/gtest.h>

#include <convgrad/error.hpp>

#include "support/named_runs.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

constexpr std::string_view name = "shifted.fma";

struct sizes {
    dim mb, groups, ic, oc;
    conv::axis x[3];
};

/// make_axis(length, kernel, stride, dilation, pad at the beginning, pad at the end)
const sizes all_sizes[] = {
    {2, 1, 3, 16, {{}, make_axis(9, 3, 1, 1, 1, 1), make_axis(37, 3, 1, 1, 1, 1)}},
    {1, 1, 3, 29, {{}, make_axis(13, 3, 2, 1, 1, 1), make_axis(70, 3, 2, 1, 1, 1)}},
    {1, 1, 4, 15, {{}, make_axis(15, 7, 2, 1, 3, 3), make_axis(33, 7, 2, 1, 3, 3)}},
    {1, 1, 2, 5, {{}, make_axis(11, 4, 4, 1, 0, 2), make_axis(130, 5, 3, 1, 2, 0)}},
    // One channel, one pixel, taps that lie outside altogether.
    {2, 1, 1, 1, {{}, make_axis(1, 3, 1, 1, 1, 1), make_axis(1, 5, 1, 1, 2, 2)}},
    {1, 1, 3, 7, {{}, make_axis(2, 3, 1, 1, 4, 4), make_axis(3, 2, 1, 1, 5, 5)}},
    {1, 1, 2, 3, {{}, make_axis(6, 3, 1, 4, 5, 5), make_axis(21, 3, 1, 7, 6, 8)}},
    {1, 1, 3, 14, {{}, make_axis(10, 3, 2, 3, 2, 3), make_axis(40, 3, 1, 2, 2, 2)}},
    {1, 3, 2, 9, {{}, make_axis(7, 3, 1, 1, 1, 1), make_axis(32, 3, 1, 1, 1, 1)}},
    {2, 2, 1, 4, {{}, {}, make_axis(77, 9, 1, 1, 4, 4)}},
    {1, 1, 1, 20, {{}, {}, make_axis(1000, 16, 4, 1, 0, 0)}},
    {1, 1, 3, 6,
        {make_axis(5, 3, 1, 1, 1, 1), make_axis(6, 3, 1, 1, 1, 1), make_axis(18, 3, 1, 1, 1, 1)}},
    {1, 1, 2, 17,
        {make_axis(7, 3, 2, 1, 1, 1), make_axis(6, 2, 1, 3, 1, 1), make_axis(15, 3, 2, 1, 1, 1)}},
    {3, 1, 5, 33, {{}, make_axis(40, 3, 1, 1, 1, 1), make_axis(96, 3, 1, 1, 1, 1)}},
    {1, 1, 17, 31, {{}, make_axis(12, 5, 1, 1, 2, 2), make_axis(19, 5, 1, 1, 2, 2)}},
};

/// Calls body(problem, seed).
template <typename Body>
void for_each_case(Body &&body) {
    std::uint64_t seed = 0;
    for (const pass what : {pass::forward, pass::backward_data})
        for (const sizes &s : all_sizes)
            for (int variant = 0; variant < 4; ++variant) {
                problem p = sized(what, data_type::f32, s.mb, s.groups, s.ic, s.oc);
                bool strided = false;
                for (std::size_t a = 0; a < 3; ++a) {
                    p.x[a] = s.x[a];
                    strided = strided || s.x[a].stride > 1;
                }
                if (what == pass::backward_data && strided) continue;
                rng random(++seed);
                set_layouts(p, data_layout::ncx,
                    all_weights_layouts[random.next() % std::size(all_weights_layouts)],
                    data_layout::ncx);
                if (variant % 2 > 0) set_random_extras(random, p);
                if (p.add) p.add_strides = what == pass::forward ? p.dst : p.src;
                if (variant > 1) {  // a view: more images and channels lie between
                    p.src.n += 2 * p.src.c + 3;
                    p.dst.n += 5;
                }
                body(p, seed);
                if (testing::Test::HasFatalFailure()) return;
            }
}

TEST(shifted, exact_on_integers) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::integers, seed);
        bench.run_reference();
        for (const isa set : usable_fma_isas()) expect_exact(bench, {name, set});
    });
}

TEST(shifted, the_same_bits_within_their_bound_on_any_number_of_threads) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::reals, seed);
        bench.run_reference();
        for (const isa set : usable_fma_isas()) expect_bound_and_same_bits(bench, {name, set});
    });
}

// A weight that is not finite must not meet padding, whichever tile a position lies in.
TEST(shifted, infinities_and_nan) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::reals, seed);
        bench.write(role::weights, 0, std::numeric_limits<double>::infinity());
        bench.write(p.what == pass::forward ? role::src : role::dst, 0,
            seed % 2 == 0 ? 0 : std::numeric_limits<double>::quiet_NaN());
        bench.run_reference();
        for (const isa set : usable_fma_isas()) {
            bench.run({.max_isa = set, .threads = 1, .algorithm = name});
            ASSERT_EQ(bench.compare_bounded(), "") << to_string(set) << ' ' << to_text(p);
            const auto alone = bench.output_bytes();
            bench.run({.max_isa = set, .threads = 16, .algorithm = name});
            ASSERT_EQ(bench.output_bytes(), alone) << to_string(set) << ' ' << to_text(p);
        }
    });
}

// An input with channels side by side is as good; an empty batch leaves nothing to do.
TEST(shifted, other_inputs) {
    workbench bench;
    problem p = sized(pass::forward, data_type::f32, 2, 1, 3, 10);
    p.x[1] = make_axis(12, 3, 1, 1, 1, 1);
    p.x[2] = make_axis(35, 3, 2, 1, 1, 1);
    for (const dim mb : {2, 0}) {
        p.mb = mb;
        set_layouts(p, data_layout::nxc, weights_layout::xio, data_layout::ncx);
        bench.load(p, fill::integers, 1);
        bench.run_reference();
        for (const isa set : usable_fma_isas()) {
            bench.run({.max_isa = set, .algorithm = name});
            ASSERT_EQ(bench.compare_exact(), "") << to_string(set) << ' ' << to_text(p);
        }
    }
}

// With less memory tiles are smaller, down to a limit; the bits stay.
TEST(shifted, small_workspace) {
    problem p = sized(pass::forward, data_type::f32, 1, 1, 3, 16);
    p.x[1] = p.x[2] = make_axis(100, 3, 1, 1, 1, 1);
    set_layouts(p, data_layout::ncx, weights_layout::oix, data_layout::ncx);
    workbench bench;
    bench.load(p, fill::reals, 1);
    const isa set = usable_fma_isas().back();
    const run_report whole = bench.run({.max_isa = set, .algorithm = name});
    const auto bits = bench.output_bytes();
    const run_report lean =
        bench.run({.max_isa = set, .algorithm = name, .workspace_limit = whole.workspace / 4});
    EXPECT_LE(lean.workspace, whole.workspace / 4);
    EXPECT_EQ(bench.output_bytes(), bits);
    EXPECT_THROW(bench.run({.max_isa = set, .algorithm = name, .workspace_limit = 2048}), error);
}

TEST(shifted, what_it_does_not_take) {
    const auto refused = [](problem p, data_layout layout) {
        set_layouts(p, layout, weights_layout::oix, layout);
        EXPECT_THROW((void)cpu::make_plan(p, {.only_algorithm = name}), error) << to_text(p);
    };
    problem good = sized(pass::forward, data_type::f32, 1, 1, 3, 4);
    good.x[2] = make_axis(9, 3, 2, 1, 1, 1);
    refused(good, data_layout::nxc);
    problem p = good;
    p.what = pass::backward_data;
    refused(p, data_layout::ncx);
    p.what = pass::backward_weights;
    refused(p, data_layout::ncx);
    p = good;
    p.type = p.out_type = data_type::bf16;
    refused(p, data_layout::ncx);
}

}  // namespace
}  // namespace convgrad::test
