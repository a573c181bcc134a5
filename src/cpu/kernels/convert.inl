// Scalar conversions for the instruction-set files. Written so that the compiler vectorises loops
// over them. Included inside an anonymous namespace.

inline float bits_to_float(std::uint32_t bits) {
    return __builtin_bit_cast(float, bits);
}
inline std::uint32_t float_to_bits(float value) {
    return __builtin_bit_cast(std::uint32_t, value);
}

inline float bf16_to_float(std::uint16_t v) {
    return bits_to_float(static_cast<std::uint32_t>(v) << 16);
}

/// Round to nearest even; a NaN stays a (quiet) NaN. Not VCVTNEPS2BF16, which flushes subnormals.
inline std::uint16_t float_to_bf16(float value) {
    const std::uint32_t bits = float_to_bits(value);
    const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const std::uint32_t nan = (bits >> 16) | 0x40U;
    return static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? nan : rounded);
}

#ifdef __F16C__
inline float f16_to_float(std::uint16_t v) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(v)));
}
inline std::uint16_t float_to_f16(float value) {
    return static_cast<std::uint16_t>(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(value), 0)));
}
#else
/// Branch-free: scale the bits into an f32 exponent; infinities and NaNs by a select.
inline float f16_to_float(std::uint16_t v) {
    const std::uint32_t magnitude = static_cast<std::uint32_t>(v & 0x7fffU) << 13;
    const float scaled = bits_to_float(magnitude) * bits_to_float(0x77800000U);  // · 2^112
    const std::uint32_t special = magnitude | 0x7f800000U;
    const std::uint32_t bits = magnitude >= 0x0f800000U ? special : float_to_bits(scaled);
    return bits_to_float(bits | static_cast<std::uint32_t>(v & 0x8000U) << 16);
}
inline std::uint16_t float_to_f16(float value) {
    const std::uint32_t bits = float_to_bits(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000U;
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    // Normal results: rebias, round to nearest even on the 13 dropped bits.
    const std::uint32_t normal =
        (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
    // Subnormal results: adding 0.5 lets the FPU round at the right place.
    const std::uint32_t small = float_to_bits(bits_to_float(magnitude) + 0.5F) - 0x3f000000U;
    const std::uint32_t nan =
        magnitude > 0x7f800000U ? 0x7e00U | ((magnitude >> 13) & 0x3ffU) : 0x7c00U;
    std::uint32_t r = magnitude < 0x38800000U ? small : normal;
    r = magnitude >= 0x477ff000U ? nan : r;
    return static_cast<std::uint16_t>(sign | r);
}
#endif

struct f32_element {
    using type = float;
    static float to_float(float v) { return v; }
    static float from_float(float v) { return v; }
};
struct bf16_element {
    using type = std::uint16_t;
    static float to_float(std::uint16_t v) { return bf16_to_float(v); }
    static std::uint16_t from_float(float v) { return float_to_bf16(v); }
};
struct f16_element {
    using type = std::uint16_t;
    static float to_float(std::uint16_t v) { return f16_to_float(v); }
    static std::uint16_t from_float(float v) { return float_to_f16(v); }
};
