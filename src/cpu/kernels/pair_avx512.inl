// struct pair for AVX-512: two vectors of neighbouring elements. Included after vector_avx512.inl.
//
// bf16 goes by even and odd elements: bf16 is the upper half of an f32, so one shift and one mask
// widen both vectors.

struct pair {
    static constexpr int group = 2;           // vectors whose results are held together
    static constexpr int most_alone = 8;      // positions of one vector
    static constexpr int most_positions = 8;  // 2 · 8 results + 2 · 4 weights + 2 inputs: 26 of 32
    static constexpr int gradient_positions = 7;  // 18 sums + 2 · 3 of them + 2: likewise
    static constexpr int gradient_lines_alone = 3;
    static constexpr int gradient_lines = 3;

    static __mmask32 first(dim n) { return static_cast<__mmask32>(n >= 32 ? ~0U : (1U << n) - 1U); }
    static void split_bf16(__m512i v, V::vec &a, V::vec &b) {
        a = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
        b = _mm512_castsi512_ps(
            _mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
    }
    /// Round to nearest even. All operands were bf16, so the lower half of a NaN is zero and
    /// survives.
    static __m512i rounded(V::vec v) {
        const __m512i bits = _mm512_castps_si512(v);
        const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
        return _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    }
    static __m512i join_bf16(V::vec a, V::vec b) {
        return _mm512_mask_blend_epi16(0xaaaaaaaaU, _mm512_srli_epi32(rounded(a), 16), rounded(b));
    }

    template <typename E>
    static void load(const char *p, V::vec &a, V::vec &b) {
        if constexpr (std::is_same_v<E, bf16_element>) {
            split_bf16(_mm512_loadu_si512(p), a, b);
        } else {
            const auto *from = reinterpret_cast<const typename E::type *>(p);
            a = V::load_as<E>(from);
            b = V::load_as<E>(from + V::lanes);
        }
    }
    template <typename E>
    static void load_n(const char *p, dim n, V::vec &a, V::vec &b) {
        if constexpr (std::is_same_v<E, bf16_element>) {
            split_bf16(_mm512_maskz_loadu_epi16(first(n), p), a, b);
        } else {
            const auto *from = reinterpret_cast<const typename E::type *>(p);
            const __mmask32 m = first(n);
            a = V::load_as_mask<E>(from, static_cast<__mmask16>(m));
            b = V::load_as_mask<E>(from + V::lanes, static_cast<__mmask16>(m >> 16));
        }
    }
    /// As load<bf16> orders them.
    static void store_split(char *p, V::vec a, V::vec b) {
        _mm512_storeu_si512(p, join_bf16(a, b));
    }
    static void store_split_n(char *p, dim n, V::vec a, V::vec b) {
        _mm512_mask_storeu_epi16(p, first(n), join_bf16(a, b));
    }
    /// Past the caches, to a line of its own.
    template <typename In, typename Out>
    static void stream(char *p, V::vec a, V::vec b) {
        if constexpr (std::is_same_v<In, bf16_element>) {
            _mm512_stream_si512(reinterpret_cast<__m512i *>(p), join_bf16(a, b));
        } else {
            auto *to = reinterpret_cast<typename Out::type *>(p);
            V::stream_as<Out>(to, a);
            V::stream_as<Out>(to + V::lanes, b);
        }
    }
    /// In memory order.
    template <typename E>
    static void store(char *p, V::vec a, V::vec b) {
        auto *to = reinterpret_cast<typename E::type *>(p);
        V::store_as<E>(to, a);
        V::store_as<E>(to + V::lanes, b);
    }
    template <typename E>
    static void store_n(char *p, dim n, V::vec a, V::vec b) {
        auto *to = reinterpret_cast<typename E::type *>(p);
        const __mmask32 m = first(n);
        store_mask<E>(to, static_cast<__mmask16>(m), a);
        store_mask<E>(to + V::lanes, static_cast<__mmask16>(m >> 16), b);
    }
    /// Elements 0, 2, 4… of a and b.
    static V::vec evens(V::vec a, V::vec b) {
        const __m512i at =
            _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
        return _mm512_permutex2var_ps(a, at, b);
    }
    /// a0 b0 a1 b1 …
    static void interleave(V::vec &a, V::vec &b) {
        const __m512i low =
            _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
        const V::vec first_half = _mm512_permutex2var_ps(a, low, b);
        b = _mm512_permutex2var_ps(a, _mm512_add_epi32(low, _mm512_set1_epi32(8)), b);
        a = first_half;
    }
    template <typename E>
    static void store_mask(typename E::type *p, __mmask16 m, V::vec v) {
        if constexpr (std::is_same_v<E, f32_element>) _mm512_mask_storeu_ps(p, m, v);
        if constexpr (std::is_same_v<E, bf16_element>)
            _mm256_mask_storeu_epi16(p, m, V::narrow_bf16(v));
        if constexpr (std::is_same_v<E, f16_element>)
            _mm256_mask_storeu_epi16(
                p, m, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
};
