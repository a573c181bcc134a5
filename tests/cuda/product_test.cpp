// Products on tensor cores: layers of networks in small, every pass, type, layout and math mode,
// with the algorithms by name.
#include <cmath>

#include <convgrad/error.hpp>

#include "cuda/bulk.hpp"
#include "cuda/machine.hpp"
#include "cuda/products.hpp"

namespace convgrad::test {
namespace {

using namespace products;
using conv::pass;
using conv::problem;
using cuda::kernel;

constexpr std::string_view algorithms[] = {"cuda.halo", "cuda.bulk", "cuda.wgmma", "cuda.dense",
    "cuda.fold", "cuda.columns", "cuda.pointwise"};

/// Runs an algorithm; false if it does not take the problem.
bool runs(gpu_bench &gpu, workbench &bench, std::string_view algorithm) {
    try {
        EXPECT_EQ(gpu.run(bench, algorithm), algorithm);
    } catch (const error &e) {
        EXPECT_EQ(e.code(), error_code::unsupported) << e.what();
        return false;
    }
    return true;
}

TEST(cuda_products, integers_are_exact) {
    CONVGRAD_NEEDS_GPU();
    rng random(17);
    workbench bench;
    gpu_bench gpu;
    std::uint64_t seed = 0, ran[std::size(algorithms)] = {};
    for_each(random, [&](const problem &p) {
        if (testing::Test::HasFailure()) return;
        bench.load(p, fill::integers, ++seed);
        bench.run_reference();
        for (std::size_t i = 0; i < std::size(algorithms); ++i) {
            if (!runs(gpu, bench, algorithms[i])) continue;
            ++ran[i];
            ASSERT_EQ(bench.compare_exact(), "") << algorithms[i];
        }
    });
    if (gpu.device().arch.warpgroups) {
        EXPECT_GT(ran[0], seed / 14);
        EXPECT_GT(ran[1], seed / 5);
        EXPECT_GT(ran[2], seed / 2);
        EXPECT_GT(ran[4], seed / 12);
        EXPECT_GT(ran[6], seed / 40);
    }
    EXPECT_GT(ran[3], seed / 2);
    EXPECT_GT(ran[5], seed / 7);
}

/// 16-bit layers in small, and of one tap some with more channels than stay in shared memory.
template <typename Body>
void for_each_of_16_bits(rng &random, Body &&body) {
    for_each(random, [&](const problem &p) {
        if (p.type != data_type::f32) body(p);
    });
    for (const pass what : all_passes)
        for (const data_type type : {data_type::bf16, data_type::f16})
            for (const weights_layout layout : {weights_layout::oix, weights_layout::xio}) {
                problem p = sized(what, type, 3, 1, 264, 328);
                for (std::size_t d = 1; d < 3; ++d) p.x[d] = make_axis(8, 1, 1, 1, 0, 0);
                set_layouts(p, data_layout::ncx, layout, data_layout::ncx);
                body(p);
            }
}

// Plans have large tiles for large layers only: here every tile computes layers that a reference
// has time for.
TEST(cuda_products, every_tile_is_exact) {
    CONVGRAD_NEEDS_GPU();
    gpu_bench gpu;
    if (!gpu.arch().warpgroups) GTEST_SKIP() << "no products of warpgroups here";
    rng random(20);
    workbench bench;
    std::uint64_t seed = 0;
    for_each_of_16_bits(random, [&](const problem &p) {
        if (testing::Test::HasFailure()) return;
        bench.load(p, fill::integers, ++seed);
        bench.run_reference();
        for (const cuda::bulk_tile_size &tile : cuda::bulk_tile_sizes) {
            const only_tile limit(tile.index);
            for (const std::string_view algorithm : {"cuda.bulk", "cuda.pointwise"})
                if (runs(gpu, bench, algorithm)) {
                    ASSERT_EQ(bench.compare_exact(), "") << algorithm << ' ' << gpu.description();
                }
        }
    });
    for (const kernel first : {kernel::bulk_data_256x64_bf16, kernel::bulk_turned_256x64_bf16,
             kernel::bulk_weights_256x64_bf16, kernel::pointwise_data_256x64_bf16,
             kernel::pointwise_turned_256x64_bf16, kernel::pointwise_weights_256x64_bf16})
        for (const cuda::bulk_tile_size &tile : cuda::bulk_tile_sizes)
            for (const data_type type : {data_type::bf16, data_type::f16}) {
                const kernel which = cuda::bulk_kernel(first, tile, type);
                EXPECT_GT(launches_of(which), 0U) << cuda::name_of(which);
            }
}

TEST(cuda_products, reals_within_bound_and_the_same_bits_on_any_grid) {
    CONVGRAD_NEEDS_GPU();
    rng random(18);
    workbench bench;
    gpu_bench gpu;
    std::uint64_t seed = 0;
    for_each(random, [&](const problem &p) {
        if (testing::Test::HasFailure()) return;
        bench.load(p, fill::reals, ++seed);
        bench.run_reference();
        // TF32 rounds each operand to 11 bits.
        leniency allowed;
        if (p.math == math_mode::fast && p.type == data_type::f32)
            allowed.product_error = 1.01 * 0x1p-10;
        for (const std::string_view algorithm : algorithms) {
            if (!runs(gpu, bench, algorithm)) continue;
            ASSERT_EQ(bench.compare_bounded(allowed), "") << algorithm;
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

TEST(cuda_products, special_values_between_planes_as_in_the_reference) {
    CONVGRAD_NEEDS_GPU();
    rng random(19);
    workbench bench;
    gpu_bench gpu;
    std::uint64_t seed = 0, ran = 0;
    for_each(random, [&](const problem &p) {
        if (testing::Test::HasFailure() || p.x[2].kernel != 1) return;
        bench.load(p, fill::integers, ++seed);
        plant_special_values(bench, random);
        bench.run_reference();
        if (!runs(gpu, bench, "cuda.pointwise")) return;
        ++ran;
        ASSERT_EQ(bench.compare_bounded(), "") << to_text(p);
    });
    if (gpu.device().arch.warpgroups) {
        EXPECT_GT(ran, 10);
    }
}

// Several parts, blocks and tiles of each kind.
TEST(cuda_products, layers_of_networks_are_exact) {
    CONVGRAD_NEEDS_GPU();
    workbench bench;
    gpu_bench gpu;
    std::uint64_t seed = 200;
    for (const layer &l : {layer{1, 64, 64, 28, 3, 1, 1, 1}, layer{32, 4, 4, 28, 3, 1, 1, 1},
             layer{1, 3, 64, 56, 7, 2, 3, 1}, layer{1, 256, 192, 14, 1, 1, 0, 1},
             layer{1, 72, 264, 28, 1, 1, 0, 1}, layer{1, 24, 144, 56, 1, 1, 0, 1},
             layer{1, 96, 320, 14, 3, 2, 1, 1}, layer{16, 8, 8, 14, 3, 1, 1, 1},
             layer{1, 136, 128, 7, 3, 1, 1, 1}, layer{1, 3, 32, 113, 3, 2, 1, 1},
             layer{1, 3, 96, 56, 4, 4, 0, 1}, layer{1, 3, 64, 70, 11, 4, 2, 1}})
        for (const pass what : all_passes)
            for (const data_type type : {data_type::f32, data_type::bf16})
                for (const data_layout layout : {data_layout::nxc, data_layout::ncx}) {
                    problem p;
                    p.what = what;
                    p.type = type;
                    p.out_type = data_type::f32;
                    if (what != pass::backward_weights) p.out_type = type;
                    p.mb = 4;
                    p.groups = l.groups;
                    p.ic = l.ic;
                    p.oc = l.oc;
                    for (std::size_t d = 1; d < 3; ++d)
                        p.x[d] = make_axis(l.size, l.kernel, l.stride, 1, l.pad, l.pad);
                    set_layouts(p, layout, weights_layout::oix, layout);
                    bench.load(p, fill::integers, ++seed);
                    bench.run_reference();
                    gpu.run(bench);
                    ASSERT_EQ(bench.compare_exact(), "");
                    // Many tiles of each block.
                    cuda::limit_grids_for_testing(3);
                    gpu.run(bench);
                    cuda::limit_grids_for_testing(0);
                    ASSERT_EQ(bench.compare_exact(), "");
                }
}

}  // namespace
}  // namespace convgrad::test
