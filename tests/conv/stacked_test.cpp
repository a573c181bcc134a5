// Tiles with the batch as their last axis, by name, on every instruction set: batches and maps that
// divide nothing, strides, dilations, pads beyond the kernel, tails of channels, groups, gaps,
// infinities, little workspace, and the same bits for any number of threads.
#include <limits>

#include <gtest/gtest.h>

#include <convgrad/error.hpp>

#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

std::vector<named> algorithms_of(const problem &p) {
    return rows_of(p, "tiled.fma", "tiled.dot2");
}

bool is_stacked(const problem &p, const named &a) {
    const auto plan = cpu::make_plan(p, {.max_isa = a.set, .only_algorithm = a.algorithm});
    return plan->describe().find("images side by side") != std::string::npos;
}

/// Calls body(problem, seed) for each pass, type, size and layout.
template <typename Body>
void for_each_case(Body &&body) {
    const conv::axis one;
    const struct {
        dim mb, groups, ic, oc;
        conv::axis h, w;
    } sizes[] = {
        {8, 2, 32, 32, make_axis(3, 3, 1, 1, 1, 1), make_axis(3, 3, 1, 1, 1, 1)},
        {17, 1, 35, 33, make_axis(2, 3, 1, 1, 1, 1), make_axis(2, 3, 1, 1, 1, 1)},
        {9, 3, 5, 17, make_axis(4, 3, 2, 1, 1, 1), make_axis(3, 3, 2, 1, 1, 1)},
        {14, 1, 20, 50, make_axis(4, 4, 2, 1, 1, 1), make_axis(4, 4, 2, 1, 1, 1)},
        {7, 2, 18, 16, make_axis(5, 3, 1, 2, 2, 2), make_axis(5, 3, 1, 3, 3, 3)},
        {16, 1, 16, 24, make_axis(1, 3, 1, 1, 3, 4), make_axis(1, 5, 1, 1, 6, 2)},  // one pixel
        {40, 1, 17, 3, one, make_axis(4, 3, 1, 1, 1, 1)},
        {70, 1, 3, 40, make_axis(3, 2, 1, 1, 1, 0), make_axis(2, 2, 1, 1, 0, 1)},
        {8, 1, 600, 16, make_axis(2, 3, 1, 1, 1, 1), make_axis(2, 3, 1, 1, 1, 1)},  // two chunks
        {6, 1, 16, 90, make_axis(6, 5, 1, 1, 2, 2), make_axis(7, 5, 3, 1, 2, 2)},
    };
    std::uint64_t seed = 0;
    for (const pass what : {pass::forward, pass::backward_data})
        for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
            for (const auto &s : sizes)
                for (const data_layout layout :
                    {data_layout::nxc, data_layout::ncx, data_layout::nxc_gaps}) {
                    problem p = sized(what, type, s.mb, s.groups, s.ic, s.oc);
                    p.x = {one, s.h, s.w};
                    rng random(++seed);
                    set_layouts(p, layout,
                        all_weights_layouts[random.next() % std::size(all_weights_layouts)],
                        layout);
                    set_random_extras(random, p);
                    body(p, seed);
                    if (testing::Test::HasFatalFailure()) return;
                }
}

TEST(stacked, exact_on_integers) {
    workbench bench;
    dim stacked = 0, all = 0;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::integers, seed);
        bench.run_reference();
        for (const named &a : algorithms_of(p)) {
            ++all;
            stacked += is_stacked(p, a) ? 1 : 0;
            for (const int threads : {1, 3}) {
                bench.run({.max_isa = a.set, .threads = threads, .algorithm = a.algorithm});
                ASSERT_EQ(bench.compare_exact(), "")
                    << a.algorithm << ' ' << to_string(a.set) << ' ' << to_text(p);
            }
        }
    });
    EXPECT_GT(2 * stacked, all);
}

/// Every algorithm on what the bench has.
void expect_bounded(workbench &bench, const problem &p) {
    bench.run_reference();
    for (const named &a : algorithms_of(p)) {
        bench.run({.max_isa = a.set, .algorithm = a.algorithm});
        ASSERT_EQ(bench.compare_bounded(), "") << a.algorithm << ' ' << to_text(p);
    }
}

TEST(stacked, real_data_within_bounds) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::reals, seed);
        expect_bounded(bench, p);
    });
}

TEST(stacked, infinities_nan_and_tiny_values) {
    workbench bench;
    const double odd[] = {std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN(), 0x1p-130, 0x1p100};
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::reals, seed);
        const bool tiny = p.type != data_type::f16;
        for (const role r : {role::src, role::weights, role::dst})
            if (r != output_of(p) && (seed + static_cast<std::uint64_t>(r)) % 3 != 0)
                bench.write(r, 0, odd[seed % (tiny ? 4 : 2)]);
        expect_bounded(bench, p);
    });
}

TEST(stacked, same_bits_for_any_number_of_threads) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::reals, seed);
        if (seed % 3 == 0) bench.write(role::weights, 0, std::numeric_limits<double>::infinity());
        for (const named &a : algorithms_of(p)) {
            bench.run({.max_isa = a.set, .threads = 1, .algorithm = a.algorithm});
            const auto alone = bench.output_bytes();
            for (const int threads : {2, 16}) {
                bench.run({.max_isa = a.set, .threads = threads, .algorithm = a.algorithm});
                ASSERT_EQ(bench.output_bytes(), alone) << a.algorithm << ' ' << to_text(p);
            }
        }
    });
}

/// That a plan can do with, by halves.
std::size_t least_workspace(const problem &p, const named &a) {
    std::size_t enough = std::size_t{1} << 30;
    try {
        for (;; enough /= 2)
            (void)cpu::make_plan(
                p, {.max_isa = a.set, .workspace = enough / 2, .only_algorithm = a.algorithm});
    } catch (const error &) {
        return enough;
    }
}

TEST(stacked, little_workspace) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        if (seed % 4 != 0) return;
        bench.load(p, fill::integers, seed);
        bench.run_reference();
        for (const named &a : algorithms_of(p)) {
            const std::size_t enough = least_workspace(p, a);
            bench.run({.max_isa = a.set,
                .threads = 2,
                .algorithm = a.algorithm,
                .workspace_limit = seed % 8 == 0 ? 2 * enough : enough});
            ASSERT_EQ(bench.compare_exact(), "") << a.algorithm << ' ' << to_text(p);
        }
    });
}

}  // namespace
}  // namespace convgrad::test
