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

/// Goes through the lists of product_args::fetch.
class fetch_walk {
public:
    explicit fetch_walk(const product_args &p) : next_(p.fetch), end_(p.fetch + 2) {}

    /// How many of `steps` steps belong to one list, or have none: that goes on at `at`.
    dim take(dim steps) {
        at = next_at_;
        while (left_ == 0 && next_ != end_) {
            at = next_->at;
            step = next_->step;
            left_ = next_++->count;
        }
        list_ = left_ > 0;
        const dim n = list_ && left_ < steps ? left_ : steps;
        if (list_) left_ -= n;
        next_at_ = at + n * step;
        return n;
    }
    /// Whether the steps taken have a list.
    [[nodiscard]] bool any() const { return list_; }

    const char *at = nullptr;
    dim step = 0;

private:
    const product_args::soon *next_, *end_;
    const char *next_at_ = nullptr;
    dim left_ = 0;
    bool list_ = false;
};

/// Goes from row to row: left alone, the compiler holds the addresses of all rows from the start.
template <typename Element, typename Row>
[[gnu::always_inline]] inline void for_rows(int count, Element *at, dim pitch, Row &&row) {
#pragma GCC unroll 32
    for (int m = 0; m < count; ++m) {
        row(m, at);
        at += pitch;
        __asm__("" : "+r"(at));
    }
}

#ifdef __AVX512BF16__
/// A row leaves as bf16, two vectors at a time; no value is subnormal, which would be flushed.
template <int N>
[[gnu::always_inline]] inline void leave_pairs(
    std::uint16_t *to, const V::acc (&acc)[N], bool stream, dim last) {
#pragma GCC unroll 4
    for (int n = 0; n + 1 < N; n += 2) {
        const auto pair = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(acc[n + 1], acc[n]));
        if (stream)
            _mm512_stream_si512(reinterpret_cast<__m512i *>(to + n * V::lanes), pair);
        else if (n + 2 < N || last == 0)
            _mm512_storeu_si512(to + n * V::lanes, pair);
        else
            _mm512_mask_storeu_epi16(
                to + n * V::lanes, (__mmask32{1} << (V::lanes + last)) - 1, pair);
    }
    if constexpr (N % 2 != 0) {
        const auto one = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(acc[N - 1]));
        auto *at = reinterpret_cast<__m256i *>(to + (N - 1) * V::lanes);
        if (stream)
            _mm256_stream_si256(at, one);
        else if (last == 0)
            _mm256_storeu_si256(at, one);
        else
            _mm256_mask_storeu_epi16(at, V::first(last), one);
    }
}

/// Any block leaves as bf16.
[[gnu::noinline, gnu::cold]] inline void leave_rows(
    const product_args &p, const V::acc *acc, int rows, int vectors) {
    for (int m = 0; m < rows; ++m)
        for (int n = 0; n < vectors; ++n) {
            std::uint16_t *to = p.out + m * p.ld_out + n * V::lanes;
            if (n + 1 == vectors && p.last != 0)
                V::store_as_n<bf16_element>(to, *acc++, p.last);
            else
                V::store_as<bf16_element>(to, *acc++);
        }
}

/// Whether some result is subnormal, or zero, which is rare.
template <int M, int N>
[[gnu::always_inline]] inline bool any_small(const V::acc (&acc)[M][N]) {
    V::acc least[2] = {V::set1(1), V::set1(1)};
#pragma GCC unroll 32
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n)
            least[(m + n) % 2] = _mm512_range_ps(least[(m + n) % 2], acc[m][n], 10);
    const V::acc smallest = _mm512_range_ps(least[0], least[1], 10);
    constexpr float normal = 1.17549435e-38F;
    return _mm512_cmp_ps_mask(smallest, V::set1(normal), _CMP_LT_OQ) != 0;
}

/// A block leaves as bf16.
template <int M, int N>
[[gnu::always_inline]] inline void leave_bf16(const product_args &p, const V::acc (&acc)[M][N]) {
    if (!p.normal && any_small(acc)) {
        V::acc copy[M][N];  // whose address may be taken
#pragma GCC unroll 32
        for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n) copy[m][n] = acc[m][n];
        return leave_rows(p, copy[0], M, N);
    }
    const bool stream = p.stream;
    const dim last = p.last;
    for_rows(M, p.out, p.ld_out,
        [&](int m, std::uint16_t *to) { leave_pairs<N>(to, acc[m], stream, last); });
}
#endif

/// `Fetches`: there are lists of memory to ask for on the way; `Copies`: B is copied.
template <int M, int N, bool Fetches, bool Copies>
void product_block(const product_args &p) {
    // In registers from the start: loops that are not unrolled would build the block on the stack.
    typename V::acc acc[M][N];
#pragma GCC unroll 32
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) acc[m][n] = V::zero();
    if (p.accumulate)
        for_rows(M, p.c, p.ldc, [&](int m, const float *from) {
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n) acc[m][n] = V::load_acc(from + n * V::lanes);
        });
    // Row m is at a + m·a_m. One pointer serves three rows ([p], [p + a_m], [p + 2·a_m]), so that
    // all of them fit the integer registers.
    constexpr int groups = (M + 2) / 3;
    const dim a_m = p.a_m, a_step = p.a_step, b_step = p.b_step;
    // A block that takes all registers (of 32) has none for the last vector of B.
    constexpr int held = M * N + N + 1 > 32 ? N - 1 : N;
    static_assert(!Copies || held == N);
    char *copy = p.copy;
    struct {
        const product_args *p;
        dim left;
        fetch_walk ahead;
    } walk{&p, 0, fetch_walk(p)};
    for (dim r = 0; r < walk.p->runs; ++r) {
        const char *a[groups];
#pragma GCC unroll 16
        for (int g = 0; g < groups; ++g) a[g] = walk.p->a + walk.p->a_run[r] + 3 * g * a_m;
        const char *b = walk.p->b + walk.p->b_run[r];
        const char *last = b + held * (4 * V::lanes);
        for (walk.left = walk.p->k; walk.left > 0;) {
            dim k = Fetches ? walk.ahead.take(walk.left) : walk.left;
            walk.left -= k;
            const bool fetches = Fetches && walk.ahead.any();
            const char *fetch = walk.ahead.at;
            const dim fetch_step = walk.ahead.step;
            // What steps do not use stays in memory: left alone, the compiler keeps it in
            // registers, and the pointers that each step needs in memory.
            __asm__("" : "+m"(walk));
            const auto step = [&]() __attribute__((always_inline)) {
                typename V::unit bv[N];
#pragma GCC unroll 8
                for (int n = 0; n < held; ++n) bv[n] = V::load(b + n * (4 * V::lanes));
                if constexpr (Copies) {
#pragma GCC unroll 8
                    for (int n = 0; n < N; ++n) V::store(copy + n * (4 * V::lanes), bv[n]);
                    copy += N * (4 * V::lanes);
                }
#pragma GCC unroll 32
                for (int m = 0; m < M; ++m) {
                    const char *const am = a[m / 3] + (m % 3) * a_m;
                    if constexpr (N == 1) {
                        acc[m][0] = F::madd_at(acc[m][0], am, bv[0]);
                    } else {
                        const typename V::unit av = V::broadcast(am);
#pragma GCC unroll 8
                        for (int n = 0; n < held; ++n) acc[m][n] = V::madd(acc[m][n], av, bv[n]);
                        if constexpr (held < N) acc[m][held] = F::madd_from(acc[m][held], av, last);
                    }
                }
#pragma GCC unroll 16
                for (int g = 0; g < groups; ++g) {
                    a[g] += a_step;
                    // Keeps the pointers apart: left alone, the compiler derives them all from one
                    // and spends more instructions on addresses than on arithmetic.
                    __asm__("" : "+r"(a[g]));
                }
                b += b_step;
                if constexpr (held < N) last += b_step;
            };
            if (fetches)
                for (; k > 0; --k, fetch += fetch_step) {
                    step();
                    __builtin_prefetch(fetch, 0, 2);
                    __builtin_prefetch(fetch + 64, 0, 2);
                }
            else
                for (; k > 0; --k) step();
        }
    }
#ifdef __AVX512BF16__
    if constexpr (F::only_bf16)
        if (p.out != nullptr) return leave_bf16(p, acc);
#endif
    if (p.stream) {
        for_rows(M, p.c, p.ldc, [&](int m, float *to) { stream_row<N>(to, acc[m]); });
        return;
    }
    if (p.last != 0) {
        for_rows(M, p.c, p.ldc, [&](int m, float *to) { store_row<N>(to, acc[m], p.last); });
        return;
    }
    for_rows(M, p.c, p.ldc, [&](int m, float *to) {
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) V::store_acc(to + n * V::lanes, acc[m][n]);
    });
}

using block_function = void (*)(const product_args &);

template <bool Fetches, bool Copies, int N, int M>
constexpr void fill_blocks(block_function *table) {
    table[M] = product_block<M, N, Fetches, Copies>;
    if constexpr (M > 1) fill_blocks<Fetches, Copies, N, M - 1>(table);
}

/// of[vectors][m]; heights are V::max_m[vectors].
template <bool Fetches, bool Copies>
struct block_table {
    block_function of[5][33] = {};
    constexpr block_table() {
        fill_blocks<Fetches, Copies, 1, V::max_m[1]>(of[1]);
        fill_blocks<Fetches, Copies, 2, V::max_m[2]>(of[2]);
        if constexpr (Copies) return;
        fill_blocks<Fetches, false, 3, V::max_m[3]>(of[3]);
        fill_blocks<Fetches, false, 4, V::max_m[4]>(of[4]);
    }
};

void product(const product_args &p, int m, int vectors) {
    static constexpr block_table<false, false> plain{};
    static constexpr block_table<true, false> fetching{};
    if constexpr (V::copies) {
        static constexpr block_table<true, true> copying{};
        if (p.copy != nullptr) return copying.of[vectors][m](p);
    }
    const bool fetches = (p.fetch[0].count | p.fetch[1].count) != 0;
    (fetches ? fetching.of : plain.of)[vectors][m](p);
}
