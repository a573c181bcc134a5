// The bounds behind docs/accuracy.md.
#include <cmath>

#include <gtest/gtest.h>

#include <convgrad/error.hpp>

#include "accuracy/problems.hpp"
#include "cpu/kernels/kernels.hpp"

namespace convgrad::accuracy {
namespace {

using conv::pass;
using conv::problem;

/// In u·Σ|terms|. Rounding errors of a sum walk at random, six standard deviations are allowed;
/// math mode `fast` drops 2^-17 of either operand and the product of the two second parts, 2^-16.
double bound(const problem &p, math_mode math) {
    const double n = longest_sum(p), of_sum = std::min(n + 1, 6 * std::sqrt(n) + 2);
    return of_sum + (math == math_mode::fast ? 512 : 0);
}

void check_bounds(data_type type) {
    for (const family f : all_families)
        for_each_subject(f, type, 1, [&](const named_problem &n, subject &s) {
            for (const method &m : methods_for(f, n.p)) {
                const errors e = s.run(limits_of(m), m.math);
                // Winograd's algorithm is stable by norm, not element by element.
                const bool by_norm = m.algorithm.starts_with("winograd");
                EXPECT_LE(by_norm ? e.norm : e.sum, bound(n.p, m.math))
                    << to_string(m) << ", " << to_string(s.data()) << ", " << n.name;
                EXPECT_EQ(e.unlike, 0)
                    << to_string(m) << ", " << to_string(s.data()) << ", " << n.name;
            }
        });
}

TEST(bounds, f32) {
    check_bounds(data_type::f32);
}
TEST(bounds, bf16) {
    check_bounds(data_type::bf16);
}
TEST(bounds, f16) {
    check_bounds(data_type::f16);
}

// Strict is f32 fused multiply-adds whatever the processor has.
TEST(modes, strict_never_splits) {
    test::usable_isas();
    for (const family f : all_families)
        for (const named_problem &n : problems_of(f, data_type::f32)) {
            problem p = n.p;
            p.math = math_mode::strict;
            const auto plan = cpu::make_plan(p, {});
            EXPECT_EQ(plan->instruction_set(), cpu::best_fma(isa::best)->set) << n.name;
        }
}

/// What a free choice on an instruction set computes, and the plain sum, over some sets of data.
struct comparison {
    errors ours, plain;
};

comparison compare(
    const problem &p, flavour f, std::uint64_t seeds, std::string_view algorithm = {}) {
    comparison c;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        subject s(p, f, seed);
        c.plain.merge(s.plain());
        c.ours.merge(
            s.run({.max_isa = isa::amx_bf16, .only_algorithm = algorithm}, math_mode::accurate));
    }
    return c;
}

constexpr flavour split_flavours[] = {
    flavour::random, flavour::positive, flavour::scaled, flavour::cancelling};

/// Whether math mode accurate may take this algorithm.
bool is_accurate(const problem &p, std::string_view algorithm) {
    try {
        const auto plan =
            cpu::make_plan(p, {.max_isa = isa::amx_bf16, .only_algorithm = algorithm});
        return engines::is_allowed(plan->facts().kept, math_mode::accurate);
    } catch (const error &) {
        return false;  // does not take the problem
    }
}

// f32 by three bf16 parts is among the defaults where there is AMX because it is no less exact than
// f32 fused multiply-adds in the order of the loops.
TEST(split_f32, no_larger_than_the_plain_sum) {
    if (test::usable_isas().back() != isa::amx_bf16) GTEST_SKIP() << "no AMX, nor an emulator";
    int split = 0;
    for (const family kind : all_families)
        for (const flavour f : split_flavours) {
            errors ours, plain;
            for (const named_problem &n : problems_of(kind, data_type::f32))
                for (const std::string_view name : {"tiled.amx", "folded.amx", "merged.amx"}) {
                    if (!is_accurate(n.p, name)) continue;
                    ++split;
                    const comparison c = compare(n.p, f, 2, name);
                    // With magnitudes far apart one term decides, and both sums round it as often.
                    const double slack = f == flavour::scaled ? 1.1 : 1;
                    EXPECT_LE(c.ours.rms(), slack * c.plain.rms())
                        << to_string(f) << ", " << n.name << ", " << name;
                    ours.merge(c.ours);
                    plain.merge(c.plain);
                }
            EXPECT_LE(ours.sum, plain.sum) << to_string(kind) << ", " << to_string(f);
            EXPECT_LE(ours.rms(), plain.rms()) << to_string(kind) << ", " << to_string(f);
        }
    EXPECT_GE(split, 10);  // AMX ran at all
}

// The same for short sums, where what splitting drops would show.
TEST(split_f32, short_sums_are_as_exact_as_plain_ones) {
    if (test::usable_isas().back() != isa::amx_bf16) GTEST_SKIP() << "no AMX, nor an emulator";
    for (const flavour f : split_flavours)
        for (const dim terms : {1, 2, 3, 4, 7, 8, 12, 16, 31, 33}) {
            problem p;
            p.mb = 1;
            p.ic = terms;
            p.oc = 32;
            p.x[2] = test::make_axis(128, 1, 1, 1, 0, 0);
            test::set_layouts(
                p, test::data_layout::nxc, test::weights_layout::xio, test::data_layout::nxc);
            const comparison c = compare(p, f, 4);
            const double slack = f == flavour::scaled ? 1.1 : 1;
            EXPECT_LE(c.ours.rms(), slack * c.plain.rms()) << to_string(f) << ", " << terms;
            EXPECT_LE(c.ours.sum, slack * c.plain.sum) << to_string(f) << ", " << terms;
        }
}

}  // namespace
}  // namespace convgrad::accuracy
