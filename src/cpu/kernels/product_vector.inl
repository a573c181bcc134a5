// The batch-reduce product for vector instruction sets. Included by the instruction-set files
// inside an anonymous namespace, after a struct V:
//
//   V::lanes                      f32 lanes of a vector
//   V::acc, V::unit               accumulator; vector of B units or a broadcast A unit
//   V::load_acc, V::store_acc, V::zero, V::load(b), V::broadcast(a), V::madd(acc, a, b)
//
// and the format F.
//
// One body for all block sizes: M × N accumulators stay in registers, which the templates'
// constants let the compiler unroll completely. (A block that does not fit spills; max_m keeps
// within bounds.)

template <int N, typename Element>
[[gnu::always_inline]] inline void store_row(
    Element *to, const typename V::acc (&acc)[N], dim last) {
    using E = std::conditional_t<std::is_same_v<Element, float>, f32_element, bf16_element>;
#pragma GCC unroll 8
    for (int n = 0; n < N - 1; ++n) V::template store_as<E>(to + n * V::lanes, acc[n]);
    if (last == 0)
        V::template store_as<E>(to + (N - 1) * V::lanes, acc[N - 1]);
    else
        V::template store_as_n<E>(to + (N - 1) * V::lanes, acc[N - 1], last);
}

/// A row that is whole, past the caches.
template <int N, typename Element>
[[gnu::always_inline]] inline void stream_row(Element *to, const typename V::acc (&acc)[N]) {
    using E = std::conditional_t<std::is_same_v<Element, float>, f32_element, bf16_element>;
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) V::template stream_as<E>(to + n * V::lanes, acc[n]);
}

template <int M, int N>
void product_block(const product_args &p) {
    // In registers from the start: loops that are not unrolled would build the block on the stack.
    typename V::acc acc[M][N];
    float *const c = p.c;
    const dim ldc = p.ldc;
#pragma GCC unroll 32
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) acc[m][n] = V::zero();
    if (p.accumulate) {
#pragma GCC unroll 32
        for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n) acc[m][n] = V::load_acc(c + m * ldc + n * V::lanes);
    }
    // Row m is at a + m·a_m. One pointer serves three rows ([p], [p + a_m], [p + 2·a_m]), so that
    // all of them fit the integer registers.
    constexpr int groups = (M + 2) / 3;
    const dim a_m = p.a_m, a_step = p.a_step, b_step = p.b_step;
    for (dim r = 0; r < p.runs; ++r) {
        const char *a[groups];
#pragma GCC unroll 16
        for (int g = 0; g < groups; ++g) a[g] = p.a + p.a_run[r] + 3 * g * a_m;
        const char *b = p.b + p.b_run[r];
        for (dim k = 0; k < p.k; ++k) {
            typename V::unit bv[N];
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n) bv[n] = V::load(b + n * (4 * V::lanes));
#pragma GCC unroll 32
            for (int m = 0; m < M; ++m) {
                const char *const am = a[m / 3] + (m % 3) * a_m;
                if constexpr (N == 1) {
                    acc[m][0] = F::madd_at(acc[m][0], am, bv[0]);
                } else {
                    const typename V::unit av = V::broadcast(am);
#pragma GCC unroll 8
                    for (int n = 0; n < N; ++n) acc[m][n] = V::madd(acc[m][n], av, bv[n]);
                }
            }
#pragma GCC unroll 16
            for (int g = 0; g < groups; ++g) {
                a[g] += a_step;
                // Keeps the pointers apart: left alone, the compiler derives them all from one and
                // spends more instructions on addresses than on arithmetic.
                __asm__("" : "+r"(a[g]));
            }
            b += b_step;
        }
    }
    if (p.stream && p.out == nullptr) {
#pragma GCC unroll 32
        for (int m = 0; m < M; ++m) stream_row<N>(c + m * ldc, acc[m]);
        return;
    }
    if (p.out == nullptr && p.last == 0) {
#pragma GCC unroll 32
        for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n) V::store_acc(c + m * ldc + n * V::lanes, acc[m][n]);
        return;
    }
    if constexpr (F::only_bf16)
        if (p.out != nullptr) {
            if (p.stream) {
#pragma GCC unroll 32
                for (int m = 0; m < M; ++m) stream_row<N>(p.out + m * p.ld_out, acc[m]);
                return;
            }
#pragma GCC unroll 32
            for (int m = 0; m < M; ++m) store_row<N>(p.out + m * p.ld_out, acc[m], p.last);
            return;
        }
#pragma GCC unroll 32
    for (int m = 0; m < M; ++m) store_row<N>(c + m * ldc, acc[m], p.last);
}

using block_function = void (*)(const product_args &);

template <int N, int M>
constexpr void fill_blocks(block_function *table) {
    table[M] = product_block<M, N>;
    if constexpr (M > 1) fill_blocks<N, M - 1>(table);
}

/// table[vectors][m]; heights are V::max_m[vectors].
struct block_table {
    block_function of[5][33] = {};
    constexpr block_table() {
        fill_blocks<1, V::max_m[1]>(of[1]);
        fill_blocks<2, V::max_m[2]>(of[2]);
        fill_blocks<3, V::max_m[3]>(of[3]);
        fill_blocks<4, V::max_m[4]>(of[4]);
    }
};

void product(const product_args &p, int m, int vectors) {
    static constexpr block_table table{};
    table.of[vectors][m](p);
}
