// What Winograd's tiles do to data of many scales, to subnormal numbers and to zeros: no more than
// docs/winograd.md says, and nothing at all where direct sums are asked for.
#include <cmath>

#include <gtest/gtest.h>

#include "cpu/winograd.hpp"
#include "support/winograd_bound.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

constexpr pass passes[] = {pass::forward, pass::backward_data, pass::backward_weights};
constexpr std::string_view names[] = {"winograd2x2.fma", "winograd4x2.fma", "winograd4x4.fma"};

std::string_view name_of(cpu::winograd_tile tile) {
    return names[static_cast<std::size_t>(tile)];
}

problem layer(pass what, data_layout layout, dim channels = 36, dim side = 11) {
    problem p;
    p.what = what;
    p.mb = 2;
    p.ic = channels;
    p.oc = channels - 3;
    p.x[1] = p.x[2] = make_axis(side, 3, 1, 1, 1, 1);
    set_layouts(p, layout, weights_layout::xio, layout);
    return p;
}

/// Puts body(role, index) into every element of the inputs.
template <typename Body>
void fill_inputs(workbench &bench, const Body &body) {
    for (const role r : {role::src, role::weights, role::dst})
        if (r != output_of(bench.problem()))
            for_each_element(extents_of(bench.problem(), r),
                [&](const auto &at, dim offset) { bench.write(r, offset, body(r, at)); });
}

/// Calls body for each tile on each instruction set that has tiles.
template <typename Body>
void for_each_tile(const Body &body) {
    for (const isa set : usable_fma_isas())
        for (const cpu::winograd_tile tile : cpu::all_winograd_tiles) body(set, tile);
}

/// Positions of a tensor of data; weights have one scale.
bool odd_position(role r, const std::array<dim, 6> &at) {
    return r != role::weights && (at[2] + at[3] + at[4]) % 2 != 0;
}

// Neighbours that are 2^20 or 2^40 apart: the bound is that of the largest, for small results too.
// A strict sum keeps each result's own.
TEST(winograd_scales, neighbours_far_apart_stay_within_the_bound_of_the_largest) {
    workbench bench;
    for (const pass what : passes)
        for (const int apart : {20, 40})
            for (const data_layout layout : {data_layout::nxc, data_layout::ncx}) {
                problem p = layer(what, layout);
                p.math = math_mode::strict;
                rng random(static_cast<std::uint64_t>(apart));
                bench.load(p, fill::reals, 1);
                fill_inputs(bench, [&](role r, const auto &at) {
                    return (2 * random.unit() - 1)
                           * (odd_position(r, at) ? 1 : std::ldexp(1, apart));
                });
                bench.run_reference();
                for_each_tile([&](isa set, cpu::winograd_tile tile) {
                    bench.run({.max_isa = set, .algorithm = name_of(tile)});
                    EXPECT_EQ(bench.compare_bounded(winograd_leniency(bench, tile)), "")
                        << to_string(set) << ' ' << name_of(tile);
                });
                const run_report strict = bench.run({.max_isa = usable_isas().back()});
                EXPECT_FALSE(winograd_tile_of(strict.algorithm));
                EXPECT_EQ(bench.compare_bounded(), "") << strict.algorithm;
            }
}

// Points of subnormal numbers are multiples of 2^-149, as they are; each result is off by at most
// that, times what it is multiplied by and the growth of a tile.
TEST(winograd_scales, subnormal_operands_lose_what_lies_below_the_smallest_number) {
    workbench bench;
    for (const pass what : passes)
        for (const double other : {1.0, 0x1p60}) {
            const problem p = layer(what, data_layout::nxc);
            const role small = what == pass::backward_data ? role::dst : role::src;
            rng random(7);
            bench.load(p, fill::reals, 1);
            fill_inputs(bench, [&](role r, const auto &) {
                const double v = 2 * random.unit() - 1;
                return r == small ? v * 0x1p-130 : v * other;
            });
            bench.run_reference();
            for_each_tile([&](isa set, cpu::winograd_tile tile) {
                bench.run({.max_isa = set, .algorithm = name_of(tile)});
                leniency allowed = winograd_leniency(bench, tile);
                // In that bound 2^-24 of the largest is a rounding; here it is 2^-150.
                allowed.absolute *= 1 + 0x1p-150 / (0x1p-24 * 0x1p-130);
                EXPECT_EQ(bench.compare_bounded(allowed), "")
                    << to_string(set) << ' ' << name_of(tile);
            });
        }
}

/// Results that meet nothing but zeros, in the middle of others.
struct hole {
    double largest = 0, square = 0, count = 0;  // in the hole; of all others
};

hole look_into_hole(const workbench &bench, dim first, dim last) {
    hole h;
    for_each_element(
        extents_of(bench.problem(), output_of(bench.problem())), [&](const auto &at, dim offset) {
            const double v = bench.read(output_of(bench.problem()), offset);
            const auto inside = [&](dim x) { return x > first && x < last; };
            if (inside(at[3]) && inside(at[4]))
                h.largest = std::max(h.largest, std::fabs(v));
            else
                h.square += v * v, h.count += 1;
        });
    return h;
}

// Inputs [first, last] are zeros, so that results inside it have zeros only.
TEST(winograd_scales, zeros_are_exact_with_2x2_and_nearly_so_with_others) {
    workbench bench;
    constexpr dim side = 20, first = 5, last = 14;
    for (const pass what : {pass::forward, pass::backward_data})
        for (const bool whole : {true, false}) {
            const problem p = layer(what, data_layout::nxc, 36, side);
            rng random(3);
            bench.load(p, fill::reals, 1);
            fill_inputs(bench, [&](role r, const auto &at) {
                const auto inside = [&](dim x) { return x >= first && x <= last; };
                if (r != role::weights && inside(at[3]) && inside(at[4])) return 0.0;
                return whole ? static_cast<double>(random.between(-4, 4)) : 2 * random.unit() - 1;
            });
            for_each_tile([&](isa set, cpu::winograd_tile tile) {
                bench.run({.max_isa = set, .algorithm = name_of(tile)});
                const hole h = look_into_hole(bench, first, last);
                const double rms = std::sqrt(h.square / h.count);
                EXPECT_GT(rms, 0);
                EXPECT_LE(h.largest, 4e-6 * rms) << to_string(set) << ' ' << name_of(tile);
                if (whole && tile == cpu::winograd_tile::f2x2) {
                    EXPECT_EQ(h.largest, 0) << to_string(set);
                }
            });
            // Nothing but zeros: zeros from every tile.
            fill_inputs(
                bench, [&](role r, const auto &) { return r == role::weights ? 0.7 : 0.0; });
            bench.run_reference();
            for_each_tile([&](isa set, cpu::winograd_tile tile) {
                bench.run({.max_isa = set, .algorithm = name_of(tile)});
                EXPECT_EQ(bench.compare_bounded(), "") << to_string(set) << ' ' << name_of(tile);
                EXPECT_EQ(look_into_hole(bench, first, last).square, 0);
            });
        }
}

}  // namespace
}  // namespace convgrad::test
