// f16 by F16C: included by convert.inl.

inline float f16_to_float(std::uint16_t v) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(v)));
}
inline std::uint16_t float_to_f16(float value) {
    return static_cast<std::uint16_t>(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(value), 0)));
}
