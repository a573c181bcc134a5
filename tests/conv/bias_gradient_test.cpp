// The bias gradient as a pass of its own: the sum of dst over batch and space, on every instruction
// set and any number of threads.
#include <convgrad/error.hpp>
#include <gtest/gtest.h>

#include "cpu/kernels/kernels.hpp"
#include "support/pools.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

problem sum_of(data_type type, dim mb, dim channels, std::array<dim, 3> x, data_layout layout) {
    problem p;
    p.what = pass::backward_bias;
    p.type = p.out_type = p.diff_bias_type = type;
    p.mb = mb;
    p.ic = 0;
    p.oc = channels;
    for (std::size_t a = 0; a < 3; ++a) p.x[a].src = p.x[a].dst = x[a];
    p.diff_bias = conv::bias_gradient::from_dst;
    set_layouts(p, layout, weights_layout::oix, layout);
    return p;
}

/// Batches, channels and axes with tails at every block: lanes, lines, pieces, parts, groups.
struct sizes {
    dim mb, channels;
    std::array<dim, 3> x;
};
const sizes all_sizes[] = {
    {1, 1, {1, 1, 1}},
    {5, 3, {1, 1, 1}},
    {300, 65, {1, 1, 1}},
    {2, 17, {1, 1, 7}},
    {1, 130, {1, 1, 2500}},
    {3, 5, {1, 9, 11}},
    {1, 257, {1, 13, 40}},
    {2, 1100, {1, 3, 5}},
    {2, 33, {3, 5, 7}},
    {0, 6, {1, 4, 4}},
    {4, 6, {1, 0, 4}},
    {4, 0, {1, 3, 4}},
};

template <typename Body>
void for_each_problem(Body &&body) {
    std::uint64_t number = 0;
    for (const sizes &s : all_sizes)
        for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
            for (const data_layout layout : all_data_layouts)
                for (const bool extras : {false, true}) {
                    problem p = sum_of(type, s.mb, s.channels, s.x, layout);
                    p.accumulate = extras;
                    if (extras) p.out_type = p.diff_bias_type = data_type::f32;
                    if (extras) p.bias_stride = 3;
                    body(p, ++number);
                    if (testing::Test::HasFatalFailure()) return;
                }
}

TEST(bias_gradient, whole_numbers_are_exact_on_every_isa) {
    workbench bench;
    for_each_problem([&](const problem &p, std::uint64_t number) {
        bench.load(p, fill::integers, number);
        bench.run_reference();
        for (const isa set : affordable_isas(number)) {
            const run_report ran = bench.run({.max_isa = set, .threads = 3});
            ASSERT_EQ(bench.compare_exact(), "") << to_string(set);
            ASSERT_EQ(ran.algorithm, "sums.fma");
            ASSERT_EQ(ran.set, cpu::best_fma(set)->set);
        }
    });
}

TEST(bias_gradient, real_numbers_are_within_the_bound) {
    workbench bench;
    for_each_problem([&](const problem &p, std::uint64_t number) {
        bench.load(p, fill::reals, number);
        bench.run_reference();
        for (const isa set : affordable_isas(number)) {
            bench.run({.max_isa = set});
            ASSERT_EQ(bench.compare_bounded(), "") << to_string(set);
        }
    });
}

TEST(bias_gradient, bits_do_not_depend_on_threads) {
    workbench bench;
    reversing_pool pool;
    for_each_problem([&](const problem &p, std::uint64_t number) {
        bench.load(p, fill::reals, number);
        bench.run({.max_isa = usable_isas().back()});
        const auto expected = bench.output_bytes();
        for (const int threads : {2, 3, 8}) {
            bench.run({.max_isa = usable_isas().back(), .threads = threads, .pool = &pool});
            ASSERT_EQ(bench.output_bytes(), expected) << threads;
        }
    });
}

// Less memory means fewer parts, down to one; the sum stays exact.
TEST(bias_gradient, takes_less_workspace_where_it_must) {
    workbench bench;
    const problem p = sum_of(data_type::f32, 8, 40, {1, 30, 30}, data_layout::nxc);
    bench.load(p, fill::integers, 7);
    bench.run_reference();
    const std::size_t whole = bench.run({}).workspace, least = 320;  // 40 sums of 8 bytes
    EXPECT_GT(whole, 4 * least);
    for (const std::size_t limit : {whole, whole - 1, whole / 2, least}) {
        EXPECT_LE(bench.run({.workspace_limit = limit}).workspace, limit);
        EXPECT_EQ(bench.compare_exact(), "") << limit;
    }
    try {
        bench.run({.workspace_limit = least - 1});
        FAIL();
    } catch (const error &e) {
        EXPECT_EQ(e.code(), error_code::out_of_memory);
        EXPECT_NE(std::string(e.what()).find("bias gradient"), std::string::npos);
    }
}

TEST(bias_gradient, convolutions_do_not_take_it_nor_it_convolutions) {
    workbench bench;
    problem p = sum_of(data_type::f32, 2, 8, {1, 4, 4}, data_layout::nxc);
    bench.load(p, fill::integers, 1);
    for (const std::string_view name : cpu::algorithm_names())
        if (name != "sums.fma") {
            EXPECT_THROW(bench.run({.max_isa = isa::avx512, .algorithm = name}), error) << name;
        }
    p.what = pass::forward;
    p.diff_bias = conv::bias_gradient::none;
    p.ic = 8;
    set_layouts(p, data_layout::nxc, weights_layout::oix, data_layout::nxc);
    bench.load(p, fill::integers, 1);
    EXPECT_THROW(bench.run({.max_isa = isa::avx512, .algorithm = "sums.fma"}), error);
}

}  // namespace
}  // namespace convgrad::test
