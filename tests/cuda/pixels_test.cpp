// First layers on a GPU: every channel count, kernel, stride and layout, exact on integers.
#include <map>

#include <convgrad/error.hpp>

#include "cuda/families.hpp"
#include "cuda/machine.hpp"

namespace convgrad::test {
namespace {

using namespace families;

std::string_view algorithm_of(const problem &p) {
    return p.type == data_type::f32 ? "cuda.pixels_f32" : "cuda.pixels";
}

TEST(cuda_pixels, integers_are_exact) {
    CONVGRAD_NEEDS_GPU();
    rng random(21);
    workbench bench;
    gpu_bench gpu;
    std::uint64_t seed = 0;
    for_each_first(random, [&](const problem &p) {
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
    for_each_first(random, [&](const problem &p) {
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
    for_each_first(random, [&](const problem &p) {
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
    for (const pass what : first_passes)
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
