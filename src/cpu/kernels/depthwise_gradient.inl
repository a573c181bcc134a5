// The weights gradient of depthwise passes; see depthwise_args.hpp. Included after
// depthwise_vector.inl.

/// R lines of a chain of N taps by G vectors, whose sums stay in registers over all rows and
/// positions.
template <typename E, bool Whole, int G, int R, int N>
struct gradient_block {
    const depthwise_gradient_args &p;
    const tap_line *lines;
    const tap_chain &chain;
    const bool first;  // to read what it reads
    V::vec acc[R][N][G];

    [[nodiscard]] float *sums(int r, int k) const {
        return p.sums + lines[r].weights + chain.weights + 2 * k * V::lanes;
    }
    [[gnu::always_inline]] void load_sums() {
#pragma GCC unroll 3
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
            for (int k = 0; k < N; ++k)
#pragma GCC unroll 2
                for (int g = 0; g < G; ++g) acc[r][k][g] = V::load_acc(sums(r, k) + g * V::lanes);
    }
    [[gnu::always_inline]] void store_sums() {
#pragma GCC unroll 3
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
            for (int k = 0; k < N; ++k)
#pragma GCC unroll 2
                for (int g = 0; g < G; ++g) V::store_acc(sums(r, k) + g * V::lanes, acc[r][k][g]);
    }

    template <int X>
    void expect_next(dim row, dim position) {
        constexpr int bytes = 2 * V::lanes * static_cast<int>(sizeof(typename E::type));
        const char *dst = p.dst + (row + 1) * p.dst_row + position * p.dst_position;
        const char *in = p.in + row * p.in_row + position * p.slot + chain.in + p.fresh;
        for (int i = 0; i < X; ++i) {
            expect_read(dst + i * p.dst_position, bytes);
            for (dim r = 0; r < p.fresh_rows; ++r)
                expect_read(in + i * p.slot + r * p.fresh_row, bytes);
        }
    }

    /// Lines [Lo, Hi) at X positions. Each position of dst is loaded when its first tap comes up
    /// and serves N slots.
    template <int X, int Lo, int Hi, bool Near>
    [[gnu::always_inline]] void walk(const char *in, const char *dst, const unsigned inside) {
        V::vec d[X][G];
#pragma GCC unroll 11
        for (int j = 0; j < X + N - 1; ++j, in += p.slot) {
            __asm__("" : "+r"(in));  // no register for each multiple of `slot`
            if (j < X) {
                load_group<E, Whole>(dst, p.elements, d[j]);
                hold(d[j]);
                dst += p.dst_position;
            }
            const bool asked = !Near || j < N - 1 || j >= X;
            if (asked && (inside >> j & 1U) == 0) [[unlikely]]
                continue;
#pragma GCC unroll 3
            for (int r = Lo; r < Hi; ++r) {
                V::vec a[G];
                load_group<E, Whole>(in + lines[r].in, p.elements, a);
                hold(a);
#pragma GCC unroll 4
                for (int k = 0; k < N; ++k) {
                    const int i = j - k;
                    if (i < 0 || i >= X) continue;
#pragma GCC unroll 2
                    for (int g = 0; g < G; ++g) acc[r][k][g] = V::madd(acc[r][k][g], a[g], d[i][g]);
                }
            }
        }
    }
    [[gnu::always_inline]] static void hold(V::vec (&v)[G]) {
#pragma GCC unroll 2
        for (int g = 0; g < G; ++g) V::hold(v[g]);
    }

    template <int Lo, int X>
    [[gnu::always_inline]] void walk_some(
        const char *in, const char *dst, const unsigned inside, const unsigned reached) {
        if ((reached >> Lo & 1U) != 0) walk<X, Lo, Lo + 1, false>(in, dst, inside);
        if constexpr (Lo + 1 < R) walk_some<Lo + 1, X>(in, dst, inside, reached);
    }

    /// Which lines a row of positions meets, as bits.
    [[gnu::always_inline]] unsigned reached_by(dim row) const {
        const dim y = p.first_row + row;
        unsigned reached = 0;
#pragma GCC unroll 3
        for (int r = 0; r < R; ++r) reached |= (y >= lines[r].lo && y < lines[r].hi ? 1U : 0U) << r;
        return reached;
    }

    template <int X>
    [[gnu::always_inline]] void walk_row(const char *in, const char *dst, const unsigned inside,
        const bool near, const unsigned reached) {
        if (near && reached == (1U << R) - 1) [[likely]]  // all lines of a slot side by side
            walk<X, 0, R, true>(in, dst, inside);
        else
            walk_less<X>(in, dst, inside, near ? reached : 0, reached);
    }

    /// X positions: of one row, or of all of them, for which what they are is found once.
    template <int X>
    [[gnu::always_inline]] void add_positions(dim position, dim row, const unsigned reached) {
        if (first && p.fresh_rows > 0) expect_next<X>(row, position);
        const unsigned inside = slots_inside(chain, p.first_position + position, X + N - 1);
        walk_row<X>(p.in + row * p.in_row + position * p.slot + chain.in,
            p.dst + row * p.dst_row + position * p.dst_position, inside, is_near<X>(inside, N),
            reached);
    }
    template <int X>
    [[gnu::always_inline]] void add_positions(dim position) {
        const unsigned inside = slots_inside(chain, p.first_position + position, X + N - 1);
        const bool near = is_near<X>(inside, N);
        const char *dst = p.dst + position * p.dst_position;
        const char *in = p.in + position * p.slot + chain.in;
        for (dim row = 0; row < p.rows; ++row, dst += p.dst_row, in += p.in_row) {
            const unsigned reached = reached_by(row);
            if (reached == 0) continue;
            if (first && p.fresh_rows > 0) expect_next<X>(row, position);
            walk_row<X>(in, dst, inside, near, reached);
        }
    }

    /// Fewer lines, or slots in the middle that do not exist. In first and last rows two lines go
    /// together, as fewer sums would wait for each other.
    template <int X>
    [[gnu::always_inline]] void walk_less(const char *in, const char *dst, const unsigned inside,
        const unsigned near, const unsigned reached) {
        if constexpr (R == 3) {
            if (near == 3) return walk<X, 0, 2, true>(in, dst, inside);
            if (near == 6) return walk<X, 1, 3, true>(in, dst, inside);
        }
        if (reached == (1U << R) - 1)
            walk<X, 0, R, false>(in, dst, inside);
        else
            walk_some<0, X>(in, dst, inside, reached);
    }

    /// A run of at most X positions.
    template <int X, typename... Row>
    [[gnu::always_inline]] void add_run(dim x, dim length, Row... row) {
        if (length == X) return add_positions<X>(x, row...);
        if constexpr (X > 1) add_run<X - 1>(x, length, row...);
    }

    /// Runs of nearly equal length, the longer ones first.
    template <typename... Row>
    [[gnu::always_inline]] void add_runs(Row... row) {
        const dim runs = (p.positions + most - 1) / most;
        const dim length = p.positions / runs, longer = p.positions % runs;
        for (dim i = 0, x = 0; i < runs; ++i) {
            const dim count = length + (i < longer ? 1 : 0);
            add_run<most>(x, count, row...);
            x += count;
        }
    }

    /// Few runs go through all rows each; many row by row, as memory is asked for.
    [[gnu::always_inline]] void run() {
        load_sums();
        constexpr int few = 4;
        bool all = false;
        if constexpr (Whole) all = p.positions <= few * most;
        if (all)
            add_runs();
        else
            for (dim row = 0; row < p.rows; ++row)
                if (const unsigned reached = reached_by(row); reached != 0) add_runs(row, reached);
        store_sums();
    }

    static constexpr int most = Whole ? pair::gradient_positions : pair::gradient_positions / 2;
};

template <typename E, bool Whole, int G, int R, int N>
void gradient_lines(
    const depthwise_gradient_args &p, const tap_line *lines, const tap_chain &chain) {
    gradient_block<E, Whole, G, R, N> block{p, lines, chain, lines == p.lines, {}};
    block.run();
}

template <typename E, bool Whole, int G, int N>
void gradient_chain(const depthwise_gradient_args &p, const tap_chain &chain) {
    // As many lines as registers hold: G · R · N sums. Incomplete groups are rare: one will do.
    constexpr int held = G == 1 ? pair::gradient_lines_alone : pair::gradient_lines;
    constexpr int most = N > 3 && held > 2 ? 2 : held;
    constexpr int lines = Whole ? most : 1;
    dim line = 0;
    for (; line + lines <= p.line_count; line += lines)
        gradient_lines<E, Whole, G, lines, N>(p, p.lines + line, chain);
    if constexpr (lines > 2)
        for (; line + 2 <= p.line_count; line += 2)
            gradient_lines<E, Whole, G, 2, N>(p, p.lines + line, chain);
    if constexpr (lines > 1)
        for (; line < p.line_count; ++line)
            gradient_lines<E, Whole, G, 1, N>(p, p.lines + line, chain);
}

template <typename E, bool Whole, int G>
void gradient_rows(const depthwise_gradient_args &p) {
    for (const tap_chain *chain = p.chains; chain != p.chains + p.chain_count; ++chain)
        switch (chain->taps) {
        case 1:
            gradient_chain<E, Whole, G, 1>(p, *chain);
            break;
        case 2:
            gradient_chain<E, Whole, G, 2>(p, *chain);
            break;
        case 3:
            gradient_chain<E, Whole, G, 3>(p, *chain);
            break;
        default:
            gradient_chain<E, Whole, G, 4>(p, *chain);
            break;
        }
}

/// The first G vectors of what there is.
template <typename E, int G>
void gradient_group(const depthwise_gradient_args &p) {
    if (p.elements >= G * V::lanes)
        gradient_rows<E, true, G>(p);
    else
        gradient_rows<E, false, G>(p);
}

template <typename E>
void gradient_type(const depthwise_gradient_args &p) {
    if (group_vectors<E> == 2 && !p.vector) return gradient_group<E, 2>(p);
    gradient_group<E, 1>(p);
    if (p.elements <= V::lanes) return;
    constexpr dim vector = V::lanes * static_cast<dim>(sizeof(typename E::type));
    depthwise_gradient_args second = p;
    second.in += vector;
    second.dst += vector;
    second.sums += V::lanes;
    second.elements -= V::lanes;
    second.fresh_rows = 0;  // asked for with the first
    gradient_group<E, 1>(second);
}

void depthwise_gradient(const depthwise_gradient_args &p) {
    if (p.type == data_type::f32) gradient_type<f32_element>(p);
    if (p.type == data_type::bf16) gradient_type<bf16_element>(p);
    if (p.type == data_type::f16) gradient_type<f16_element>(p);
}
