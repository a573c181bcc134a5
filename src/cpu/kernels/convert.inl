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
#include "cpu/kernels/convert_f16c.inl"
#else
#include "cpu/kernels/convert_f16.inl"
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
