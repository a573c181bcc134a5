// Instruction sets as sets of capabilities.
#include <iterator>

#include <gtest/gtest.h>

#include "cpu/isa.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/plan.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using cpu::capabilities;

TEST(capabilities, names_stand_for_sets) {
    EXPECT_TRUE(capabilities(isa::avx512_bf16).include(isa::avx2));
    EXPECT_FALSE(capabilities(isa::avx2).include(isa::avx512));
    for (const isa set : all_isas) {
        EXPECT_TRUE(capabilities(set).include(isa::portable)) << to_string(set);
        EXPECT_TRUE(capabilities(set).include(set)) << to_string(set);
        EXPECT_TRUE(capabilities(isa::best).include(set)) << to_string(set);
        EXPECT_FALSE(capabilities(set).include(isa::best)) << to_string(set);
        EXPECT_EQ(cpu::name_of(set), set);
    }
    EXPECT_TRUE(cpu::detected().include(cpu::allowed()));
}

// A processor may have any of them without the one before it.
TEST(capabilities, form_no_order) {
    const capabilities tiles_alone =
        capabilities(isa::avx512) | capabilities(capabilities::amx_bf16);
    EXPECT_EQ(cpu::name_of(tiles_alone), isa::avx512);
    EXPECT_FALSE(tiles_alone.include(isa::avx512_bf16));
    EXPECT_FALSE(tiles_alone.include(isa::amx_bf16));
    EXPECT_EQ(cpu::name_of(tiles_alone & isa::amx_bf16), isa::avx512);
    EXPECT_EQ(cpu::name_of(tiles_alone & isa::avx2), isa::avx2);
}

// Whatever a machine has, kernels that it has run, and none that it lacks.
TEST(capabilities, decide_about_kernels) {
    const auto limits = [](capabilities has) { return cpu::plan_limits{.max_isa = has}; };
    constexpr capabilities::feature features[] = {capabilities::avx2, capabilities::avx512,
        capabilities::avx512_bf16, capabilities::amx_bf16, capabilities::neon};
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        rng random(seed);
        const conv::problem p = random_problem(random);
        for (unsigned bits = 0; bits < 32; ++bits) {
            capabilities has;
            for (unsigned i = 0; i < 5; ++i)
                if ((bits >> i & 1) != 0) has = has | features[i];
            const auto plan = cpu::make_plan(p, limits(has));
            ASSERT_TRUE(has.include(plan->instruction_set())) << bits << ' ' << to_text(p);
        }
    }
}

TEST(kernel_list, is_best_first_and_ends_with_what_runs_everywhere) {
    EXPECT_EQ(std::rbegin(cpu::kernel_lines)->set, isa::portable);
    EXPECT_EQ(std::rbegin(cpu::kernel_lines)->format, cpu::operand_format::fma);
    for (const isa set : all_isas) {
        const cpu::kernel_set *best = cpu::best_fma(set);
        ASSERT_NE(best, nullptr) << to_string(set);
        EXPECT_TRUE(capabilities(set).include(best->set)) << to_string(set);
        for (const cpu::kernel_line &other : cpu::kernel_lines) {
            if (other.set == best->set) break;
            EXPECT_FALSE(
                other.format == cpu::operand_format::fma && capabilities(set).include(other.set))
                << to_string(set);
        }
    }
}

// Nothing that a driver calls is missing, and each says what it is.
TEST(kernel_list, is_filled) {
    const math_mode modes[] = {math_mode::strict, math_mode::accurate, math_mode::fast};
    for (const auto &[set, format] : cpu::kernel_lines)
        for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
            for (const math_mode math : modes) {
                const cpu::kernel_set *k = cpu::find_kernels(set, format, type, math);
                if (k == nullptr) {
                    EXPECT_NE(format, cpu::operand_format::fma);
                    continue;
                }
                EXPECT_EQ(k->set, set);
                EXPECT_EQ(k->format, format);
                EXPECT_GT(k->lanes, 0);
                EXPECT_TRUE(k->product && k->pack_channels && k->pack_weights && k->pack_positions
                            && k->store && k->transpose);
                const bool tiles = format == cpu::operand_format::amx;
                EXPECT_EQ(k->pack_rows != nullptr, tiles);
                EXPECT_EQ(k->pack_pixels && k->scan, !tiles);
                const bool fma = format == cpu::operand_format::fma;
                EXPECT_EQ(k->dot && k->depthwise && k->depthwise_gradient && k->widen_rows
                              && k->narrow_rows && k->sum_positions,
                    fma);
                for (int n = 1; n <= k->max_vectors; ++n) EXPECT_GT(k->max_m[n], 0);
            }
}

}  // namespace
}  // namespace convgrad::test
