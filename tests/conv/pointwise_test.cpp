// The driver for 1×1 layers on f32 planes, by name, on every instruction set: positions that do not
// fill a vector, one channel, groups, gaps between planes, epilogues, infinities, and the same bits
// for any number of threads.
#include <limits>

#include <gtest/gtest.h>

#include <convgrad/error.hpp>

#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

constexpr std::string_view name = "pointwise.fma";

problem planes(pass what, dim mb, dim groups, dim ic, dim oc, dim height, dim width) {
    problem p;
    p.what = what;
    p.mb = mb;
    p.groups = groups;
    p.ic = ic;
    p.oc = oc;
    p.x[1] = make_axis(height, 1, 1, 1, 0, 0);
    p.x[2] = make_axis(width, 1, 1, 1, 0, 0);
    return p;
}

/// Calls body(problem, seed) for sizes around those of vectors, steps and ranges.
template <typename Body>
void for_each_case(Body &&body) {
    const struct {
        dim mb, groups, ic, oc, height, width;
    } sizes[] = {{2, 1, 3, 5, 1, 2}, {1, 1, 1, 1, 1, 33}, {2, 1, 7, 14, 3, 5}, {1, 1, 17, 29, 4, 4},
        {3, 1, 24, 15, 1, 31}, {2, 1, 13, 28, 8, 4}, {1, 3, 5, 9, 7, 7}, {2, 2, 16, 3, 10, 10},
        {1, 1, 64, 33, 28, 28}, {1, 1, 255, 17, 5, 13}, {1, 1, 9, 70, 41, 25}};
    std::uint64_t seed = 0;
    for (const pass what : {pass::forward, pass::backward_data})
        for (const auto &s : sizes)
            for (int variant = 0; variant < 3; ++variant) {
                problem p = planes(what, s.mb, s.groups, s.ic, s.oc, s.height, s.width);
                rng random(++seed);
                set_layouts(p, data_layout::ncx,
                    all_weights_layouts[random.next() % std::size(all_weights_layouts)],
                    data_layout::ncx);
                if (variant > 0) set_random_extras(random, p);
                if (p.add) p.add_strides = what == pass::forward ? p.dst : p.src;
                if (variant == 2) {  // a view: more images and channels lie between
                    p.src.n += 2 * p.src.c + 3;
                    p.dst.n += 5;
                }
                body(p, seed);
                if (testing::Test::HasFatalFailure()) return;
            }
}

template <typename Body>
void for_each_set(Body &&body) {
    for (const isa set : usable_fma_isas()) body(set);
}

TEST(pointwise, exact_on_integers) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::integers, seed);
        bench.run_reference();
        for_each_set([&](isa set) {
            for (const int threads : {1, 3}) {
                const run_report ran =
                    bench.run({.max_isa = set, .threads = threads, .algorithm = name});
                ASSERT_EQ(ran.algorithm, name);
                ASSERT_EQ(ran.set, set);
                ASSERT_EQ(bench.compare_exact(), "")
                    << to_string(set) << " threads " << threads << ' ' << to_text(p);
            }
        });
    });
}

TEST(pointwise, infinities_and_nan) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::reals, seed);
        bench.write(role::weights, 0, std::numeric_limits<double>::infinity());
        bench.write(p.what == pass::forward ? role::src : role::dst, 0,
            seed % 2 == 0 ? 0 : std::numeric_limits<double>::quiet_NaN());
        bench.run_reference();
        for_each_set([&](isa set) {
            bench.run({.max_isa = set, .algorithm = name});
            ASSERT_EQ(bench.compare_bounded(), "") << to_string(set) << ' ' << to_text(p);
        });
    });
}

TEST(pointwise, same_bits_for_any_number_of_threads) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::reals, seed);
        for_each_set([&](isa set) {
            bench.run({.max_isa = set, .threads = 1, .algorithm = name});
            const auto alone = bench.output_bytes();
            for (const int threads : {2, 16}) {
                bench.run({.max_isa = set, .threads = threads, .algorithm = name});
                ASSERT_EQ(bench.output_bytes(), alone) << to_string(set) << ' ' << to_text(p);
            }
        });
    });
}

// Where there is no room for the weights, another driver runs.
TEST(pointwise, small_workspace) {
    problem p = planes(pass::forward, 1, 1, 64, 64, 28, 28);
    set_layouts(p, data_layout::ncx, weights_layout::oix, data_layout::ncx);
    const auto plan = cpu::make_plan(p, {.max_isa = isa::avx2, .workspace = 12 << 10});
    EXPECT_NE(plan->algorithm(), name);
    EXPECT_EQ(cpu::make_plan(p, {.max_isa = isa::avx2})->algorithm(), name);
}

// What lies otherwise, or has taps or 16-bit elements, is refused with a reason.
TEST(pointwise, what_it_does_not_take) {
    const auto refused = [](problem p, data_layout layout) {
        set_layouts(p, layout, weights_layout::oix, layout);
        EXPECT_THROW((void)cpu::make_plan(p, {.only_algorithm = name}), error) << to_text(p);
    };
    const problem good = planes(pass::forward, 1, 1, 4, 4, 6, 6);
    refused(good, data_layout::nxc);
    problem p = good;
    p.x[2] = make_axis(6, 3, 1, 1, 1, 1);
    refused(p, data_layout::ncx);
    p = good;
    p.type = p.out_type = data_type::bf16;
    refused(p, data_layout::ncx);
    p = good;
    p.what = pass::backward_weights;
    refused(p, data_layout::ncx);
}

}  // namespace
}  // namespace convgrad::test
