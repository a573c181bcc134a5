// Conversions between f32 and the 16-bit types: to the nearest value, ties to even; subnormals are
// exact, infinities stay, NaN stays NaN and becomes quiet, what is too large becomes infinite.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include <convgrad/error.hpp>
#include <convgrad/tensor.hpp>

namespace convgrad {
inline namespace CONVGRAD_ABI {

[[nodiscard]] constexpr float to_f32(bf16 value) noexcept {
    return std::bit_cast<float>(std::uint32_t{static_cast<std::uint16_t>(value)} << 16);
}

[[nodiscard]] constexpr float to_f32(f16 value) noexcept {
    const std::uint32_t bits = static_cast<std::uint16_t>(value);
    const std::uint32_t sign = (bits & 0x8000U) << 16, exponent = bits >> 10 & 31U;
    const std::uint32_t fraction = bits & 0x3ffU;
    if (exponent == 0) {  // zero or subnormal: a whole number of 2^-24
        const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
        return sign != 0 ? -magnitude : magnitude;
    }
    const std::uint32_t wide = exponent == 31 ? 0xffU : exponent + 112;
    const std::uint32_t quiet = exponent == 31 && fraction != 0 ? 0x400000U : 0;
    return std::bit_cast<float>(sign | wide << 23 | fraction << 13 | quiet);
}

[[nodiscard]] constexpr bf16 to_bf16(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U)
        return bf16{static_cast<std::uint16_t>(bits >> 16 | 0x40U)};
    // Half a unit less one, and one more where the kept part is odd: a tie goes to even.
    return bf16{static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16)};
}

[[nodiscard]] constexpr f16 to_f16(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = bits >> 16 & 0x8000U, magnitude = bits & 0x7fffffffU;
    const auto made = [sign](std::uint32_t rest) {
        return f16{static_cast<std::uint16_t>(sign | rest)};
    };
    if (magnitude > 0x7f800000U) return made(0x7e00U | (magnitude >> 13 & 0x3ffU));
    if (magnitude >= 0x47800000U) return made(0x7c00U);  // from 2^16 on
    if (magnitude >= 0x38800000U) {                      // from 2^-14 on: normal
        const std::uint32_t moved = magnitude - (112U << 23);
        return made((moved + 0xfffU + (moved >> 13 & 1U)) >> 13);
    }
    if (magnitude < 0x33000000U) return made(0);  // less than half of the smallest
    // Subnormal: the significand, shifted to units of 2^-24.
    const std::uint32_t shift = 126 - (magnitude >> 23);
    const std::uint32_t significand = (magnitude & 0x7fffffU) | 0x800000U;
    const std::uint32_t kept = significand >> shift, half = 1U << (shift - 1);
    const std::uint32_t rest = significand & ((1U << shift) - 1);
    return made(kept + (rest > half || (rest == half && (kept & 1U) != 0) ? 1 : 0));
}

/// All elements of `from`, converted, to `to`, which must have as many: invalid_argument.
CONVGRAD_API void convert(std::span<const float> from, std::span<bf16> to);
CONVGRAD_API void convert(std::span<const float> from, std::span<f16> to);
CONVGRAD_API void convert(std::span<const bf16> from, std::span<float> to);
CONVGRAD_API void convert(std::span<const f16> from, std::span<float> to);

}  // namespace CONVGRAD_ABI
}  // namespace convgrad
