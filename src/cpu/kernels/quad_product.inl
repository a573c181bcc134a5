// Products for small groups with channels side by side: a unit is sixteen bytes of a position,
// which are eight channels as bf16 or four as f32, repeated in the four quarters of a vector. Lane
// (r, q) multiplies pair (or channel) q of them by the weights of output r, so that no lane is
// empty and no group meets another; the lanes of an output are added up at the end. Included after
// struct V of AVX-512, with or without BF16.

/// [first of quarter 0, 1, 2, 3][second of quarter …], by lanes.
template <int First, int Second>
[[gnu::always_inline]] inline __m256 of_quarters(V::vec v) {
    const __m512i lanes = _mm512_setr_epi32(First, 4 + First, 8 + First, 12 + First, Second,
        4 + Second, 8 + Second, 12 + Second, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_castps512_ps256(_mm512_permutexvar_ps(lanes, v));
}

/// Four outputs of each of two groups that share a unit.
[[gnu::always_inline]] inline void leave_groups(float *c, dim next_group, V::vec v) {
    const __m256 sums = of_quarters<0, 2>(V::add(v, _mm512_permute_ps(v, 0xb1)));
    _mm_storeu_ps(c, _mm256_castps256_ps128(sums));
    _mm_storeu_ps(c + next_group, _mm256_extractf128_ps(sums, 1));
}

/// Eight outputs of a group, or four where `both` is false.
[[gnu::always_inline]] inline void leave_group(float *c, V::vec v, V::vec v2, bool both) {
    const V::vec half = V::add(_mm512_unpacklo_ps(v, v2), _mm512_unpackhi_ps(v, v2));
    const __m256 sums = of_quarters<0, 1>(V::add(half, _mm512_permute_ps(half, 0x4e)));
    if (both)
        _mm256_storeu_ps(c, sums);
    else
        _mm_storeu_ps(c, _mm256_castps256_ps128(sums));
}

/// Eight outputs of a group at each of two positions, [position][output], where v are four outputs
/// of the first, v2 the other four, w and w2 those of the second: the same sums as leave_group().
[[gnu::always_inline]] inline V::vec two_positions(V::vec v, V::vec v2, V::vec w, V::vec w2) {
    const __m512d first =
        _mm512_castps_pd(V::add(_mm512_unpacklo_ps(v, v2), _mm512_unpackhi_ps(v, v2)));
    const __m512d second =
        _mm512_castps_pd(V::add(_mm512_unpacklo_ps(w, w2), _mm512_unpackhi_ps(w, w2)));
    const V::vec sums = V::add(_mm512_castpd_ps(_mm512_unpacklo_pd(first, second)),
        _mm512_castpd_ps(_mm512_unpackhi_pd(first, second)));
    return _mm512_permutexvar_ps(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), sums);
}

#ifdef __AVX512BF16__
/// Sums of two_positions() leave as bf16, also those that are subnormal or zero.
[[gnu::noinline, gnu::cold]] inline void leave_any_quads(
    const product_args &p, const V::vec *sums, int rows, int octets) {
    for (int m = 0; m < rows; ++m)
        for (int n = 0; n < octets; ++n) {
            const V::vec both = sums[m / 2 * octets + n];
            const V::vec one = m % 2 == 0 ? both : _mm512_shuffle_f32x4(both, both, 0xee);
            V::store_as_n<bf16_element>(p.out + m * p.ld_out + 8 * n, one, 8);
        }
}

/// A block of one group leaves as bf16.
template <int M, int N>
[[gnu::always_inline]] inline void leave_quads(const product_args &p, const V::acc (&acc)[M][N]) {
    constexpr int pairs = (M + 1) / 2, octets = N / 2;
    V::vec sums[pairs][octets];
#pragma GCC unroll 16
    for (int m = 0; m < pairs; ++m)
#pragma GCC unroll 2
        for (int n = 0; n < octets; ++n) {
            const int next = 2 * m + 1 < M ? 2 * m + 1 : 2 * m;
            sums[m][n] = two_positions(
                acc[2 * m][2 * n], acc[2 * m][2 * n + 1], acc[next][2 * n], acc[next][2 * n + 1]);
        }
    if (any_small(sums)) {           // which the conversion flushes
        V::vec copy[pairs][octets];  // whose address may be taken
#pragma GCC unroll 16
        for (int m = 0; m < pairs; ++m)
#pragma GCC unroll 2
            for (int n = 0; n < octets; ++n) copy[m][n] = sums[m][n];
        return leave_any_quads(p, copy[0], M, octets);
    }
    for_rows(pairs, p.out, 2 * p.ld_out, [&](int m, std::uint16_t *to) {
#pragma GCC unroll 2
        for (int n = 0; n < octets; ++n) {
            const auto two = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(sums[m][n]));
            _mm_storeu_si128(reinterpret_cast<__m128i *>(to + 8 * n), _mm256_castsi256_si128(two));
            if (2 * m + 1 < M)
                _mm_storeu_si128(reinterpret_cast<__m128i *>(to + p.ld_out + 8 * n),
                    _mm256_extracti128_si256(two, 1));
        }
    });
}
#endif

template <int M, int N>
void quad_block(const product_args &p, dim next_group) {
    V::acc acc[M][N];
#pragma GCC unroll 32
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) acc[m][n] = V::zero();
    constexpr int pointers = (M + 2) / 3;  // as in product_block
    const dim a_m = p.a_m, b_step = p.b_step;
    for (dim r = 0; r < p.runs; ++r) {
        const char *a[pointers];
#pragma GCC unroll 16
        for (int g = 0; g < pointers; ++g) a[g] = p.a + p.a_run[r] + 3 * g * a_m;
        const char *b = p.b + p.b_run[r];
        for (dim k = 0; k < p.k; ++k) {
            V::unit bv[N];
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n) bv[n] = V::load(b + n * 64);
#pragma GCC unroll 32
            for (int m = 0; m < M; ++m) {
                float four[4];
                __builtin_memcpy(four, a[m / 3] + (m % 3) * a_m, 16);
                const V::unit av = _mm512_broadcast_f32x4(_mm_loadu_ps(four));
#pragma GCC unroll 8
                for (int n = 0; n < N; ++n) acc[m][n] = V::madd(acc[m][n], av, bv[n]);
            }
#pragma GCC unroll 16
            for (int g = 0; g < pointers; ++g) {
                a[g] += p.a_step;
                __asm__("" : "+r"(a[g]));
            }
            b += b_step;
        }
    }
#ifdef __AVX512BF16__
    if constexpr (N % 2 == 0)
        if (p.out != nullptr) return leave_quads(p, acc);
#endif
#pragma GCC unroll 32
    for (int m = 0; m < M; ++m) {
        float *c = p.c + m * p.ldc;
        if (next_group > 0) {
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n) leave_groups(c + 4 * n, next_group, acc[m][n]);
        } else {
#pragma GCC unroll 8
            for (int n = 0; n < N; n += 2)
                leave_group(c + 4 * n, acc[m][n],
                    n + 1 < N ? acc[m][n + 1 < N ? n + 1 : n] : V::zero(), n + 1 < N);
        }
    }
}

using quad_function = void (*)(const product_args &, dim);

template <int N, int M>
constexpr void fill_quads(quad_function *table) {
    table[M] = quad_block<M, N>;
    if constexpr (M > 1) fill_quads<N, M - 1>(table);
}

struct quad_table {
    quad_function of[5][33] = {};
    constexpr quad_table() {
        fill_quads<1, V::max_m[1]>(of[1]);
        fill_quads<2, V::max_m[2]>(of[2]);
        fill_quads<3, V::max_m[3]>(of[3]);
        fill_quads<4, V::max_m[4]>(of[4]);
    }
};

void quad_product(const product_args &p, int m, int vectors, dim next_group) {
    static constexpr quad_table table{};
    table.of[vectors][m](p, next_group);
}
