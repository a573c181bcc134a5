// Scalar 16-bit conversions: every value of both formats, and rounding at every midpoint.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "conv/convert.hpp"

using convgrad::bf16;
using convgrad::f16;
using convgrad::conv::round_to;
using convgrad::conv::to_float;

namespace {

template <typename T>
std::uint16_t bits(T v) {
    return static_cast<std::uint16_t>(v);
}

// The value of a 16-bit pattern by the definition of the format.
double by_definition(unsigned pattern, int fraction_bits, int min_exponent) {
    const unsigned exponent = (pattern & 0x7fffU) >> fraction_bits;
    const unsigned fraction = pattern & ((1U << fraction_bits) - 1);
    const unsigned top = 0x7fffU >> fraction_bits;
    double v = 0;
    if (exponent == top)
        v = fraction ? std::nan("") : std::numeric_limits<double>::infinity();
    else if (exponent == 0)
        v = std::ldexp(fraction, min_exponent - fraction_bits);
    else
        v = std::ldexp(fraction + (1U << fraction_bits),
            min_exponent - fraction_bits + static_cast<int>(exponent) - 1);
    return pattern & 0x8000U ? -v : v;
}

template <typename T>
void check_format(int fraction_bits, int min_exponent, unsigned infinity) {
    for (unsigned p = 0; p < 0x10000U; ++p) {
        const T value{static_cast<std::uint16_t>(p)};
        const double expected = by_definition(p, fraction_bits, min_exponent);
        const double got = to_float(value);
        if (std::isnan(expected)) {
            ASSERT_TRUE(std::isnan(got)) << p;
            const T back = round_to<T>(got);
            ASSERT_TRUE(std::isnan(to_float(back))) << p;
            ASSERT_EQ(bits(back) & 0x8000U, p & 0x8000U);
            continue;
        }
        ASSERT_EQ(got, expected) << p;
        ASSERT_EQ(std::signbit(got), std::signbit(expected)) << p;
        ASSERT_EQ(bits(round_to<T>(got)), p);
        if ((p & 0x7fffU) >= infinity) continue;
        // Between p and its neighbour away from zero: ties to even, the rest to the nearer.
        const unsigned above = p + 1;
        const double up = (above & 0x7fffU) == infinity
                              ? 2 * expected - by_definition(p - 1, fraction_bits, min_exponent)
                              : by_definition(above, fraction_bits, min_exponent);
        const double middle = (expected + up) / 2;
        ASSERT_EQ(bits(round_to<T>(middle)), p & 1U ? above : p) << p;
        ASSERT_EQ(bits(round_to<T>(std::nextafter(middle, expected))), p);
        ASSERT_EQ(bits(round_to<T>(std::nextafter(middle, up))), above);
    }
}

TEST(convert, bf16_all_values_and_midpoints) {
    check_format<bf16>(7, -126, 0x7f80);
}

TEST(convert, f16_all_values_and_midpoints) {
    check_format<f16>(10, -14, 0x7c00);
}

TEST(convert, extremes) {
    EXPECT_EQ(bits(round_to<bf16>(1e300)), 0x7f80U);
    EXPECT_EQ(bits(round_to<bf16>(-1e300)), 0xff80U);
    EXPECT_EQ(bits(round_to<f16>(65520.0)), 0x7c00U);
    EXPECT_EQ(bits(round_to<f16>(65519.999)), 0x7bffU);
    EXPECT_EQ(bits(round_to<f16>(-1e-300)), 0x8000U);
    EXPECT_EQ(bits(round_to<bf16>(std::numeric_limits<double>::denorm_min())), 0U);
}

// 1 + 2^-8 + 2^-40 lies above bf16's midpoint but rounds to it in f32.
TEST(convert, rounds_once) {
    EXPECT_EQ(bits(round_to<bf16>(1 + 0x1p-8 + 0x1p-40)), 0x3f81U);
    EXPECT_EQ(bits(round_to<f16>(1 + 0x1p-11 + 0x1p-40)), 0x3c01U);
}

}  // namespace
