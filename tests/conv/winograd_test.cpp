// Winograd's algorithm by name on every instruction set: exact on integers where its points are
// (tiles of 2×2), otherwise within a bound derived from its matrices; NaN and infinities as in the
// plain sum; the same bits on any number of threads; workspaces as stated.
#include <array>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <convgrad/error.hpp>

#include "cpu/winograd.hpp"
#include "support/pools.hpp"
#include "support/sanitizers.hpp"
#include "support/winograd_bound.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

constexpr std::string_view names[] = {"winograd2x2.fma", "winograd4x2.fma", "winograd4x4.fma"};
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

std::span<const isa> sets() {
    return usable_fma_isas();
}

/// Taps and stride of an axis.
struct filter_axis {
    dim kernel, stride;
};

/// One whose filters have kernels: 2 to 5 taps, for each residue modulo a stride, of which the last
/// may be missing.
filter_axis random_filter(rng &random) {
    return random.pick<filter_axis>({{3, 1}, {3, 1}, {3, 1}, {3, 1}, {2, 1}, {4, 2}, {4, 2}, {3, 2},
        {6, 3}, {4, 1}, {5, 1}, {5, 1}, {5, 2}});
}

/// Those that a layer has.
std::vector<std::string_view> names_for(const problem &p) {
    std::vector<std::string_view> some;
    for (std::size_t t = 0; t < 3; ++t)
        if (cpu::winograd_has(cpu::taps_for(p), static_cast<cpu::winograd_tile>(t)))
            some.push_back(names[t]);
    return some;
}

/// A random layer for tiles, with a liking for tails of tiles, of channels and of panels; some with
/// dilation, some with a third axis.
problem random_layer(rng &random, dim most_channels = 70) {
    problem p;
    p.what = random.pick({pass::forward, pass::backward_data, pass::backward_weights});
    p.type = p.out_type =
        random.pick({data_type::f32, data_type::f32, data_type::bf16, data_type::f16});
    p.mb = random.between(1, 3);
    p.groups = random.chance(0.2) ? random.between(2, 3) : 1;
    p.ic = random.between(1, most_channels);
    p.oc = random.between(1, most_channels);
    const filter_axis filter = random_filter(random);
    const dim taps = (filter.kernel + filter.stride - 1) / filter.stride;
    for (std::size_t a = 1; a < 3; ++a) do {
            // The same taps, of the same residues or without a stride.
            const dim stride = random.chance(0.2) ? 1 : filter.stride;
            const dim kernel = stride == 1 ? taps : filter.kernel;
            const dim dilation = stride == 1 && random.chance(0.25) ? random.between(2, 4) : 1;
            const dim reach = (kernel - 1) * dilation;
            p.x[a] = make_axis(random.between(1, 13 * stride), kernel, stride, dilation,
                random.between(0, reach + 2), random.between(-2, reach + 2));
        } while (p.x[a].dst < 1);
    const bool line = random.chance(0.2), volume = !line && random.chance(0.25);
    if (line) {
        const std::size_t a = random.chance(0.5) ? 1 : 2;
        p.x[a] = make_axis(random.chance(0.5) ? 1 : random.between(1, 9), 1, 1, 1, 0, 0);
    }
    while (volume) {
        p.x[0] = make_axis(random.between(1, 4), random.between(1, 3), 1, random.between(1, 2),
            random.between(0, 2), random.between(-1, 2));
        if (p.x[0].dst >= 1) break;
    }
    if (volume || p.x[1].stride * p.x[2].stride > 1) {
        // Channels of several planes and residues follow each other in whole vectors.
        p.ic = random.between(1, std::max<dim>(1, most_channels / 16)) * 16;
        p.oc = random.between(1, std::max<dim>(1, most_channels / 16)) * 16;
    }
    set_random_extras(random, p);
    if (random.chance(0.3))
        set_random_layouts(random, p);
    else {
        const data_layout data = random.pick({data_layout::nxc, data_layout::ncx});
        set_layouts(p, data, random.pick({weights_layout::xio, weights_layout::oix}), data);
    }
    return p;
}

/// Runs a tile by its name on an instruction set, and proves that it did.
void run_tile(workbench &bench, isa set, std::string_view name, int threads = 1,
    thread_pool *pool = nullptr) {
    const run_report report =
        bench.run({.max_isa = set, .threads = threads, .pool = pool, .algorithm = name});
    ASSERT_EQ(report.algorithm, name);
    ASSERT_EQ(report.set, set);
}

TEST(winograd, integers_are_exact_by_tiles_of_2x2) {
    workbench bench;
    for (std::uint64_t seed = 1; seed <= sampled<std::uint64_t>(1500, 8); ++seed) {
        rng random(seed);
        bench.load(random_layer(random), fill::integers, seed);
        bench.run_reference();
        const auto some = names_for(bench.problem());
        if (some[0] != names[0]) continue;
        for (const isa set : sets()) {
            run_tile(bench, set, names[0]);
            ASSERT_EQ(bench.compare_exact(), "") << to_string(set) << " seed " << seed;
        }
    }
}

// Filters that are not kept, sums that no core's cache holds, several blocks of tiles.
TEST(winograd, integers_of_many_channels) {
    struct size {
        dim ic, oc, mb, side;
        bool data;
        filter_axis filter = {3, 1};
    };
    workbench bench;
    spawning_pool pool;
    for (const size &at : {size{450, 440, 1, 5, true}, size{170, 190, 2, 7, true},
             size{176, 176, 3, 40, false}, size{272, 304, 2, 8, true, {4, 2}},
             size{144, 160, 1, 11, true, {3, 2}}, size{210, 190, 1, 9, true, {5, 1}}}) {
        if (is_sanitized && !at.data) continue;
        for (const pass what : {pass::forward, pass::backward_data, pass::backward_weights}) {
            if (!at.data && what != pass::backward_weights) continue;
            problem p;
            p.what = what;
            p.mb = at.mb;
            p.ic = at.ic;
            p.oc = at.oc;
            p.x[1] = make_axis(at.side, at.filter.kernel, at.filter.stride, 1, 1, 1);
            p.x[2] = make_axis(at.side + 1, at.filter.kernel, at.filter.stride, 1, 0, 1);
            set_layouts(p, data_layout::nxc, weights_layout::xio, data_layout::nxc);
            bench.load(p, fill::integers, 3);
            bench.run_reference();
            for (const isa set : sets())
                for (const std::string_view name : names_for(p)) {
                    if (!at.data && (set != sets().back() || name != names[0])) continue;  // slow
                    run_tile(bench, set, name);
                    ASSERT_EQ(compare_integers(bench, name), "") << to_string(set) << ' ' << name;
                    const auto alone = bench.output_bytes();
                    for (const int threads : {2, 7}) {
                        run_tile(bench, set, name, threads, &pool);
                        ASSERT_EQ(bench.output_bytes(), alone) << threads << " threads, " << name;
                    }
                }
        }
    }
}

// <F(m) g, x> over one tile of every size: ragged edges take some of the points.
TEST(winograd, adjoint_on_ragged_maps) {
    workbench bench;
    for (std::uint64_t seed = 1; seed <= sampled<std::uint64_t>(120, 8); ++seed) {
        rng random(seed);
        problem p;
        p.mb = random.between(1, 2);
        const filter_axis filter = random_filter(random);
        p.ic = filter.stride == 1 ? random.between(16, 40) : 32;
        p.oc = filter.stride == 1 ? random.between(16, 40) : 48;
        for (std::size_t a = 1; a < 3; ++a)
            p.x[a] = make_axis(random.between(filter.kernel, 15 * filter.stride), filter.kernel,
                filter.stride, 1, random.between(0, 2), random.between(0, 2));
        set_layouts(p, data_layout::nxc, weights_layout::xio, data_layout::nxc);
        const isa set = sets()[seed % sets().size()];
        for (const std::string_view name : names_for(p)) {
            // One loss, three ways: Σ dst · (src ∗ weights). The operands of a seed are the same in
            // every pass.
            double loss[3] = {}, scale = 0;
            int way = 0;
            for (const pass what : {pass::forward, pass::backward_data, pass::backward_weights}) {
                p.what = what;
                bench.load(p, fill::reals, seed);
                for (const role r : {role::src, role::weights, role::dst})
                    for_each_element(extents_of(p, r), [&](const auto &, dim offset) {
                        rng value(seed * 3 + static_cast<std::uint64_t>(r)
                                  + 1000 * static_cast<std::uint64_t>(offset));
                        if (r != output_of(p))
                            bench.write(r, offset, static_cast<double>(value.between(-9, 9)) / 8);
                    });
                run_tile(bench, set, name);
                for_each_element(extents_of(p, output_of(p)), [&](const auto &, dim offset) {
                    rng value(seed * 3 + static_cast<std::uint64_t>(output_of(p))
                              + 1000 * static_cast<std::uint64_t>(offset));
                    const double other = static_cast<double>(value.between(-9, 9)) / 8,
                                 mine = bench.read(output_of(p), offset);
                    loss[way] += other * mine;
                    scale += std::fabs(other * mine);
                });
                ++way;
            }
            EXPECT_NEAR(loss[1], loss[0], 1e-6 * scale) << name << ' ' << to_text(p);
            EXPECT_NEAR(loss[2], loss[0], 1e-6 * scale) << name << ' ' << to_text(p);
        }
    }
}

TEST(winograd, reals_within_the_bound_of_its_matrices) {
    workbench bench;
    for (std::uint64_t seed = 1; seed <= sampled<std::uint64_t>(600, 8); ++seed) {
        rng random(seed);
        bench.load(random_layer(random, 50), fill::reals, seed);
        bench.run_reference();
        const isa set = sets()[seed % sets().size()];
        for (const std::string_view name : names_for(bench.problem())) {
            run_tile(bench, set, name);
            ASSERT_EQ(bench.compare_bounded(leniency_of(bench, name)), "")
                << to_string(set) << ' ' << name << " seed " << seed;
        }
    }
}

// What is tested above are transforms, not the direct sums that stand in for them.
TEST(winograd, transforms_are_used_where_all_is_finite) {
    workbench bench;
    for (std::uint64_t seed = 1; seed <= 150; ++seed) {
        rng random(seed);
        problem p = random_layer(random);
        p.type = p.out_type = data_type::f32;
        p.x[0] = make_axis(1, 1, 1, 1, 0, 0);
        p.ic += 10;
        p.oc += 10;
        p.relu = p.accumulate = false;
        const filter_axis filter = random_filter(random);
        p.x[1] = p.x[2] =
            make_axis(random.between(5, 12) * filter.stride, filter.kernel, filter.stride, 1, 1, 1);
        if (filter.stride > 1) p.ic = 32, p.oc = 48;
        set_layouts(p, data_layout::nxc, weights_layout::xio, data_layout::nxc);
        bench.load(p, fill::reals, seed);
        for (const isa set : sets()) {
            bench.run({.max_isa = set, .algorithm = "tiled.fma"});
            std::vector<float> direct;
            for_each_element(extents_of(p, output_of(p)), [&](const auto &, dim offset) {
                direct.push_back(static_cast<float>(bench.read(output_of(p), offset)));
            });
            for (const std::string_view name : names_for(p)) {
                run_tile(bench, set, name);
                std::size_t i = 0, unlike = 0;
                for_each_element(extents_of(p, output_of(p)), [&](const auto &, dim offset) {
                    unlike += static_cast<float>(bench.read(output_of(p), offset)) != direct[i++];
                });
                ASSERT_GT(unlike, i / 4) << to_string(set) << ' ' << name << ' ' << to_text(p);
            }
        }
    }
}

TEST(winograd, special_values_as_in_the_plain_sum) {
    workbench bench;
    for (std::uint64_t seed = 1; seed <= sampled<std::uint64_t>(1000, 8); ++seed) {
        rng random(seed);
        const problem p = random_layer(random, 40);
        bench.load(p, fill::reals, seed);
        for (const role r : {role::src, role::weights, role::dst}) {
            if (r == output_of(p) || random.chance(0.4)) continue;
            std::vector<dim> offsets;
            for_each_element(
                extents_of(p, r), [&](const auto &, dim offset) { offsets.push_back(offset); });
            for (dim i = random.between(1, 3); i > 0; --i)
                bench.write(r, offsets[random.next() % offsets.size()],
                    random.pick({nan, infinity, -infinity}));
        }
        bench.run_reference();
        const isa set = sets()[seed % sets().size()];
        for (const std::string_view name : names_for(bench.problem())) {
            run_tile(bench, set, name);
            ASSERT_EQ(bench.compare_bounded(leniency_of(bench, name)), "")
                << to_string(set) << ' ' << name << " seed " << seed;
        }
    }
}

// Values whose transforms overflow while the sum does not.
TEST(winograd, sums_that_stay_finite_do) {
    workbench bench;
    for (int i = 0; i < 12; ++i) {
        const pass what =
            std::array{pass::forward, pass::backward_data, pass::backward_weights}[i % 3];
        const filter_axis filter =
            std::array<filter_axis, 4>{{{3, 1}, {4, 2}, {3, 2}, {5, 1}}}[i / 3];
        problem p;
        p.what = what;
        p.mb = 1;
        p.ic = p.oc = filter.stride == 1 ? 20 : 32;
        p.x[1] = p.x[2] = make_axis(9 * filter.stride, filter.kernel, filter.stride, 1, 1, 1);
        set_layouts(p, data_layout::nxc, weights_layout::xio, data_layout::nxc);
        bench.load(p, fill::reals, 5);
        for (const role r : {role::src, role::weights, role::dst})
            if (r != output_of(p))
                for_each_element(extents_of(p, r), [&](const auto &at, dim offset) {
                    const bool big = r == (what == pass::backward_data ? role::dst : role::src);
                    const double sign = (at[3] + at[4] + at[5]) % 2 == 0 ? 1 : -1;
                    bench.write(r, offset, sign * (big ? 0x1p126 : 0x1p-8));
                });
        bench.run_reference();
        for (const isa set : sets())
            for (const std::string_view name : names_for(p)) {
                run_tile(bench, set, name);
                ASSERT_EQ(bench.compare_bounded(), "") << to_string(set) << ' ' << name;
            }
    }
}

TEST(winograd, same_bits_for_any_threads) {
    workbench bench;
    spawning_pool pool;
    for (std::uint64_t seed = 1; seed <= sampled<std::uint64_t>(150, 8); ++seed) {
        rng random(seed);
        problem p = random_layer(random, 150);
        const filter_axis filter = random_filter(random);
        p.x[1] = p.x[2] = make_axis(random.between(6, 30), filter.kernel, filter.stride, 1, 1, 1);
        if (filter.stride > 1) p.ic = (p.ic + 15) / 16 * 16, p.oc = (p.oc + 15) / 16 * 16;
        set_layouts(p, data_layout::nxc, weights_layout::xio, data_layout::nxc);
        bench.load(p, fill::reals, seed);
        if (seed % 3 == 0) bench.write(output_of(p) == role::src ? role::dst : role::src, 3, nan);
        for (const std::string_view name : names_for(p)) {
            const isa set = sets()[seed % sets().size()];
            run_tile(bench, set, name);
            const auto alone = bench.output_bytes();
            for (const int threads : {2, 5, 16}) {
                run_tile(bench, set, name, threads, &pool);
                ASSERT_EQ(bench.output_bytes(), alone)
                    << threads << " threads, " << name << ", " << to_text(p);
            }
        }
    }
}

// Few threads sum shares of the channels (or groups), each from tiles of its own: the same sums.
TEST(winograd, shares_of_few_threads) {
    struct layer {
        const char *shares;
        int threads;
        dim groups, ic, oc, mb, side;
        data_layout layout = data_layout::nxc;
        filter_axis filter = {3, 1};
        weights_layout weights = weights_layout::xio;
        bool accumulate = false;
    };
    workbench bench;
    spawning_pool pool;
    for (const layer &at : {layer{"2 shares of the output", 2, 1, 90, 183, 4, 15},
             layer{"2 shares of the input", 2, 1, 183, 101, 4, 15},
             layer{"3 shares of the output", 3, 1, 120, 280, 4, 15},
             layer{"4 shares of the groups", 2, 4, 90, 140, 3, 11},
             layer{"2 shares of the input", 2, 1, 48, 101, 4, 29, data_layout::nxc, {4, 2}},
             layer{"2 shares of the output", 2, 1, 48, 180, 2, 29, data_layout::ncx, {3, 2}},
             layer{"2 shares of the output", 2, 1, 100, 192, 6, 37},
             // Filters in one piece leave at once where one source has all taps; sums that are
             // added to leave when all are known to be finite.
             layer{"2 shares of the output", 2, 1, 90, 183, 2, 15, data_layout::nxc, {3, 1},
                 weights_layout::oix},
             layer{"2 shares of the input", 2, 1, 48, 101, 2, 29, data_layout::nxc, {4, 2},
                 weights_layout::oix},
             layer{"2 shares of the output", 2, 1, 90, 183, 2, 15, data_layout::nxc, {3, 1},
                 weights_layout::xio, true}}) {
        problem p;
        p.what = pass::backward_weights;
        p.mb = at.mb, p.groups = at.groups, p.ic = at.ic, p.oc = at.oc;
        for (int axis : {1, 2})
            p.x[axis] = make_axis(at.side + axis, at.filter.kernel, at.filter.stride, 1, 1, 1);
        set_layouts(p, at.layout, at.weights, at.layout);
        p.accumulate = at.accumulate;
        if (is_sanitized && at.mb > 4) continue;
        bench.load(p, fill::integers, 3);
        bench.run_reference();
        for (const isa set : sets())
            for (const std::string_view name : names_for(p)) {
                if (set != sets().back() && name != names[0]) continue;
                if (set == isa::avx512) {
                    const std::string text = cpu::make_plan(
                        p, {.max_isa = set, .threads = at.threads, .only_algorithm = name})
                                                 ->describe();
                    ASSERT_NE(text.find(at.shares), text.npos)
                        << name << ' ' << to_text(p) << ' ' << text;
                }
                run_tile(bench, set, name);
                ASSERT_EQ(compare_integers(bench, name), "") << to_string(set) << ' ' << name;
                const auto alone = bench.output_bytes();
                run_tile(bench, set, name, at.threads, &pool);
                ASSERT_EQ(bench.output_bytes(), alone) << at.shares << ' ' << name;
            }
    }
}

// A limit is met with the same bits of the data passes, or refused.
// Filters in transformed form, made once, also where each task would make them for itself.
TEST(winograd, prepared_filters_give_the_same_bits) {
    workbench bench;
    spawning_pool pool;
    int some = 0;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        rng random(seed);
        bench.load(random_layer(random), fill::reals, seed);
        const bool gradient = bench.problem().what == pass::backward_weights;
        const isa set = sets()[seed % sets().size()];
        for (const std::string_view name : names_for(bench.problem())) {
            run_options how{.max_isa = set, .algorithm = name};
            const std::size_t free = bench.run(how).workspace;
            const auto plain = bench.output_bytes();
            how.constant_weights = true;
            how.threads = 1 + static_cast<int>(seed % 3);
            how.pool = &pool;
            for (const std::size_t limit : {free, free - free / 3, free / 2}) try {
                    if (how.threads == 1 && !gradient) how.workspace_limit = limit;
                    ASSERT_EQ(bench.run(how).prepared == 0, gradient);
                    ASSERT_EQ(bench.output_bytes(), plain) << to_string(set) << ' ' << name;
                    some += gradient ? 0 : 1;
                } catch (const error &e) {
                    ASSERT_EQ(e.code(), error_code::out_of_memory) << e.what();
                }
        }
    }
    EXPECT_GT(some, 100);
}

TEST(winograd, workspace_limits) {
    workbench bench;
    int leaner = 0;
    for (std::uint64_t seed = 1; seed <= sampled<std::uint64_t>(200, 8); ++seed) {
        rng random(seed);
        const problem p = random_layer(random);
        bench.load(p, fill::integers, seed);
        bench.run_reference();
        const isa set = sets()[seed % sets().size()];
        const std::string_view name = names_for(p)[0];
        const std::size_t free =
            bench.run({.max_isa = set, .threads = 3, .algorithm = name}).workspace;
        for (const std::size_t limit : {free - free / 4, free / 2, free / 4, free / 16}) try {
                const run_report report = bench.run(
                    {.max_isa = set, .threads = 3, .algorithm = name, .workspace_limit = limit});
                ASSERT_LE(report.workspace, limit);
                ASSERT_EQ(compare_integers(bench, name), "") << "limit " << limit;
                ++leaner;
            } catch (const error &e) {
                ASSERT_TRUE(
                    e.code() == error_code::unsupported || e.code() == error_code::out_of_memory)
                    << e.what();
            }
    }
    EXPECT_GT(leaner, 50 / (is_sanitized ? 8 : 1));
}

// Free choice: never in strict mode, and by default only where the error is a plain sum's at most.
TEST(winograd, math_modes_decide) {
    for (const pass what : {pass::forward, pass::backward_data, pass::backward_weights})
        for (const dim channels : {64, 128, 512}) {
            problem p;
            p.what = what;
            p.mb = 8;
            p.ic = p.oc = channels;
            p.x[1] = p.x[2] = make_axis(28, 3, 1, 1, 1, 1);
            set_layouts(p, data_layout::nxc, weights_layout::xio, data_layout::nxc);
            const auto chosen = [&](math_mode math) {
                p.math = math;
                return std::string(cpu::make_plan(p, {.max_isa = isa::avx512})->algorithm());
            };
            EXPECT_EQ(chosen(math_mode::strict), "tiled.fma");
            EXPECT_EQ(chosen(math_mode::fast), "winograd4x4.fma");
            const bool weights = what == pass::backward_weights;
            EXPECT_EQ(chosen(math_mode::accurate), weights || channels >= 512 ? "winograd4x4.fma"
                                                   : channels >= 128          ? "winograd4x2.fma"
                                                                              : "winograd2x2.fma");
        }
}

// A stride that does not divide the taps leaves residues with one tap less, whose filters vanish at
// a point of the axis: of 2 · 6 points 11 are left.
TEST(winograd, filters_that_vanish_are_not_multiplied) {
    for (const pass what : {pass::forward, pass::backward_data, pass::backward_weights})
        for (const filter_axis filter : {filter_axis{3, 2}, {5, 2}, {4, 2}, {3, 1}}) {
            problem p;
            p.what = what;
            p.ic = p.oc = 16;
            p.x[1] = p.x[2] = make_axis(28, filter.kernel, filter.stride, 1, 1, 1);
            const double left = filter.kernel % filter.stride != 0 ? 11.0 / 12 : 1;
            EXPECT_DOUBLE_EQ(
                cpu::winograd_map(p, cpu::winograd_tile::f4x4).multiplied(), left * left);
        }
}

}  // namespace
}  // namespace convgrad::test
