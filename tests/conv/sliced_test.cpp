// Slices along groups and along images, by name, on every instruction set: tails of lanes, pieces
// and rests of images, channels that are copied, shuffled and transposed, both layouts, epilogues,
// special values, and the same bits for any number of threads.
#include <gtest/gtest.h>

#include <limits>

#include "support/named_runs.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

constexpr pass passes[] = {pass::forward, pass::backward_data, pass::backward_weights};
constexpr data_type types[] = {data_type::f32, data_type::bf16, data_type::f16};
constexpr std::string_view sliced = "sliced.fma";

struct sizes {
    dim mb, groups, ic, oc;
};

void expect_exact(workbench &bench, problem p, std::uint64_t seed) {
    constexpr data_layout layouts[] = {data_layout::nxc, data_layout::ncx};
    set_layouts(p, layouts[seed % 2], all_weights_layouts[seed % 6], layouts[seed / 2 % 2]);
    bench.load(p, fill::integers, seed);
    bench.run_reference();
    for (const isa set : usable_fma_isas()) expect_exact(bench, {sliced, set});
}

/// Calls body(problem without axes and layouts, seed) for each pass and type, four layouts in
/// turns.
template <typename Body>
void for_each_case(std::initializer_list<sizes> all, Body &&body) {
    std::uint64_t seed = 0;
    for (const sizes &n : all)
        for (const pass what : passes)
            for (const data_type type : types)
                for (int layouts = 0; layouts < 4; ++layouts) {
                    body(sized(what, type, n.mb, n.groups, n.ic, n.oc), ++seed);
                    if (testing::Test::HasFatalFailure()) return;
                }
}

TEST(sliced, along_groups) {
    workbench bench;
    for_each_case(
        {{2, 17, 2, 1}, {1, 40, 1, 3}, {2, 33, 4, 4}, {1, 70, 2, 5}, {1, 18, 9, 1}, {3, 64, 1, 17}},
        [&](problem p, std::uint64_t seed) {
            p.x[1] = make_axis(5, 3, 1, 1, 1, 1);
            p.x[2] = make_axis(7, 3, 2, 1, 1, 1);
            expect_exact(bench, p, seed);
        });
}

TEST(sliced, along_images) {
    workbench bench;
    for_each_case({{16, 1, 1, 3}, {37, 2, 1, 1}, {70, 1, 3, 2}, {33, 3, 2, 2}},
        [&](problem p, std::uint64_t seed) {
            p.x[1] = make_axis(6, 3, 2, 1, 1, 1);
            p.x[2] = make_axis(5, 2, 1, 2, 1, 0);
            expect_exact(bench, p, seed);
        });
}

// Images of several pieces and a rest.
TEST(sliced, pieces) {
    workbench bench;
    for_each_case({{19, 40, 2, 1}, {70, 3, 1, 2}}, [&](problem p, std::uint64_t seed) {
        p.x[1] = make_axis(28, 3, 2, 1, 1, 1);
        p.x[2] = make_axis(27, 3, 1, 1, 1, 1);
        p.accumulate = p.what == pass::backward_weights;
        expect_exact(bench, p, seed);
    });
}

// Strides that leave positions unreached, one and three dimensions, pads beyond the kernel.
TEST(sliced, shapes) {
    workbench bench;
    for_each_case({{2, 20, 2, 2}, {18, 1, 2, 1}}, [&](problem p, std::uint64_t seed) {
        p.bias = p.what != pass::backward_weights;
        p.relu = p.bias && seed % 3 == 0;
        p.x[2] = make_axis(23, 2, 4, 1, 0, 0);
        expect_exact(bench, p, seed);
        p.x[2] = make_axis(5, 2, 2, 1, 0, 1);
        p.x[1] = make_axis(4, 2, 3, 1, 1, 0);
        p.x[0] = make_axis(3, 2, 1, 2, 1, 1);
        expect_exact(bench, p, seed);
        p.x[0] = {};
        p.x[1] = make_axis(2, 3, 2, 2, 9, 8);
        p.x[2] = make_axis(5, 2, 1, 1, 19, 20);
        expect_exact(bench, p, seed);
    });
}

// An infinite weight beside padding, an infinite gradient beside padding: neither meets a zero.
TEST(sliced, infinities_beside_padding) {
    workbench bench;
    for_each_case({{2, 20, 2, 2}, {20, 1, 2, 2}}, [&](problem p, std::uint64_t seed) {
        p.x[1] = make_axis(6, 3, 1, 1, 1, 1);
        p.x[2] = make_axis(7, 3, 1, 1, 1, 1);
        const data_layout layout = seed % 2 == 0 ? data_layout::nxc : data_layout::ncx;
        set_layouts(p, layout, weights_layout::oix, layout);
        bench.load(p, fill::integers, seed);
        const double infinity = std::numeric_limits<double>::infinity();
        if (p.what == pass::backward_weights)
            bench.write(role::dst, 0, infinity);
        else
            bench.write(role::weights, 2, infinity);
        bench.run_reference();
        for (const isa set : usable_fma_isas()) {
            bench.run({.max_isa = set, .threads = 2, .algorithm = sliced});
            ASSERT_EQ(bench.compare_bounded(), "") << to_string(set);
        }
    });
}

TEST(sliced, same_bits_for_any_number_of_threads) {
    workbench bench;
    for_each_case({{9, 70, 2, 1}, {70, 2, 1, 2}}, [&](problem p, std::uint64_t seed) {
        p.x[1] = make_axis(15, 3, 1, 1, 1, 1);
        p.x[2] = make_axis(17, 5, 1, 1, 2, 2);
        const data_layout layout = seed % 2 == 0 ? data_layout::nxc : data_layout::ncx;
        set_layouts(p, layout, weights_layout::xio, layout);
        bench.load(p, fill::reals, seed);
        std::vector<std::byte> first;
        for (const int threads : {1, 2, 5, 16, 64}) {
            bench.run({.max_isa = usable_isas().back(), .threads = threads, .algorithm = sliced});
            if (threads == 1)
                first = bench.output_bytes();
            else
                ASSERT_EQ(bench.output_bytes(), first) << threads;
        }
    });
}

}  // namespace
}  // namespace convgrad::test
