// Random problems on a GPU, by every algorithm that takes them: exact on integers, within the
// derived bound on real data, the same bits on every run and on any grid.
#include <cmath>

#include <convgrad/error.hpp>

#include "cuda/machine.hpp"
#include "support/random_check.hpp"

namespace convgrad::test {
namespace {

using conv::problem;

/// Runs a loaded problem by free choice and by each algorithm. Ends at the first failure.
template <typename Check>
void run_all(gpu_bench &gpu, workbench &bench, Check &&check) {
    const std::string chosen = gpu.run(bench);
    if (!check(chosen)) return;
    for (const std::string_view algorithm : cuda::algorithm_names()) {
        if (algorithm == chosen) continue;
        std::string ran;
        try {
            ran = gpu.run(bench, algorithm);
        } catch (const error &e) {
            ASSERT_EQ(e.code(), error_code::unsupported) << e.what();
            continue;
        }
        ASSERT_EQ(ran, algorithm);
        if (!check(ran)) return;
    }
}

void check_random(fill how, std::uint64_t first, std::uint64_t count, double max_macs) {
    CONVGRAD_NEEDS_GPU();
    workbench bench;
    gpu_bench gpu;
    const seeds all{first, count, sample_step()};
    for_random_problems(bench, all, how, max_macs, [&](std::uint64_t seed) {
        run_all(gpu, bench, [&](const std::string &algorithm) {
            const std::string difference =
                how == fill::integers ? bench.compare_exact() : bench.compare_bounded();
            EXPECT_EQ(difference, "") << algorithm << " seed " << seed;
            return difference.empty();
        });
    });
}

TEST(cuda_random, small_integers_are_exact) {
    check_random(fill::integers, 1, 3000, 2e4);
}
TEST(cuda_random, integers_are_exact) {
    check_random(fill::integers, 10001, 600, 5e5);
}
TEST(cuda_random, large_integers_are_exact) {
    check_random(fill::integers, 20001, 60, 1e7);
}
TEST(cuda_random, small_reals_within_bound) {
    check_random(fill::reals, 30001, 2000, 2e4);
}
TEST(cuda_random, reals_within_bound) {
    check_random(fill::reals, 40001, 400, 5e5);
}
TEST(cuda_random, large_reals_within_bound) {
    check_random(fill::reals, 50001, 40, 1e7);
}

// Real data, so that another order of summation would show.
TEST(cuda_random, same_bits_on_every_run_and_any_grid) {
    CONVGRAD_NEEDS_GPU();
    workbench bench;
    gpu_bench gpu;
    for (std::uint64_t seed = 60001; seed < 60151; ++seed) {
        rng random(seed);
        bench.load(random_problem(random, 1e6), fill::reals, seed);
        for (const std::string_view algorithm : cuda::algorithm_names()) {
            try {
                gpu.run(bench, algorithm);
            } catch (const error &) {
                continue;
            }
            const auto expected = bench.output_bytes();
            for (const unsigned blocks : {0U, 1U, 7U, 64U}) {
                cuda::limit_grids_for_testing(blocks);
                gpu.run(bench, algorithm);
                ASSERT_EQ(bench.output_bytes(), expected)
                    << algorithm << ", grid " << blocks << ": " << to_text(bench.problem());
            }
            cuda::limit_grids_for_testing(0);
        }
    }
}

// Special values go where the reference sends them: NaN and infinities, wherever they are.
TEST(cuda_random, special_values_as_in_the_reference) {
    CONVGRAD_NEEDS_GPU();
    workbench bench;
    gpu_bench gpu;
    for (std::uint64_t seed = 70001; seed < 70301; ++seed) {
        rng random(seed);
        const problem p = random_problem(random, 2e4);
        bench.load(p, fill::integers, seed);
        plant_special_values(bench, random);
        bench.run_reference();
        run_all(gpu, bench, [&](const std::string &algorithm) {
            const std::string difference = bench.compare_bounded();
            EXPECT_EQ(difference, "") << algorithm << " seed " << seed;
            return difference.empty();
        });
        if (testing::Test::HasFailure()) return;
    }
}

TEST(cuda_random, workspace_limits_are_kept_or_named) {
    CONVGRAD_NEEDS_GPU();
    workbench bench;
    gpu_bench gpu;
    for (std::uint64_t seed = 80001; seed < 80201; ++seed) {
        rng random(seed);
        const problem p = random_problem(random, 3e5);
        bench.load(p, fill::integers, seed);
        bench.run_reference();
        const std::size_t needed = cuda::make_plan(p, gpu.device().arch, {})->workspace();
        for (const std::size_t limit : {needed / 2, needed / 8, std::size_t{0}}) {
            try {
                gpu.run(bench, {}, limit);
            } catch (const error &e) {
                ASSERT_EQ(e.code(), error_code::out_of_memory) << e.what();
                continue;
            }
            ASSERT_EQ(bench.compare_exact(), "") << limit << " of " << needed << " bytes";
        }
    }
}

}  // namespace
}  // namespace convgrad::test
