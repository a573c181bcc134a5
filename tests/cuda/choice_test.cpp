// Choice and description of plans, for devices given as data: no GPU is needed.
#include <gtest/gtest.h>

#include <convgrad/error.hpp>

#include "cuda/plan.hpp"
#include "cuda/products.hpp"
#include "support/problems.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;
using cuda::architecture;

const architecture hopper = cuda::architecture_of(9, 0), ampere = cuda::architecture_of(8, 0),
                   small = cuda::architecture_of(8, 9);
/// The same with cuDNN, which is on no device here: plans by it are chosen and described.
const architecture with_cudnn = [] {
    architecture made = cuda::architecture_of(9, 0);
    made.cudnn = true;
    return made;
}();

problem layer(pass what, dim groups, dim ic, dim oc, dim size, dim kernel, dim stride = 1,
    data_layout layout = data_layout::nxc) {
    problem p;
    p.what = what;
    p.mb = 64;
    p.groups = groups;
    p.ic = ic;
    p.oc = oc;
    for (std::size_t d = 1; d < 3; ++d)
        p.x[d] = make_axis(size, kernel, stride, 1, kernel / 2, kernel / 2);
    set_layouts(p, layout, weights_layout::oix, layout);
    return p;
}

constexpr pass all_passes[] = {pass::forward, pass::backward_data, pass::backward_weights};

TEST(cuda_choice, every_random_problem_has_a_plan_on_every_architecture) {
    for (std::uint64_t seed = 1; seed < 2000; ++seed) {
        rng random(seed);
        const problem p = random_problem(random);
        for (const architecture &on : {hopper, ampere, small, with_cudnn}) {
            std::vector<engines::verdict> verdicts;
            const auto plan = cuda::make_plan(p, on, {}, &verdicts);
            ASSERT_NE(plan, nullptr);
            EXPECT_GT(plan->facts().seconds, 0);
            EXPECT_FALSE(plan->describe().empty());
            EXPECT_EQ(verdicts.size() + 1, cuda::algorithm_names().size()) << to_text(p);
            for (const engines::verdict &v : verdicts) EXPECT_FALSE(v.reason.empty());
        }
    }
}

// What explain shows of an algorithm that was not taken is what its plan would be.
TEST(cuda_choice, classes_of_others_are_those_of_their_plans) {
    for (std::uint64_t seed = 1; seed < 600; ++seed) {
        rng random(seed);
        problem p = random_problem(random);
        for (const math_mode math : {math_mode::strict, math_mode::accurate, math_mode::fast})
            for (const architecture &on : {hopper, ampere, small, with_cudnn}) {
                p.math = math;
                std::vector<engines::verdict> verdicts;
                const auto plan = cuda::make_plan(p, on, {}, &verdicts);
                EXPECT_TRUE(engines::is_allowed(plan->facts().kept, math));
                for (const engines::verdict &v : verdicts) {
                    if (v.seconds == 0) continue;
                    EXPECT_GE(v.seconds, plan->facts().seconds) << v.algorithm;
                    const auto other = cuda::make_plan(p, on, {.only_algorithm = v.algorithm});
                    EXPECT_EQ(other->algorithm(), v.algorithm);
                    EXPECT_EQ(other->facts().kept, v.kept) << v.algorithm << ' ' << to_text(p);
                }
            }
    }
}

// Every algorithm is chosen somewhere: nothing in the list is dead weight.
TEST(cuda_choice, every_algorithm_wins_somewhere) {
    struct expectation {
        std::string_view algorithm;
        problem p;
        architecture on;
    };
    problem dense16 = layer(pass::backward_weights, 1, 128, 128, 28, 3);
    dense16.type = dense16.out_type = data_type::bf16;
    problem shared16 = layer(pass::forward, 1, 64, 64, 56, 3);
    shared16.type = shared16.out_type = data_type::f16;
    problem long_axis = layer(pass::forward, 1, 1, 1, 4, 1);
    long_axis.x[1] = {};
    long_axis.x[2] = make_axis(dim{3} << 30, 3, 1, 1, 1, 1);
    set_layouts(long_axis, data_layout::ncx, weights_layout::oix, data_layout::ncx);
    problem exact = layer(pass::forward, 1, 256, 256, 14, 3);
    exact.math = math_mode::strict;
    problem exact_groups = layer(pass::forward, 32, 4, 4, 28, 3);
    exact_groups.math = math_mode::strict;
    problem planes16 = layer(pass::forward, 96, 1, 1, 56, 7, 1, data_layout::ncx);
    planes16.type = planes16.out_type = data_type::bf16;
    const problem patches = layer(pass::forward, 1, 3, 768, 224, 16, 16);
    problem first16 = layer(pass::forward, 1, 3, 64, 224, 7, 2);
    first16.type = first16.out_type = data_type::bf16;
    problem pointwise16 = layer(pass::forward, 1, 64, 256, 56, 1, 1, data_layout::ncx);
    pointwise16.type = pointwise16.out_type = data_type::bf16;
    problem tf32 = layer(pass::forward, 1, 128, 128, 28, 3);
    tf32.math = math_mode::fast;
    const expectation all[] = {{"cuda.cudnn", tf32, with_cudnn}, {"cuda.banded", planes16, hopper},
        {"cuda.columns", patches, hopper}, {"cuda.pixels", first16, hopper},
        {"cuda.pixels_f32", layer(pass::forward, 1, 3, 64, 224, 3), hopper},
        {"cuda.fold", layer(pass::backward_data, 1, 3, 64, 224, 7, 2), hopper},
        {"cuda.quads", layer(pass::forward, 96, 1, 1, 56, 3, 2), ampere},
        {"cuda.staged", layer(pass::forward, 96, 1, 1, 56, 7, 2), hopper},
        {"cuda.ring", layer(pass::backward_weights, 96, 1, 1, 56, 5), ampere},
        {"cuda.planes", layer(pass::forward, 384, 1, 1, 14, 7, 1, data_layout::ncx), hopper},
        {"cuda.depthwise", layer(pass::forward, 96, 1, 2, 56, 3), hopper},
        {"cuda.sliding", layer(pass::forward, 96, 1, 1, 56, 11), ampere},
        {"cuda.pointwise", pointwise16, hopper}, {"cuda.halo", shared16, hopper},
        {"cuda.bulk", dense16, hopper},
        {"cuda.wgmma", layer(pass::backward_data, 1, 64, 64, 56, 3), hopper},
        {"cuda.dense", layer(pass::forward, 1, 128, 128, 28, 3), small},
        {"cuda.narrow", exact_groups, hopper}, {"cuda.general", exact, hopper},
        {"cuda.wide", long_axis, ampere}};
    for (const expectation &e : all)
        EXPECT_EQ(cuda::make_plan(e.p, e.on, {})->algorithm(), e.algorithm) << to_text(e.p);
    problem bias = layer(pass::backward_bias, 1, 8, 8, 28, 1);
    EXPECT_EQ(cuda::make_plan(bias, ampere, {})->algorithm(), "cuda.sums");
    EXPECT_EQ(std::size(all) + 1, cuda::algorithm_names().size());
}

TEST(cuda_choice, few_channels_take_narrow_tiles) {
    for (const pass what : all_passes) {
        EXPECT_EQ(cuda::make_plan(
                      layer(what, 1, 256, 256, 14, 4), hopper, {.only_algorithm = "cuda.general"})
                      ->algorithm(),
            "cuda.general");
        const problem few = layer(what, 64, 4, 4, 14, 4);
        EXPECT_LT(cuda::make_plan(few, hopper, {.only_algorithm = "cuda.narrow"})->facts().seconds,
            cuda::make_plan(few, hopper, {.only_algorithm = "cuda.general"})->facts().seconds);
    }
}

TEST(cuda_choice, dense_layers_take_tensor_cores_unless_math_is_strict) {
    for (const pass what : all_passes) {
        problem p = layer(what, 1, 128, 128, 28, 3);
        EXPECT_EQ(cuda::make_plan(p, ampere, {})->algorithm(), "cuda.dense");
        EXPECT_EQ(cuda::make_plan(p, hopper, {})->algorithm(), "cuda.wgmma");
        EXPECT_EQ(cuda::make_plan(p, hopper, {})->facts().kept, engines::accuracy::accurate);
        p.math = math_mode::strict;
        EXPECT_EQ(cuda::make_plan(p, hopper, {})->algorithm(), "cuda.general");
    }
}

TEST(cuda_choice, tf32_is_for_fast_f32_alone) {
    for (const pass what : all_passes)
        for (const data_type type : {data_type::f32, data_type::bf16}) {
            problem p = layer(what, 1, 128, 128, 28, 3);
            p.type = p.out_type = type;
            p.math = math_mode::fast;
            const auto plan = cuda::make_plan(p, hopper, {});
            EXPECT_EQ(plan->facts().kept == engines::accuracy::fast, type == data_type::f32);
        }
}

TEST(cuda_choice, warpgroups_are_hoppers_alone) {
    const problem p = layer(pass::forward, 1, 128, 128, 28, 3);
    for (const architecture &on : {ampere, small, cuda::architecture_of(10, 0)})
        EXPECT_THROW((void)cuda::make_plan(p, on, {.only_algorithm = "cuda.wgmma"}), error);
}

TEST(cuda_choice, dense_16_bit_layers_take_the_copy_engine) {
    for (const pass what : all_passes)
        for (const data_type type : {data_type::bf16, data_type::f16})
            for (const data_layout layout : {data_layout::nxc, data_layout::ncx}) {
                const auto choose = [&](const architecture &on, dim size, dim kernel, dim stride,
                                        dim channels = 128) {
                    problem p = layer(what, 1, channels, channels, size, kernel, stride, layout);
                    p.type = p.out_type = type;
                    return std::string(cuda::make_plan(p, on, {})->algorithm());
                };
                const std::string_view pointwise =
                    layout == data_layout::ncx ? "cuda.pointwise" : "cuda.bulk";
                EXPECT_EQ(choose(hopper, 28, 1, 1), pointwise);
                // Pixels of few channels, whose weights stay in shared memory.
                EXPECT_EQ(choose(hopper, 56, 1, 1, 64),
                    what == pass::backward_weights ? pointwise : "cuda.pointwise");
                // Rows of 392 bytes are no whole pieces.
                EXPECT_EQ(choose(hopper, 14, 1, 1), "cuda.bulk");
                EXPECT_EQ(choose(hopper, 28, 3, 2), "cuda.bulk");
                EXPECT_EQ(choose(ampere, 28, 3, 1), "cuda.dense");
                // Taps of stride 1 share what is copied.
                EXPECT_EQ(choose(hopper, 56, 3, 1, 64),
                    what == pass::backward_weights ? "cuda.bulk" : "cuda.halo");
                // Nine phases of positions are more than they know.
                if (what == pass::backward_data) {
                    EXPECT_EQ(choose(hopper, 28, 3, 3), "cuda.wgmma");
                }
            }
}

// However small the layer, so that large tiles can be compared with a reference.
TEST(cuda_choice, tests_get_the_tile_that_they_ask_for) {
    for (const cuda::bulk_tile_size &tile : cuda::bulk_tile_sizes) {
        const products::only_tile limit(tile.index);
        const std::string form =
            "tile " + std::to_string(tile.rows) + "x" + std::to_string(tile.columns) + ",";
        for (const pass what : all_passes) {
            problem p = layer(what, 1, 128, 130, 8, 1, 1, data_layout::ncx);
            p.type = p.out_type = data_type::bf16;
            for (const std::string_view name : {"cuda.bulk", "cuda.pointwise"})
                EXPECT_TRUE(cuda::make_plan(p, hopper, {.only_algorithm = name})
                                ->describe()
                                .starts_with(form))
                    << name;
        }
    }
}

// On planes f32 needs pieces of four positions; what is added to a result is read with it.
TEST(cuda_choice, layers_of_one_tap_between_planes_are_read_where_they_lie) {
    for (const pass what : all_passes)
        for (const auto &[ic, oc] : {std::pair<dim, dim>{64, 256}, {256, 64}, {24, 144}, {144, 24}})
            for (const dim size : {56, 28, 14, 7}) {
                problem p = layer(what, 1, ic, oc, size, 1, 1, data_layout::ncx);
                const auto choose = [&] {
                    return std::string(cuda::make_plan(p, hopper, {})->algorithm());
                };
                if (size == 7)
                    EXPECT_NE(choose(), "cuda.pointwise");
                else
                    EXPECT_EQ(choose(), "cuda.pointwise") << to_text(p);
                p.add = what != pass::backward_weights;
                p.accumulate = what == pass::backward_weights;
                if (p.add) {
                    EXPECT_NE(choose(), "cuda.pointwise");
                } else {
                    EXPECT_EQ(choose() == "cuda.pointwise", size != 7);
                }
            }
}

TEST(cuda_choice, groups_of_few_channels_are_merged) {
    for (const dim channels : {4, 8, 16}) {
        const problem p = layer(pass::forward, 32, channels, channels, 14, 3);
        const auto plan = cuda::make_plan(p, hopper, {});
        EXPECT_EQ(plan->algorithm(), "cuda.wgmma");
        EXPECT_NE(plan->describe().find(std::to_string(32 / channels) + " groups merged"),
            std::string::npos)
            << plan->describe();
    }
}

TEST(cuda_choice, first_layers_have_algorithms_of_their_own) {
    const auto takes = [](const problem &p, std::string_view algorithm) {
        try {
            return cuda::make_plan(p, hopper, {.only_algorithm = algorithm})->algorithm()
                   == algorithm;
        } catch (const error &e) {
            EXPECT_EQ(e.code(), error_code::unsupported);
            return false;
        }
    };
    for (const data_layout layout : {data_layout::nxc, data_layout::ncx}) {
        for (const dim stride : {2, 4}) {
            const problem p = layer(pass::backward_data, 1, 3, 64, 112, 7, stride, layout);
            EXPECT_EQ(cuda::make_plan(p, hopper, {})->algorithm(), "cuda.fold");
            EXPECT_FALSE(takes(p, "cuda.columns")) << "positions share results";
        }
        for (const pass what : all_passes)
            EXPECT_EQ(cuda::make_plan(layer(what, 1, 3, 768, 224, 16, 16, layout), hopper, {})
                          ->algorithm(),
                "cuda.columns");
        for (const data_type type : {data_type::f32, data_type::bf16}) {
            problem patches = layer(pass::backward_data, 1, 3, 96, 224, 4, 4, layout);
            patches.type = patches.out_type = type;
            EXPECT_EQ(cuda::make_plan(patches, hopper, {})->algorithm(), "cuda.fold");
        }
        // Where weights of all taps have no room, results are folded in parts.
        const problem large = layer(pass::backward_data, 1, 3, 64, 224, 11, 4, layout);
        EXPECT_NE(cuda::make_plan(large, hopper, {})->describe().find("parts"), std::string::npos);
    }
    EXPECT_FALSE(takes(layer(pass::backward_data, 2, 3, 64, 56, 7, 2), "cuda.fold"));
    EXPECT_FALSE(takes(layer(pass::backward_data, 1, 16, 64, 56, 7, 2), "cuda.fold"));
    EXPECT_FALSE(takes(layer(pass::forward, 1, 3, 64, 56, 7, 2), "cuda.fold"));
    EXPECT_FALSE(takes(layer(pass::forward, 1, 3, 64, 56, 1), "cuda.columns"));
}

// As measured on an H200: `cuda.pixels` where it is fastest, and nowhere else.
TEST(cuda_choice, first_layers_are_computed_as_pixels_where_that_is_fastest) {
    struct row {
        dim mb, oc, size, kernel, stride, pad;
        data_type type;
        data_layout layout;
        std::string_view forward, weights;
    };
    constexpr data_type f32 = data_type::f32, bf16 = data_type::bf16;
    constexpr data_layout nxc = data_layout::nxc, ncx = data_layout::ncx;
    constexpr std::string_view here = "cuda.pixels", here_f32 = "cuda.pixels_f32",
                               columns = "cuda.columns", wgmma = "cuda.wgmma";
    const row rows[] = {{64, 64, 224, 7, 2, 3, bf16, nxc, here, here},
        {64, 64, 224, 7, 2, 3, bf16, ncx, here, here},
        {64, 64, 224, 7, 2, 3, f32, nxc, wgmma, here_f32},
        {64, 64, 224, 7, 2, 3, f32, ncx, wgmma, here_f32},
        {64, 96, 224, 4, 4, 0, bf16, nxc, here, here},
        {64, 96, 224, 4, 4, 0, f32, ncx, here_f32, here_f32},
        {64, 32, 224, 3, 2, 1, bf16, ncx, here, here},
        {64, 32, 224, 3, 2, 1, f32, nxc, here_f32, here_f32},
        {64, 64, 224, 3, 1, 1, bf16, nxc, here, here},
        {64, 64, 224, 3, 1, 1, f32, ncx, here_f32, here_f32},
        {64, 64, 224, 11, 4, 2, bf16, nxc, here, here},
        {64, 64, 224, 11, 4, 2, bf16, ncx, here, columns},  // rows of 55: element by element
        {64, 64, 224, 11, 4, 2, f32, nxc, columns, here_f32},
        {64, 64, 224, 11, 4, 2, f32, ncx, columns, columns},
        {64, 512, 224, 8, 8, 0, bf16, nxc, columns, columns},
        {64, 192, 224, 6, 6, 0, f32, nxc, columns, columns},
        {1, 64, 224, 7, 2, 3, bf16, nxc, here, wgmma},  // sums of parts outweigh one image
        {1, 64, 224, 7, 2, 3, f32, ncx, wgmma, wgmma},
        {256, 64, 32, 3, 1, 1, bf16, ncx, here, here}};
    for (const row &r : rows)
        for (const pass what : {pass::forward, pass::backward_weights}) {
            problem p = layer(what, 1, 3, r.oc, r.size, r.kernel, r.stride, r.layout);
            p.mb = r.mb;
            p.type = p.out_type = r.type;
            for (std::size_t d = 1; d < 3; ++d)
                p.x[d] = make_axis(r.size, r.kernel, r.stride, 1, r.pad, r.pad);
            set_layouts(p, r.layout, weights_layout::oix, r.layout);
            EXPECT_EQ(cuda::make_plan(p, hopper, {})->algorithm(),
                what == pass::forward ? r.forward : r.weights)
                << to_text(p);
            // In f32 it is as exact as any, and has no rival there.
            p.math = math_mode::strict;
            if (r.type == f32 && r.kernel < 6) {
                EXPECT_EQ(cuda::make_plan(p, hopper, {})->algorithm(), here_f32) << to_text(p);
            }
        }
    // Other channels, groups and taps with gaps are not for it.
    problem gaps = layer(pass::forward, 1, 3, 64, 56, 3);
    gaps.x[2] = make_axis(56, 3, 1, 2, 2, 2);
    set_layouts(gaps, nxc, weights_layout::oix, nxc);
    for (const problem &p : {layer(pass::forward, 1, 5, 64, 56, 3), gaps,
             layer(pass::forward, 2, 3, 64, 56, 3), layer(pass::backward_data, 1, 3, 64, 56, 3)})
        EXPECT_THROW((void)cuda::make_plan(p, hopper, {.only_algorithm = here_f32}), error);
}

TEST(cuda_choice, depthwise_layers_go_through_shared_memory) {
    const auto chosen = [](const problem &p, const architecture &on) {
        return cuda::make_plan(p, on, {})->algorithm();
    };
    for (const pass what : all_passes)
        for (const dim kernel : {3, 5, 7})
            for (const dim stride : {1, 2})
                for (const data_layout layout : {data_layout::nxc, data_layout::ncx})
                    for (const architecture &on : {hopper, ampere, small}) {
                        const problem p = layer(what, 256, 1, 1, 28, kernel, stride, layout);
                        const auto plan = cuda::make_plan(p, on, {});
                        const bool forward2 = what == pass::forward && stride == 2,
                                   data2 = what == pass::backward_data && stride == 2;
                        // Few taps of channels side by side only wait for memory.
                        const bool side = layout == data_layout::nxc;
                        const bool ring = side
                                          && (kernel == 3   ? !forward2
                                              : kernel == 5 ? !data2
                                                            : stride == 1);
                        EXPECT_EQ(plan->facts().kept, engines::accuracy::strict);
                        if (!side && stride == 1) continue;  // see below
                        EXPECT_EQ(plan->algorithm(), ring                  ? "cuda.ring"
                                                     : side && kernel == 3 ? "cuda.quads"
                                                                           : "cuda.staged")
                            << to_text(p);
                    }
    // Rings want whole warps of channels, and enough of them, or tensors that caches hold in part.
    const auto images = [](problem p, dim mb) {
        p.mb = mb;
        return p;
    };
    const problem three = layer(pass::forward, 144, 1, 1, 56, 3),
                  seven = layer(pass::forward, 96, 1, 1, 56, 7);
    EXPECT_EQ(chosen(images(three, 128), hopper), "cuda.quads");
    EXPECT_EQ(chosen(images(seven, 128), hopper), "cuda.staged");
    EXPECT_EQ(chosen(images(three, 64), hopper), "cuda.ring");
    EXPECT_EQ(chosen(images(seven, 64), hopper), "cuda.ring");
    for (const pass what : all_passes) {
        problem p = layer(what, 64, 1, 1, 28, 5);
        p.mb = 4;
        EXPECT_EQ(chosen(p, hopper), "cuda.staged");
        EXPECT_EQ(chosen(layer(what, 63, 1, 1, 28, 5), hopper), "cuda.staged");
    }
    // 16-bit ones of stride 1 by tensor cores, where matrices can be turned on their way.
    for (const pass what : all_passes)
        for (const dim stride : {1, 2})
            for (const dim size : {14, 28, 56, 112})
                for (const dim kernel : {5, 7})
                    for (const data_layout layout : {data_layout::nxc, data_layout::ncx}) {
                        problem p = layer(what, 512, 1, 1, size, kernel, stride, layout);
                        p.type = p.out_type = data_type::f16;
                        if (layout == data_layout::ncx && stride == 1) continue;
                        const bool ring = layout == data_layout::nxc && kernel == 5;
                        const std::string_view otherwise = ring ? "cuda.ring" : "cuda.staged";
                        EXPECT_EQ(chosen(p, hopper),
                            ring || stride == 2 ? otherwise : std::string_view("cuda.banded"));
                        EXPECT_EQ(chosen(p, ampere), otherwise);
                        p.math = math_mode::strict;
                        EXPECT_EQ(chosen(p, hopper), otherwise);
                    }
    // Other kernels and multipliers are not for it.
    for (const dim kernel : {4, 9}) {
        const problem p = layer(pass::forward, 64, 1, 1, 28, kernel);
        EXPECT_THROW((void)cuda::make_plan(p, hopper, {.only_algorithm = "cuda.staged"}), error);
    }
    EXPECT_THROW((void)cuda::make_plan(layer(pass::forward, 64, 1, 2, 28, 3), hopper,
                     {.only_algorithm = "cuda.staged"}),
        error);
}

// Which of three is faster depends on planes, taps and types: where each was, with 128 images.
TEST(cuda_choice, planes_of_stride_1_take_what_was_fastest) {
    struct row {
        std::string_view forward_f32, weights_f32, forward_bf16, weights_bf16;
        dim channels, size, kernel;
    };
    constexpr std::string_view planes = "cuda.planes", staged = "cuda.staged",
                               banded = "cuda.banded";
    for (const row &r : {
             row{staged, staged, banded, banded, 96, 56, 7},
             row{planes, staged, banded, banded, 192, 28, 7},
             row{planes, planes, planes, planes, 384, 14, 7},
             row{planes, planes, planes, planes, 768, 7, 7},
             row{planes, planes, banded, banded, 32, 112, 3},
             row{planes, planes, banded, banded, 144, 56, 3},
             row{planes, planes, planes, planes, 576, 14, 3},
             row{planes, planes, planes, planes, 960, 7, 3},
             row{planes, staged, banded, banded, 240, 28, 5},
             row{planes, planes, planes, planes, 672, 14, 5},
         }) {
        const auto expect = [&](pass what, data_type type, std::string_view name) {
            problem p = layer(what, r.channels, 1, 1, r.size, r.kernel);
            p.mb = 128;
            p.type = p.out_type = type;
            set_layouts(p, data_layout::ncx, weights_layout::oix, data_layout::ncx);
            EXPECT_EQ(cuda::make_plan(p, hopper, {})->algorithm(), name) << to_text(p);
        };
        expect(pass::forward, data_type::f32, r.forward_f32);
        expect(pass::backward_data, data_type::f32, r.forward_f32);
        expect(pass::backward_weights, data_type::f32, r.weights_f32);
        expect(pass::forward, data_type::bf16, r.forward_bf16);
        expect(pass::backward_data, data_type::bf16, r.forward_bf16);
        expect(pass::backward_weights, data_type::bf16, r.weights_bf16);
    }
}

TEST(cuda_choice, data_gradients_of_several_outputs_of_a_channel_take_tensor_cores) {
    // H200, bf16, channels last, 3×3 on 56×56: 0.24 ms by cuda.sliding, 0.12 by cuda.bulk; with
    // stride 2 0.19 and 0.07.
    for (const dim stride : {1, 2}) {
        problem p = layer(pass::backward_data, 96, 1, 2, 56, 3);
        p.mb = 64;
        for (const std::size_t d : {1U, 2U}) p.x[d] = make_axis(56, 3, stride, 1, 1, 1);
        p.type = p.out_type = data_type::bf16;
        set_layouts(p, data_layout::nxc, weights_layout::oix, data_layout::nxc);
        EXPECT_EQ(
            cuda::make_plan(p, hopper, {})->algorithm(), stride == 1 ? "cuda.halo" : "cuda.bulk");
    }
}

TEST(cuda_choice, sizes_beyond_32_bits_take_long_indices) {
    problem p = layer(pass::forward, 1, 1, 1, 4, 1);
    p.x[1] = {};
    p.x[2] = make_axis(dim{3} << 30, 3, 1, 1, 1, 1);
    set_layouts(p, data_layout::ncx, weights_layout::oix, data_layout::ncx);
    for (const pass what : all_passes) {
        p.what = what;
        EXPECT_EQ(cuda::make_plan(p, hopper, {})->algorithm(), "cuda.wide");
    }
}

TEST(cuda_choice, the_number_of_multiprocessors_decides_nothing) {
    // An architecture has none: what decides is all in it.
    const architecture other = cuda::architecture_of(9, 0);
    for (std::uint64_t seed = 1; seed < 200; ++seed) {
        rng random(seed);
        const problem p = random_problem(random);
        EXPECT_EQ(
            cuda::make_plan(p, hopper, {})->describe(), cuda::make_plan(p, other, {})->describe());
    }
}

TEST(cuda_choice, a_workspace_limit_is_kept_or_told) {
    const problem p = layer(pass::backward_weights, 1, 64, 64, 28, 3);
    const std::size_t free = cuda::make_plan(p, hopper, {})->workspace();
    EXPECT_GT(free, 0U);
    EXPECT_LE(cuda::make_plan(p, hopper, {.workspace = free / 3})->workspace(), free / 3);
    try {
        (void)cuda::make_plan(p, hopper, {.workspace = 16});
        FAIL();
    } catch (const error &e) {
        EXPECT_EQ(e.code(), error_code::out_of_memory);
        EXPECT_NE(std::string(e.what()).find("16 bytes"), std::string::npos) << e.what();
    }
}

TEST(cuda_choice, an_unknown_algorithm_is_named) {
    try {
        (void)cuda::make_plan(
            layer(pass::forward, 1, 8, 8, 8, 3), hopper, {.only_algorithm = "cuda.magic"});
        FAIL();
    } catch (const error &e) {
        EXPECT_EQ(e.code(), error_code::unsupported);
        EXPECT_NE(std::string(e.what()).find("cuda.magic"), std::string::npos);
    }
}

}  // namespace
}  // namespace convgrad::test
