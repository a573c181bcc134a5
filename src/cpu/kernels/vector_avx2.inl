// struct V for AVX2 with FMA and F16C. Included inside an anonymous namespace.

struct V {
    static constexpr int lanes = 8;
    // 16 registers: M·N accumulators + N of B + one broadcast.
    static constexpr int max_m[5] = {0, 12, 6, 4, 2};
    static constexpr int max_dot[5] = {0, 9, 6, 4, 2};
    static constexpr bool copies = true;  // see product_args::copy
    using vec = __m256;

    /// In a register from here on: compilers would rather load a value again for each use.
    static void hold(vec &v) { __asm__("" : "+x"(v)); }
    static vec zero() { return _mm256_setzero_ps(); }
    static vec set1(float x) { return _mm256_set1_ps(x); }
    static vec add(vec a, vec b) { return _mm256_add_ps(a, b); }
    static vec relu(vec v) { return _mm256_max_ps(_mm256_setzero_ps(), v); }  // keeps NaN
    static vec load(const char *p) { return _mm256_loadu_ps(reinterpret_cast<const float *>(p)); }
    static void store(char *p, vec v) { _mm256_storeu_ps(reinterpret_cast<float *>(p), v); }
    static void store_n(char *p, vec v, dim n) { store_some(reinterpret_cast<float *>(p), v, n); }

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

    // The first n elements of a vector. There are masks for loads of 32 bits only, and masked
    // stores take AMD's cores a dozen cycles; a buffer would wait for its stores to become loads
    // (depthwise layers of 15 channels: 10 times as long).

    static constexpr int window[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    static __m256i first_lanes(dim n) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(window + lanes - clamped(n)));
    }
    static dim clamped(dim n) { return n < 0 ? 0 : n < lanes ? n : dim{lanes}; }

    static __m128i load_some(const std::uint16_t *p, dim n) {
        if (n >= lanes) return _mm_loadu_si128(reinterpret_cast<const __m128i *>(p));
        if (n <= 0) return _mm_setzero_si128();
        const __m128i pairs =
            _mm_loadu_si128(reinterpret_cast<const __m128i *>(window + lanes - n / 2));
        const __m128i v = _mm_maskload_epi32(reinterpret_cast<const int *>(p), pairs);
        if (n % 2 == 0) return v;
        const __m128i last = _mm_cmpeq_epi16(
            _mm_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7), _mm_set1_epi16(static_cast<short>(n - 1)));
        return _mm_or_si128(v, _mm_and_si128(last, _mm_set1_epi16(static_cast<short>(p[n - 1]))));
    }
    /// Four or more by two stores that overlap.
    static void store_some(std::uint16_t *p, __m128i v, dim n) {
        if (n >= lanes) return _mm_storeu_si128(reinterpret_cast<__m128i *>(p), v);
        if (n >= 4) {
            _mm_storel_epi64(reinterpret_cast<__m128i *>(p), v);
            const __m128i bytes =
                _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            const __m128i from = _mm_add_epi8(bytes, _mm_set1_epi8(static_cast<char>(2 * (n - 4))));
            return _mm_storel_epi64(
                reinterpret_cast<__m128i *>(p + n - 4), _mm_shuffle_epi8(v, from));
        }
        if (n >= 2) __builtin_memcpy(p, &v, 4);
        if (n % 2 == 1)
            p[n - 1] = static_cast<std::uint16_t>(
                n == 1 ? _mm_extract_epi16(v, 0) : _mm_extract_epi16(v, 2));
    }
    static void store_some(float *p, vec v, dim n) {
        if (n >= lanes) return _mm256_storeu_ps(p, v);
        const __m128 low = _mm256_castps256_ps128(v);
        if (n >= 4) {
            _mm_storeu_ps(p, low);
            const __m256i from = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                _mm256_set1_epi32(static_cast<int>(n - 4)));
            return _mm_storeu_ps(
                p + n - 4, _mm256_castps256_ps128(_mm256_permutevar8x32_ps(v, from)));
        }
        if (n >= 2) __builtin_memcpy(p, &low, 8);
        if (n == 1) _mm_store_ss(p, low);
        if (n == 3) _mm_store_ss(p + 2, _mm_movehl_ps(low, low));
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
    static vec widen(__m128i v) {
        if constexpr (std::is_same_v<E, bf16_element>) return widen_bf16(v);
        return _mm256_cvtph_ps(v);
    }
    template <typename E>
    static vec load_as_n(const typename E::type *p, dim n) {
        if constexpr (std::is_same_v<E, f32_element>)
            return _mm256_maskload_ps(p, first_lanes(n));
        else
            return widen<E>(load_some(p, n));
    }
    /// Elements `step` apart in lanes [lo, hi), zeros in the others.
    template <typename E>
    static vec load_between(const typename E::type *p, dim step, dim lo, dim hi) {
        lo = clamped(lo);
        hi = clamped(hi);
        if (step == 1) {
            if (lo == 0 && hi == lanes) return load_as<E>(p);
            if constexpr (std::is_same_v<E, f32_element>) {
                return _mm256_maskload_ps(p, _mm256_andnot_si256(first_lanes(lo), first_lanes(hi)));
            } else if (lo == 0) {
                return widen<E>(load_some(p, hi));
            }
        }
        typename E::type values[lanes] = {};
        for (dim i = lo; i < hi; ++i) values[i] = p[i * step];
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
        if constexpr (std::is_same_v<E, f32_element>) store_some(p, v, n);
        if constexpr (std::is_same_v<E, bf16_element>) store_some(p, narrow_bf16(v), n);
        if constexpr (std::is_same_v<E, f16_element>)
            store_some(p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), n);
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
        if constexpr (sizeof(T) == 4)
            return _mm256_maskload_ps(reinterpret_cast<const float *>(p), first_lanes(n));
        else
            return _mm256_castsi256_ps(
                _mm256_cvtepu16_epi32(load_some(reinterpret_cast<const std::uint16_t *>(p), n)));
    }
    template <typename T>
    static void store_bits(char *p, vec v, dim n) {
        if constexpr (sizeof(T) == 4) {
            store_some(reinterpret_cast<float *>(p), v, n);
        } else {
            const __m256i bits =
                _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0xffff));
            store_some(reinterpret_cast<std::uint16_t *>(p),
                _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1)),
                n);
        }
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
    static void sum4(const vec (&v)[4], float *sums) {
        const vec all = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
        _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
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
