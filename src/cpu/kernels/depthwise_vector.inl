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

/// G vectors: one in memory order, or a pair.
template <typename E, bool Whole, int G>
[[gnu::always_inline]] inline void load_group(const char *p, dim n, V::vec (&v)[G]) {
    const auto *from = reinterpret_cast<const typename E::type *>(p);
    if constexpr (G == 2)
        load_pair<E, Whole>(p, n, v[0], v[1]);
    else if constexpr (Whole)
        v[0] = V::load_as<E>(from);
    else
        v[0] = V::load_as_n<E>(from, n);
}

/// X positions, a chain of N taps: each slot is loaded once. Near: see is_near().
template <typename In, bool Whole, int N, bool Near, int X, int G>
[[gnu::always_inline]] inline void slide(V::vec (&acc)[X][G], const char *in, dim slot,
    const float *weights, unsigned inside, dim elements) {
    V::vec w[N][G];
#pragma GCC unroll 4
    for (int k = 0; k < N; ++k)
#pragma GCC unroll 2
        for (int g = 0; g < G; ++g) w[k][g] = V::load_acc(weights + (2 * k + g) * V::lanes);
#pragma GCC unroll 11
    for (int j = 0; j < X + N - 1; ++j, in += slot) {
        __asm__("" : "+r"(in));  // no register for each multiple of `slot`
        const bool asked = !Near || j < N - 1 || j >= X;
        if (asked && (inside >> j & 1U) == 0) [[unlikely]]
            continue;
        V::vec a[G];
        load_group<In, Whole>(in, elements, a);
#pragma GCC unroll 2
        for (int g = 0; g < G; ++g) V::hold(a[g]);
#pragma GCC unroll 4
        for (int k = 0; k < N; ++k) {
            const int i = j - k;
            if (i < 0 || i >= X) continue;
#pragma GCC unroll 2
            for (int g = 0; g < G; ++g) acc[i][g] = V::madd(acc[i][g], a[g], w[k][g]);
        }
    }
}

/// Whether all slots exist but for some at the ends of X positions and a chain, so that only those
/// need be asked about.
template <int X>
inline bool is_near(unsigned inside, int taps) {
    const unsigned shared = (1U << X) - (1U << (taps - 1 < X ? taps - 1 : X));
    return (inside & shared) == shared;
}

/// Adds G vectors of type Out to `acc`.
template <typename In, typename Out, bool Whole, int G>
[[gnu::always_inline]] inline void add_group(V::vec (&acc)[G], const char *p, dim n) {
    V::vec v[G];
    if constexpr (std::is_same_v<In, Out> || G == 1) {
        load_group<Out, Whole>(p, n, v);
    } else {
        const auto *from = reinterpret_cast<const typename Out::type *>(p);
        v[0] = V::load_as_n<Out>(from, Whole ? V::lanes : n);
        v[1] = Whole || n > V::lanes
                   ? V::load_as_n<Out>(from + V::lanes, Whole ? V::lanes : n - V::lanes)
                   : V::zero();
    }
#pragma GCC unroll 2
    for (int g = 0; g < G; ++g) acc[g] = V::add(acc[g], v[g]);
}

template <typename In, typename Out, bool Whole>
[[gnu::always_inline]] inline void store_group(V::vec (&acc)[1], char *out, bool stream, dim n) {
    auto *to = reinterpret_cast<typename Out::type *>(out);
    if (Whole && stream) return V::stream_as<Out>(to, acc[0]);
    if constexpr (Whole)
        V::store_as<Out>(to, acc[0]);
    else
        V::store_as_n<Out>(to, acc[0], n);
}

template <typename In, typename Out, bool Whole>
[[gnu::always_inline]] inline void store_group(V::vec (&acc)[2], char *out, bool stream, dim n) {
    if (Whole && stream) return pair::stream<In, Out>(out, acc[0], acc[1]);
    if constexpr (std::is_same_v<In, bf16_element>) {  // by even and odd elements
        if constexpr (Whole)
            pair::store_split(out, acc[0], acc[1]);
        else
            pair::store_split_n(out, n, acc[0], acc[1]);
    } else {
        if constexpr (Whole)
            pair::store<Out>(out, acc[0], acc[1]);
        else
            pair::store_n<Out>(out, n, acc[0], acc[1]);
    }
}

template <typename In, typename Out, bool Whole, int G>
[[gnu::always_inline]] inline void finish_group(V::vec (&acc)[G], const depthwise_args &p,
    char *out, const char *add, const float *bias, dim elements) {
    if (bias != nullptr)
#pragma GCC unroll 2
        for (int g = 0; g < G; ++g) acc[g] = V::add(acc[g], V::load_acc(bias + g * V::lanes));
    if (add != nullptr) add_group<In, Out, Whole>(acc, add, elements);
    if (p.accumulate) add_group<In, Out, Whole>(acc, out, elements);
    if (p.relu)
#pragma GCC unroll 2
        for (int g = 0; g < G; ++g) acc[g] = V::relu(acc[g]);
    store_group<In, Out, Whole>(acc, out, p.stream, elements);
}

/// Vectors of a group whose results are held together: bf16 widens to pairs.
template <typename In>
inline constexpr int group_vectors = std::is_same_v<In, bf16_element> ? 2 : pair::group;

/// X positions × G vectors of channels, whose results stay in registers over all taps.
template <typename In, typename Out, bool Whole, int G, int X>
struct depthwise_box {
    static constexpr dim in_group = G * V::lanes * static_cast<dim>(sizeof(typename In::type));
    static constexpr dim out_group = G * V::lanes * static_cast<dim>(sizeof(typename Out::type));

    template <bool Near>
    [[gnu::always_inline]] static void add_chain(V::vec (&acc)[X][G], const depthwise_args &p,
        const tap_chain &chain, const char *in, const float *w, unsigned inside, dim elements) {
        switch (chain.taps) {
        case 1:
            slide<In, Whole, 1, Near>(acc, in, p.slot, w, inside, elements);
            break;
        case 2:
            slide<In, Whole, 2, Near>(acc, in, p.slot, w, inside, elements);
            break;
        case 3:
            slide<In, Whole, 3, Near>(acc, in, p.slot, w, inside, elements);
            break;
        default:
            slide<In, Whole, 4, Near>(acc, in, p.slot, w, inside, elements);
            break;
        }
    }

    [[gnu::always_inline]] static void add_line(V::vec (&acc)[X][G], const depthwise_args &p,
        const char *in, const float *weights, dim x, dim elements) {
        for (const tap_chain *chain = p.chains; chain != p.chains + p.chain_count; ++chain) {
            const unsigned inside = slots_inside(*chain, x, X + chain->taps - 1);
            const char *at = in + chain->in;
            const float *w = weights + chain->weights;
            if (is_near<X>(inside, chain->taps)) [[likely]]
                add_chain<true>(acc, p, *chain, at, w, inside, elements);
            else
                add_chain<false>(acc, p, *chain, at, w, inside, elements);
        }
    }

    [[gnu::always_inline]] static void finish(V::vec (&acc)[X][G], const depthwise_args &p,
        char *out, const char *add, const float *bias, dim elements) {
        const bool plain = bias == nullptr && add == nullptr && !p.accumulate && !p.relu;
#pragma GCC unroll 8
        for (int i = 0; i < X; ++i, out += p.out_position) {
            __asm__("" : "+r"(out));
            if (plain)
                store_group<In, Out, Whole>(acc[i], out, p.stream, elements);
            else
                finish_group<In, Out, Whole>(acc[i], p, out,
                    add == nullptr ? nullptr : add + i * p.add_position, bias, elements);
        }
    }

    /// Groups [begin, end) of G vectors, one after the other. Chain: of how many taps the only
    /// chain is, which is_near(), so that nothing is asked for each group again; 0: any chains.
    template <int Chain>
    static void run_groups(
        const depthwise_args &p, dim row, dim position, dim begin, dim end, const unsigned inside) {
        const dim y = p.first_row + row, x = p.first_position + position;
        for (dim group = begin; group < end; ++group) {
            V::vec acc[X][G];
#pragma GCC unroll 8
            for (int i = 0; i < X; ++i)
#pragma GCC unroll 2
                for (int g = 0; g < G; ++g) acc[i][g] = V::zero();
            const dim block = group * G / 2, half = group * G % 2 * V::lanes;
            const dim elements = p.elements - G * V::lanes * group;
            const char *in = p.in + row * p.in_row + position * p.slot + group * in_group;
            const float *weights = p.weights + block * p.weights_block + half;
            for (const tap_line *line = p.lines; line != p.lines + p.line_count; ++line) {
                if (y < line->lo || y >= line->hi) continue;
                if constexpr (Chain > 0)
                    slide<In, Whole, Chain, true>(acc, in + line->in + p.chains->in, p.slot,
                        weights + line->weights + p.chains->weights, inside, elements);
                else
                    add_line(acc, p, in + line->in, weights + line->weights, x, elements);
            }
            finish(acc, p, p.out + row * p.out_row + position * p.out_position + group * out_group,
                p.add == nullptr
                    ? nullptr
                    : p.add + row * p.add_row + position * p.add_position + group * out_group,
                p.bias == nullptr ? nullptr : p.bias + block * p.bias_block + half, elements);
        }
    }

    /// Filters of three columns are most of all.
    static void run(const depthwise_args &p, dim row, dim position, dim begin, dim end) {
        const tap_chain &chain = *p.chains;
        const unsigned inside =
            slots_inside(chain, p.first_position + position, X + chain.taps - 1);
        if constexpr (Whole)
            if (p.chain_count == 1 && chain.taps == 3 && is_near<X>(inside, 3))
                return run_groups<3>(p, row, position, begin, end, inside);
        run_groups<0>(p, row, position, begin, end, inside);
    }
};

using depthwise_function = void (*)(const depthwise_args &, dim, dim, dim, dim);

template <typename In, typename Out, bool Whole, int G>
struct depthwise_table {
    static constexpr int most = G == 1  ? pair::most_alone
                                : Whole ? pair::most_positions
                                        : pair::most_positions / 2;
    depthwise_function of[most + 1] = {};
    template <int X>
    constexpr void fill() {
        of[X] = depthwise_box<In, Out, Whole, G, X>::run;
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

/// What is left of a run after `done` whole vectors: a pair, or one vector in memory order.
template <typename In, typename Out>
void depthwise_rest(const depthwise_args &p, dim row, dim x, dim end, dim done) {
    static constexpr depthwise_table<In, Out, false, 1> vector{};
    const dim rest = p.elements - V::lanes * done;
    if (rest <= 0) return;
    if (rest <= V::lanes) return vector.of[end - x](p, row, x, done, done + 1);
    static constexpr depthwise_table<In, Out, false, 2> partial{};
    const dim pairs = done / 2;
    for (; x + partial.most < end; x += partial.most)
        partial.of[partial.most](p, row, x, pairs, pairs + 1);
    partial.of[end - x](p, row, x, pairs, pairs + 1);
}

/// Rows in runs of nearly equal length, each for all groups of G vectors: memory is read in its own
/// order.
template <typename In, typename Out, int G>
void depthwise_rows(const depthwise_args &p) {
    static constexpr depthwise_table<In, Out, true, G> whole{};
    const dim runs = (p.positions + whole.most - 1) / whole.most;
    const dim length = p.positions / runs, longer = p.positions % runs;
    const dim groups = p.elements / (G * V::lanes);
    for (dim row = 0; row < p.rows; ++row) {
        dim x = 0;
        for (dim run = 0; run < runs; ++run) {
            const dim end = x + length + (run < longer ? 1 : 0);
            if (p.fresh_rows > 0) expect_positions<In, Out>(p, row, x, end);
            whole.of[end - x](p, row, x, 0, groups);
            depthwise_rest<In, Out>(p, row, x, end, G * groups);
            x = end;
        }
    }
}

/// Results that go past the caches leave as whole lines.
template <typename In, typename Out>
void depthwise_type(const depthwise_args &p) {
    constexpr int group = group_vectors<In>;
    if (group == 2 || p.stream) return depthwise_rows<In, Out, 2>(p);
    depthwise_rows<In, Out, group>(p);
}

void depthwise(const depthwise_args &p) {
    if (p.in_type == data_type::bf16) return depthwise_type<bf16_element, bf16_element>(p);
    if (p.in_type == data_type::f16) return depthwise_type<f16_element, f16_element>(p);
    if (p.out_type == data_type::bf16) return depthwise_type<f32_element, bf16_element>(p);
    if (p.out_type == data_type::f16) return depthwise_type<f32_element, f16_element>(p);
    depthwise_type<f32_element, f32_element>(p);
}
