// Scalar conversions between f32 or f64 and the 16-bit types: round to nearest even, subnormals
// exact, infinities kept, NaN kept and made quiet.
//
// Plain integer code for everything that is not hot: the reference, tails, tests, tools. Vector
// kernels have versions of their own, and files built with instruction-set flags must not include
// this one (its inline functions would then exist once per instruction set under one name).
#pragma once

#include <bit>
#include <cstdint>

#include <convgrad/convert.hpp>

namespace convgrad::conv {

inline float to_float(float v) {
    return v;
}

inline float to_float(bf16 v) {
    return to_f32(v);
}

inline float to_float(f16 v) {
    return to_f32(v);
}

/// The nearest value of a 16-bit format with `Fraction` stored fraction bits and a smallest normal
/// number of 2^MinExponent, as bits. Directly from f64: going through f32 would round twice.
template <int Fraction, int MinExponent>
std::uint16_t round_to_16_bits(double v) {
    const auto bits = std::bit_cast<std::uint64_t>(v);
    const auto sign = static_cast<std::uint16_t>(bits >> 48 & 0x8000U);
    const int biased = static_cast<int>(bits >> 52 & 0x7ffU);
    const std::uint64_t fraction = bits & 0xfffffffffffffU;
    constexpr std::uint64_t infinity = 0x7fffU & ~((1U << Fraction) - 1);
    if (biased == 0x7ff) {
        const std::uint64_t payload = fraction >> (52 - Fraction) | 1U << (Fraction - 1);
        return static_cast<std::uint16_t>(sign | infinity | (fraction ? payload : 0));
    }
    const int exponent = biased - 1023;
    const bool normal = exponent >= MinExponent;
    // Bits of the 53-bit significand that fall away.
    const int drop = 52 - Fraction + (normal ? 0 : MinExponent - exponent);
    if (biased == 0 || drop > 54) return sign;  // far below half of the smallest subnormal
    const std::uint64_t significand = fraction | std::uint64_t{1} << 52;
    const std::uint64_t kept = significand >> drop;
    const std::uint64_t rest = significand & ((std::uint64_t{1} << drop) - 1);
    const std::uint64_t half = std::uint64_t{1} << (drop - 1);
    const bool up = rest > half || (rest == half && (kept & 1U));
    // A normal `kept` has the implicit bit, which adds one to the exponent field; so does a carry.
    const auto field = static_cast<std::uint64_t>(normal ? exponent - MinExponent : 0);
    const std::uint64_t magnitude = (field << Fraction) + kept + (up ? 1 : 0);
    return static_cast<std::uint16_t>(sign | (magnitude < infinity ? magnitude : infinity));
}

template <typename T>
T round_to(double v);

template <>
inline float round_to<float>(double v) {
    return static_cast<float>(v);
}
template <>
inline bf16 round_to<bf16>(double v) {
    return bf16{round_to_16_bits<7, -126>(v)};
}
template <>
inline f16 round_to<f16>(double v) {
    return f16{round_to_16_bits<10, -14>(v)};
}

}  // namespace convgrad::conv
