// The depthwise algorithms by name, on every instruction set: tails of channels and columns, small
// and large planes, strides, dilation, pads beyond the kernel, channel multipliers, epilogues,
// views with gaps, special values, and the same bits for any number of threads.
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

constexpr pass passes[] = {pass::forward, pass::backward_data, pass::backward_weights};
constexpr data_type types[] = {data_type::f32, data_type::bf16, data_type::f16};

struct kind {
    std::string_view algorithm;
    data_layout layout;
    bool gaps;  // between columns and rows, as in a view of a larger tensor
};
constexpr kind kinds[] = {{"depthwise.fma", data_layout::nxc, false},
    {"depthwise.fma", data_layout::nxc, true}, {"planes.fma", data_layout::ncx, false},
    {"planes.fma", data_layout::ncx, true}, {"turned.fma", data_layout::ncx, false}};

/// Moves what is not innermost apart.
void set_gaps(
    conv::data_strides &s, const std::array<dim, 3> &length, dim channels, bool channels_last) {
    dim next = 1;
    if (channels_last) next = s.c * channels + 3;
    for (std::size_t a = 3; a-- > 0;) {
        s.x[a] = next;
        next = next * length[a] + 2;
    }
    if (!channels_last) {
        s.c = next;
        next *= channels;
    }
    s.n = next + 1;
}

void set_layouts(problem &p, const kind &k, weights_layout weights) {
    set_layouts(p, k.layout, weights, k.layout);
    if (!k.gaps) return;
    const bool last = k.layout == data_layout::nxc;
    set_gaps(p.src, {p.x[0].src, p.x[1].src, p.x[2].src}, p.groups, last);
    set_gaps(p.dst, {p.x[0].dst, p.x[1].dst, p.x[2].dst}, p.groups * p.oc, last);
    if (p.add) p.add_strides = p.what == pass::forward ? p.dst : p.src;
}

problem depthwise(pass what, data_type type, dim mb, dim groups, dim multiplier) {
    return sized(what, type, mb, groups, 1, multiplier);
}

void expect_exact(workbench &bench, problem p, const kind &k, std::uint64_t seed) {
    set_layouts(p, k, all_weights_layouts[seed % 5]);
    bench.load(p, fill::integers, seed);
    bench.run_reference();
    for (const isa set : usable_fma_isas()) {
        for (const int threads : {1, 3}) {
            const run_report ran =
                bench.run({.max_isa = set, .threads = threads, .algorithm = k.algorithm});
            ASSERT_EQ(ran.algorithm, k.algorithm);
            ASSERT_EQ(ran.set, set);
            ASSERT_EQ(bench.compare_exact(), "") << k.algorithm << ' ' << to_string(set)
                                                 << " threads " << threads << ' ' << to_text(p);
        }
    }
}

/// Calls body(problem with sizes but without layouts, kind, seed).
template <typename Body>
void for_each_case(dim mb, dim groups, dim multiplier, Body &&body) {
    std::uint64_t seed = 1;
    for (const kind &k : kinds)
        for (const pass what : passes)
            for (const data_type type : types) {
                if (multiplier > 1 && k.algorithm != "planes.fma") continue;
                body(depthwise(what, type, mb, groups, multiplier), k, ++seed);
                if (testing::Test::HasFatalFailure()) return;
            }
}

TEST(depthwise, tails_of_channels_and_columns) {
    workbench bench;
    for (const dim groups : {1, 7, 16, 33, 70})
        for (const dim width : {1, 2, 7, 15, 18}) {
            for_each_case(2, groups, 1, [&](problem p, const kind &k, std::uint64_t seed) {
                p.x[1] = make_axis(5, 3, 1, 1, 1, 1);
                p.x[2] = make_axis(width, 3, 1, 1, 1, 1);
                expect_exact(bench, p, k, seed);
            });
            if (HasFatalFailure()) return;
        }
}

// Positions of few channels go several at a time, but for those at the ends and where there are
// gaps: whole pairs and rests, rests of at most one vector, dilation, bias and what follows it.
TEST(depthwise, few_channels) {
    workbench bench;
    for (const dim groups : {1, 2, 3, 4, 5, 8, 11, 12, 16})
        for (const dim width : {3, 6, 19, 75}) {
            for_each_case(2, groups, 1, [&](problem p, const kind &k, std::uint64_t seed) {
                if (k.algorithm != "depthwise.fma") return;
                p.x[1] = make_axis(5, 3, groups % 2 + 1, 1, 1, 1);
                p.x[2] = make_axis(width, 3, 1, groups % 3 + 1, 2, 1);
                const bool data = p.what != pass::backward_weights;
                p.bias = p.relu = p.add = data && width > 6;
                p.accumulate = width == 19;
                expect_exact(bench, p, k, seed);
            });
            if (HasFatalFailure()) return;
        }
}

// Enough blocks of channels for several tasks without partial sums.
TEST(depthwise, many_channels_of_small_maps) {
    workbench bench;
    for_each_case(9, 970, 1, [&](problem p, const kind &k, std::uint64_t seed) {
        p.x[1] = make_axis(7, 3, 1, 1, 1, 1);
        p.x[2] = make_axis(7, 3, 1, 1, 1, 1);
        expect_exact(bench, p, k, seed);
    });
}

TEST(depthwise, kernels_strides_and_dilation) {
    workbench bench;
    const struct {
        dim src, kernel, stride, dilation, pad;
    } axes[] = {{13, 2, 1, 1, 0}, {14, 5, 1, 1, 2}, {19, 11, 1, 1, 5}, {23, 3, 2, 1, 1},
        {21, 7, 3, 1, 3}, {29, 3, 1, 4, 4}, {30, 4, 2, 3, 5}, {17, 2, 5, 1, 0}, {9, 3, 1, 9, 9}};
    for (const auto &a : axes)
        for (const auto &b : axes) {
            for_each_case(1, 17, 1, [&](problem p, const kind &k, std::uint64_t seed) {
                p.x[1] = make_axis(a.src, a.kernel, a.stride, a.dilation, a.pad, a.pad);
                p.x[2] = make_axis(b.src, b.kernel, b.stride, b.dilation, b.pad, b.pad + 1);
                if (p.type != types[seed / 2 % 3]) return;
                expect_exact(bench, p, k, seed);
            });
            if (HasFatalFailure()) return;
        }
}

// Rows of few and of many runs, filters of one chain and of two, of lines that are held together
// and a rest of them, and a last vector beside whole pairs.
TEST(depthwise, runs_and_lines) {
    workbench bench;
    for (const dim height : {2, 3, 4, 5})
        for (const dim width : {8, 29, 60}) {
            for_each_case(1, 48, 1, [&](problem p, const kind &k, std::uint64_t seed) {
                if (p.type == data_type::f16 && width > 8) return;
                p.x[1] = make_axis(6, height, 1, 1, height / 2, height / 2);
                p.x[2] = make_axis(width, width == 29 ? 5 : 3, 1, 1, 1, 1);
                p.bias = p.what != pass::backward_weights && height == 3;
                expect_exact(bench, p, k, seed);
            });
            if (HasFatalFailure()) return;
        }
}

TEST(depthwise, one_and_three_dimensions) {
    workbench bench;
    for_each_case(2, 19, 1, [&](problem p, const kind &k, std::uint64_t seed) {
        p.x[2] = make_axis(67, 9, 1, 2, 8, 8);
        expect_exact(bench, p, k, seed);
        p.x[2] = make_axis(9, 3, 2, 1, 1, 1);
        p.x[1] = make_axis(8, 3, 1, 1, 1, 1);
        p.x[0] = make_axis(5, 3, 2, 1, 1, 1);
        expect_exact(bench, p, k, seed);
    });
}

TEST(depthwise, channel_multipliers) {
    workbench bench;
    for (const dim multiplier : {2, 3, 4}) {
        for_each_case(3, 10, multiplier, [&](problem p, const kind &k, std::uint64_t seed) {
            p.x[1] = make_axis(7, 3, 1, 1, 1, 1);
            p.x[2] = make_axis(7, 3, 1, 1, 1, 1);
            p.bias = p.what != pass::backward_weights;
            expect_exact(bench, p, k, seed);
            p.x[2] = make_axis(37, 3, 2, 1, 1, 1);
            expect_exact(bench, p, k, seed);
        });
        if (HasFatalFailure()) return;
    }
}

TEST(depthwise, epilogues) {
    workbench bench;
    for (const dim width : {7, 40})
        for (const dim stride : {1, 2, 3}) {
            for_each_case(2, 35, 1, [&](problem p, const kind &k, std::uint64_t seed) {
                p.x[1] = make_axis(6, 3, stride, 1, 1, 1);
                p.x[2] = make_axis(width, 3, stride, 1, 1, 1);
                const bool data = p.what != pass::backward_weights;
                p.bias = p.relu = data;
                // Turned planes do not read what they write.
                p.accumulate = !data || k.algorithm != "turned.fma";
                p.add = data && k.algorithm != "turned.fma";
                expect_exact(bench, p, k, seed);
            });
            if (HasFatalFailure()) return;
        }
}

TEST(depthwise, pads_beyond_the_kernel_and_empty_batches) {
    workbench bench;
    for_each_case(2, 9, 1, [&](problem p, const kind &k, std::uint64_t seed) {
        p.x[1] = make_axis(2, 3, 2, 2, 9, 8);
        p.x[2] = make_axis(5, 2, 1, 1, 19, 20);
        p.bias = p.what == pass::forward;
        expect_exact(bench, p, k, seed);
        if (k.algorithm == "turned.fma") return;  // which has nothing to turn
        p.mb = 0;
        expect_exact(bench, p, k, seed);
    });
}

// Images of several pieces and a rest, blocks of channels and a rest.
TEST(depthwise, pieces_of_turned_planes) {
    workbench bench;
    for (const dim mb : {1, 7, 19})
        for (const dim groups : {3, 64, 75}) {
            for_each_case(mb, groups, 1, [&](problem p, const kind &k, std::uint64_t seed) {
                if (k.algorithm != "turned.fma") return;
                p.x[1] = make_axis(28, 3, 2, 1, 1, 1);
                p.x[2] = make_axis(27, 5, 1, 1, 2, 2);
                p.bias = p.what != pass::backward_weights;
                p.accumulate = p.what == pass::backward_weights;
                expect_exact(bench, p, k, seed);
            });
            if (HasFatalFailure()) return;
        }
}

// Rows that are cut for threads, or because an image is large: strides that do not divide, taps
// that reach beyond both ends, other axes; the bits are those of one thread.
TEST(depthwise, rows_of_turned_planes) {
    workbench bench;
    const auto same_on_many_threads = [&](const problem &p, const kind &k, std::uint64_t seed) {
        bench.load(p, fill::reals, seed);
        for (const isa set : usable_fma_isas()) {
            bench.run({.max_isa = set, .threads = 1, .algorithm = k.algorithm});
            const auto alone = bench.output_bytes();
            for (const int threads : {2, 5, 64}) {
                bench.run({.max_isa = set, .threads = threads, .algorithm = k.algorithm});
                ASSERT_EQ(bench.output_bytes(), alone) << threads << ' ' << to_text(p);
            }
        }
    };
    const struct {
        conv::axis d, h, w;
    } sizes[] = {{{}, make_axis(61, 3, 1, 1, 1, 1), make_axis(70, 3, 1, 1, 1, 1)},
        {{}, make_axis(45, 7, 1, 1, 3, 3), make_axis(9, 7, 1, 1, 3, 3)},
        {{}, make_axis(64, 5, 2, 1, 2, 1), make_axis(11, 5, 2, 1, 2, 1)},
        {{}, make_axis(50, 2, 3, 1, 0, 1), make_axis(7, 1, 1, 1, 0, 0)},
        {{}, make_axis(30, 3, 1, 6, 9, 9), make_axis(8, 3, 1, 2, 2, 2)},
        {make_axis(33, 3, 1, 1, 1, 1), make_axis(6, 3, 1, 1, 1, 1), make_axis(5, 3, 2, 1, 1, 1)},
        {{}, {}, make_axis(3000, 9, 1, 1, 4, 4)}};
    for (const auto &s : sizes) {
        for_each_case(1, 21, 1, [&](problem p, const kind &k, std::uint64_t seed) {
            if (k.algorithm != "turned.fma") return;
            p.x[0] = s.d;
            p.x[1] = s.h;
            p.x[2] = s.w;
            expect_exact(bench, p, k, seed);
            set_layouts(p, k, weights_layout::oix);
            same_on_many_threads(p, k, seed);
        });
        if (HasFatalFailure()) return;
    }
}

TEST(depthwise, wide_rows) {
    workbench bench;
    for_each_case(1, 2, 1, [&](problem p, const kind &k, std::uint64_t seed) {
        p.x[2] = make_axis(9001, 5, 1, 1, 2, 2);
        expect_exact(bench, p, k, seed);
    });
}

// An infinite weight beside padding, an infinite gradient beside padding: neither meets the zeros
// that may stand for it.
TEST(depthwise, infinities_beside_padding) {
    workbench bench;
    for (const dim width : {7, 40}) {
        for_each_case(2, 6, 1, [&](problem p, const kind &k, std::uint64_t seed) {
            p.x[1] = make_axis(6, 3, 1, 1, 1, 1);
            p.x[2] = make_axis(width, 3, 1, 1, 1, 1);
            set_layouts(p, k, weights_layout::oix);
            bench.load(p, fill::integers, seed);
            const double infinity = std::numeric_limits<double>::infinity();
            if (p.what == pass::backward_weights)
                bench.write(role::dst, 0, infinity);
            else
                bench.write(role::weights, 2, infinity);
            bench.run_reference();
            for (const isa set : usable_fma_isas()) {
                bench.run({.max_isa = set, .threads = 2, .algorithm = k.algorithm});
                ASSERT_EQ(bench.compare_bounded(), "") << k.algorithm << ' ' << to_string(set);
            }
        });
        if (HasFatalFailure()) return;
    }
}

TEST(depthwise, same_bits_for_any_number_of_threads) {
    workbench bench;
    for_each_case(5, 40, 1, [&](problem p, const kind &k, std::uint64_t seed) {
        p.x[1] = make_axis(15, 3, 1, 1, 1, 1);
        p.x[2] = make_axis(17, 5, 1, 1, 2, 2);
        set_layouts(p, k, weights_layout::xio);
        bench.load(p, fill::reals, seed);
        std::vector<std::byte> first;
        for (const int threads : {1, 2, 5, 16, 64}) {
            bench.run(
                {.max_isa = usable_isas().back(), .threads = threads, .algorithm = k.algorithm});
            if (threads == 1)
                first = bench.output_bytes();
            else
                ASSERT_EQ(bench.output_bytes(), first) << threads;
        }
    });
}

}  // namespace
}  // namespace convgrad::test
