// f16 without instructions for it: included by convert.inl.

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
