// Elements as sums of bf16 parts, for the matrix engine. Included inside an anonymous namespace
// after vector_avx512.inl. Parts are held as f32 whose low 16 bits are zero.
//
//   bf16: itself.
//   f16:  two parts, exact: 8 + 8 bits hold the 11 of an f16, and bf16's exponent range its
//   subnormals. f32:  three parts, each the nearest bf16 of what remains: exact while no part is
//   subnormal. With
//         two parts (math_mode::fast) the rest, 2^-16 of the value, is dropped.

/// The nearest bf16 of finite v, ties away from zero: which way does not matter, the next part has
/// the difference.
inline __m512i nearest_part(__m512 v) {
    return _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(v), _mm512_set1_epi32(0x8000)),
        _mm512_set1_epi32(static_cast<int>(0xffff0000U)));
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
        const __m512i size =
            _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff));
        least = _mm512_min_epu32(least, _mm512_sub_epi32(size, _mm512_set1_epi32(1)));
        most = _mm512_max_epu32(most, size);
    }
    [[nodiscard]] value_range found() const {
        const unsigned low = _mm512_reduce_min_epu32(least), high = _mm512_reduce_max_epu32(most);
        value_range range{high >= 0x7f7f8000U, 255, static_cast<std::uint8_t>(high >> 23)};
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
    /// What remains after P − 1 parts is a bf16 already, except of an f32 in two parts.
    static constexpr bool round_last = P == 2 && std::is_same_v<E, f32_element>;

    static void of(__m512 v, __m512i (&part)[P]) {
#pragma GCC unroll 3
        for (int i = 0; i < P - 1; ++i) {
            part[i] = nearest_part(v);
            v = _mm512_sub_ps(v, _mm512_castsi512_ps(part[i]));
        }
        part[P - 1] = round_last ? nearest_part(v) : _mm512_castps_si512(v);
    }
};

// Limits: see format_limits. A third part lies up to 2^-18 below its value and must stay normal
// (2^-126): values from 2^-90 on. Sums of products must stay normal to the last part's bits:
// products from 2^-102 on; and rounding a first part up must not overflow a product.
constexpr format_limits f32_limits{127 - 90, 254 - 102, 254 + 120};
constexpr format_limits f16_limits{0, 0, 510};  // every part and product is far from both ends
constexpr format_limits bf16_limits{1, 254 - 118, 510};  // as with VDPBF16PS
