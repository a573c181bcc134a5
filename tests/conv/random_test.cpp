// Random problems on every instruction set and every algorithm, between guard pages: exact on
// integers, within the derived bound on real data, the same bits for any number of threads.
#include <cmath>

#include <gtest/gtest.h>

#include <convgrad/error.hpp>

#include "support/pools.hpp"
#include "support/random_check.hpp"
#include "support/sanitizers.hpp"
#include "support/winograd_bound.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

/// Runs a loaded problem everywhere that it can run: by free choice, and by each algorithm that has
/// kernels of its own for the instruction set. Ends at the first failure.
template <typename Check>
void run_everywhere(workbench &bench, std::span<const isa> sets, Check &&check) {
    for (const isa set : sets) {
        const run_report chosen = bench.run({.max_isa = set});
        if (!check(set, chosen.algorithm)) return;
        for (const std::string_view algorithm : cpu::algorithm_names()) {
            if (algorithm == chosen.algorithm) continue;
            try {
                const auto plan =
                    cpu::make_plan(bench.problem(), {.max_isa = set, .only_algorithm = algorithm});
                if (plan->instruction_set() != set) continue;  // had its turn with a weaker one
            } catch (const error &e) {
                ASSERT_EQ(e.code(), error_code::unsupported) << e.what();
                continue;
            }
            bench.run({.max_isa = set, .algorithm = algorithm});
            if (!check(set, algorithm)) return;
        }
    }
}

void check_random(fill how, std::uint64_t first, std::uint64_t count, double max_macs) {
    workbench bench;
    const seeds all{first, sampled<std::uint64_t>(count, 8)};
    for_random_problems(bench, all, how, max_macs, [&](std::uint64_t seed) {
        run_everywhere(bench, affordable_isas(seed, 4), [&](isa set, std::string_view algorithm) {
            const std::string difference =
                how == fill::integers ? compare_integers(bench, algorithm)
                                      : bench.compare_bounded(leniency_of(bench, algorithm));
            EXPECT_EQ(difference, "") << to_string(set) << ' ' << algorithm << " seed " << seed;
            return difference.empty();
        });
    });
}

TEST(random_problems, small_integers_are_exact) {
    check_random(fill::integers, 1, 6000, 2e4);
}
TEST(random_problems, integers_are_exact) {
    check_random(fill::integers, 10001, 800, 5e5);
}
TEST(random_problems, large_integers_are_exact) {
    check_random(fill::integers, 20001, 60, 1e7);
}
TEST(random_problems, small_reals_within_bound) {
    check_random(fill::reals, 30001, 4000, 2e4);
}
TEST(random_problems, reals_within_bound) {
    check_random(fill::reals, 40001, 600, 5e5);
}
TEST(random_problems, large_reals_within_bound) {
    check_random(fill::reals, 50001, 40, 1e7);
}

// Real data, so that another order of summation would show.
void check_threads(std::uint64_t first, std::uint64_t count, double max_macs) {
    workbench bench;
    reversing_pool reversing;
    spawning_pool spawning;
    const std::uint64_t end = first + sampled<std::uint64_t>(count, 8);
    for (std::uint64_t seed = first; seed < end; ++seed) {
        rng random(seed);
        const problem p = random_problem(random, max_macs);
        bench.load(p, fill::reals, seed);
        for (const isa set : affordable_isas(seed, 4)) {
            bench.run({.max_isa = set, .threads = 1});
            const auto once = bench.output_bytes();
            bench.run({.max_isa = set, .threads = 1});
            ASSERT_EQ(bench.output_bytes(), once) << "second run, " << to_text(p);
            for (const int threads : {2, 3, 5, 16})
                for (thread_pool *pool :
                    {static_cast<thread_pool *>(nullptr), static_cast<thread_pool *>(&reversing),
                        static_cast<thread_pool *>(&spawning)}) {
                    bench.run({.max_isa = set, .threads = threads, .pool = pool});
                    ASSERT_EQ(bench.output_bytes(), once)
                        << threads << " threads, " << to_string(set) << ", " << to_text(p);
                }
        }
    }
}

/// So small that products of two underflow.
void make_tiny(workbench &bench) {
    const problem &p = bench.problem();
    for (const role r : all_roles) {
        if (r == output_of(p) || r == role::bias || span_of(p, r) == 0) continue;
        for_each_element(extents_of(p, r), [&](const auto &, dim offset) {
            bench.write(r, offset, std::ldexp(bench.read(r, offset), offset % 2 == 0 ? -70 : -80));
        });
    }
}

// A sum of products that underflow may be -0. Whether padding adds 0 to it must not depend on where
// tiles lie.
TEST(random_problems, small_same_bits_where_products_underflow) {
    workbench bench;
    const std::uint64_t first = 90001, end = first + sampled<std::uint64_t>(6000, 8);
    for (std::uint64_t seed = first; seed < end; ++seed) {
        rng random(seed);
        problem p = random_problem(random, 2e4);
        if (p.type == data_type::f16) continue;
        p.bias = p.bias && p.what == pass::backward_weights;
        bench.load(p, fill::reals, seed);
        make_tiny(bench);
        run_everywhere(bench, affordable_isas(seed, 16), [&](isa set, std::string_view algorithm) {
            const auto once = bench.output_bytes();
            bench.run({.max_isa = set, .threads = 4, .algorithm = algorithm});
            EXPECT_EQ(bench.output_bytes(), once)
                << to_string(set) << ' ' << algorithm << ", " << to_text(p);
            return true;
        });
        if (testing::Test::HasFailure()) return;
    }
}

TEST(random_problems, small_same_bits_for_any_threads) {
    check_threads(60001, 200, 1e4);
}
TEST(random_problems, same_bits_for_any_threads) {
    check_threads(70001, 100, 1e6);
}
TEST(random_problems, large_same_bits_for_any_threads) {
    check_threads(80001, 10, 2e7);
}

}  // namespace
}  // namespace convgrad::test
