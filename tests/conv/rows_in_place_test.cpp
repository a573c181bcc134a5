// Weights gradients by tiles that read rows of planes where they lie (tiled.fma of f32, tiled.dot2
// pairs of bf16 of layers with one tap): planes of odd length, at any place of a line or all at the
// same place of a page, rows that do not fill a block, blocks of several panels, taps in padding,
// infinities, NaN and numbers that pairs would flush, and the same bits for any number of threads.
#include <limits>

#include <gtest/gtest.h>

#include "support/named_runs.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

std::vector<named> algorithms_of(const problem &p) {
    return rows_of(p, "tiled.fma", "tiled.dot2");
}

/// Calls body(problem, seed) for each type and size.
template <typename Body>
void for_each_case(Body &&body) {
    const struct {
        dim mb, groups, ic, oc, gap;  // gap: elements between planes
        conv::axis h, w;
    } sizes[] = {
        {2, 1, 40, 150, 0, {}, make_axis(28, 1, 1, 1, 0, 0)},
        {1, 1, 150, 40, 1, make_axis(14, 1, 1, 1, 0, 0), make_axis(14, 1, 1, 1, 0, 0)},
        {3, 1, 17, 33, 0, make_axis(7, 1, 1, 1, 0, 0), make_axis(7, 1, 1, 1, 0, 0)},
        {1, 2, 20, 30, 3, make_axis(5, 1, 1, 1, 0, 0), make_axis(6, 1, 1, 1, 0, 0)},
        {2, 1, 30, 20, 0, make_axis(16, 1, 1, 1, 0, 0), make_axis(16, 1, 1, 1, 0, 0)},
        {2, 1, 16, 29, 0, make_axis(32, 1, 1, 1, 0, 0), make_axis(16, 1, 1, 1, 0, 0)},
        {1, 1, 3, 1, 0, {}, make_axis(2, 1, 1, 1, 0, 0)},
        {1, 1, 1, 65, 0, {}, make_axis(1, 1, 1, 1, 0, 0)},
        {1, 1, 70, 70, 5, {}, make_axis(1500, 1, 1, 1, 0, 0)},
        {2, 1, 20, 45, 0, make_axis(9, 3, 1, 1, 1, 1), make_axis(12, 3, 1, 1, 1, 1)},
        {1, 1, 33, 18, 2, make_axis(11, 3, 2, 1, 1, 1), make_axis(14, 3, 2, 1, 1, 1)},
        {1, 1, 18, 40, 0, make_axis(9, 3, 1, 4, 4, 4), make_axis(10, 3, 1, 4, 4, 4)},
    };
    std::uint64_t seed = 0;
    for (const data_type type : {data_type::f32, data_type::bf16})
        for (const auto &s : sizes)
            for (const weights_layout weights : {weights_layout::xio, weights_layout::oix}) {
                problem p = sized(pass::backward_weights, type, s.mb, s.groups, s.ic, s.oc);
                p.x[1] = s.h, p.x[2] = s.w;
                rng random(++seed);
                set_layouts(p, data_layout::ncx, weights, data_layout::ncx);
                set_random_extras(random, p);
                for (conv::data_strides *data : {&p.src, &p.dst}) {
                    data->c += s.gap;
                    data->n = data->c * (s.groups * std::max(s.ic, s.oc) + 1);
                }
                body(p, seed);
                if (testing::Test::HasFatalFailure()) return;
            }
}

TEST(rows_in_place, exact_on_integers) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::integers, seed);
        bench.run_reference();
        for (const named &a : algorithms_of(p)) expect_exact(bench, a);
    });
}

TEST(rows_in_place, the_same_bits_within_their_bound_on_any_number_of_threads) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::reals, seed);
        bench.run_reference();
        for (const named &a : algorithms_of(p)) expect_bound_and_same_bits(bench, a);
    });
}

// In src or in dst, in the first row of a block or in the last position of all.
TEST(rows_in_place, special_values) {
    workbench bench;
    constexpr double infinity = std::numeric_limits<double>::infinity();
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    for_each_case([&](const problem &p, std::uint64_t seed) {
        for (const double value : {infinity, nan, 0x1p-130})
            for (const role r : {role::src, role::dst}) {
                bench.load(p, fill::reals, seed);
                dim last = 0;
                for_each_element(extents_of(p, r), [&](const auto &, dim at) { last = at; });
                bench.write(r, seed % 2 == 0 ? 0 : last, value);
                bench.run_reference();
                for (const named &a : algorithms_of(p)) {
                    const run_report ran = bench.run({.max_isa = a.set, .algorithm = a.algorithm});
                    ASSERT_EQ(ran.algorithm, a.algorithm);
                    ASSERT_EQ(bench.compare_bounded(), "")
                        << a.algorithm << ' ' << value << ' ' << to_text(p);
                }
            }
    });
}

}  // namespace
}  // namespace convgrad::test
