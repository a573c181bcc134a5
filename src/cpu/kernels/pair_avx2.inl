// struct pair for AVX2: two vectors of neighbouring elements (see pair_avx512.inl). Included after
// vector_avx2.inl and pair_tails.inl.

struct pair : pair_tails<pair> {
    // Of 16 registers 8 hold results: of one vector they share what is loaded more often.
    static constexpr int group = 1;
    static constexpr int most_alone = 8, most_positions = 4;
    static constexpr int gradient_positions = 7;  // 6 sums + 2 · 3 of them + 2
    static constexpr int gradient_lines_alone = 3, gradient_lines = 1;  // 9 sums + 3 + 1

    static __m256i rounded(V::vec v) {
        const __m256i bits = _mm256_castps_si256(v);
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    }

    template <typename E>
    static void load(const char *p, V::vec &a, V::vec &b) {
        if constexpr (std::is_same_v<E, bf16_element>) {
            const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p));
            a = _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
            b = _mm256_castsi256_ps(
                _mm256_and_si256(v, _mm256_set1_epi32(static_cast<int>(0xffff0000U))));
        } else {
            const auto *from = reinterpret_cast<const typename E::type *>(p);
            a = V::load_as<E>(from);
            b = V::load_as<E>(from + V::lanes);
        }
    }
    template <typename E>
    static void load_n(const char *p, dim n, V::vec &a, V::vec &b) {
        const auto *from = reinterpret_cast<const typename E::type *>(p);
        if constexpr (std::is_same_v<E, bf16_element>) {
            const __m256i v = _mm256_inserti128_si256(_mm256_castsi128_si256(V::load_some(from, n)),
                V::load_some(from + V::lanes, n - V::lanes), 1);
            a = _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
            b = _mm256_castsi256_ps(
                _mm256_and_si256(v, _mm256_set1_epi32(static_cast<int>(0xffff0000U))));
        } else {
            a = V::load_as_n<E>(from, n);
            b = V::load_as_n<E>(from + V::lanes, n - V::lanes);
        }
    }
    template <typename E>
    static void store_n(char *p, dim n, V::vec a, V::vec b) {
        auto *to = reinterpret_cast<typename E::type *>(p);
        V::store_as_n<E>(to, a, n);
        if (n > V::lanes) V::store_as_n<E>(to + V::lanes, b, n - V::lanes);
    }
    /// As load<bf16> orders them.
    static void store_split_n(char *p, dim n, V::vec a, V::vec b) {
        auto *to = reinterpret_cast<std::uint16_t *>(p);
        const __m256i v = join_bf16(a, b);
        V::store_some(to, _mm256_castsi256_si128(v), n);
        if (n > V::lanes)
            V::store_some(to + V::lanes, _mm256_extracti128_si256(v, 1), n - V::lanes);
    }
    /// Elements 0, 2, 4… of a and b.
    static V::vec evens(V::vec a, V::vec b) {
        return _mm256_castpd_ps(
            _mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88)), 0xd8));
    }
    /// a0 b0 a1 b1 …
    static void interleave(V::vec &a, V::vec &b) {
        const V::vec low = _mm256_unpacklo_ps(a, b), high = _mm256_unpackhi_ps(a, b);
        a = _mm256_permute2f128_ps(low, high, 0x20);
        b = _mm256_permute2f128_ps(low, high, 0x31);
    }
    static __m256i join_bf16(V::vec a, V::vec b) {
        return _mm256_blend_epi16(_mm256_srli_epi32(rounded(a), 16), rounded(b), 0xaa);
    }
    static void store_split(char *p, V::vec a, V::vec b) {
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), join_bf16(a, b));
    }
    static void stream_split(char *p, V::vec a, V::vec b) {
        _mm256_stream_si256(reinterpret_cast<__m256i *>(p), join_bf16(a, b));
    }
};
