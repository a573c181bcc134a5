// struct V for AVX-512 (F, BW, VL, DQ). Included inside an anonymous namespace.

/// From running minima of (magnitude − 1) and maxima of the magnitude, over bf16 bits.
inline value_range range_of_bf16(__m512i least, __m512i most) {
    alignas(64) std::uint16_t low[32], high[32];
    _mm512_store_si512(low, least);
    _mm512_store_si512(high, most);
    std::uint16_t smallest = 0xffff, largest = 0;
    for (int i = 0; i < 32; ++i) {
        smallest = low[i] < smallest ? low[i] : smallest;
        largest = high[i] > largest ? high[i] : largest;
    }
    value_range range{largest >= 0x7f80, 255, static_cast<std::uint8_t>(largest >> 7)};
    if (smallest != 0xffff) range.least = static_cast<std::uint8_t>((smallest + 1) >> 7);
    return range;
}

struct V {
    static constexpr int lanes = 16;
    // 32 registers: M·N accumulators + N of B + a broadcast that usually folds into the FMA.
    static constexpr int max_m[5] = {0, 28, 14, 9, 7};
    static constexpr int max_dot[5] = {0, 9, 9, 8, 6};
    static constexpr bool copies = false;  // see product_args::copy
    using vec = __m512;

    static __mmask16 first(dim n) {
        return static_cast<__mmask16>(n >= 16 ? 0xffffU : (1U << n) - 1U);
    }
    /// In a register from here on: compilers would rather load a value again for each use.
    static void hold(vec &v) { __asm__("" : "+v"(v)); }
    static vec zero() { return _mm512_setzero_ps(); }
    static vec set1(float x) { return _mm512_set1_ps(x); }
    static vec add(vec a, vec b) { return _mm512_add_ps(a, b); }
    static vec relu(vec v) { return _mm512_max_ps(_mm512_setzero_ps(), v); }  // keeps NaN
    static vec load(const char *p) { return _mm512_loadu_ps(p); }
    static void store(char *p, vec v) { _mm512_storeu_ps(p, v); }
    static void store_n(char *p, vec v, dim n) { _mm512_mask_storeu_ps(p, first(n), v); }

    static vec widen_bf16(__m256i v) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
    }
    /// Round to nearest even, NaN quiet.
    static __m256i narrow_bf16(vec v) {
#ifdef __AVX512BF16__
        // One instruction does it, except that it flushes subnormals.
        constexpr int subnormal = 0x20;
        if (_mm512_fpclass_ps_mask(v, subnormal) == 0)
            return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v));
#endif
        const __m512i bits = _mm512_castps_si512(v);
        const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
        __m512i r = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
        const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
        r = _mm512_mask_or_epi32(r, nan, bits, _mm512_set1_epi32(0x400000));
        return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
    }

    template <typename E>
    static vec load_as(const typename E::type *p) {
        if constexpr (std::is_same_v<E, f32_element>) return _mm512_loadu_ps(p);
        const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p));
        if constexpr (std::is_same_v<E, bf16_element>) return widen_bf16(bits);
        if constexpr (std::is_same_v<E, f16_element>) return _mm512_cvtph_ps(bits);
    }
    template <typename E>
    static vec load_as_n(const typename E::type *p, dim n) {
        return load_as_mask<E>(p, first(n));
    }
    template <typename E>
    static vec load_as_mask(const typename E::type *p, __mmask16 m) {
        if constexpr (std::is_same_v<E, f32_element>) return _mm512_maskz_loadu_ps(m, p);
        if constexpr (std::is_same_v<E, bf16_element>)
            return widen_bf16(_mm256_maskz_loadu_epi16(m, p));
        if constexpr (std::is_same_v<E, f16_element>)
            return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, p));
    }
    /// Lanes [lo, hi).
    static __mmask16 lanes_of(dim lo, dim hi) {
        return static_cast<__mmask16>(first(hi < 0 ? 0 : hi) & ~first(lo < 0 ? 0 : lo));
    }
    /// Elements from the first to the last of the lanes `m`, `step` ≤ 4 apart.
    static std::uint64_t span_of(__mmask16 m, dim step) {
        const unsigned lanes_set = m;
        const auto low = static_cast<dim>(__builtin_ctz(lanes_set)) * step,
                   high = static_cast<dim>(31 - __builtin_clz(lanes_set)) * step;
        return (~std::uint64_t{0} >> (63 - high)) & (~std::uint64_t{0} << low);
    }
    /// Elements as they are, `step` apart, in the 32-bit lanes `m` (neighbours); others are zero.
    /// Only memory from the first to the last of them is read.
    static __m512i spaced_bits(const std::uint16_t *p, dim step, __mmask16 m) {
        if (step == 1) return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, p));
        if (m == 0) return _mm512_setzero_si512();
        constexpr __mmask32 even = 0x55555555U;  // the upper half of a lane is zero
        if (step == 2 && m == 0xffff) return _mm512_maskz_loadu_epi16(even, p);
        if (step == 2)
            return _mm512_maskz_loadu_epi16(even & static_cast<__mmask32>(span_of(m, 2)), p);
        if (step == 3 || step == 4) {
            const std::uint64_t span = span_of(m, step);
            const __m512i low = _mm512_maskz_loadu_epi16(static_cast<__mmask32>(span), p);
            const __m512i high =
                _mm512_maskz_loadu_epi16(static_cast<__mmask32>(span >> 32), p + 32);
            return _mm512_maskz_permutex2var_epi16(even, low, every(step), high);
        }
        alignas(64) std::uint32_t values[16] = {};
        for (unsigned rest = m; rest != 0; rest &= rest - 1) {
            const int i = __builtin_ctz(rest);
            values[i] = p[i * step];
        }
        return _mm512_load_si512(values);
    }
    static __m512i spaced_bits(const float *p, dim step, __mmask16 m) {
        if (step == 1) return _mm512_maskz_loadu_epi32(m, p);
        if (m == 0) return _mm512_setzero_si512();
        if (step == 2 && m == 0xffff)
            return _mm512_permutex2var_epi32(
                _mm512_loadu_si512(p), every(2), _mm512_maskz_loadu_epi32(0x7fff, p + 16));
        const auto some = [&](int quarter) {
            const auto mask = static_cast<__mmask16>(span_of(m, step) >> 16 * quarter);
            return _mm512_maskz_loadu_epi32(mask, p + 16 * quarter);
        };
        if (step == 2) return _mm512_permutex2var_epi32(some(0), every(2), some(1));
        if (step == 3 || step == 4) {  // the index counts modulo 32
            const __m512i low = _mm512_permutex2var_epi32(some(0), every(step), some(1));
            const __mmask16 upper = step == 3 ? 0xf800 : 0xff00;
            return _mm512_mask_blend_epi32(
                upper, low, _mm512_permutex2var_epi32(some(2), every(step), some(3)));
        }
        constexpr dim most = dim{1} << 26;
        if (step < most && step > -most)
            return _mm512_castps_si512(_mm512_mask_i32gather_ps(_mm512_setzero_ps(), m,
                _mm512_mullo_epi32(every(1), _mm512_set1_epi32(static_cast<int>(step))), p, 4));
        alignas(64) float values[16] = {};
        for (unsigned rest = m; rest != 0; rest &= rest - 1) {
            const int i = __builtin_ctz(rest);
            values[i] = p[i * step];
        }
        return _mm512_load_si512(values);
    }
    /// 0, step, 2·step, …
    static __m512i every(dim step) {
        const __m512i one = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        if (step == 1) return one;
        const __m512i two = _mm512_add_epi32(one, one);
        return step == 2 ? two : _mm512_add_epi32(two, step == 3 ? one : two);
    }
    template <typename E>
    static vec value_of(__m512i bits) {
        if constexpr (std::is_same_v<E, f32_element>) return _mm512_castsi512_ps(bits);
        if constexpr (std::is_same_v<E, bf16_element>)
            return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
        if constexpr (std::is_same_v<E, f16_element>)
            return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(bits));
    }
    /// Elements `step` apart in lanes [lo, hi), zeros in the others.
    template <typename E>
    static vec load_between(const typename E::type *p, dim step, dim lo, dim hi) {
        const __mmask16 m = lanes_of(lo, hi);
        if (step == 1) return load_as_mask<E>(p, m);
        return value_of<E>(spaced_bits(p, step, m));
    }
    template <typename E>
    static void store_as(typename E::type *p, vec v) {
        if constexpr (std::is_same_v<E, f32_element>) _mm512_storeu_ps(p, v);
        if constexpr (std::is_same_v<E, bf16_element>)
            _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), narrow_bf16(v));
        if constexpr (std::is_same_v<E, f16_element>)
            _mm256_storeu_si256(reinterpret_cast<__m256i *>(p),
                _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }

    /// Past the caches, to a whole vector's boundary.
    template <typename E>
    static void stream_as(typename E::type *p, vec v) {
        if constexpr (std::is_same_v<E, f32_element>)
            _mm512_stream_ps(p, v);
        else
            _mm256_stream_si256(reinterpret_cast<__m256i *>(p), narrow<E>(v));
    }

    template <typename E>
    static __m256i narrow(vec v) {
        if constexpr (std::is_same_v<E, bf16_element>) return narrow_bf16(v);
        return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }
    template <typename E>
    static void store_as_n(typename E::type *p, vec v, dim n) {
        if constexpr (std::is_same_v<E, f32_element>)
            _mm512_mask_storeu_ps(p, first(n), v);
        else
            _mm256_mask_storeu_epi16(p, first(n), narrow<E>(v));
    }
    /// The first n, `step` apart. What lies between them is not touched: another thread may write
    /// it.
    template <typename E>
    static void store_spaced(typename E::type *p, vec v, dim step, dim n) {
        if (step != 2) {
            typename E::type values[lanes];
            store_as<E>(values, v);
            for (dim i = 0; i < n; ++i) p[i * step] = values[i];
            return;
        }
        if constexpr (std::is_same_v<E, f32_element>) {
            const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
            const __m512i upper = _mm512_add_epi32(twice, _mm512_set1_epi32(8));
            _mm512_mask_storeu_ps(p, 0x5555 & first(2 * n), _mm512_permutexvar_ps(twice, v));
            _mm512_mask_storeu_ps(
                p + 16, 0x5555 & first(n < 8 ? 0 : 2 * n - 16), _mm512_permutexvar_ps(upper, v));
        } else {
            const auto some = n >= 16 ? 0x55555555U : 0x55555555U & ((1U << 2 * n) - 1U);
            _mm512_mask_storeu_epi16(p, some, _mm512_cvtepu16_epi32(narrow<E>(v)));
        }
    }

    /// Up to n elements as they are, one in each 32-bit lane; others zero.
    template <typename T>
    static vec load_bits(const char *p, dim n) {
        if constexpr (sizeof(T) == 4) return _mm512_maskz_loadu_ps(first(n), p);
        return _mm512_castsi512_ps(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first(n), p)));
    }
    template <typename T>
    static void store_bits(char *p, vec v, dim n) {
        if constexpr (sizeof(T) == 4)
            _mm512_mask_storeu_ps(p, first(n), v);
        else
            _mm512_mask_cvtepi32_storeu_epi16(p, first(n), _mm512_castps_si512(v));
    }
    /// The lower and the upper 16 bits of all lanes.
    static void store_halves(char *low, char *high, vec v) {
        const __m512i bits = _mm512_castps_si512(v);
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(low), _mm512_cvtepi32_epi16(bits));
        _mm256_storeu_si256(
            reinterpret_cast<__m256i *>(high), _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16)));
    }

    /// Collects x·0, which is NaN exactly for infinities and NaNs.
    struct watch {
        vec sum = _mm512_setzero_ps();
        void add(vec v) { sum = _mm512_fmadd_ps(v, _mm512_setzero_ps(), sum); }
        void add_one(float v) { add(_mm512_set1_ps(v)); }
        [[nodiscard]] value_range found() const {
            return {_mm512_cmp_ps_mask(sum, sum, _CMP_UNORD_Q) != 0, 255, 0};
        }
    };

    /// 16 × 16 in 64 shuffles: pairs, quads, then 128-bit lanes.
    static void transpose(vec (&r)[16]) {
        vec t[16];
#pragma GCC unroll 8
        for (int i = 0; i < 16; i += 2) {
            t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
            t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 16; i += 4) {
            r[i] = pairs_low(t[i], t[i + 2]);
            r[i + 1] = pairs_high(t[i], t[i + 2]);
            r[i + 2] = pairs_low(t[i + 1], t[i + 3]);
            r[i + 3] = pairs_high(t[i + 1], t[i + 3]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
            t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
            t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
            t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
        }
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
            r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
        }
    }
    static vec pairs_low(vec a, vec b) {
        return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
    }
    static vec pairs_high(vec a, vec b) {
        return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
    }

    static float sum(vec v) {
        return _mm512_reduce_add_ps(v);
    }
    static void sum4(const vec (&v)[4], float *sums) {
        const vec ab =
            _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
        const vec cd =
            _mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
        const vec all = _mm512_add_ps(pairs_low(ab, cd), pairs_high(ab, cd));
        const __m256 half =
            _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
        _mm_storeu_ps(
            sums, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
    }

    // The product's side (product_vector.inl).
    using acc = vec;
    using unit = vec;
    static acc load_acc(const float *p) {
        return _mm512_loadu_ps(p);
    }
    static void store_acc(float *p, acc v) {
        _mm512_storeu_ps(p, v);
    }
    static unit broadcast(const char *p) {
        float x;
        __builtin_memcpy(&x, p, 4);
        return _mm512_set1_ps(x);
    }
    static acc madd(acc c, unit a, unit b);
};
