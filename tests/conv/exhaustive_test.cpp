// Exhaustive small problems on exact integer data: every instruction set bit for bit as the
// reference. Under sanitizers a part of the pairs and triples.
//
// One dimension: the full product of every axis (kernel 1-3, stride 1-3, dilation 1-2, begin pad
// 0-2, end pad -2 to 2 as output_padding makes it negative, length 1-7: 877 axes), groups 1, 2 and
// C, both data formats, four weights formats, all types, all passes, all instruction sets (an
// emulated one in about one of 16 cases).
//
// Two dimensions: all 769129 pairs of axes in every pass; type, groups, formats, extras and
// instruction set are drawn from a hash of the pair's number.
//
// Three dimensions: the 6.7e8 triples are out of reach; a fixed random sample of them, with the
// rest drawn as in two dimensions.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "support/exhaustive.hpp"
#include "support/sanitizers.hpp"
#include "support/winograd_bound.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

/// Runs one problem on the given instruction sets; false after a failure.
bool check(workbench &bench, const problem &p, std::span<const isa> sets, std::uint64_t seed) {
    bench.load(p, fill::integers, seed);
    bench.run_reference();
    for (const isa set : sets) {
        const run_report ran = bench.run({.max_isa = set});
        const std::string difference = compare_integers(bench, ran.algorithm);
        if (difference.empty()) continue;
        ADD_FAILURE() << to_string(set) << ": " << difference;
        return false;
    }
    return true;
}

void check_one_dimension(pass what, data_type type) {
    workbench bench;
    int failures = 0;
    for_each_one_dimension(what, type, [&](const problem &p, std::uint64_t number) {
        return check(bench, p, affordable_isas(number), number) || ++failures < 5;
    });
}

void check_two_dimensions(pass what) {
    workbench bench;
    sampler sample(29);
    const std::vector<conv::axis> axes = all_axes();
    std::uint64_t number = static_cast<std::uint64_t>(what) << 32;
    int failures = 0;
    for (const conv::axis &a : axes)
        for (const conv::axis &b : axes) {
            rng random(++number);
            if (!sample.takes_next()) continue;
            const problem p = problem_with(random, what, {a, b});
            const isa set = affordable_isa(number);
            if (!check(bench, p, {&set, 1}, number) && ++failures == 5) return;
        }
}

void check_three_dimensions(pass what, int count) {
    workbench bench;
    const std::vector<conv::axis> axes = all_axes();
    std::uint64_t number = static_cast<std::uint64_t>(what) << 33;
    int failures = 0;
    for (int i = 0; i < count; ++i) {
        rng random(++number);
        const auto any = [&] { return axes[random.next() % axes.size()]; };
        const conv::axis a = any(), b = any(), c = any();
        const problem p = problem_with(random, what, {a, b, c});
        const isa set = affordable_isa(number);
        if (!check(bench, p, {&set, 1}, number) && ++failures == 5) return;
    }
}

TEST(exhaustive_1d, forward_f32) {
    check_one_dimension(pass::forward, data_type::f32);
}
TEST(exhaustive_1d, forward_bf16) {
    check_one_dimension(pass::forward, data_type::bf16);
}
TEST(exhaustive_1d, forward_f16) {
    check_one_dimension(pass::forward, data_type::f16);
}
TEST(exhaustive_1d, backward_data_f32) {
    check_one_dimension(pass::backward_data, data_type::f32);
}
TEST(exhaustive_1d, backward_data_bf16) {
    check_one_dimension(pass::backward_data, data_type::bf16);
}
TEST(exhaustive_1d, backward_data_f16) {
    check_one_dimension(pass::backward_data, data_type::f16);
}
TEST(exhaustive_1d, backward_weights_f32) {
    check_one_dimension(pass::backward_weights, data_type::f32);
}
TEST(exhaustive_1d, backward_weights_bf16) {
    check_one_dimension(pass::backward_weights, data_type::bf16);
}
TEST(exhaustive_1d, backward_weights_f16) {
    check_one_dimension(pass::backward_weights, data_type::f16);
}

TEST(exhaustive_2d, forward) {
    check_two_dimensions(pass::forward);
}
TEST(exhaustive_2d, backward_data) {
    check_two_dimensions(pass::backward_data);
}
TEST(exhaustive_2d, backward_weights) {
    check_two_dimensions(pass::backward_weights);
}

constexpr int triples = sampled(60000, 10);
TEST(exhaustive_3d, forward) {
    check_three_dimensions(pass::forward, triples);
}
TEST(exhaustive_3d, backward_data) {
    check_three_dimensions(pass::backward_data, triples);
}
TEST(exhaustive_3d, backward_weights) {
    check_three_dimensions(pass::backward_weights, triples);
}

}  // namespace
}  // namespace convgrad::test
