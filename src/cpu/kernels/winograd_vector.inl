// Winograd transforms and products for vector instruction sets. Included inside an anonymous
// namespace after struct V (see product_vector.inl), whose vectors also have the operators + − *.

#include "cpu/kernels/winograd_matrices.inl"

[[gnu::always_inline]] inline void keep_order() {
    __asm__ volatile("" ::: "memory");
}

// --- positions to points ------------------------------------------------------------------------

/// Two rows of points at a time: all of them would not fit into the registers.
template <const auto &R, const auto &C, int G = 0>
[[gnu::always_inline]] inline void transform_rows(
    const float *in, dim row, dim column, float *out, dim point) {
    constexpr int upper = pair_low<R.points, G>, lower = pair_high<R.points, G>;
    if constexpr (2 * G < R.points && R.has(upper)) {
        V::vec low[C.columns], high[C.columns], line[C.points];
#pragma GCC unroll 8
        for (int c = 0; c < C.columns; ++c) {
            V::vec of[R.columns];
#pragma GCC unroll 8
            for (int r = 0; r < R.columns; ++r) of[r] = V::load_acc(in + r * row + c * column);
            evaluate_pair<R, G>(of, low[c], high[c]);
        }
        evaluate<C>(low, line);
#pragma GCC unroll 8
        for (int c = 0; c < C.points; ++c)
            if (C.has(c)) V::store_acc(out + (upper * C.points + c) * point, line[c]);
        if constexpr (lower != upper && R.has(lower)) {
            evaluate<C>(high, line);
#pragma GCC unroll 8
            for (int c = 0; c < C.points; ++c)
                if (C.has(c)) V::store_acc(out + (lower * C.points + c) * point, line[c]);
        }
        keep_order();  // what the next two rows read is read again
        transform_rows<R, C, G + 1>(in, row, column, out, point);
    }
}

template <const auto &R, const auto &C>
void transform_tiles(const winograd_tile_args &p) {
    const dim row = p.row, column = p.column, point = p.point;
    for (dim t = 0; t < p.tiles; ++t)
        for (dim v = 0; v < p.vectors; ++v) {
            const float *in = p.in + t * p.next_tile + v * p.vector;
#pragma GCC unroll 8
            for (int r = 0; r < R.columns; ++r)
#pragma GCC unroll 8
                for (int c = 0; c < C.columns; ++c)
                    if (c >= C.columns + 2 - C.points || C.columns < C.points)
                        __builtin_prefetch(in + p.next_tile + r * row + c * column, 0, 3);
            transform_rows<R, C>(in, row, column, p.out + t * p.slot + v * p.slot_vector, point);
        }
}

// --- points to results --------------------------------------------------------------------------

template <const auto &R, const auto &C>
std::uint64_t combine_tiles(const winograd_tile_args &p) {
    const dim row = p.row, column = p.column, point = p.point;
    std::uint64_t bad = 0;
    for (dim t = 0; t < p.tiles; ++t) {
        V::watch watch;
        for (dim v = 0; v < p.vectors; ++v) {
            const float *in = p.in + t * p.slot + v * p.slot_vector;
            float *out = p.out + t * p.next_tile + v * p.vector;
            V::vec half[R.columns][C.points];
#pragma GCC unroll 8
            for (int c = 0; c < C.points; ++c) {
                if (!C.has(c)) continue;
                V::vec of[R.points], made[R.columns];
#pragma GCC unroll 8
                for (int r = 0; r < R.points; ++r)
                    if (R.has(r)) of[r] = V::load_acc(in + (r * C.points + c) * point);
                combine<R>(of, made);
#pragma GCC unroll 8
                for (int r = 0; r < R.columns; ++r) half[r][c] = made[r];
            }
#pragma GCC unroll 8
            for (int r = 0; r < R.columns; ++r) {
                V::vec made[C.columns];
                combine<C>(half[r], made);
#pragma GCC unroll 8
                for (int c = 0; c < C.columns; ++c) {
                    watch.add(made[c]);
                    if (p.stream)
                        V::template stream_as<f32_element>(out + r * row + c * column, made[c]);
                    else
                        V::store_acc(out + r * row + c * column, made[c]);
                }
            }
        }
        if (watch.found().nonfinite) bad |= std::uint64_t{1} << t;
    }
    return bad;
}

// --- filters ------------------------------------------------------------------------------------

template <const auto &R, const auto &C>
void transform_filters(const winograd_filter_args &p) {
    for (dim v = 0; v < p.vectors; ++v) {
        const float *in = p.in + v * V::lanes;
        float *out = p.out + v * V::lanes;
        V::vec half[R.points][C.columns];
#pragma GCC unroll 8
        for (int c = 0; c < C.columns; ++c) {
            V::vec of[R.columns], made[R.points];
#pragma GCC unroll 8
            for (int r = 0; r < R.columns; ++r)
                of[r] = V::load_acc(in + (r * C.columns + c) * p.tap);
            evaluate<R>(of, made);
#pragma GCC unroll 8
            for (int r = 0; r < R.points; ++r) half[r][c] = made[r];
        }
#pragma GCC unroll 8
        for (int r = 0; r < R.points; ++r) {
            V::vec line[C.points];
            evaluate<C>(half[r], line);
#pragma GCC unroll 8
            for (int c = 0; c < C.points; ++c)
                V::store_acc(out + (r * C.points + c) * p.point, line[c]);
        }
    }
}

template <const auto &R, const auto &C>
bool combine_filters(const winograd_filter_args &p) {
    V::watch watch;
    for (dim v = 0; v < p.vectors; ++v) {
        const float *in = p.in + v * V::lanes;
        float *out = p.out + v * V::lanes;
        V::vec half[R.columns][C.points];
#pragma GCC unroll 8
        for (int c = 0; c < C.points; ++c) {
            V::vec of[R.points], made[R.columns];
#pragma GCC unroll 8
            for (int r = 0; r < R.points; ++r)
                of[r] = V::load_acc(in + (r * C.points + c) * p.point);
            combine<R>(of, made);
#pragma GCC unroll 8
            for (int r = 0; r < R.columns; ++r) half[r][c] = made[r];
        }
#pragma GCC unroll 8
        for (int r = 0; r < R.columns; ++r) {
            V::vec made[C.columns];
            combine<C>(half[r], made);
#pragma GCC unroll 8
            for (int c = 0; c < C.columns; ++c) {
                watch.add(made[c]);
                V::store_acc(out + (r * C.columns + c) * p.tap, made[c]);
            }
        }
    }
    return !watch.found().nonfinite;
}

// --- products -----------------------------------------------------------------------------------

/// Adds what is in registers to C, or starts it.
template <int M, int N>
[[gnu::always_inline]] inline void add_block(const V::vec (&acc)[M][N], float *c, bool add) {
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) {
            float *to = c + m * 2 * V::lanes + n * V::lanes;
            V::store_acc(to, add ? V::load_acc(to) + acc[m][n] : acc[m][n]);
        }
}

/// One step of a block: row m of A at a + m·Step.
template <int M, int N, int Step>
[[gnu::always_inline]] inline void step_block(V::vec (&acc)[M][N], const float *a, const float *b) {
    V::vec bv[N];
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) bv[n] = V::load_acc(b + n * V::lanes);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
        const V::vec av = V::set1(a[m * Step]);
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) acc[m][n] = V::madd(acc[m][n], av, bv[n]);
    }
}

template <int M, int N>
void product_rows(const winograd_product_args &p) {
    const float *a = p.a, *b = p.b, *next = p.next;
    bool add = p.accumulate;
    for (dim done = 0; done < p.runs; add = true) {
        V::vec acc[M][N];
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m)
#pragma GCC unroll 2
            for (int n = 0; n < N; ++n) acc[m][n] = V::zero();
        const dim end = p.runs - done < p.chain ? p.runs : done + p.chain;
        for (; done < end; ++done) {
            const dim count = done + 1 == p.runs ? p.last : V::lanes;
            for (dim k = 0; k < count; ++k) {
#pragma GCC unroll 2
                for (int n = 0; n < N; ++n) __builtin_prefetch(next + n * 16, 0, 3);
                step_block<M, N, V::lanes>(acc, a + k, b);
                b += 2 * V::lanes;
                next += 2 * V::lanes;
            }
            a += p.a_run;
        }
        add_block<M, N>(acc, p.c, add);
    }
}

template <int M, int N>
void product_gradient(const winograd_product_args &p) {
    const float *a = p.a, *b = p.b;
    bool add = p.accumulate;
    for (dim done = 0; done < p.last; add = true) {
        V::vec acc[M][N];
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m)
#pragma GCC unroll 2
            for (int n = 0; n < N; ++n) acc[m][n] = V::zero();
        const dim end = p.last - done < p.chain ? p.last : done + p.chain;
        for (; done < end; ++done) {
            step_block<M, N, 1>(acc, a, b);
            a += V::lanes;
            b += 2 * V::lanes;
        }
        add_block<M, N>(acc, p.c, add);
    }
}

// --- tables -------------------------------------------------------------------------------------

constexpr int product_rows_most = V::max_m[2];
constexpr int gradient_rows = V::lanes / 2 < 4 ? 4 : V::lanes / 2;

using product_function = void (*)(const winograd_product_args &);

template <int N, int M>
constexpr void fill_products(product_function *table) {
    table[M] = product_rows<M, N>;
    if constexpr (M > 1) fill_products<N, M - 1>(table);
}

struct product_table {
    product_function of[3][product_rows_most + 1] = {};
    constexpr product_table() {
        fill_products<1, product_rows_most>(of[1]);
        fill_products<2, product_rows_most>(of[2]);
    }
};

void winograd_product(const winograd_product_args &p, int rows, int vectors) {
    static constexpr product_table table{};
    table.of[vectors][rows](p);
}

void winograd_gradient(const winograd_product_args &p, int vectors) {
    if (vectors == 1)
        product_gradient<gradient_rows, 1>(p);
    else
        product_gradient<gradient_rows, 2>(p);
}

/// Tiles of A × B results of filters of S × T taps at R × C points.
template <int R, int C, int S, int T, int A, int B>
constexpr winograd_kernels::tile_transforms tiles_of() {
    using rows = matrices<R, S, A>;
    using columns = matrices<C, T, B>;
    return {transform_tiles<rows::input, columns::input>,
        transform_tiles<rows::result, columns::result>,
        combine_tiles<rows::result, columns::result>};
}

/// What an edge may lack of `m` results.
constexpr int lack(int m) {
    return m - winograd_edge(m, 1);
}

template <int R, int C, int S, int T, int I = 0, int J = 0>
constexpr void fill_tiles(winograd_kernels::transforms &table) {
    constexpr int rows = R - S + 1, columns = C - T + 1;
    static_assert(lack(rows) <= most_winograd_lack && lack(columns) <= most_winograd_lack);
    table.of[I][J] = tiles_of<R, C, S, T, rows - I, columns - J>();
    if constexpr (J < lack(columns))
        fill_tiles<R, C, S, T, I, J + 1>(table);
    else if constexpr (I < lack(rows))
        fill_tiles<R, C, S, T, I + 1, 0>(table);
}

template <int R, int C, int S, int T>
constexpr winograd_kernels::transforms transforms_of() {
    winograd_kernels::transforms table{};
    fill_tiles<R, C, S, T>(table);
    table.filters = transform_filters<matrices<R, S>::filter, matrices<C, T>::filter>;
    table.filter_gradients = combine_filters<matrices<R, S>::filter, matrices<C, T>::filter>;
    return table;
}

template <int I = 0>
constexpr void fill_kernels(winograd_kernels &kernels) {
    if constexpr (I < 3 * winograd_shapes) {
        constexpr winograd_taps taps = all_winograd_taps[I / 3];
        constexpr winograd_tile tile = all_winograd_tiles[I % 3];
        if constexpr (winograd_has(taps, tile))
            kernels.of[I / 3][I % 3] = transforms_of<winograd_points(tile, 0, taps.rows),
                winograd_points(tile, 1, taps.columns), taps.rows, taps.columns>();
        fill_kernels<I + 1>(kernels);
    }
}

constexpr winograd_kernels kernels_for(isa set) {
    winograd_kernels kernels{
        set, V::lanes, product_rows_most, gradient_rows, winograd_product, winograd_gradient, {}};
    fill_kernels(kernels);
    return kernels;
}
