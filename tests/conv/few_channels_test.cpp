// The drivers for few channels, by name, on what their rows and blocks find hard: tails, pads
// beyond the kernel, one pixel, an empty batch, gaps, infinities. Also where plans would not choose
// them.
#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

/// Each algorithm with the instruction sets that have it, as far as this machine can run them.
/// Emulation is slow: the matrix engine takes part in one of three cases.
std::vector<named> algorithms_of(const problem &p, std::uint64_t number) {
    std::vector<named> all;
    for (const isa set : usable_fma_isas()) all.push_back({"folded.fma", set});
    if (p.what == pass::backward_weights) {
        if (p.type == data_type::bf16) all.push_back({"folded.dot2", isa::avx512_bf16});
        if (p.ic % 8 == 0 && p.oc % 8 == 0) {
            for (const isa set : usable_fma_isas()) all.push_back({"grouped.fma", set});
            if (p.type == data_type::bf16) all.push_back({"grouped.dot2", isa::avx512_bf16});
        }
        const bool merges = p.groups > 1 && std::max(p.ic, p.oc) <= 8;
        if (merges) all.push_back({"merged.amx", isa::amx_bf16});
        if (merges && p.type == data_type::bf16) all.push_back({"merged.dot2", isa::avx512_bf16});
    } else {
        all.push_back({"folded.amx", isa::amx_bf16});
        for (const isa set : usable_fma_isas()) all.push_back({"narrow.fma", set});
        if (p.type == data_type::bf16) {
            all.push_back({"folded.dot2", isa::avx512_bf16});
            all.push_back({"narrow.dot2", isa::avx512_bf16});
        }
    }
    const bool apart = p.x[2].dilation > 1 && p.x[2].kernel > 1;  // which folded refuses
    std::erase_if(all, [&](const named &a) {
        return (apart && a.algorithm.starts_with("folded"))
               || (a.set == isa::amx_bf16 && number % 3 != 0)
               || std::ranges::find(usable_isas(), a.set) == usable_isas().end();
    });
    return all;
}

/// Sizes that do not divide anything, per pass and type.
std::vector<problem> problems(pass what, data_type type) {
    std::vector<problem> all;
    const auto add = [&](problem p, conv::axis d, conv::axis h, conv::axis w) {
        p.x = {d, h, w};
        all.push_back(p);
    };
    const conv::axis one;
    const auto few = [&](dim mb, dim ic, dim oc) { return sized(what, type, mb, 1, ic, oc); };
    const auto groups = [&](dim mb, dim g, dim ic, dim oc) {
        return sized(what, type, mb, g, ic, oc);
    };
    add(few(2, 3, 19), one, make_axis(13, 7, 2, 1, 3, 3), make_axis(23, 7, 2, 1, 3, 3));
    add(few(1, 4, 33), one, make_axis(9, 4, 4, 1, 0, 0), make_axis(37, 4, 4, 1, 2, 1));
    add(few(1, 1, 70), one, make_axis(25, 11, 4, 1, 2, 2), make_axis(15, 11, 4, 1, 5, 5));
    // Many products for each of few positions: rows are cut.
    add(few(1, 40, 80), one, make_axis(12, 8, 4, 1, 2, 2), make_axis(96, 8, 4, 1, 2, 2));
    // Long rows: positions between those that meet padding are read where they lie.
    add(few(1, 3, 34), one, make_axis(6, 3, 2, 1, 1, 1), make_axis(121, 3, 2, 1, 1, 1));
    add(few(2, 2, 40), one, make_axis(5, 3, 1, 1, 1, 1), make_axis(90, 5, 1, 1, 2, 2));
    add(few(1, 3, 19), one, make_axis(4, 2, 1, 1, 0, 1), make_axis(140, 4, 3, 1, 6, 1));
    add(groups(1, 3, 1, 20), one, make_axis(4, 3, 1, 1, 1, 1), make_axis(70, 3, 1, 1, 1, 1));
    add(few(1, 5, 3), make_axis(3, 2, 1, 2, 1, 1), make_axis(4, 3, 1, 2, 2, 2),
        make_axis(40, 3, 1, 1, 1, 1));
    add(few(1, 17, 35), one, one, make_axis(50, 2, 3, 1, 9, 8));  // pads beyond the kernel
    add(few(2, 3, 5), one, make_axis(1, 3, 2, 1, 2, 2), make_axis(1, 7, 3, 1, 6, 6));  // one pixel
    add(groups(0, 4, 4, 4), one, one, make_axis(6, 3, 1, 1, 1, 1));  // empty batch
    add(groups(2, 8, 4, 4), one, make_axis(6, 3, 1, 1, 1, 1), make_axis(9, 3, 1, 1, 1, 1));
    add(groups(1, 6, 5, 3), one, make_axis(5, 2, 2, 1, 1, 0), make_axis(19, 3, 2, 1, 1, 1));
    add(groups(1, 6, 2, 8), one, one, make_axis(33, 1, 1, 1, 0, 0));  // shuffled-style 1×1
    // Groups whose channels fill units of eight, alone or two together.
    if (what != pass::backward_weights) {
        add(groups(2, 3, 8, 8), one, make_axis(7, 3, 1, 1, 1, 1), make_axis(31, 3, 1, 1, 1, 1));
        add(groups(1, 2, 16, 12), one, make_axis(5, 3, 2, 1, 1, 1), make_axis(17, 3, 2, 1, 1, 1));
        add(groups(1, 6, 4, 20), make_axis(3, 3, 1, 2, 2, 2), one, make_axis(9, 5, 3, 1, 4, 4));
        add(groups(2, 50, 4, 4), one, make_axis(3, 2, 1, 1, 1, 0), make_axis(3, 2, 1, 1, 0, 1));
        add(few(1, 24, 20), one, one, make_axis(30, 4, 1, 1, 2, 0));
        // One to three output channels: the taps of a row are multiplied together.
        add(few(1, 36, 3), make_axis(3, 3, 1, 1, 1, 1), make_axis(5, 3, 1, 2, 2, 2),
            make_axis(21, 3, 1, 1, 1, 1));
        add(few(2, 2, 70), one, make_axis(9, 3, 1, 1, 1, 1), make_axis(37, 5, 1, 3, 6, 6));
        add(groups(1, 3, 20, 1), one, make_axis(6, 4, 2, 1, 1, 1), make_axis(18, 4, 2, 1, 1, 1));
    }
    // Eight channels by eight: images and tiles that are paired or left over, tiles of unequal
    // length, more taps in a row than go at once, groups that do not fill a panel.
    if (what == pass::backward_weights) {
        add(groups(3, 4, 8, 8), one, make_axis(7, 3, 1, 1, 1, 1), make_axis(31, 3, 1, 1, 1, 1));
        add(groups(1, 10, 8, 8), one, make_axis(25, 3, 1, 1, 1, 1), make_axis(33, 3, 1, 1, 1, 1));
        add(groups(2, 3, 16, 8), one, make_axis(5, 3, 2, 1, 1, 1), make_axis(17, 5, 2, 1, 2, 2));
        add(groups(1, 2, 8, 24), make_axis(3, 3, 1, 2, 2, 2), one, make_axis(9, 7, 3, 1, 4, 4));
        add(groups(3, 1, 24, 16), one, make_axis(6, 2, 1, 3, 3, 0), make_axis(11, 4, 1, 2, 3, 3));
        add(groups(1, 6, 8, 8), one, one, make_axis(700, 3, 1, 1, 5, 0));
    }
    // More reduced channels than are packed at once, and an odd number of them.
    add(few(1, 131, 67), one, make_axis(5, 3, 1, 1, 1, 1), make_axis(6, 3, 1, 1, 1, 1));
    add(groups(2, 4, 7, 7), one, make_axis(7, 3, 1, 3, 3, 3), make_axis(7, 3, 1, 1, 1, 1));
    return all;
}

constexpr pass passes[] = {pass::forward, pass::backward_data, pass::backward_weights};
constexpr data_type types[] = {data_type::f32, data_type::bf16, data_type::f16};

template <typename Body>
void for_each_case(Body &&body) {
    std::uint64_t seed = 1;
    for (const pass what : passes)
        for (const data_type type : types)
            for (const problem &base : problems(what, type))
                for (const data_layout layout :
                    {data_layout::nxc, data_layout::ncx, data_layout::nxc_gaps, data_layout::cxn}) {
                    problem p = base;
                    rng random(++seed);
                    set_layouts(p, layout,
                        all_weights_layouts[random.next() % std::size(all_weights_layouts)],
                        layout);
                    set_random_extras(random, p);
                    body(p, seed);
                    if (testing::Test::HasFatalFailure()) return;
                }
}

TEST(few_channels, exact_on_integers) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::integers, seed);
        bench.run_reference();
        for (const named &a : algorithms_of(p, seed))
            for (const int threads : {1, 3}) {
                bench.run({.max_isa = a.set, .threads = threads, .algorithm = a.algorithm});
                ASSERT_EQ(bench.compare_exact(), "")
                    << a.algorithm << " " << to_string(a.set) << " threads " << threads;
            }
    });
}

TEST(few_channels, infinities_and_nan) {
    workbench bench;
    constexpr double infinity = std::numeric_limits<double>::infinity();
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::reals, seed);
        rng random(seed);
        for (const role r : {role::src, role::weights, role::dst}) {
            if (r == output_of(p) || random.chance(0.4)) continue;
            std::vector<dim> offsets;
            for_each_element(
                extents_of(p, r), [&](const auto &, dim offset) { offsets.push_back(offset); });
            if (!offsets.empty())
                bench.write(r, offsets[random.next() % offsets.size()],
                    random.pick({infinity, -infinity, std::numeric_limits<double>::quiet_NaN()}));
        }
        bench.run_reference();
        for (const named &a : algorithms_of(p, seed)) {
            bench.run({.max_isa = a.set, .algorithm = a.algorithm});
            ASSERT_EQ(bench.compare_bounded(), "") << a.algorithm << " " << to_string(a.set);
        }
    });
}

// Same bits for any number of threads, on numbers that round.
TEST(few_channels, same_bits_for_any_number_of_threads) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::reals, seed);
        for (const named &a : algorithms_of(p, seed)) {
            bench.run({.max_isa = a.set, .threads = 1, .algorithm = a.algorithm});
            const auto alone = bench.output_bytes();
            bench.run({.max_isa = a.set, .threads = 5, .algorithm = a.algorithm});
            ASSERT_EQ(bench.output_bytes(), alone) << a.algorithm << " " << to_string(a.set);
        }
    });
}

// Groups of eight and more channels, side by side or in planes, with nothing behind the product:
// results may leave from registers, zeros and subnormal numbers too.
TEST(few_channels, quads_of_pairs_alone) {
    if (std::ranges::find(usable_isas(), isa::avx512_bf16) == usable_isas().end()) GTEST_SKIP();
    workbench bench;
    std::uint64_t seed = 0;
    for (const pass what : {pass::forward, pass::backward_data})
        for (const dim width : {1, 2, 7, 13, 14, 15, 29, 40})
            for (const data_layout layout :
                {data_layout::nxc, data_layout::nxc_gaps, data_layout::ncx})
                for (const fill with : {fill::integers, fill::reals}) {
                    const bool wide = ++seed % 2 == 0;
                    problem p = sized(what, data_type::bf16, 2, 5, wide ? 24 : 8, wide ? 16 : 8);
                    p.x[1] = make_axis(5, 3, 1, 1, 1, 1);
                    p.x[2] = make_axis(width, 3, 1, 1, 1, 1);
                    set_layouts(p, layout, weights_layout::oix, layout);
                    bench.load(p, with, seed);
                    if (with == fill::reals) bench.write(role::weights, 0, 0x1p-110);
                    bench.run_reference();
                    for (const int threads : {1, 3}) {
                        bench.run({.max_isa = isa::avx512_bf16,
                            .threads = threads,
                            .algorithm = "narrow.dot2"});
                        ASSERT_EQ(with == fill::integers ? bench.compare_exact()
                                                         : bench.compare_bounded(),
                            "")
                            << to_text(p);
                    }
                }
}

}  // namespace
}  // namespace convgrad::test
