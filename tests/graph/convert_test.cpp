// The public conversions between f32 and the 16-bit types.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include <convgrad/convert.hpp>

#include "conv/convert.hpp"
#include "op/expect_error.hpp"

namespace convgrad::test {
namespace {

static_assert(to_f32(to_bf16(-2.5F)) == -2.5F && to_f32(to_f16(-2.5F)) == -2.5F);

std::uint16_t bits(bf16 v) {
    return static_cast<std::uint16_t>(v);
}
std::uint16_t bits(f16 v) {
    return static_cast<std::uint16_t>(v);
}

TEST(public_convert, every_value_comes_back) {
    for (std::uint32_t i = 0; i < 0x10000U; ++i) {
        const f16 half{static_cast<std::uint16_t>(i)};
        const bf16 brain{static_cast<std::uint16_t>(i)};
        if (std::isnan(to_f32(half)))
            EXPECT_EQ(bits(to_f16(to_f32(half))), i | 0x200U);  // quiet
        else
            EXPECT_EQ(bits(to_f16(to_f32(half))), i);
        if (std::isnan(to_f32(brain)))
            EXPECT_EQ(bits(to_bf16(to_f32(brain))), i | 0x40U);
        else
            EXPECT_EQ(bits(to_bf16(to_f32(brain))), i);
    }
    EXPECT_EQ(to_f32(f16{0x3c00}), 1.0F);
    EXPECT_EQ(to_f32(f16{0x0001}), 0x1p-24F);
    EXPECT_EQ(to_f32(f16{0xfbff}), -65504.0F);
    EXPECT_TRUE(std::signbit(to_f32(f16{0x8000})));
}

TEST(public_convert, ties_go_to_even_and_neighbours_to_the_nearest) {
    for (std::uint16_t i = 0; i < 0x7bffU; ++i) {
        const float low = to_f32(f16{i}), high = to_f32(f16{static_cast<std::uint16_t>(i + 1)});
        const float half = (low + high) / 2;
        EXPECT_EQ(bits(to_f16(half)), (i & 1) != 0 ? i + 1 : i);
        EXPECT_EQ(bits(to_f16(std::nextafter(half, 1e9F))), i + 1);
        EXPECT_EQ(bits(to_f16(std::nextafter(half, 0.0F))), i);
    }
    EXPECT_EQ(bits(to_f16(65519.9F)), 0x7bff);
    EXPECT_EQ(bits(to_f16(65520.0F)), 0x7c00);
    EXPECT_EQ(bits(to_f16(-1e30F)), 0xfc00);
    EXPECT_EQ(bits(to_bf16(1.00390625F)), 0x3f80);
    EXPECT_EQ(bits(to_bf16(1.01171875F)), 0x3f82);
    EXPECT_EQ(bits(to_bf16(3.4e38F)), 0x7f80);
}

// The library's own rounding, from f64, is written differently.
TEST(public_convert, agrees_with_rounding_from_f64) {
    std::uint32_t state = 1;
    for (std::uint32_t i = 0; i < 2'000'000; ++i) {
        state = state * 1664525U + 1013904223U;
        const auto value = std::bit_cast<float>(state);
        ASSERT_EQ(bits(to_f16(value)), bits(conv::round_to<f16>(value))) << state;
        ASSERT_EQ(bits(to_bf16(value)), bits(conv::round_to<bf16>(value))) << state;
    }
}

TEST(public_convert, lists) {
    const std::vector<float> from = {1, -2.5F, 0, 65504};
    std::vector<bf16> brain(4);
    std::vector<f16> half(4);
    std::vector<float> back(4);
    convert(from, half);
    convert(half, back);
    EXPECT_EQ(back, from);
    convert(from, brain);
    convert(brain, back);
    EXPECT_EQ(back, (std::vector<float>{1, -2.5F, 0, 65536}));
    convert(std::span<const float>(), std::span<bf16>());
    brain.pop_back();
    expect_error(error_code::invalid_argument, {"convert", "4 elements", "3 places"},
        [&] { convert(from, brain); });
    EXPECT_EQ(brain[0], to_bf16(1));
}

}  // namespace
}  // namespace convgrad::test
