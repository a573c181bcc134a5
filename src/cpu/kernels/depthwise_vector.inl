// Depthwise passes over pairs of vectors; see depthwise_args.hpp. Included like product_vector.inl,
// after struct pair.

template <typename E, bool Whole>
[[gnu::always_inline]] inline void load_pair(const char *p, dim n, V::vec &a, V::vec &b) {
    if constexpr (Whole)
        pair::load<E>(p, a, b);
    else
        pair::load_n<E>(p, n, a, b);
}

/// Which of `slots` slots from `first` on exist, as bits.
inline unsigned slots_inside(const tap_chain &chain, dim first, int slots) {
    dim lo = chain.lo - first, hi = chain.hi - first;
    lo = lo < 0 ? 0 : lo > slots ? slots : lo;
    hi = hi < lo ? lo : hi > slots ? slots : hi;
    return (1U << hi) - (1U << lo);
}

/// X positions, a chain of N taps: each slot is loaded once.
template <typename In, bool Whole, int X, int N>
[[gnu::always_inline]] inline void slide(V::vec (&acc)[X][2], const char *in, dim slot,
    const float *weights, unsigned inside, dim elements) {
    V::vec w[N][2];
#pragma GCC unroll 4
    for (int k = 0; k < N; ++k) {
        w[k][0] = V::load_acc(weights + 2 * k * V::lanes);
        w[k][1] = V::load_acc(weights + (2 * k + 1) * V::lanes);
    }
#pragma GCC unroll 11
    for (int j = 0; j < X + N - 1; ++j) {
        if ((inside >> j & 1U) == 0) continue;
        V::vec a, b;
        load_pair<In, Whole>(in + j * slot, elements, a, b);
#pragma GCC unroll 4
        for (int k = 0; k < N; ++k) {
            const int i = j - k;
            if (i < 0 || i >= X) continue;
            acc[i][0] = V::madd(acc[i][0], a, w[k][0]);
            acc[i][1] = V::madd(acc[i][1], b, w[k][1]);
        }
    }
}

/// Adds a pair of type Out to `acc`. A bf16 input means that bf16 goes by even and odd elements.
template <typename In, typename Out, bool Whole>
[[gnu::always_inline]] inline void add_pair(V::vec (&acc)[2], const char *p, dim n) {
    V::vec a, b;
    if constexpr (std::is_same_v<In, Out>) {
        load_pair<Out, Whole>(p, n, a, b);
    } else {
        const auto *from = reinterpret_cast<const typename Out::type *>(p);
        a = V::load_as_n<Out>(from, Whole ? V::lanes : n);
        b = Whole || n > V::lanes
                ? V::load_as_n<Out>(from + V::lanes, Whole ? V::lanes : n - V::lanes)
                : V::zero();
    }
    acc[0] = V::add(acc[0], a);
    acc[1] = V::add(acc[1], b);
}

template <typename In, typename Out, bool Whole>
[[gnu::always_inline]] inline void finish_pair(V::vec (&acc)[2], const depthwise_args &p, char *out,
    const char *add, const float *bias, dim elements) {
    if (bias != nullptr) {
        acc[0] = V::add(acc[0], V::load_acc(bias));
        acc[1] = V::add(acc[1], V::load_acc(bias + V::lanes));
    }
    if (add != nullptr) add_pair<In, Out, Whole>(acc, add, elements);
    if (p.accumulate) add_pair<In, Out, Whole>(acc, out, elements);
    if (p.relu) {
        acc[0] = V::relu(acc[0]);
        acc[1] = V::relu(acc[1]);
    }
    if (Whole && p.stream) return pair::stream<In, Out>(out, acc[0], acc[1]);
    if constexpr (std::is_same_v<In, bf16_element>) {
        if constexpr (Whole)
            pair::store_split(out, acc[0], acc[1]);
        else
            pair::store_split_n(out, elements, acc[0], acc[1]);
    } else {
        if constexpr (Whole)
            pair::store<Out>(out, acc[0], acc[1]);
        else
            pair::store_n<Out>(out, elements, acc[0], acc[1]);
    }
}

template <typename In, typename Out, bool Whole, int X>
void depthwise_positions(const depthwise_args &p, dim row, dim position, dim block) {
    V::vec acc[X][2];
#pragma GCC unroll 8
    for (int i = 0; i < X; ++i) acc[i][0] = acc[i][1] = V::zero();
    const dim y = p.first_row + row, x = p.first_position + position;
    constexpr dim in_pair = 2 * V::lanes * static_cast<dim>(sizeof(typename In::type));
    constexpr dim out_pair = 2 * V::lanes * static_cast<dim>(sizeof(typename Out::type));
    const dim elements = p.elements - 2 * V::lanes * block;
    const char *in = p.in + row * p.in_row + position * p.slot + block * in_pair;
    const float *block_weights = p.weights + block * p.weights_block;
    for (const tap_line *line = p.lines; line != p.lines + p.line_count; ++line) {
        if (y < line->lo || y >= line->hi) continue;
        for (const tap_chain *chain = p.chains; chain != p.chains + p.chain_count; ++chain) {
            const unsigned inside = slots_inside(*chain, x, X + chain->taps - 1);
            const char *at = in + line->in + chain->in;
            const float *weights = block_weights + line->weights + chain->weights;
            switch (chain->taps) {
            case 1:
                slide<In, Whole, X, 1>(acc, at, p.slot, weights, inside, elements);
                break;
            case 2:
                slide<In, Whole, X, 2>(acc, at, p.slot, weights, inside, elements);
                break;
            case 3:
                slide<In, Whole, X, 3>(acc, at, p.slot, weights, inside, elements);
                break;
            default:
                slide<In, Whole, X, 4>(acc, at, p.slot, weights, inside, elements);
                break;
            }
        }
    }
    char *out = p.out + row * p.out_row + position * p.out_position + block * out_pair;
    const char *add = p.add == nullptr
                          ? nullptr
                          : p.add + row * p.add_row + position * p.add_position + block * out_pair;
    const float *bias = p.bias == nullptr ? nullptr : p.bias + block * p.bias_block;
#pragma GCC unroll 8
    for (int i = 0; i < X; ++i)
        finish_pair<In, Out, Whole>(acc[i], p, out + i * p.out_position,
            add == nullptr ? nullptr : add + i * p.add_position, bias, elements);
}

using depthwise_function = void (*)(const depthwise_args &, dim, dim, dim);

template <typename In, typename Out, bool Whole>
struct depthwise_table {
    static constexpr int most = Whole ? pair::most_positions : pair::most_positions / 2;
    depthwise_function of[most + 1] = {};
    template <int X>
    constexpr void fill() {
        of[X] = depthwise_positions<In, Out, Whole, X>;
        if constexpr (X > 1) fill<X - 1>();
    }
    constexpr depthwise_table() { fill<most>(); }
};

/// Calls up what the next row will need at the same positions.
template <typename In, typename Out>
void expect_positions(const depthwise_args &p, dim row, dim x, dim end) {
    constexpr dim in_size = static_cast<dim>(sizeof(typename In::type));
    constexpr dim out_size = static_cast<dim>(sizeof(typename Out::type));
    const dim in_bytes = p.elements * in_size, out_bytes = p.elements * out_size;
    for (dim i = 0; i < p.fresh_rows; ++i) {
        const char *in = p.in + row * p.in_row + p.fresh + i * p.fresh_row;
        for (const tap_chain *chain = p.chains; chain != p.chains + p.chain_count; ++chain)
            for (dim at = x; at < end; ++at)
                for (dim b = 0; b < in_bytes; b += 64)
                    expect_read(in + chain->in + at * p.slot + b, 64);
    }
    const char *out = p.out + row * p.out_row + p.out_fresh;
    for (dim at = x; at < end && !p.stream; ++at)
        for (dim b = 0; b < out_bytes; b += 64) expect_write(out + at * p.out_position + b, 64);
}

/// Rows in runs of nearly equal length, each for all pairs: memory is read in its own order.
template <typename In, typename Out>
void depthwise_rows(const depthwise_args &p) {
    static constexpr depthwise_table<In, Out, true> whole{};
    static constexpr depthwise_table<In, Out, false> partial{};
    const dim runs = (p.positions + whole.most - 1) / whole.most;
    const dim length = p.positions / runs, longer = p.positions % runs;
    const dim blocks = p.elements / (2 * V::lanes);
    const bool rest = p.elements % (2 * V::lanes) != 0;
    for (dim row = 0; row < p.rows; ++row) {
        dim x = 0;
        for (dim run = 0; run < runs; ++run) {
            const dim end = x + length + (run < longer ? 1 : 0);
            if (p.fresh_rows > 0) expect_positions<In, Out>(p, row, x, end);
            for (dim block = 0; block < blocks; ++block) whole.of[end - x](p, row, x, block);
            for (; rest && x + partial.most < end; x += partial.most)
                partial.of[partial.most](p, row, x, blocks);
            if (rest) partial.of[end - x](p, row, x, blocks);
            x = end;
        }
    }
}

void depthwise(const depthwise_args &p) {
    if (p.in_type == data_type::bf16) return depthwise_rows<bf16_element, bf16_element>(p);
    if (p.in_type == data_type::f16) return depthwise_rows<f16_element, f16_element>(p);
    if (p.out_type == data_type::bf16) return depthwise_rows<f32_element, bf16_element>(p);
    if (p.out_type == data_type::f16) return depthwise_rows<f32_element, f16_element>(p);
    depthwise_rows<f32_element, f32_element>(p);
}

// --- weights gradient --------------------------------------------------------------------------

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

    /// A slot of line r, for the positions and taps that meet there.
    template <int X>
    [[gnu::always_inline]] void add_slot(const char *in, int j, int r, const V::vec (&d)[X][2]) {
        V::vec a, b;
        load_pair<E, Whole>(in + j * p.slot, p.elements, a, b);
#pragma GCC unroll 4
        for (int k = 0; k < N; ++k) {
            const int i = j - k;
            if (i < 0 || i >= X) continue;
            acc[r][k][0] = V::madd(acc[r][k][0], a, d[i][0]);
            acc[r][k][1] = V::madd(acc[r][k][1], b, d[i][1]);
        }
    }

    template <int X>
    [[gnu::always_inline]] void add_positions(dim row, dim position, const unsigned reached) {
        const char *from = p.dst + row * p.dst_row + position * p.dst_position;
        V::vec d[X][2];
#pragma GCC unroll 4
        for (int i = 0; i < X; ++i)
            load_pair<E, Whole>(from + i * p.dst_position, p.elements, d[i][0], d[i][1]);
        if (first && p.fresh_rows > 0) expect_next<X>(row, position);
        const unsigned inside = slots_inside(chain, p.first_position + position, X + N - 1);
        const char *in = p.in + row * p.in_row + position * p.slot + chain.in;
        if (reached == (1U << R) - 1) {  // as a rule: all lines of a slot side by side
#pragma GCC unroll 11
            for (int j = 0; j < X + N - 1; ++j) {
                if ((inside >> j & 1U) == 0) continue;
#pragma GCC unroll 3
                for (int r = 0; r < R; ++r) add_slot(in + lines[r].in, j, r, d);
            }
            return;
        }
#pragma GCC unroll 3
        for (int r = 0; r < R; ++r) {
            if ((reached >> r & 1U) == 0) continue;
#pragma GCC unroll 11
            for (int j = 0; j < X + N - 1; ++j)
                if ((inside >> j & 1U) != 0) add_slot(in + lines[r].in, j, r, d);
        }
    }

    /// A row in runs of nearly equal length, the longer ones first.
    template <int Longest = pair::gradient_positions>
    [[gnu::always_inline]] void add_row(dim row, dim runs, const unsigned reached) {
        if constexpr (Longest > 1) {
            const dim longer = p.positions - runs * (Longest - 1);
            if (longer <= 0) return add_row<Longest - 1>(row, runs, reached);
            dim x = 0;
            for (; x < longer * Longest; x += Longest) add_positions<Longest>(row, x, reached);
            for (; x < p.positions; x += Longest - 1) add_positions<Longest - 1>(row, x, reached);
        } else {
            for (dim x = 0; x < p.positions; ++x) add_positions<1>(row, x, reached);
        }
    }

    [[gnu::always_inline]] void run() {
        load_sums();
        constexpr int most = pair::gradient_positions;
        const dim runs = (p.positions + most - 1) / most;
        for (dim row = 0; row < p.rows; ++row) {
            const dim y = p.first_row + row;
            unsigned reached = 0;
            for (int r = 0; r < R; ++r)
                reached |= (y >= lines[r].lo && y < lines[r].hi ? 1U : 0U) << r;
            if (reached == 0) continue;
            add_row(row, runs, reached);
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
