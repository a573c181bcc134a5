// struct V for AVX2 with FMA and F16C. Included inside an anonymous namespace.

struct V {
    static constexpr int lanes = 8;
    // 16 registers: M·N accumulators + N of B + one broadcast.
    static constexpr int max_m[5] = {0, 12, 6, 4, 2};
    static constexpr int max_dot[5] = {0, 9, 6, 4, 2};
    using vec = __m256;

    static vec zero() { return _mm256_setzero_ps(); }
    static vec set1(float x) { return _mm256_set1_ps(x); }
    static vec add(vec a, vec b) { return _mm256_add_ps(a, b); }
    static vec relu(vec v) { return _mm256_max_ps(_mm256_setzero_ps(), v); }  // keeps NaN
    static vec load(const char *p) { return _mm256_loadu_ps(reinterpret_cast<const float *>(p)); }
    static void store(char *p, vec v) { _mm256_storeu_ps(reinterpret_cast<float *>(p), v); }
    static void store_n(char *p, vec v, dim n) {
        float values[lanes];
        _mm256_storeu_ps(values, v);
        __builtin_memcpy(p, values, static_cast<std::size_t>(n) * 4);
    }

    static vec widen_bf16(__m128i v) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
    }
    /// Round to nearest even, NaN quiet.
    static __m128i narrow_bf16(vec v) {
        const __m256i bits = _mm256_castps_si256(v);
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        __m256i r = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
        const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
        r = _mm256_blendv_epi8(r, _mm256_or_si256(bits, _mm256_set1_epi32(0x400000)), nan);
        r = _mm256_srli_epi32(r, 16);
        return _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
    }

    template <typename E>
    static vec load_as(const typename E::type *p) {
        if constexpr (std::is_same_v<E, f32_element>) return _mm256_loadu_ps(p);
        if constexpr (std::is_same_v<E, bf16_element>)
            return widen_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
        if constexpr (std::is_same_v<E, f16_element>)
            return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
    }
    template <typename E>
    static vec load_as_n(const typename E::type *p, dim n) {
        typename E::type values[lanes] = {};
        __builtin_memcpy(values, p, static_cast<std::size_t>(n < lanes ? n : lanes) * sizeof *p);
        return load_as<E>(values);
    }
    /// Elements `step` apart in lanes [lo, hi), zeros in the others.
    template <typename E>
    static vec load_between(const typename E::type *p, dim step, dim lo, dim hi) {
        if (lo <= 0 && hi >= lanes && step == 1) return load_as<E>(p);
        typename E::type values[lanes] = {};
        for (dim i = lo < 0 ? 0 : lo; i < lanes && i < hi; ++i) values[i] = p[i * step];
        return load_as<E>(values);
    }
    template <typename E>
    static void store_as(typename E::type *p, vec v) {
        if constexpr (std::is_same_v<E, f32_element>) _mm256_storeu_ps(p, v);
        if constexpr (std::is_same_v<E, bf16_element>)
            _mm_storeu_si128(reinterpret_cast<__m128i *>(p), narrow_bf16(v));
        if constexpr (std::is_same_v<E, f16_element>)
            _mm_storeu_si128(reinterpret_cast<__m128i *>(p),
                _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }

    /// Past the caches, to a whole vector's boundary.
    template <typename E>
    static void stream_as(typename E::type *p, vec v) {
        if constexpr (std::is_same_v<E, f32_element>) _mm256_stream_ps(p, v);
        if constexpr (std::is_same_v<E, bf16_element>)
            _mm_stream_si128(reinterpret_cast<__m128i *>(p), narrow_bf16(v));
        if constexpr (std::is_same_v<E, f16_element>)
            _mm_stream_si128(reinterpret_cast<__m128i *>(p),
                _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }

    template <typename E>
    static void store_as_n(typename E::type *p, vec v, dim n) {
        typename E::type values[lanes];
        store_as<E>(values, v);
        __builtin_memcpy(p, values, static_cast<std::size_t>(n) * sizeof *p);
    }
    /// The first n, `step` apart.
    template <typename E>
    static void store_spaced(typename E::type *p, vec v, dim step, dim n) {
        typename E::type values[lanes];
        store_as<E>(values, v);
        for (dim i = 0; i < n; ++i) p[i * step] = values[i];
    }

    /// Up to n elements as they are, one in each 32-bit lane; others zero.
    template <typename T>
    static vec load_bits(const char *p, dim n) {
        T values[lanes] = {};
        __builtin_memcpy(values, p, static_cast<std::size_t>(n) * sizeof(T));
        std::uint32_t bits[lanes];
        for (int i = 0; i < lanes; ++i) bits[i] = values[i];
        vec v;
        __builtin_memcpy(&v, bits, sizeof v);
        return v;
    }
    template <typename T>
    static void store_bits(char *p, vec v, dim n) {
        std::uint32_t bits[lanes];
        __builtin_memcpy(bits, &v, sizeof v);
        T values[lanes];
        for (int i = 0; i < lanes; ++i) values[i] = static_cast<T>(bits[i]);
        __builtin_memcpy(p, values, static_cast<std::size_t>(n) * sizeof(T));
    }
    /// The lower and the upper 16 bits of all lanes.
    static void store_halves(char *low, char *high, vec v) {
        const __m256i bits = _mm256_castps_si256(v);
        const __m256i both = _mm256_permute4x64_epi64(
            _mm256_packus_epi32(
                _mm256_and_si256(bits, _mm256_set1_epi32(0xffff)), _mm256_srli_epi32(bits, 16)),
            0xd8);
        _mm_storeu_si128(reinterpret_cast<__m128i *>(low), _mm256_castsi256_si128(both));
        _mm_storeu_si128(reinterpret_cast<__m128i *>(high), _mm256_extracti128_si256(both, 1));
    }

    /// Collects x·0, which is NaN exactly for infinities and NaNs.
    struct watch {
        vec sum = _mm256_setzero_ps();
        void add(vec v) { sum = _mm256_fmadd_ps(v, _mm256_setzero_ps(), sum); }
        void add_one(float v) { add(_mm256_set1_ps(v)); }
        [[nodiscard]] value_range found() const {
            return {_mm256_movemask_ps(_mm256_cmp_ps(sum, sum, _CMP_UNORD_Q)) != 0, 255, 0};
        }
    };

    static void transpose(vec (&r)[8]) {
        vec t[8];
#pragma GCC unroll 4
        for (int i = 0; i < 8; i += 2) {
            t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
            t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
        }
#pragma GCC unroll 2
        for (int i = 0; i < 8; i += 4) {
            r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
            r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
            r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
            r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
            t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
        }
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) r[i] = t[i];
    }

    static float sum(vec v) {
        const __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
        const __m128 two = _mm_add_ps(half, _mm_movehl_ps(half, half));
        return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
    }

    // The product's side (product_vector.inl).
    using acc = vec;
    using unit = vec;
    static acc load_acc(const float *p) {
        return _mm256_loadu_ps(p);
    }
    static void store_acc(float *p, acc v) {
        _mm256_storeu_ps(p, v);
    }
    static unit broadcast(const char *p) {
        float x;
        __builtin_memcpy(&x, p, 4);
        return _mm256_set1_ps(x);
    }
    static acc madd(acc c, unit a, unit b) {
        return _mm256_fmadd_ps(a, b, c);
    }
};
