// Depthwise layers on a GPU: every kernel, layout and pad, exact on integers.
#include <map>

#include <convgrad/error.hpp>

#include "cuda/families.hpp"
#include "cuda/machine.hpp"

namespace convgrad::test {
namespace {

using namespace families;

constexpr std::string_view algorithms[] = {
    "cuda.depthwise", "cuda.staged", "cuda.quads", "cuda.banded", "cuda.ring", "cuda.planes"};

TEST(cuda_depthwise, integers_are_exact) {
    CONVGRAD_NEEDS_GPU();
    rng random(7);
    workbench bench;
    gpu_bench gpu;
    std::uint64_t seed = 0;
    std::map<std::string_view, std::uint64_t> taken;
    for_each_depthwise(random, [&](const problem &p) {
        if (testing::Test::HasFailure()) return;
        bench.load(p, fill::integers, ++seed);
        bench.run_reference();
        for (const std::string_view algorithm : algorithms) {
            try {
                gpu.run(bench, algorithm);
            } catch (const error &e) {
                ASSERT_EQ(e.code(), error_code::unsupported) << e.what();
                continue;
            }
            ++taken[algorithm];
            ASSERT_EQ(bench.compare_exact(), "") << algorithm;
        }
    });
    EXPECT_GT(taken["cuda.depthwise"], seed * 3 / 4);
    EXPECT_GT(taken["cuda.staged"], seed / 20);
    EXPECT_GT(taken["cuda.quads"], seed / 200);
    EXPECT_GT(taken["cuda.ring"], seed / 40);
    if (gpu.device().arch.major >= 9) {
        EXPECT_GT(taken["cuda.banded"], seed / 60);
    }
}

TEST(cuda_depthwise, reals_within_bound_and_the_same_bits_on_any_grid) {
    CONVGRAD_NEEDS_GPU();
    rng random(8);
    workbench bench;
    gpu_bench gpu;
    std::uint64_t seed = 0;
    for_each_depthwise(random, [&](const problem &p) {
        if (testing::Test::HasFailure()) return;
        bench.load(p, fill::reals, ++seed);
        bench.run_reference();
        for (const std::string_view algorithm : algorithms) {
            try {
                gpu.run(bench, algorithm);
            } catch (const error &) {
                continue;
            }
            ASSERT_EQ(bench.compare_bounded(), "") << algorithm;
            const auto expected = bench.output_bytes();
            cuda::limit_grids_for_testing(3);
            gpu.run(bench, algorithm);
            cuda::limit_grids_for_testing(0);
            ASSERT_EQ(bench.output_bytes(), expected) << algorithm << ' ' << to_text(p);
            // Neither does where tensors lie.
            gpu.misalign(true);
            gpu.run(bench, algorithm);
            gpu.misalign(false);
            ASSERT_EQ(bench.output_bytes(), expected) << algorithm << " misaligned " << to_text(p);
        }
    });
}

TEST(cuda_depthwise, planes_are_exact_with_the_same_bits_on_any_grid) {
    CONVGRAD_NEEDS_GPU();
    rng random(10);
    workbench bench;
    gpu_bench gpu;
    std::uint64_t seed = 0;
    constexpr std::string_view algorithm = "cuda.planes";
    for_each_plane(random, [&](const problem &p) {
        if (testing::Test::HasFailure()) return;
        bench.load(p, fill::integers, ++seed);
        bench.run_reference();
        ASSERT_EQ(gpu.run(bench, algorithm), algorithm);
        ASSERT_EQ(bench.compare_exact(), "");
        bench.load(p, fill::reals, seed);
        bench.run_reference();
        gpu.run(bench, algorithm);
        ASSERT_EQ(bench.compare_bounded(), "");
        const auto expected = bench.output_bytes();
        cuda::limit_grids_for_testing(3);
        gpu.run(bench, algorithm);
        cuda::limit_grids_for_testing(0);
        ASSERT_EQ(bench.output_bytes(), expected) << to_text(p);
        gpu.misalign(true);
        gpu.run(bench, algorithm);
        gpu.misalign(false);
        ASSERT_EQ(bench.output_bytes(), expected) << "misaligned " << to_text(p);
        bench.load(p, fill::integers, seed);
        plant_special_values(bench, random);
        bench.run_reference();
        gpu.run(bench, algorithm);
        ASSERT_EQ(bench.compare_bounded(), "") << to_text(p);
    });
}

// Zeros of a band, of padding and of rows that only fill a tile meet infinities: nothing of it
// shows.
TEST(cuda_depthwise, special_values_as_in_the_reference) {
    CONVGRAD_NEEDS_GPU();
    rng random(9);
    workbench bench;
    gpu_bench gpu;
    std::uint64_t seed = 0;
    for_each_depthwise(random, [&](const problem &p) {
        if (testing::Test::HasFailure() || p.mb * p.groups > 100) return;
        bench.load(p, fill::integers, ++seed);
        plant_special_values(bench, random);
        bench.run_reference();
        for (const std::string_view algorithm : algorithms) {
            try {
                gpu.run(bench, algorithm);
            } catch (const error &) {
                continue;
            }
            ASSERT_EQ(bench.compare_bounded(), "") << algorithm << ' ' << to_text(p);
        }
    });
}

// Layers as networks have them: many strips, segments and parts.
TEST(cuda_depthwise, layers_of_networks_are_exact) {
    CONVGRAD_NEEDS_GPU();
    workbench bench;
    gpu_bench gpu;
    std::uint64_t seed = 100;
    for (const pass what : all_passes)
        for (const data_layout layout : {data_layout::nxc, data_layout::ncx})
            for (const dim kernel : {3, 5, 7})
                for (const dim stride : {1, 2})
                    for (const data_type type : {data_type::f32, data_type::bf16})
                        for (const dim size : {7, 14, 56}) {
                            problem p;
                            p.what = what;
                            p.type = p.out_type = type;
                            p.mb = 5;
                            p.groups = 40;
                            p.ic = p.oc = 1;
                            for (std::size_t d = 1; d < 3; ++d)
                                p.x[d] = make_axis(size, kernel, stride, 1, kernel / 2, kernel / 2);
                            set_layouts(p, layout, weights_layout::oix, layout);
                            bench.load(p, fill::integers, ++seed);
                            bench.run_reference();
                            const bool banded = type == data_type::bf16 && stride == 1
                                                && gpu.device().arch.major >= 9;
                            const bool quads = kernel == 3 && layout == data_layout::nxc
                                               && (what == pass::forward
                                                   || (what == pass::backward_data && stride == 1));
                            const bool ring =
                                layout == data_layout::nxc
                                && (kernel == 5
                                    || (kernel == 3 && (stride == 1 || what != pass::forward))
                                    || (kernel == 7 && stride == 1 && type == data_type::f32));
                            const bool planes = layout == data_layout::ncx && stride == 1;
                            for (const std::string_view algorithm :
                                {"cuda.staged", banded ? "cuda.banded" : "cuda.staged",
                                    quads ? "cuda.quads" : "cuda.staged",
                                    ring ? "cuda.ring" : "cuda.staged",
                                    planes ? "cuda.planes" : "cuda.staged"}) {
                                EXPECT_EQ(gpu.run(bench, algorithm), algorithm);
                                ASSERT_EQ(bench.compare_exact(), "") << algorithm;
                            }
                        }
}

// A thread takes several images where there are many, the last of which may not be there.
TEST(cuda_depthwise, many_images_are_exact) {
    CONVGRAD_NEEDS_GPU();
    workbench bench;
    gpu_bench gpu;
    std::uint64_t seed = 0;
    for (const pass what : all_passes)
        for (const dim kernel : {3, 5}) {
            problem p;
            p.what = what;
            p.type = p.out_type = data_type::f32;
            p.mb = 8203;
            p.groups = 33;
            p.ic = p.oc = 1;
            for (std::size_t d = 1; d < 3; ++d)
                p.x[d] = make_axis(2, kernel, 1, 1, kernel / 2, kernel / 2);
            set_layouts(p, data_layout::nxc, weights_layout::oix, data_layout::nxc);
            bench.load(p, fill::integers, ++seed);
            bench.run_reference();
            EXPECT_EQ(gpu.run(bench, "cuda.ring"), "cuda.ring");
            ASSERT_EQ(bench.compare_exact(), "") << kernel;
        }
}

}  // namespace
}  // namespace convgrad::test
