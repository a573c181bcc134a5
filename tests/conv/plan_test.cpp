// Plans: the instruction set that was asked for is the one that runs, refusals have reasons.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include <convgrad/error.hpp>

#include "cpu/kernels/kernels.hpp"
#include "cpu/plan.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

constexpr pass passes[] = {pass::forward, pass::backward_data, pass::backward_weights};
constexpr data_type types[] = {data_type::f32, data_type::bf16, data_type::f16};

problem ordinary(pass what, data_type type) {
    problem p;
    p.what = what;
    p.type = p.out_type = type;
    p.mb = 2;
    p.ic = 128;
    p.oc = 64;
    // More taps than Winograd has tiles for, few of them in the padding, where tiles compute too.
    p.x[1] = p.x[2] = make_axis(14, 6, 1, 1, 1, 1);
    set_layouts(p, data_layout::nxc, weights_layout::xio, data_layout::nxc);
    return p;
}

bool has_kernels(isa set, data_type type) {
    using cpu::operand_format;
    for (const operand_format format :
        {operand_format::fma, operand_format::dot2, operand_format::amx})
        if (cpu::find_kernels(set, format, type, math_mode::accurate) != nullptr) return true;
    return false;
}

// A test on an instruction set proves nothing if something else ran.
TEST(plans, run_what_was_asked_for) {
    workbench bench;
    for (const pass what : passes)
        for (const data_type type : types) {
            bench.load(ordinary(what, type), fill::integers, 1);
            for (const isa set : usable_isas()) {
                isa best = isa::portable;
                for (const isa candidate : all_isas)
                    if (cpu::capabilities(set).include(candidate) && has_kernels(candidate, type))
                        best = candidate;
                EXPECT_EQ(bench.run({.max_isa = set}).set, best)
                    << to_string(set) << ' ' << to_text(bench.problem());
            }
        }
}

// Every type has kernels on each FMA instruction set, bf16 on the dot product one too.
TEST(plans, kernels_exist) {
    for (const data_type type : types)
        for (const isa set : usable_fma_isas())
            EXPECT_TRUE(has_kernels(set, type)) << to_string(set) << ' ' << to_string(type);
    for (const cpu::kernel_line &line : cpu::kernel_lines)
        EXPECT_TRUE(
            line.format != cpu::operand_format::dot2 || has_kernels(line.set, data_type::bf16))
            << to_string(line.set);
}

TEST(plans, nothing_legal_is_refused_and_every_refusal_has_a_reason) {
    const auto names = cpu::algorithm_names();
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        rng random(seed);
        const problem p = random_problem(random);
        for (const isa set : usable_isas()) {
            std::vector<engines::verdict> refusals;
            const auto plan = cpu::make_plan(p, {.max_isa = set}, &refusals);
            ASSERT_NE(plan, nullptr);
            ASSERT_NE(std::ranges::find(names, plan->algorithm()), names.end());
            ASSERT_TRUE(cpu::capabilities(set).include(plan->instruction_set()));
            ASSERT_FALSE(plan->describe().empty());
            for (const engines::verdict &r : refusals) {
                ASSERT_FALSE(r.reason.empty()) << r.algorithm;
                ASSERT_NE(std::ranges::find(names, r.algorithm), names.end());
            }
        }
    }
}

TEST(plans, algorithm_names_are_distinct) {
    const auto names = cpu::algorithm_names();
    ASSERT_FALSE(names.empty());
    EXPECT_EQ(std::set<std::string_view>(names.begin(), names.end()).size(), names.size());
}

TEST(plans, unknown_algorithm_is_unsupported) {
    try {
        (void)cpu::make_plan(
            ordinary(pass::forward, data_type::f32), {.only_algorithm = "no such algorithm"});
        FAIL();
    } catch (const error &e) {
        EXPECT_EQ(e.code(), error_code::unsupported);
        EXPECT_NE(std::string(e.what()).find("no such algorithm"), std::string::npos);
    }
}

TEST(plans, same_problem_same_plan) {
    const problem p = ordinary(pass::forward, data_type::f32);
    for (const isa set : usable_isas()) {
        const auto first = cpu::make_plan(p, {.max_isa = set});
        const auto second = cpu::make_plan(p, {.max_isa = set});
        EXPECT_EQ(first->algorithm(), second->algorithm());
        EXPECT_EQ(first->describe(), second->describe());
        EXPECT_EQ(first->workspace(), second->workspace());
    }
}

}  // namespace
}  // namespace convgrad::test
