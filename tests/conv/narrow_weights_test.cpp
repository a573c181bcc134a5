// The weights gradient by dot products along positions (narrow.fma), on every instruction set, in
// each of the ways in which dst comes to them: rows that do not fill a vector, tiles that end
// within a row, taps outside the input, strides, dilations, groups, rows of dst with gaps between
// them, infinities beside padding, and the same bits for any number of threads.
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "conv/simplify.hpp"
#include "cpu/cost_model.hpp"
#include "cpu/driver_plan.hpp"
#include "cpu/narrow_weights.hpp"
#include "support/named_runs.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;
using cpu::dst_reading;

constexpr std::string_view name = "narrow.fma";

struct sizes {
    dim mb, groups, ic, oc;
    conv::axis x[3];
};

/// make_axis(length, kernel, stride, dilation, pad at the beginning, pad at the end)
const sizes all_sizes[] = {
    {2, 1, 3, 16, {{}, make_axis(9, 3, 1, 1, 1, 1), make_axis(37, 3, 1, 1, 1, 1)}},
    {3, 1, 3, 29, {{}, make_axis(13, 3, 2, 1, 1, 1), make_axis(70, 3, 2, 1, 1, 1)}},
    {1, 1, 4, 15, {{}, make_axis(15, 7, 2, 1, 3, 3), make_axis(33, 7, 2, 1, 3, 3)}},
    {1, 1, 2, 5, {{}, make_axis(11, 4, 4, 1, 0, 2), make_axis(130, 5, 3, 1, 2, 0)}},
    // One channel, one pixel, taps that lie outside altogether.
    {5, 1, 1, 6, {{}, make_axis(14, 5, 1, 1, 2, 2), make_axis(14, 5, 1, 1, 2, 2)}},
    {2, 1, 1, 1, {{}, make_axis(1, 3, 1, 1, 1, 1), make_axis(1, 5, 1, 1, 2, 2)}},
    {1, 1, 3, 7, {{}, make_axis(2, 3, 1, 1, 4, 4), make_axis(3, 2, 1, 1, 5, 5)}},
    {1, 1, 2, 3, {{}, make_axis(6, 3, 1, 4, 5, 5), make_axis(21, 3, 1, 7, 6, 8)}},
    {1, 1, 3, 14, {{}, make_axis(10, 3, 2, 3, 2, 3), make_axis(40, 3, 1, 2, 2, 2)}},
    {1, 3, 2, 9, {{}, make_axis(7, 3, 1, 1, 1, 1), make_axis(32, 3, 1, 1, 1, 1)}},
    {2, 5, 1, 4, {{}, make_axis(5, 3, 1, 1, 1, 1), make_axis(17, 3, 1, 1, 1, 1)}},
    {2, 70, 1, 1, {{}, make_axis(6, 3, 1, 1, 1, 1), make_axis(11, 3, 1, 1, 1, 1)}},
    // Rows longer than a tile, rows alone, planes of which a tile has some rows.
    {2, 1, 1, 4, {{}, {}, make_axis(5003, 9, 1, 1, 4, 4)}},
    {1, 1, 2, 5, {{}, make_axis(3, 3, 1, 1, 1, 1), make_axis(2100, 3, 1, 1, 1, 1)}},
    {1, 1, 1, 20, {{}, {}, make_axis(1000, 16, 4, 1, 0, 0)}},
    {3, 1, 5, 33, {{}, make_axis(40, 3, 1, 1, 1, 1), make_axis(96, 3, 1, 1, 1, 1)}},
    {1, 1, 3, 6,
        {make_axis(5, 3, 1, 1, 1, 1), make_axis(6, 3, 1, 1, 1, 1), make_axis(18, 3, 1, 1, 1, 1)}},
    {1, 1, 2, 17,
        {make_axis(7, 3, 2, 1, 1, 1), make_axis(6, 2, 1, 3, 1, 1), make_axis(15, 3, 2, 1, 1, 1)}},
    {1, 1, 17, 31, {{}, make_axis(12, 5, 1, 1, 2, 2), make_axis(19, 5, 1, 1, 2, 2)}},
    // Enough of them for ranges of dst's channels.
    {1, 1, 2, 70, {{}, make_axis(50, 3, 1, 1, 1, 1), make_axis(50, 3, 1, 1, 1, 1)}},
    {0, 1, 3, 5, {{}, make_axis(4, 3, 1, 1, 1, 1), make_axis(6, 3, 1, 1, 1, 1)}},
};

/// Calls body(problem, seed).
template <typename Body>
void for_each_case(Body &&body) {
    std::uint64_t seed = 0;
    for (const sizes &s : all_sizes)
        for (const data_layout src : {data_layout::ncx, data_layout::nxc})
            for (int variant = 0; variant < 4; ++variant) {
                problem p =
                    sized(pass::backward_weights, data_type::f32, s.mb, s.groups, s.ic, s.oc);
                for (std::size_t a = 0; a < 3; ++a) p.x[a] = s.x[a];
                rng random(++seed);
                set_layouts(p, src,
                    all_weights_layouts[random.next() % std::size(all_weights_layouts)],
                    data_layout::ncx);
                if (variant % 2 > 0) set_random_extras(random, p);
                if (variant > 1) {  // rows, channels and images with gaps between them
                    const conv::data_strides was = p.dst;
                    p.dst.x[1] += 3;
                    p.dst.x[0] = p.dst.x[1] * (p.x[1].dst + 1);
                    p.dst.c = p.dst.x[0] * p.x[0].dst + 7;
                    p.dst.n = p.dst.c * (s.groups * s.oc + 1);
                    ASSERT_GE(p.dst.c, was.c);
                    p.src.n += 5;
                }
                body(p, seed);
                if (testing::Test::HasFatalFailure()) return;
            }
}

cpu::narrow_cut cut_of(const problem &p, isa set) {
    return cpu::cut_narrow_weights(cpu::problem_sizes(p), *cpu::best_fma(set));
}

TEST(narrow_weights, exact_on_integers) {
    workbench bench;
    std::set<std::pair<std::string_view, dst_reading>> seen;
    bool shares = false;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::integers, seed);
        bench.run_reference();
        for (const isa set : usable_fma_isas()) {
            const cpu::narrow_cut cut = cut_of(p, set);
            seen.emplace(to_string(set), cut.dst);
            shares = shares || cut.cuts > 1;
            expect_exact(bench, {name, set});
        }
    });
    EXPECT_TRUE(shares);
    for (const isa set : usable_fma_isas())
        for (const dst_reading how : {dst_reading::rows, dst_reading::planes})
            EXPECT_TRUE(seen.contains({to_string(set), how})) << to_string(set);
}

// 16-bit types and channels side by side are packed.
TEST(narrow_weights, others_are_packed) {
    workbench bench;
    for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
        for (const data_layout dst : {data_layout::ncx, data_layout::nxc}) {
            if (type == data_type::f32 && dst == data_layout::ncx) continue;
            problem p = sized(pass::backward_weights, type, 2, 1, 3, 10);
            p.x[1] = make_axis(12, 3, 1, 1, 1, 1);
            p.x[2] = make_axis(35, 3, 2, 1, 1, 1);
            set_layouts(p, data_layout::nxc, weights_layout::xio, dst);
            bench.load(p, fill::integers, 1);
            bench.run_reference();
            for (const isa set : usable_fma_isas()) {
                EXPECT_EQ(cut_of(p, set).dst, dst_reading::packed);
                ASSERT_EQ(bench.run({.max_isa = set, .algorithm = name}).algorithm, name);
                ASSERT_EQ(bench.compare_exact(), "") << to_string(set) << ' ' << to_text(p);
            }
        }
}

TEST(narrow_weights, the_same_bits_within_their_bound_on_any_number_of_threads) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::reals, seed);
        bench.run_reference();
        for (const isa set : usable_fma_isas()) expect_bound_and_same_bits(bench, {name, set});
    });
}

// What is not finite must not meet padding: in the corners of dst, within it, and in src.
TEST(narrow_weights, infinities_and_nan) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        if (p.mb == 0) return;
        const dim last = (p.x[2].dst - 1) * p.dst.x[2], end = (p.x[1].dst - 1) * p.dst.x[1];
        const dim middle = p.x[1].dst / 2 * p.dst.x[1] + p.x[2].dst / 2 * p.dst.x[2];
        for (const dim at : {dim{0}, last, end + last, middle}) {
            bench.load(p, fill::reals, seed);
            bench.write(role::dst, at,
                at % 3 == 0 ? std::numeric_limits<double>::infinity()
                            : std::numeric_limits<double>::quiet_NaN());
            if (seed % 2 == 0) bench.write(role::src, 0, -std::numeric_limits<double>::infinity());
            bench.run_reference();
            for (const isa set : usable_fma_isas()) {
                bench.run({.max_isa = set, .threads = 1, .algorithm = name});
                ASSERT_EQ(bench.compare_bounded(), "")
                    << to_string(set) << " at " << at << ' ' << to_text(p);
            }
        }
    });
}

TEST(narrow_weights, small_workspace) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::integers, seed);
        bench.run_reference();
        for (const isa set : usable_fma_isas()) {
            const run_report all = bench.run({.max_isa = set, .threads = 2, .algorithm = name});
            if (all.workspace < 64 << 10) continue;  // may be the least
            const run_report ran = bench.run({.max_isa = set,
                .threads = 2,
                .algorithm = name,
                .workspace_limit = all.workspace * 3 / 4});
            EXPECT_LE(ran.workspace, all.workspace * 3 / 4);
            ASSERT_EQ(bench.compare_exact(), "") << to_string(set) << ' ' << to_text(p);
        }
    });
}

}  // namespace
}  // namespace convgrad::test
