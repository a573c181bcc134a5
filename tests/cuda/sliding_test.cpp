// Depthwise layers of any kernel on a GPU: one to three axes, strides, dilation, multipliers.
#include <map>

#include <convgrad/error.hpp>

#include "cuda/families.hpp"
#include "cuda/machine.hpp"

namespace convgrad::test {
namespace {

using namespace families;

constexpr std::string_view name = "cuda.sliding";

TEST(cuda_sliding, integers_are_exact) {
    CONVGRAD_NEEDS_GPU();
    rng random(17);
    workbench bench;
    gpu_bench gpu;
    std::uint64_t seed = 0;
    for_each_sliding(random, 30, [&](const problem &p) {
        if (testing::Test::HasFailure()) return;
        bench.load(p, fill::integers, ++seed);
        bench.run_reference();
        EXPECT_EQ(gpu.run(bench, name), name);
        ASSERT_EQ(bench.compare_exact(), "") << to_text(p);
    });
}

TEST(cuda_sliding, reals_within_bound_and_the_same_bits_on_any_grid) {
    CONVGRAD_NEEDS_GPU();
    rng random(18);
    workbench bench;
    gpu_bench gpu;
    std::uint64_t seed = 0;
    for_each_sliding(random, 10, [&](const problem &p) {
        if (testing::Test::HasFailure()) return;
        bench.load(p, fill::reals, ++seed);
        bench.run_reference();
        gpu.run(bench, name);
        ASSERT_EQ(bench.compare_bounded(), "") << to_text(p);
        const auto expected = bench.output_bytes();
        cuda::limit_grids_for_testing(3);
        gpu.run(bench, name);
        cuda::limit_grids_for_testing(0);
        ASSERT_EQ(bench.output_bytes(), expected) << to_text(p);
        gpu.misalign(true);
        gpu.run(bench, name);
        gpu.misalign(false);
        ASSERT_EQ(bench.output_bytes(), expected) << "misaligned " << to_text(p);
    });
}

TEST(cuda_sliding, special_values_as_in_the_reference) {
    CONVGRAD_NEEDS_GPU();
    rng random(19);
    workbench bench;
    gpu_bench gpu;
    std::uint64_t seed = 0;
    for_each_sliding(random, 8, [&](const problem &p) {
        if (testing::Test::HasFailure()) return;
        bench.load(p, fill::integers, ++seed);
        plant_special_values(bench, random);
        bench.run_reference();
        gpu.run(bench, name);
        ASSERT_EQ(bench.compare_bounded(), "") << to_text(p);
    });
}

}  // namespace
}  // namespace convgrad::test
