// Depthwise layers of any kernel on a GPU: one to three axes, strides, dilation, multipliers.
#include <map>

#include <convgrad/error.hpp>

#include "cuda/machine.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

constexpr std::string_view name = "cuda.sliding";
constexpr pass all_passes[] = {pass::forward, pass::backward_data, pass::backward_weights};

/// An axis of a random kernel: short, long or longer than the input.
conv::axis random_axis(rng &random) {
    const dim kernel = random.pick<dim>({1, 2, 3, 4, 5, 7, 8, 9, 11, 17, 31});
    const dim stride = random.pick<dim>({1, 1, 1, 2, 2, 3, 4}),
              dilation = random.pick<dim>({1, 1, 1, 2, 3, 4});
    const dim pad =
        random.chance(0.7) ? (kernel - 1) * dilation / 2 : random.between(0, kernel * dilation + 2);
    const dim least = (kernel - 1) * dilation + 1 - 2 * pad;
    return make_axis(std::max<dim>(least, random.pick<dim>({1, 5, 8, 14, 17, 33, 40})), kernel,
        stride, dilation, pad, pad);
}

template <typename Body>
void for_each_layer(rng &random, int rounds, Body &&body) {
    for (const pass what : all_passes)
        for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
            for (const data_layout layout : all_data_layouts)
                for (int round = 0; round < rounds; ++round) {
                    problem p;
                    p.what = what;
                    p.type = p.out_type = type;
                    p.mb = random.pick<dim>({1, 2, 3});
                    p.groups = random.pick<dim>({1, 2, 5, 33, 64});
                    p.ic = 1;
                    p.oc = random.pick<dim>({1, 1, 1, 2, 3});
                    const int axes = static_cast<int>(random.between(1, 3));
                    for (int d = 3 - axes; d < 3; ++d)
                        p.x[static_cast<std::size_t>(d)] = random_axis(random);
                    // Three long axes are more than a reference has time for.
                    if (axes == 3) p.x[0] = make_axis(3, 2, 1, 1, 1, 0);
                    if (conv::macs(p) > 3e7) p.groups = 2;
                    set_random_extras(random, p);
                    set_layouts(p, layout,
                        random.pick(
                            {weights_layout::oix, weights_layout::xio, weights_layout::gaps}),
                        random.chance(0.8) ? layout : data_layout::ncx);
                    body(p);
                }
}

TEST(cuda_sliding, integers_are_exact) {
    CONVGRAD_NEEDS_GPU();
    rng random(17);
    workbench bench;
    gpu_bench gpu;
    std::uint64_t seed = 0;
    for_each_layer(random, 30, [&](const problem &p) {
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
    for_each_layer(random, 10, [&](const problem &p) {
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
    for_each_layer(random, 8, [&](const problem &p) {
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
