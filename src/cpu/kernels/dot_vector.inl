// Dot products of rows that lie along x, for weights gradients with few channels per group.
// Included like product_vector.inl; V::sum(v) adds the lanes of a vector, V::sum4() those of four.

/// acc[m][n] += a[m] · b[n], a vector of each from load(row).
template <int M, int N, typename A, typename B>
[[gnu::always_inline]] inline void dot_step(typename V::acc (&acc)[M][N], A &&a, B &&b) {
    typename V::vec bv[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) bv[n] = b(n);
#pragma GCC unroll 9
    for (int m = 0; m < M; ++m) {
        const typename V::vec av = a(m);
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) acc[m][n] = V::madd(acc[m][n], av, bv[n]);
    }
}

template <int M, int N>
void dot_block(const dot_args &p) {
    typename V::acc acc[M][N];
    for (int m = 0; m < M; ++m)
        for (int n = 0; n < N; ++n) acc[m][n] = V::zero();
    const dim left = p.count % V::lanes, whole = p.count - left;
    for (dim r = 0; r < p.runs; ++r) {
        const dim a_run = p.a_run[r], b_run = p.b_run[r];
        for (dim x = 0; x < whole; x += V::lanes)
            dot_step<M, N>(
                acc, [&](int m) { return V::load_acc(p.a[m] + a_run + x); },
                [&](int n) { return V::load_acc(p.b[n] + b_run + x); });
        if (left == 0) continue;
        // Both: what lies beyond may be infinite, and 0 · ∞ is NaN.
        dot_step<M, N>(
            acc,
            [&](int m) { return V::template load_as_n<f32_element>(p.a[m] + a_run + whole, left); },
            [&](int n) {
                return V::template load_as_n<f32_element>(p.b[n] + b_run + whole, left);
            });
    }
#pragma GCC unroll 9
    for (int m = 0; m < M; ++m) {
        float sums[4];
        if constexpr (N == 4)
            V::sum4(acc[m], sums);
        else
            for (int n = 0; n < N; ++n) sums[n] = V::sum(acc[m][n]);
        float *c = p.c + m * p.ldc;
        for (int n = 0; n < N; ++n) c[n] = (p.accumulate ? c[n] : 0) + sums[n];
    }
}

using dot_function = void (*)(const dot_args &);

template <int N, int M>
constexpr void fill_dots(dot_function *table) {
    table[M] = dot_block<M, N>;
    if constexpr (M > 1) fill_dots<N, M - 1>(table);
}

struct dot_table {
    dot_function of[5][10] = {};
    constexpr dot_table() {
        fill_dots<1, V::max_dot[1]>(of[1]);
        fill_dots<2, V::max_dot[2]>(of[2]);
        fill_dots<3, V::max_dot[3]>(of[3]);
        fill_dots<4, V::max_dot[4]>(of[4]);
    }
};

void dot(const dot_args &p, int m, int n) {
    static constexpr dot_table table{};
    table.of[n][m](p);
}
