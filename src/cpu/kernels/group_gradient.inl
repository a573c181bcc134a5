// Weights gradients of small groups with channels side by side: eight channels of src by eight of
// dst at a time. Four channels of src are repeated in the four quarters of a vector, and each of
// four of dst fills a quarter, so that no lane is empty and no group meets another. Included after
// struct V of AVX-512, with or without BF16.

/// Four units from p on: [0, 1, 2, 3] in each quarter.
[[gnu::always_inline]] inline V::vec in_each_quarter(const char *p) {
    float four[4];
    __builtin_memcpy(four, p, 16);
    return _mm512_broadcast_f32x4(_mm_loadu_ps(four));
}

/// Rows of four columns, eight floats apart.
[[gnu::always_inline]] inline void leave_quarters(float *c, V::vec v, bool accumulate) {
    __m128 rows[4] = {_mm512_castps512_ps128(v), _mm512_extractf32x4_ps(v, 1),
        _mm512_extractf32x4_ps(v, 2), _mm512_extractf32x4_ps(v, 3)};
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r)
        _mm_storeu_ps(
            c + 8 * r, accumulate ? _mm_add_ps(_mm_loadu_ps(c + 8 * r), rows[r]) : rows[r]);
}

template <int Taps>
void gradient_of_taps(const product_args &p, const dim *tap_at) {
    V::acc acc[Taps][2][2];
#pragma GCC unroll 3
    for (int t = 0; t < Taps; ++t)
        for (int i = 0; i < 2; ++i)
            for (int o = 0; o < 2; ++o) acc[t][i][o] = V::zero();
    const __m512i repeat = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const dim a_step = p.a_step, b_step = p.b_step;
    for (dim r = 0; r < p.runs; ++r) {
        const char *a[Taps];
        for (int t = 0; t < Taps; ++t) a[t] = p.a + p.a_run[r] + tap_at[t];
        const char *b = p.b + p.b_run[r];
        for (dim k = 0; k < p.k; ++k) {
            const V::unit bv[2] = {_mm512_permutexvar_ps(repeat, in_each_quarter(b)),
                _mm512_permutexvar_ps(repeat, in_each_quarter(b + 16))};
#pragma GCC unroll 3
            for (int t = 0; t < Taps; ++t) {
#pragma GCC unroll 2
                for (int i = 0; i < 2; ++i) {
                    const V::unit av = in_each_quarter(a[t] + 16 * i);
                    acc[t][i][0] = V::madd(acc[t][i][0], av, bv[0]);
                    acc[t][i][1] = V::madd(acc[t][i][1], av, bv[1]);
                }
                a[t] += a_step;
            }
            b += b_step;
        }
    }
#pragma GCC unroll 3
    for (int t = 0; t < Taps; ++t)
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i)
#pragma GCC unroll 2
            for (int o = 0; o < 2; ++o)
                leave_quarters(p.c + 64 * t + 32 * o + 4 * i, acc[t][i][o], p.accumulate);
}

void group_gradient(const product_args &p, const dim *tap_at, int taps) {
    if (taps == 1) return gradient_of_taps<1>(p, tap_at);
    if (taps == 2) return gradient_of_taps<2>(p, tap_at);
    gradient_of_taps<3>(p, tap_at);
}
