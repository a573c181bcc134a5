// The drivers for 1×1 layers on planes (of bf16 another than of f32), by name, on every instruction
// set: positions that do not fill a vector, one channel, groups, gaps between planes, epilogues,
// infinities, and the same bits for any number of threads.
#include <limits>

#include <gtest/gtest.h>

#include <convgrad/error.hpp>

#include "support/named_runs.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

constexpr std::string_view name = "pointwise.fma";
constexpr data_type types[] = {data_type::f32, data_type::bf16};

problem planes(pass what, dim mb, dim groups, dim ic, dim oc, dim height, dim width) {
    problem p;
    p.what = what;
    p.mb = mb;
    p.groups = groups;
    p.ic = ic;
    p.oc = oc;
    p.x[1] = make_axis(height, 1, 1, 1, 0, 0);
    p.x[2] = make_axis(width, 1, 1, 1, 0, 0);
    return p;
}

/// Only f32 is used where it lies, and only pairs are packed.
std::vector<named> rows(const problem &p) {
    std::vector<named> all = rows_of(p, name, "pointwise.dot2");
    std::erase_if(
        all, [&](const named &n) { return (n.algorithm == name) != (p.type == data_type::f32); });
    return all;
}

/// Calls body(problem, seed) for sizes around those of vectors, steps and ranges, of both types.
template <typename Body>
void for_each_case(Body &&body) {
    const struct {
        dim mb, groups, ic, oc, height, width;
    } sizes[] = {{2, 1, 3, 5, 1, 2}, {1, 1, 1, 1, 1, 33}, {2, 1, 7, 14, 3, 5}, {1, 1, 17, 29, 4, 4},
        {3, 1, 24, 15, 1, 31}, {2, 1, 13, 28, 8, 4}, {1, 3, 5, 9, 7, 7}, {2, 2, 16, 3, 10, 10},
        {1, 1, 64, 33, 28, 28}, {1, 1, 255, 17, 5, 13}, {1, 1, 9, 70, 41, 25},
        // Copied on the way (AVX2), in several stretches, of which the last is not whole.
        {1, 1, 65, 31, 11, 19}, {2, 1, 80, 100, 9, 29}, {1, 2, 70, 66, 12, 12},
        // Several units of positions (bf16), in several tasks.
        {1, 1, 6, 20, 40, 41}, {2, 1, 513, 30, 3, 43}};
    std::uint64_t seed = 0;
    for (const pass what : {pass::forward, pass::backward_data})
        for (const auto &s : sizes)
            for (int variant = 0; variant < 6; ++variant) {
                problem p = planes(what, s.mb, s.groups, s.ic, s.oc, s.height, s.width);
                p.type = p.out_type = types[variant / 3];
                rng random(++seed);
                set_layouts(p, data_layout::ncx,
                    all_weights_layouts[random.next() % std::size(all_weights_layouts)],
                    data_layout::ncx);
                if (variant % 3 > 0) set_random_extras(random, p);
                if (p.add) p.add_strides = what == pass::forward ? p.dst : p.src;
                if (variant % 3 == 2) {  // a view: more images and channels lie between
                    p.src.n += 2 * p.src.c + 3;
                    p.dst.n += 5;
                }
                body(p, seed);
                if (testing::Test::HasFatalFailure()) return;
            }
}

TEST(pointwise, exact_on_integers) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::integers, seed);
        bench.run_reference();
        for (const named &row : rows(p)) expect_exact(bench, row);
    });
}

TEST(pointwise, real_numbers_within_their_bound) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::reals, seed);
        bench.run_reference();
        for (const named &row : rows(p)) {
            bench.run({.max_isa = row.set, .threads = 2, .algorithm = row.algorithm});
            ASSERT_EQ(bench.compare_bounded(), "") << to_string(row.set) << ' ' << to_text(p);
        }
    });
}

TEST(pointwise, infinities_and_nan) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::reals, seed);
        bench.write(role::weights, 0, std::numeric_limits<double>::infinity());
        bench.write(p.what == pass::forward ? role::src : role::dst, 0,
            seed % 2 == 0 ? 0 : std::numeric_limits<double>::quiet_NaN());
        bench.run_reference();
        for (const named &row : rows(p)) {
            bench.run({.max_isa = row.set, .algorithm = row.algorithm});
            ASSERT_EQ(bench.compare_bounded(), "") << to_string(row.set) << ' ' << to_text(p);
        }
    });
}

// Pairs flush subnormals, and sums that are subnormal: units that have some are multiplied by
// others, which must not show in how tasks are cut.
TEST(pointwise, subnormal_values_and_sums) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        if (p.type != data_type::bf16) return;
        bench.load(p, fill::reals, seed);
        const role input = p.what == pass::forward ? role::src : role::dst;
        const conv::data_strides &strides = p.what == pass::forward ? p.src : p.dst;
        const dim last = p.x[1].src * p.x[2].src - 1;
        bench.write(input, last, 0x1p-130);
        bench.write(input, (p.mb - 1) * strides.n + last / 2, 0x1p-120);
        bench.write(role::weights, 0, 0x1p-10);
        bench.run_reference();
        for (const named &row : rows(p)) {
            bench.run({.max_isa = row.set, .threads = 1, .algorithm = row.algorithm});
            ASSERT_EQ(bench.compare_bounded(), "") << to_string(row.set) << ' ' << to_text(p);
            const auto alone = bench.output_bytes();
            bench.run({.max_isa = row.set, .threads = 16, .algorithm = row.algorithm});
            ASSERT_EQ(bench.output_bytes(), alone) << to_string(row.set) << ' ' << to_text(p);
        }
    });
}

TEST(pointwise, same_bits_for_any_number_of_threads) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::reals, seed);
        for (const named &row : rows(p)) {
            bench.run({.max_isa = row.set, .threads = 1, .algorithm = row.algorithm});
            const auto alone = bench.output_bytes();
            for (const int threads : {2, 16}) {
                bench.run({.max_isa = row.set, .threads = threads, .algorithm = row.algorithm});
                ASSERT_EQ(bench.output_bytes(), alone) << to_string(row.set) << ' ' << to_text(p);
            }
        }
    });
}

// Where there is no room for the weights, another driver runs.
TEST(pointwise, small_workspace) {
    problem p = planes(pass::forward, 1, 1, 64, 64, 28, 28);
    set_layouts(p, data_layout::ncx, weights_layout::oix, data_layout::ncx);
    const auto plan = cpu::make_plan(p, {.max_isa = isa::avx2, .workspace = 12 << 10});
    EXPECT_NE(plan->algorithm(), name);
    EXPECT_EQ(cpu::make_plan(p, {.max_isa = isa::avx2})->algorithm(), name);
}

// What lies otherwise, or has taps or elements that no pair is made of, is refused with a reason.
TEST(pointwise, what_it_does_not_take) {
    const auto refused = [](problem p, data_layout layout) {
        set_layouts(p, layout, weights_layout::oix, layout);
        EXPECT_THROW((void)cpu::make_plan(p, {.only_algorithm = name}), error) << to_text(p);
    };
    const problem good = planes(pass::forward, 1, 1, 4, 4, 6, 6);
    refused(good, data_layout::nxc);
    problem p = good;
    p.x[2] = make_axis(6, 3, 1, 1, 1, 1);
    refused(p, data_layout::ncx);
    p = good;
    p.type = p.out_type = data_type::f16;
    refused(p, data_layout::ncx);
    p = good;
    p.what = pass::backward_weights;
    refused(p, data_layout::ncx);
}

// Tiles of a bf16 layer whose channels fill their rows lie in the input itself: nothing beyond its
// last position may be read (guard pages), and blocks that overlap must not be added twice.
template <typename Body>
void for_each_tiled_case(Body &&body) {
    std::uint64_t seed = 100;
    for (const pass what : {pass::forward, pass::backward_data})
        for (const dim positions : {31, 32, 33, 47, 64, 95, 130, 420})
            for (const dim oc : {7, 32, 40, 136}) {
                const dim ic = 32 * (1 + static_cast<dim>(seed % 3));
                problem p = planes(what, 2, 1 + positions % 2, what == pass::forward ? ic : oc,
                    what == pass::forward ? oc : ic, 1, positions);
                p.type = p.out_type = data_type::bf16;
                rng random(++seed);
                set_layouts(p, data_layout::nxc,
                    all_weights_layouts[random.next() % std::size(all_weights_layouts)],
                    data_layout::nxc);
                if (seed % 3 != 0) set_random_extras(random, p);
                if (p.add) p.add_strides = what == pass::forward ? p.dst : p.src;
                p.out_type = data_type::bf16;
                body(p, seed);
                if (testing::Test::HasFatalFailure()) return;
            }
}

bool has_tiles() {
    return usable_isas().back() == isa::amx_bf16;
}

TEST(pointwise_tiles, exact_on_integers) {
    if (!has_tiles()) GTEST_SKIP() << "no matrix engine, and none emulated";
    workbench bench;
    for_each_tiled_case([&](const problem &p, std::uint64_t seed) {
        const auto plan =
            cpu::make_plan(p, {.max_isa = isa::amx_bf16, .only_algorithm = "tiled.amx"});
        ASSERT_NE(plan->describe().find("input in place"), std::string::npos) << to_text(p);
        bench.load(p, fill::integers, seed);
        bench.run_reference();
        for (const int threads : {1, 3}) {
            const run_report ran =
                bench.run({.max_isa = isa::amx_bf16, .threads = threads, .algorithm = "tiled.amx"});
            ASSERT_EQ(ran.set, isa::amx_bf16);
            ASSERT_EQ(bench.compare_exact(), "") << "threads " << threads << ' ' << to_text(p);
        }
    });
}

// Values that tiles flush or cannot hold are noticed without packing too.
TEST(pointwise_tiles, subnormal_and_infinite_values) {
    if (!has_tiles()) GTEST_SKIP() << "no matrix engine, and none emulated";
    workbench bench;
    for_each_tiled_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::reals, seed);
        const role input = p.what == pass::forward ? role::src : role::dst;
        const dim last = p.mb * p.groups * (p.what == pass::forward ? p.ic : p.oc) * p.x[2].src - 1;
        bench.write(
            input, last, seed % 2 == 0 ? 0x1p-130 : std::numeric_limits<double>::infinity());
        bench.run_reference();
        bench.run({.max_isa = isa::amx_bf16, .algorithm = "tiled.amx"});
        ASSERT_EQ(bench.compare_bounded(), "") << to_text(p);
    });
}

}  // namespace
}  // namespace convgrad::test
