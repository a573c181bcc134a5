// The weights gradient of depthwise passes; see depthwise_args.hpp. Included after
// depthwise_vector.inl.

/// R lines of a chain of N taps, whose sums stay in registers over all rows and positions.
template <typename E, bool Whole, int R, int N>
struct gradient_block {
    const depthwise_gradient_args &p;
    const tap_line *lines;
    const tap_chain &chain;
    const bool first;  // to read what it reads
    V::vec acc[R][N][2];

    [[gnu::always_inline]] void load_sums() {
#pragma GCC unroll 3
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
            for (int k = 0; k < 2 * N; ++k)
                acc[r][k / 2][k % 2] =
                    V::load_acc(p.sums + lines[r].weights + chain.weights + k * V::lanes);
    }
    [[gnu::always_inline]] void store_sums() {
#pragma GCC unroll 3
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
            for (int k = 0; k < 2 * N; ++k)
                V::store_acc(
                    p.sums + lines[r].weights + chain.weights + k * V::lanes, acc[r][k / 2][k % 2]);
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
        V::vec d[X][2];
#pragma GCC unroll 11
        for (int j = 0; j < X + N - 1; ++j, in += p.slot) {
            __asm__("" : "+r"(in));  // no register for each multiple of `slot`
            if (j < X) {
                load_pair<E, Whole>(dst, p.elements, d[j][0], d[j][1]);
                hold(d[j]);
                dst += p.dst_position;
            }
            const bool asked = !Near || j < N - 1 || j >= X;
            if (asked && (inside >> j & 1U) == 0) [[unlikely]]
                continue;
#pragma GCC unroll 3
            for (int r = Lo; r < Hi; ++r) {
                V::vec a[2];
                load_pair<E, Whole>(in + lines[r].in, p.elements, a[0], a[1]);
                hold(a);
#pragma GCC unroll 4
                for (int k = 0; k < N; ++k) {
                    const int i = j - k;
                    if (i < 0 || i >= X) continue;
                    acc[r][k][0] = V::madd(acc[r][k][0], a[0], d[i][0]);
                    acc[r][k][1] = V::madd(acc[r][k][1], a[1], d[i][1]);
                }
            }
        }
    }
    [[gnu::always_inline]] static void hold(V::vec (&v)[2]) {
        V::hold(v[0]);
        V::hold(v[1]);
    }

    template <int Lo, int X>
    [[gnu::always_inline]] void walk_some(
        const char *in, const char *dst, const unsigned inside, const unsigned reached) {
        if ((reached >> Lo & 1U) != 0) walk<X, Lo, Lo + 1, false>(in, dst, inside);
        if constexpr (Lo + 1 < R) walk_some<Lo + 1, X>(in, dst, inside, reached);
    }

    template <int X>
    [[gnu::always_inline]] void add_positions(dim row, dim position, const unsigned reached) {
        if (first && p.fresh_rows > 0) expect_next<X>(row, position);
        const unsigned inside = slots_inside(chain, p.first_position + position, X + N - 1);
        const char *dst = p.dst + row * p.dst_row + position * p.dst_position;
        const char *in = p.in + row * p.in_row + position * p.slot + chain.in;
        if (reached != (1U << R) - 1)
            walk_some<0, X>(in, dst, inside, reached);
        else if (is_near<X>(inside, N)) [[likely]]  // all lines of a slot side by side
            walk<X, 0, R, true>(in, dst, inside);
        else
            walk<X, 0, R, false>(in, dst, inside);
    }

    /// A run of at most X positions.
    template <int X>
    [[gnu::always_inline]] void add_run(dim row, dim x, dim length, const unsigned reached) {
        if (length == X) return add_positions<X>(row, x, reached);
        if constexpr (X > 1) add_run<X - 1>(row, x, length, reached);
    }

    /// Rows in runs of nearly equal length, the longer ones first.
    [[gnu::always_inline]] void run() {
        load_sums();
        constexpr int most = Whole ? pair::gradient_positions : pair::gradient_positions / 2;
        const dim runs = (p.positions + most - 1) / most;
        const dim length = p.positions / runs, longer = p.positions % runs;
        for (dim row = 0; row < p.rows; ++row) {
            const dim y = p.first_row + row;
            unsigned reached = 0;
            for (int r = 0; r < R; ++r)
                reached |= (y >= lines[r].lo && y < lines[r].hi ? 1U : 0U) << r;
            if (reached == 0) continue;
            dim x = 0;
            for (dim i = 0; i < runs; ++i) {
                const dim count = length + (i < longer ? 1 : 0);
                add_run<most>(row, x, count, reached);
                x += count;
            }
        }
        store_sums();
    }
};

template <typename E, bool Whole, int R, int N>
void gradient_lines(
    const depthwise_gradient_args &p, const tap_line *lines, const tap_chain &chain) {
    gradient_block<E, Whole, R, N> block{p, lines, chain, lines == p.lines, {}};
    block.run();
}

template <typename E, bool Whole, int N>
void gradient_chain(const depthwise_gradient_args &p, const tap_chain &chain) {
    // As many lines as registers hold: 2 · R · N sums. Incomplete pairs are rare: one will do.
    constexpr int most = N > 3 && pair::gradient_lines > 2 ? 2 : pair::gradient_lines;
    constexpr int lines = Whole ? most : 1;
    dim line = 0;
    for (; line + lines <= p.line_count; line += lines)
        gradient_lines<E, Whole, lines, N>(p, p.lines + line, chain);
    if constexpr (lines > 1)
        for (; line < p.line_count; ++line)
            gradient_lines<E, Whole, 1, N>(p, p.lines + line, chain);
}

template <typename E, bool Whole>
void gradient_rows(const depthwise_gradient_args &p) {
    for (const tap_chain *chain = p.chains; chain != p.chains + p.chain_count; ++chain)
        switch (chain->taps) {
        case 1:
            gradient_chain<E, Whole, 1>(p, *chain);
            break;
        case 2:
            gradient_chain<E, Whole, 2>(p, *chain);
            break;
        case 3:
            gradient_chain<E, Whole, 3>(p, *chain);
            break;
        default:
            gradient_chain<E, Whole, 4>(p, *chain);
            break;
        }
}

template <typename E>
void gradient_type(const depthwise_gradient_args &p) {
    if (p.elements == 2 * V::lanes)
        gradient_rows<E, true>(p);
    else
        gradient_rows<E, false>(p);
}

void depthwise_gradient(const depthwise_gradient_args &p) {
    if (p.type == data_type::f32) gradient_type<f32_element>(p);
    if (p.type == data_type::bf16) gradient_type<bf16_element>(p);
    if (p.type == data_type::f16) gradient_type<f16_element>(p);
}
