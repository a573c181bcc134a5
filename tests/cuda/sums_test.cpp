// Bias gradients on a GPU: every way in which a tensor may lie, in one part and in many.
#include <array>

#include "cuda/families.hpp"
#include "cuda/machine.hpp"

namespace convgrad::test {
namespace {

using namespace families;

TEST(cuda_sums, integers_are_exact) {
    CONVGRAD_NEEDS_GPU();
    workbench bench;
    gpu_bench gpu;
    std::uint64_t seed = 0;
    for_each_sum([&](const problem &p) {
        if (testing::Test::HasFailure()) return;
        bench.load(p, fill::integers, ++seed);
        bench.run_reference();
        gpu.run(bench);
        ASSERT_EQ(bench.compare_exact(), "") << to_text(p);
    });
}

TEST(cuda_sums, reals_within_bound_and_the_same_bits_wherever_they_lie) {
    CONVGRAD_NEEDS_GPU();
    workbench bench;
    gpu_bench gpu;
    std::uint64_t seed = 100;
    for_each_sum([&](const problem &p) {
        if (testing::Test::HasFailure()) return;
        bench.load(p, fill::reals, ++seed);
        bench.run_reference();
        const std::string algorithm = gpu.run(bench);
        ASSERT_EQ(bench.compare_bounded(), "") << to_text(p);
        const auto expected = bench.output_bytes();
        cuda::limit_grids_for_testing(3);
        gpu.run(bench, algorithm);
        cuda::limit_grids_for_testing(0);
        ASSERT_EQ(bench.output_bytes(), expected) << to_text(p);
        gpu.misalign(true);
        gpu.run(bench, algorithm);
        gpu.misalign(false);
        ASSERT_EQ(bench.output_bytes(), expected) << "misaligned " << to_text(p);
    });
}

// Parts of a weights gradient: few elements, a thread for each, and so many that a thread adds four
// neighbours, which lie together in the output or apart.
TEST(cuda_sums, parts_of_weights_are_exact_wherever_they_lie) {
    CONVGRAD_NEEDS_GPU();
    workbench bench;
    gpu_bench gpu;
    std::uint64_t seed = 200;
    for (const auto &[ic, oc, kernel] :
        {std::array<dim, 3>{17, 9, 3}, {96, 120, 2}, {512, 520, 1}, {181, 181, 3}, {36, 30, 16}})
        for (const data_type type : {data_type::f32, data_type::bf16})
            for (const weights_layout layout :
                {weights_layout::oix, weights_layout::xio, weights_layout::gaps})
                for (const bool accumulate : {false, true}) {
                    problem p;
                    p.what = pass::backward_weights;
                    p.type = p.out_type = type;
                    p.accumulate = accumulate;
                    p.mb = 3;
                    p.ic = ic;
                    p.oc = oc;
                    for (std::size_t d = 1; d < 3; ++d)
                        p.x[d] = make_axis(kernel + 4, kernel, 1, 1, 0, 0);
                    set_layouts(p, data_layout::nxc, layout, data_layout::nxc);
                    bench.load(p, fill::integers, ++seed);
                    bench.run_reference();
                    for (const bool apart : {false, true}) {
                        gpu.misalign(apart);
                        gpu.run(bench, "cuda.dense");
                        gpu.misalign(false);
                        ASSERT_EQ(bench.compare_exact(), "") << apart << ' ' << to_text(p);
                    }
                }
}

}  // namespace
}  // namespace convgrad::test
