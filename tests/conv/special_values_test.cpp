// NaN and infinity: they propagate as in the plain sum over in-range taps, and padding contributes
// exactly nothing.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

std::vector<role> inputs_of(const problem &p) {
    std::vector<role> inputs;
    for (const role r : all_roles) {
        const bool gradient = r == role::bias && p.what == pass::backward_weights;
        if (r != output_of(p) && !gradient && span_of(p, r) > 0) inputs.push_back(r);
    }
    return inputs;
}

/// Puts `count` of the given values somewhere into a tensor.
void sprinkle(
    workbench &bench, rng &random, role r, int count, std::initializer_list<double> values) {
    std::vector<dim> offsets;
    for_each_element(extents_of(bench.problem(), r),
        [&](const auto &, dim offset) { offsets.push_back(offset); });
    for (int i = 0; i < count; ++i)
        bench.write(r, offsets[random.next() % offsets.size()], random.pick(values));
}

void expect_like_reference(workbench &bench, std::uint64_t seed) {
    bench.run_reference();
    for (const isa set : affordable_isas(seed, 4)) {
        bench.run({.max_isa = set});
        ASSERT_EQ(bench.compare_bounded(), "") << to_string(set) << " seed " << seed;
    }
}

TEST(special_values, propagate_as_in_the_plain_sum) {
    workbench bench;
    for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
        rng random(seed);
        const problem p = random_problem(random, 3e4);
        bench.load(p, fill::reals, seed);
        for (const role r : inputs_of(p))
            if (random.chance(0.6))
                sprinkle(bench, random, r, static_cast<int>(random.between(1, 3)),
                    {nan, infinity, -infinity});
        expect_like_reference(bench, seed);
        if (HasFailure()) return;
    }
}

// Zeros next to infinities: 0 · ∞ in range is NaN, in the padding nothing.
TEST(special_values, zeros_meet_infinities) {
    workbench bench;
    for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
        rng random(seed);
        problem p = random_problem(random, 1e4);
        bench.load(p, fill::reals, seed);
        const auto inputs = inputs_of(p);
        if (inputs.size() < 2) continue;  // no channels
        for_each_element(extents_of(p, inputs[0]),
            [&](const auto &, dim offset) { bench.write(inputs[0], offset, 0); });
        sprinkle(bench, random, inputs[1], 2, {infinity, -infinity, nan});
        expect_like_reference(bench, seed);
        if (HasFailure()) return;
    }
}

// Every weight infinite, src and diff_dst positive: whatever has a tap in range is infinite, all
// else is exactly the bias.
TEST(special_values, infinite_weights_leave_pure_padding_alone) {
    workbench bench;
    for (const pass what : {pass::forward, pass::backward_data})
        for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
            for (const data_layout layout : {data_layout::nxc, data_layout::ncx})
                for (const dim channels : {1, 3, 16, 40}) {
                    problem p;
                    p.what = what;
                    p.type = p.out_type = type;
                    p.mb = 2;
                    p.ic = p.oc = channels;
                    // Pads beyond the kernel, and a stride that skips inputs.
                    p.x[1] = make_axis(5, 2, 4, 1, 5, 5);
                    p.x[2] = make_axis(9, 3, 5, 1, 7, 6);
                    p.bias = true;
                    set_layouts(p, layout, weights_layout::xio, layout);
                    bench.load(p, fill::integers, 1);
                    for (const role r : inputs_of(p))
                        for_each_element(extents_of(p, r), [&](const auto &, dim offset) {
                            bench.write(r, offset,
                                r == role::weights ? infinity
                                : r == role::bias  ? -3.0
                                                   : 0.5);
                        });
                    bench.run_reference();
                    for (const isa set : usable_isas()) {
                        bench.run({.max_isa = set});
                        ASSERT_EQ(bench.compare_exact(), "") << to_string(set);
                    }
                    int infinite = 0, pure = 0;
                    for_each_element(extents_of(p, output_of(p)), [&](const auto &, dim offset) {
                        const double v = bench.read(output_of(p), offset);
                        infinite += v == infinity;
                        pure += v == -3;
                    });
                    EXPECT_GT(infinite, 0);
                    EXPECT_GT(pure, 0);
                }
}

// One tap, long padded rows, several panels of output channels: the path for pointwise layers has
// no room for whole tiles, which the sum that avoids padding fills.
TEST(special_values, infinite_weights_of_a_padded_pointwise_layer) {
    workbench bench;
    for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16}) {
        problem p;
        p.type = p.out_type = type;
        p.mb = 1;
        p.ic = 16;
        p.oc = 130;
        p.x[2] = make_axis(3000, 1, 1, 1, 5, 7);
        p.bias = true;
        set_layouts(p, data_layout::nxc, weights_layout::xio, data_layout::nxc);
        bench.load(p, fill::integers, 1);
        bench.write(role::weights, 3, infinity);
        bench.run_reference();
        for (const isa set : usable_isas()) {
            bench.run({.max_isa = set});
            ASSERT_EQ(bench.compare_exact(), "") << to_string(set);
        }
    }
}

// The weights gradient of taps that only ever meet padding is zero, even next to infinities.
TEST(special_values, padded_taps_of_the_weights_gradient_are_zero) {
    workbench bench;
    for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
        for (const dim channels : {1, 3, 16, 40}) {
            problem p;
            p.what = pass::backward_weights;
            p.type = p.out_type = type;
            p.mb = 2;
            p.ic = p.oc = channels;
            p.x[2] = make_axis(1, 5, 1, 1, 2, 2);  // one pixel: only the middle tap meets it
            set_layouts(p, data_layout::nxc, weights_layout::xio, data_layout::nxc);
            bench.load(p, fill::integers, 1);
            for (const role r : inputs_of(p))
                for_each_element(extents_of(p, r),
                    [&](const auto &, dim offset) { bench.write(r, offset, infinity); });
            for (const isa set : usable_isas()) {
                bench.run({.max_isa = set});
                for_each_element(extents_of(p, role::weights), [&](const auto &at, dim offset) {
                    const double expected = at[5] == 2 ? infinity : 0;
                    ASSERT_EQ(bench.read(role::weights, offset), expected) << to_string(set);
                });
            }
        }
}

// What an output holds before a run must not matter, and must matter when accumulating.
TEST(special_values, previous_nan_only_matters_when_accumulating) {
    workbench bench;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        rng random(seed);
        problem p = random_problem(random, 1e4);
        if (span_of(p, output_of(p)) == 0) continue;
        p.accumulate = true;
        bench.load(p, fill::reals, seed);
        bench.write_initial(output_of(p), 0, nan);
        bench.run_reference();
        for (const isa set : usable_isas()) {
            bench.run({.max_isa = set});
            ASSERT_EQ(bench.compare_bounded(), "") << to_string(set);
            ASSERT_TRUE(std::isnan(bench.read(output_of(p), 0))) << to_text(p);
        }
    }
}

TEST(special_values, relu_keeps_nan) {
    workbench bench;
    for (const pass what : {pass::forward, pass::backward_data})
        for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16}) {
            problem p;
            p.what = what;
            p.type = p.out_type = type;
            p.mb = 1;
            p.ic = p.oc = 20;
            p.x[2] = make_axis(9, 3, 1, 1, 1, 1);
            p.relu = true;
            set_layouts(p, data_layout::nxc, weights_layout::xio, data_layout::nxc);
            bench.load(p, fill::integers, 7);
            bench.write(what == pass::forward ? role::src : role::dst, 0, nan);
            bench.run_reference();
            for (const isa set : usable_isas()) {
                bench.run({.max_isa = set});
                ASSERT_EQ(bench.compare_bounded(), "") << to_string(set);
                ASSERT_TRUE(std::isnan(bench.read(output_of(p), 0))) << to_string(set);
            }
        }
}

// Results and inputs near the ends of the types' ranges: overflow to infinity, subnormals kept.
TEST(special_values, ends_of_the_range) {
    workbench bench;
    for (const isa set : usable_isas()) {
        problem p;
        p.type = p.out_type = data_type::f16;
        p.mb = p.ic = 1;
        p.oc = 4;
        set_layouts(p, data_layout::nxc, weights_layout::xio, data_layout::nxc);
        bench.load(p, fill::integers, 1);
        bench.write(role::src, 0, 256);
        const double weights[] = {256, 255.75, -256, 0x1p-24};
        for (dim o = 0; o < 4; ++o) bench.write(role::weights, o, weights[o]);
        bench.run({.max_isa = set});
        EXPECT_EQ(bench.read(role::dst, 0), infinity) << to_string(set);  // 65536
        EXPECT_EQ(bench.read(role::dst, 1), 65472) << to_string(set);
        EXPECT_EQ(bench.read(role::dst, 2), -infinity) << to_string(set);
        EXPECT_EQ(bench.read(role::dst, 3), 0x1p-16) << to_string(set);
        bench.write(role::src, 0, 1);
        bench.run({.max_isa = set});
        EXPECT_EQ(bench.read(role::dst, 3), 0x1p-24) << to_string(set);  // a subnormal f16
    }
}

// The smallest operands tell whether a sum of bf16 products can be subnormal, which the conversion
// of results would flush.
TEST(special_values, bf16_sums_that_cancel) {
    workbench bench;
    problem p = sized(pass::forward, data_type::bf16, 1, 1, 2, 32);
    p.x[2] = make_axis(20, 1, 1, 1, 0, 0);
    set_layouts(p, data_layout::nxc, weights_layout::xio, data_layout::nxc);
    for (const int exponent : {-50, -56, -59, -60, -61}) {
        bench.load(p, fill::integers, 1);
        const double value = std::ldexp(1, exponent);
        for (dim x = 0; x < 20; ++x) {
            bench.write(role::src, 2 * x, value * (1 + 0x1p-7));
            bench.write(role::src, 2 * x + 1, -value);
        }
        for (dim i = 0; i < 64; ++i) bench.write(role::weights, i, value);
        bench.run_reference();
        for (const isa set : usable_isas()) {
            bench.run({.max_isa = set});
            ASSERT_EQ(bench.compare_exact(), "") << to_string(set) << ' ' << exponent;
            ASSERT_EQ(bench.read(role::dst, 0), value * value * 0x1p-7) << to_string(set);
        }
    }
}

}  // namespace
}  // namespace convgrad::test
