// Weights gradients of small groups with channels side by side: eight channels of src, one vector
// or two, by eight of dst, each of which is repeated in all lanes. Included after struct V.

template <int Taps, int Rows>
[[gnu::always_inline]] inline void gradient_rows(
    const product_args &p, const dim *tap_at, int first) {
    constexpr int vectors = 8 / V::lanes;
    V::acc acc[Rows][Taps][vectors];
#pragma GCC unroll 8
    for (int m = 0; m < Rows; ++m)
#pragma GCC unroll 3
        for (int t = 0; t < Taps; ++t)
            for (int n = 0; n < vectors; ++n) acc[m][t][n] = V::zero();
    const dim a_step = p.a_step, b_step = p.b_step;
    for (dim r = 0; r < p.runs; ++r) {
        const char *a[Taps];
        for (int t = 0; t < Taps; ++t) a[t] = p.a + p.a_run[r] + tap_at[t];
        const char *b = p.b + p.b_run[r] + 4 * first;
        for (dim k = 0; k < p.k; ++k) {
            V::unit av[Taps][vectors];
#pragma GCC unroll 3
            for (int t = 0; t < Taps; ++t) {
                for (int n = 0; n < vectors; ++n) av[t][n] = V::load(a[t] + 4 * n * V::lanes);
                a[t] += a_step;
            }
#pragma GCC unroll 8
            for (int m = 0; m < Rows; ++m) {
                const V::unit bv = V::broadcast(b + 4 * m);
#pragma GCC unroll 3
                for (int t = 0; t < Taps; ++t)
                    for (int n = 0; n < vectors; ++n)
                        acc[m][t][n] = V::madd(acc[m][t][n], av[t][n], bv);
            }
            b += b_step;
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < Rows; ++m)
#pragma GCC unroll 3
        for (int t = 0; t < Taps; ++t)
            for (int n = 0; n < vectors; ++n) {
                float *c = p.c + 64 * t + 8 * (first + m) + n * V::lanes;
                V::store_acc(c, p.accumulate ? V::add(V::load_acc(c), acc[m][t][n]) : acc[m][t][n]);
            }
}

/// As many sums as there are registers for.
void group_gradient(const product_args &p, const dim *tap_at, int taps) {
    if (taps == 1) return gradient_rows<1, 8>(p, tap_at, 0);
    for (int first = 0; first < 8; first += 4)
        if (taps == 2)
            gradient_rows<2, 4>(p, tap_at, first);
        else
            gradient_rows<3, 4>(p, tap_at, first);
}
