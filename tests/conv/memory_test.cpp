// What memory may look like, on every instruction set and by every algorithm that takes the
// problem: inputs that overlap themselves, anything between their elements, and `add` in the place
// of the output.
#include <gtest/gtest.h>

#include <convgrad/error.hpp>

#include "support/sanitizers.hpp"
#include "support/winograd_bound.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

constexpr data_type types[] = {data_type::f32, data_type::bf16, data_type::f16};

/// Calls check(isa, algorithm) after a run of each that takes the loaded problem.
template <typename Check>
void run_by_name(workbench &bench, std::span<const isa> sets, Check &&check) {
    for (const isa set : sets)
        for (const std::string_view algorithm : cpu::algorithm_names()) {
            try {
                const auto plan =
                    cpu::make_plan(bench.problem(), {.max_isa = set, .only_algorithm = algorithm});
                if (plan->instruction_set() != set) continue;  // had its turn with a weaker one
            } catch (const error &e) {
                ASSERT_EQ(e.code(), error_code::unsupported) << e.what();
                continue;
            }
            bench.run({.max_isa = set, .algorithm = algorithm});
            check(set, algorithm);
            if (testing::Test::HasFatalFailure()) return;
        }
}

void expect_exact(workbench &bench, const problem &p, std::uint64_t seed) {
    bench.load(p, fill::integers, seed);
    bench.run_reference();
    run_by_name(bench, affordable_isas(seed, 4), [&](isa set, std::string_view algorithm) {
        ASSERT_EQ(compare_integers(bench, algorithm), "") << to_string(set) << ' ' << algorithm;
    });
}

// Every pair of taps may be the same weight: positive strides whose sums meet.
TEST(memory, taps_that_share_memory) {
    workbench bench;
    std::uint64_t seed = 0;
    for (const pass what : {pass::forward, pass::backward_data})
        for (const data_type type : types)
            for (const dim channels : {1, 3, 16, 40})
                for (const dim row : {1, 2, 3})
                    for (const dim stride : {1, 2}) {
                        problem p;
                        p.what = what;
                        p.type = p.out_type = type;
                        p.mb = 2;
                        p.ic = channels;
                        p.oc = channels + 1;
                        p.x[1] = make_axis(5, 2, stride, 1, 0, 0);
                        p.x[2] = make_axis(7, 3, stride, 1, 1, 1);
                        set_layouts(p, data_layout::ncx, weights_layout::oix, data_layout::ncx);
                        p.weights.k[1] = row;  // rows of three taps, which the next row repeats
                        expect_exact(bench, p, ++seed);
                        p.weights.k[2] = row;
                        p.weights.i = 2;  // and channels that repeat both
                        expect_exact(bench, p, ++seed);
                        if (HasFatalFailure()) return;
                    }
}

// Sliding windows of a signal: rows of an input that begin inside each other.
TEST(memory, inputs_that_overlap_themselves) {
    workbench bench;
    const std::uint64_t cases = sampled<std::uint64_t>(3000, 8);
    for (std::uint64_t seed = 1, found = 0; found < cases && !HasFatalFailure(); ++seed) {
        rng random(seed);
        const problem p = random_problem(random, 1e4);
        bool overlaps = false;
        for (const role r : all_roles) {
            dim elements = 1;
            for (const extent &e : extents_of(p, r)) elements *= e.length;
            overlaps = overlaps || elements > span_of(p, r);
        }
        if (!overlaps) continue;
        ++found;
        expect_exact(bench, p, seed);
    }
}

/// Random problems with memory between the elements of an input.
template <typename Body>
void for_each_with_gaps(std::uint64_t first, std::uint64_t cases, double max_macs, Body &&body) {
    for (std::uint64_t seed = first, found = 0; found < cases; ++seed) {
        rng random(seed);
        problem p = random_problem(random, max_macs);
        p.relu = false;  // it would hide a change of sign
        bool gaps = false;
        for (const role r : all_roles) {
            dim elements = 1;
            for (const extent &e : extents_of(p, r)) elements *= e.length;
            gaps = gaps || (r != output_of(p) && elements < span_of(p, r));
        }
        if (!gaps) continue;
        ++found;
        body(p, seed);
        if (testing::Test::HasFatalFailure()) return;
    }
}

// NaN, zeros or a small number between the elements: not even the rounding may change.
TEST(memory, gaps_do_not_change_a_bit) {
    workbench bench;
    for_each_with_gaps(
        1, sampled<std::uint64_t>(2500, 8), 2e4, [&](const problem &p, std::uint64_t seed) {
            bench.load(p, fill::reals, seed);
            for (const isa set : affordable_isas(seed, 8)) {
                bench.fill_gaps(std::byte{0xff});
                bench.run({.max_isa = set, .threads = 3});
                const auto expected = bench.output_bytes();
                for (const int other : {0x00, 0x01, 0x7f}) {
                    bench.fill_gaps(std::byte(other));
                    bench.run({.max_isa = set, .threads = 3});
                    ASSERT_EQ(bench.output_bytes(), expected)
                        << to_string(set) << " gaps " << other << ' ' << to_text(p);
                }
            }
        });
}

// Filters with rows padded to a multiple of four: what packers take in one piece.
TEST(memory, padding_of_filters_does_not_change_a_bit) {
    workbench bench;
    std::uint64_t seed = 0;
    for (const pass what : {pass::forward, pass::backward_data})
        for (const data_type type : types)
            for (const dim channels : {2, 20, 70})
                for (const dim rows : {1, 3}) {
                    problem p;
                    p.what = what;
                    p.type = p.out_type = type;
                    p.mb = 2;
                    p.ic = p.oc = channels;
                    p.x[1] = make_axis(6, rows, 1, 1, rows / 2, rows / 2);
                    p.x[2] = make_axis(9, 3, 1, 1, 1, 1);
                    set_layouts(p, data_layout::nxc, weights_layout::oix, data_layout::nxc);
                    p.weights.k[1] = 4;
                    p.weights.k[0] = p.weights.i = 4 * rows;
                    p.weights.o = p.weights.i * p.ic;
                    bench.load(p, fill::reals, ++seed);
                    run_by_name(bench, usable_isas(), [&](isa set, std::string_view algorithm) {
                        const auto expected = bench.output_bytes();
                        for (const int other : {0x00, 0x01, 0x7f, 0xff}) {
                            bench.fill_gaps(std::byte(other));
                            bench.run({.max_isa = set, .algorithm = algorithm});
                            ASSERT_EQ(bench.output_bytes(), expected)
                                << to_string(set) << ' ' << algorithm << " gaps " << other;
                        }
                    });
                    if (HasFatalFailure()) return;
                }
}

/// The same result whether `add` is a tensor of its own or the output itself.
void expect_in_place(workbench &bench, problem p, std::uint64_t seed) {
    p.add = true;
    p.add_strides = p.what == pass::forward ? p.dst : p.src;
    bench.load(p, fill::integers, seed);
    bench.add_in_place();
    bench.run_reference();
    run_by_name(bench, affordable_isas(seed, 4), [&](isa set, std::string_view algorithm) {
        ASSERT_EQ(compare_integers(bench, algorithm), "") << to_string(set) << ' ' << algorithm;
    });
}

// Rows of planes shorter than a vector, at it and beyond: a store must not reach the next row's
// addend before that is read.
TEST(memory, add_in_place_of_small_planes) {
    workbench bench;
    std::uint64_t seed = 0;
    for (const pass what : {pass::forward, pass::backward_data})
        for (const data_type type : types)
            for (const dim multiplier : {1, 2})
                for (const dim width : {1, 3, 7, 8, 14, 15, 16, 17, 28, 33, 40})
                    for (const dim stride : {1, 2, 3}) {
                        problem p;
                        p.what = what;
                        p.type = p.out_type = type;
                        p.mb = 2;
                        p.groups = 18;
                        p.ic = 1;
                        p.oc = multiplier;
                        p.x[1] = make_axis(7, 3, stride, 1, 1, 1);
                        p.x[2] = make_axis(width, 3, stride, 1, 1, 1);
                        p.bias = p.relu = seed % 2 == 0;
                        set_layouts(p, data_layout::ncx, weights_layout::oix, data_layout::ncx);
                        expect_in_place(bench, p, ++seed);
                        if (HasFatalFailure()) return;
                    }
}

TEST(memory, add_in_place_of_random_problems) {
    workbench bench;
    const std::uint64_t cases = sampled<std::uint64_t>(2500, 8);
    for (std::uint64_t seed = 1; seed <= cases && !HasFatalFailure(); ++seed) {
        rng random(seed);
        problem p = random_problem(random, 2e4);
        if (p.what == pass::backward_weights) continue;
        expect_in_place(bench, p, seed);
    }
}

}  // namespace
}  // namespace convgrad::test
