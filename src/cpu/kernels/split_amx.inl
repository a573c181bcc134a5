// Elements as sums of bf16 parts, for the matrix engine. Included inside an anonymous namespace after
// vector_avx512.inl. Parts are held in the low 16 bits of 32-bit lanes.
//
//   bf16: itself.
//   f16:  two parts, exact: 8 + 8 bits hold the 11 of an f16, and bf16's exponent range its subnormals.
//   f32:  three parts, each the nearest bf16 of what remains: exact while no part is subnormal. With
//         two parts (math_mode::fast) the rest, 2^-16 of the value, is dropped.

/// bf16 nearest to v as 32-bit lanes; finite v only.
inline __m512i nearest_bf16(__m512 v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    return _mm512_srli_epi32(
        _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
}
inline __m512 float_of(__m512i bf16_lanes) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(bf16_lanes, 16));
}

/// What the values of an operand look like; see value_range.
struct range_watch {
    __m512i least = _mm512_set1_epi32(-1), most = _mm512_setzero_si512();
    __m512i least16 = _mm512_set1_epi16(-1), most16 = _mm512_setzero_si512();
    /// 32 bf16.
    void add_bf16(__m512i v) {
        const __m512i size = _mm512_and_si512(v, _mm512_set1_epi16(0x7fff));
        least16 = _mm512_min_epu16(least16, _mm512_sub_epi16(size, _mm512_set1_epi16(1)));
        most16 = _mm512_max_epu16(most16, size);
    }
    void add(__m512 v) {
        const __m512i size = _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff));
        least = _mm512_min_epu32(least, _mm512_sub_epi32(size, _mm512_set1_epi32(1)));
        most = _mm512_max_epu32(most, size);
    }
    [[nodiscard]] value_range found() const {
        const unsigned low = _mm512_reduce_min_epu32(least), high = _mm512_reduce_max_epu32(most);
        value_range range {high >= 0x7f7f8000U, 255, static_cast<std::uint8_t>(high >> 23)};
        if (low != 0xffffffffU) range.least = static_cast<std::uint8_t>((low + 1) >> 23);
        const value_range other = range_of_bf16(least16, most16);
        range.nonfinite = range.nonfinite || other.nonfinite;
        range.least = other.least < range.least ? other.least : range.least;
        range.most = other.most > range.most ? other.most : range.most;
        return range;
    }
};

template <typename E, int P>
struct split {
    static constexpr int parts = P;

    static void of(__m512 v, __m512i (&part)[P]) {
        if constexpr (P == 1) {  // bf16 already
            part[0] = _mm512_srli_epi32(_mm512_castps_si512(v), 16);
            return;
        }
#pragma GCC unroll 3
        for (int i = 0; i < P; ++i) {
            part[i] = nearest_bf16(v);
            v = _mm512_sub_ps(v, float_of(part[i]));
        }
    }
};

// Limits: see format_limits. A third part lies up to 2^-18 below its value and must stay normal
// (2^-126): values from 2^-90 on. Sums of products must stay normal to the last part's bits:
// products from 2^-102 on; and rounding a first part up must not overflow a product.
constexpr format_limits f32_limits {127 - 90, 254 - 102, 254 + 120};
constexpr format_limits f16_limits {0, 0, 510};          // every part and product is far from both ends
constexpr format_limits bf16_limits {1, 254 - 118, 510};  // as with VDPBF16PS
