// How plans cut their work for many threads: a computed model, not a timing.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "cpu/plan.hpp"
#include "op_case.hpp"
#include "support/pools.hpp"
#include "support/sanitizers.hpp"
#include "support/workbench.hpp"
#include "training_shapes.hpp"

namespace convgrad::cli {
namespace {

constexpr data_type types[] = {data_type::f32, data_type::bf16, data_type::f16};

constexpr double least_balance = 0.9;

/// Calls body(case, plan) for every training shape, op, type, layout and instruction set. Only
/// plans are made, so the machine need not have the instruction set.
template <typename Body>
void for_each_plan(int threads, dim mb, Body &&body) {
    test::sampler sample(29);
    for (const training_shape &shape : training_shapes)
        for (const op_kind kind : convolution_op_kinds) {
            if (is_transposed(kind) != shape.deconv) continue;
            op_case c;
            problem_string text = parse_problem(shape.text, shape.deconv);
            if (mb > 0) text.mb = mb;
            c.problem = std::make_shared<problem_string>(text);
            c.kind = kind;
            for (const data_type type : types)
                for (const auto data : {data_format::nxc, data_format::ncx})
                    for (const auto weights : weights_formats_of(kind))
                        for (const isa set : all_isas) {
                            if (!sample.takes_next()) continue;
                            c.type = type;
                            c.data = data;
                            c.weights = weights;
                            const auto plan = cpu::make_plan(
                                make_call(c, false).problem, {.max_isa = set, .threads = threads});
                            if (plan->instruction_set() == set) body(c, *plan);
                        }
        }
}

std::string name_of(const op_case &c, const cpu::plan &plan) {
    std::string text(to_string(c.kind));
    text.append(" ").append(to_string(c.type)).append(" ").append(to_string(c.data));
    text.append(" ").append(to_string(c.weights)).append(" ").append(to_text(*c.problem));
    text.append(": ")
        .append(to_string(plan.instruction_set()))
        .append(" ")
        .append(plan.algorithm());
    return text.append(", ").append(plan.describe());
}

struct summary {
    int plans = 0, worthwhile = 0, poor = 0;
    double worst = 1;

    void add(double balance) {
        ++worthwhile;
        poor += balance < least_balance ? 1 : 0;
        worst = std::min(worst, balance);
    }
};

/// `no_exception(isa)`: whether every single plan must reach it.
template <typename Isas>
void check_balance(int threads, dim mb, Isas &&no_exception) {
    summary s;
    std::map<std::pair<std::string, std::string>, summary> parts;  // by pass and algorithm
    const bool print = std::getenv("CUT_TABLE") != nullptr;
    for_each_plan(threads, mb, [&](const op_case &c, const cpu::plan &plan) {
        ++s.plans;
        const cpu::work_cut cut = plan.cut(threads);
        if (cut.worthwhile < threads) return;
        s.add(cut.balance());
        const auto what = make_call(c, false).problem.what;
        parts[{what == conv::pass::backward_weights ? "weights" : "data",
                  std::string(plan.algorithm())}]
            .add(cut.balance());
        if (no_exception(plan.instruction_set())) {
            EXPECT_GE(cut.balance(), least_balance) << name_of(c, plan);
        }
        if (print)
            std::printf("%d\t%.3f\t%.0f\t%s\n", threads, cut.balance(), cut.total_seconds() * 1e6,
                name_of(c, plan).c_str());
    });
    // Nearly all reach it; docs/scaling-out.md lists the others. (Sanitized builds see too few
    // plans to count.)
    if (!test::is_sanitized) {
        EXPECT_LE(s.poor, s.worthwhile / 40) << "of " << s.worthwhile;
    }
    EXPECT_GT(s.worst, 0.7);
    EXPECT_GT(s.worthwhile, s.plans / 20);
    std::printf("%d threads: %d of %d plans below %.2f, the worst %.3f\n", threads, s.poor,
        s.worthwhile, least_balance, s.worst);
    for (const auto &[name, part] : parts)
        std::printf("  %-8s %-14s %5d plans, %4d below, the worst %.3f\n", name.first.c_str(),
            name.second.c_str(), part.worthwhile, part.poor, part.worst);
}

TEST(cut, balanced_on_16_threads) {
    check_balance(16, 0, [](isa set) { return set != isa::portable; });
}
TEST(cut, balanced_on_64_threads) {
    check_balance(64, 0, [](isa set) { return set == isa::amx_bf16; });
}
TEST(cut, one_image_balanced_on_16_threads) {
    check_balance(16, 1, [](isa set) { return set == isa::avx512_bf16 || set == isa::amx_bf16; });
}
TEST(cut, odd_batch_balanced_on_16_threads) {
    check_balance(16, 5, [](isa) { return false; });
}

void expect_same_bits(
    test::workbench &bench, test::spawning_pool &pool, isa set, const std::string &name) {
    bench.run({.max_isa = set});
    const auto alone = bench.output_bytes();
    for (const int threads : {2, 16, 64}) {
        bench.run({.max_isa = set, .threads = threads, .pool = &pool});
        EXPECT_EQ(bench.output_bytes(), alone) << threads << " threads, " << name;
    }
}

// Many more threads than cores, started anew for each run: whatever the order in which tasks begin
// and end, the result has the bits of one thread.
TEST(cut, same_bits_on_1_16_and_64_threads) {
    constexpr double most_macs = 4e8, most_emulated_macs = 2e7, most_special_macs = 6e7;
    test::workbench bench;
    test::spawning_pool pool;
    int number = 0;
    for (const training_shape &shape : training_shapes)
        for (const op_kind kind : convolution_op_kinds) {
            if (is_transposed(kind) != shape.deconv) continue;
            op_case c;
            problem_string text = parse_problem(shape.text, shape.deconv);
            text.mb = 1 + number % 2;
            c.problem = std::make_shared<problem_string>(text);
            c.kind = kind;
            c.type = types[++number % 3];
            c.data = number % 4 < 2 ? data_format::nxc : data_format::ncx;
            c.weights = weights_formats_of(kind)[0];
            const conv::problem p = make_call(c, false).problem;
            if (conv::macs(p) > most_macs) continue;
            bench.load(p, test::fill::reals, static_cast<std::uint64_t>(number));
            const std::string name = std::string(to_string(kind)) + ' '
                                     + std::string(to_string(c.type)) + ' ' + to_text(*c.problem);
            const isa any = test::affordable_isa(static_cast<std::uint64_t>(number));
            const bool too_slow = any == isa::amx_bf16 && conv::macs(p) > most_emulated_macs;
            const isa set = too_slow ? isa::avx512_bf16 : any;
            expect_same_bits(bench, pool, set, name);
            if (conv::macs(p) > most_special_macs) continue;
            // Values that a format cannot hold take other paths, unit by unit.
            for (const test::role r : {test::role::src, test::role::weights, test::role::dst})
                if (r != test::output_of(p)) {
                    const dim last = test::span_of(p, r) - 1;
                    bench.write(r, last / 3, 1e-39);
                    bench.write(r, last, number % 2 == 0 ? 1e30 : HUGE_VAL);
                }
            expect_same_bits(bench, pool, set, name + ", special values");
        }
}

}  // namespace
}  // namespace convgrad::cli
