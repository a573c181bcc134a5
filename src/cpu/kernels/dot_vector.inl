// Dot products of rows that lie along x, for weights gradients with few channels per group.
// Included like product_vector.inl; V::sum(v) adds the lanes of a vector.

template <int M, int N>
void dot_block(const dot_args &p) {
    typename V::acc acc[M][N];
    for (int m = 0; m < M; ++m)
        for (int n = 0; n < N; ++n) acc[m][n] = V::zero();
    for (dim r = 0; r < p.runs; ++r)
        for (dim x = 0; x < p.count; x += V::lanes) {
            typename V::vec bv[N];
#pragma GCC unroll 4
            for (int n = 0; n < N; ++n) bv[n] = V::load_acc(p.b[n] + p.b_run[r] + x);
#pragma GCC unroll 9
            for (int m = 0; m < M; ++m) {
                const typename V::vec av = V::load_acc(p.a[m] + p.a_run[r] + x);
#pragma GCC unroll 4
                for (int n = 0; n < N; ++n) acc[m][n] = V::madd(acc[m][n], av, bv[n]);
            }
        }
    for (int m = 0; m < M; ++m)
        for (int n = 0; n < N; ++n) {
            float &c = p.c[m * p.ldc + n];
            c = (p.accumulate ? c : 0) + V::sum(acc[m][n]);
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
