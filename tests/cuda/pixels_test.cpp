// First layers on a GPU: every channel count, kernel, stride and layout, exact on integers.
#include <map>

#include <convgrad/error.hpp>

#include "cuda/machine.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

constexpr pass both_passes[] = {pass::forward, pass::backward_weights};
constexpr data_type all_types[] = {data_type::f32, data_type::bf16, data_type::f16};

std::string_view algorithm_of(const problem &p) {
    return p.type == data_type::f32 ? "cuda.pixels_f32" : "cuda.pixels";
}

/// Calls body for layers of every kind, with sizes around boxes, tiles and pieces.
template <typename Body>
void for_each_layer(rng &random, Body &&body) {
    for (const pass what : both_passes)
        for (const data_type type : all_types)
            for (const data_layout layout : all_data_layouts)
                for (const dim channels : {1, 2, 3, 4})
                    for (int round = 0; round < 2; ++round) {
                        problem p;
                        p.what = what;
                        p.type = type;
                        p.mb = random.pick<dim>({1, 2, 3});
                        p.ic = channels;
                        p.oc = random.pick<dim>({1, 7, 8, 16, 24, 32, 33, 40, 64, 72, 96, 104});
                        for (std::size_t d = 1; d < 3; ++d) {
                            const dim kernel = random.pick<dim>({1, 2, 3, 3, 4, 5, 7, 7, 9, 11});
                            p.x[d] = make_axis(
                                random.pick<dim>({1, 2, 7, 8, 13, 16, 24, 29, 32, 40}), kernel,
                                random.pick<dim>({1, 1, 2, 2, 3, 4, 5}), 1,
                                random.pick<dim>({0, kernel / 2, kernel - 1, kernel, kernel + 2}),
                                random.pick<dim>({kernel - 1, kernel, kernel + 2}));
                        }
                        // What networks have.
                        if (random.chance(0.4)) {
                            const dim kernel = random.pick<dim>({3, 4, 7});
                            const dim stride = kernel == 4 ? 4 : random.between(1, 2);
                            for (std::size_t d = 1; d < 3; ++d)
                                p.x[d] = make_axis(random.pick<dim>({16, 32, 48}), kernel, stride,
                                    1, stride == 4 ? 0 : kernel / 2, stride == 4 ? 0 : kernel / 2);
                        }
                        set_random_extras(random, p);
                        set_layouts(p, layout,
                            random.pick(
                                {weights_layout::oix, weights_layout::xio, weights_layout::gaps}),
                            random.chance(0.7) ? layout
                                               : random.pick({data_layout::ncx, data_layout::nxc}));
                        body(p);
                    }
}

TEST(cuda_pixels, integers_are_exact) {
    CONVGRAD_NEEDS_GPU();
    rng random(21);
    workbench bench;
    gpu_bench gpu;
    std::uint64_t seed = 0;
    for_each_layer(random, [&](const problem &p) {
        if (testing::Test::HasFailure()) return;
        bench.load(p, fill::integers, ++seed);
        bench.run_reference();
        ASSERT_EQ(gpu.run(bench, algorithm_of(p)), algorithm_of(p));
        ASSERT_EQ(bench.compare_exact(), "") << gpu.description() << ' ' << to_text(p);
    });
    EXPECT_EQ(seed, 240U);
}

TEST(cuda_pixels, reals_within_bound_and_the_same_bits_on_any_grid) {
    CONVGRAD_NEEDS_GPU();
    rng random(22);
    workbench bench;
    gpu_bench gpu;
    std::uint64_t seed = 0;
    for_each_layer(random, [&](const problem &p) {
        if (testing::Test::HasFailure()) return;
        bench.load(p, fill::reals, ++seed);
        bench.run_reference();
        gpu.run(bench, algorithm_of(p));
        ASSERT_EQ(bench.compare_bounded(), "") << gpu.description() << ' ' << to_text(p);
        const auto expected = bench.output_bytes();
        cuda::limit_grids_for_testing(3);
        gpu.run(bench, algorithm_of(p));
        cuda::limit_grids_for_testing(0);
        ASSERT_EQ(bench.output_bytes(), expected) << to_text(p);
        // Neither does where tensors lie.
        gpu.misalign(true);
        gpu.run(bench, algorithm_of(p));
        gpu.misalign(false);
        ASSERT_EQ(bench.output_bytes(), expected) << "misaligned " << to_text(p);
    });
}

// Zeros of padding, of missing channels and taps, and of positions that only fill a tile meet
// infinities: nothing of it shows.
TEST(cuda_pixels, special_values_as_in_the_reference) {
    CONVGRAD_NEEDS_GPU();
    rng random(23);
    workbench bench;
    gpu_bench gpu;
    std::uint64_t seed = 0;
    for_each_layer(random, [&](const problem &p) {
        if (testing::Test::HasFailure()) return;
        bench.load(p, fill::integers, ++seed);
        plant_special_values(bench, random);
        bench.run_reference();
        gpu.run(bench, algorithm_of(p));
        ASSERT_EQ(bench.compare_bounded(), "") << gpu.description() << ' ' << to_text(p);
    });
}

// Layers as networks have them: many boxes and parts, strips of wide images.
TEST(cuda_pixels, layers_of_networks_are_exact) {
    CONVGRAD_NEEDS_GPU();
    struct shape {
        dim rows, columns, kernel, stride, pad, oc;
    };
    constexpr shape shapes[] = {{64, 64, 7, 2, 3, 64}, {56, 56, 4, 4, 0, 96}, {64, 64, 3, 2, 1, 32},
        {40, 56, 3, 1, 1, 64}, {63, 63, 11, 4, 2, 64}, {12, 700, 7, 2, 3, 40},
        {9, 1100, 12, 1, 5, 33}, {33, 40, 12, 12, 0, 128}};
    workbench bench;
    gpu_bench gpu;
    std::uint64_t seed = 100;
    for (const pass what : both_passes)
        for (const data_layout layout : {data_layout::nxc, data_layout::ncx})
            for (const data_type type : {data_type::f32, data_type::bf16})
                for (const shape &s : shapes) {
                    problem p;
                    p.what = what;
                    p.type = p.out_type = type;
                    p.mb = 2;
                    p.ic = 3;
                    p.oc = s.oc;
                    p.x[1] = make_axis(s.rows, s.kernel, s.stride, 1, s.pad, s.pad);
                    p.x[2] = make_axis(s.columns, s.kernel, s.stride, 1, s.pad, s.pad);
                    set_layouts(p, layout, weights_layout::oix, layout);
                    bench.load(p, fill::integers, ++seed);
                    bench.run_reference();
                    EXPECT_EQ(gpu.run(bench, algorithm_of(p)), algorithm_of(p));
                    ASSERT_EQ(bench.compare_exact(), "") << gpu.description() << to_text(p);
                }
}

// A leaner plan adds fewer parts.
TEST(cuda_pixels, a_workspace_limit_is_kept) {
    CONVGRAD_NEEDS_GPU();
    workbench bench;
    gpu_bench gpu;
    for (const data_type type : {data_type::f32, data_type::bf16}) {
        problem p;
        p.what = pass::backward_weights;
        p.type = p.out_type = type;
        p.mb = 3;
        p.ic = 3;
        p.oc = 40;
        for (std::size_t d = 1; d < 3; ++d) p.x[d] = make_axis(24, 5, 2, 1, 2, 2);
        set_layouts(p, data_layout::nxc, weights_layout::oix, data_layout::nxc);
        bench.load(p, fill::integers, 5);
        bench.run_reference();
        const std::size_t part = 40 * 75 * sizeof(float);
        gpu.run(bench, algorithm_of(p), 3 * part);
        EXPECT_EQ(bench.compare_exact(), "");
        EXPECT_THROW(gpu.run(bench, algorithm_of(p), part / 2), error);
    }
}

}  // namespace
}  // namespace convgrad::test
