// Rows of NCX planes to f32 and back; see plane_rows_args and plane_store_args. Included like
// depthwise_vector.inl.

/// `lanes` elements, `Step` apart, of which n exist.
template <typename E, int Step>
[[gnu::always_inline]] inline V::vec every(const typename E::type *p, dim n) {
    if constexpr (Step == 1) return n >= V::lanes ? V::load_as<E>(p) : V::load_as_n<E>(p, n);
    if (n >= V::lanes) {
        // The element after the last one may not exist.
        const V::vec b = V::load_as_n<E>(p + V::lanes, V::lanes - 1);
        return pair::evens(V::load_as<E>(p), b);
    }
    const dim all = 2 * n - 1;
    if (all <= V::lanes) return pair::evens(V::load_as_n<E>(p, all), V::zero());
    return pair::evens(V::load_as<E>(p), V::load_as_n<E>(p + V::lanes, all - V::lanes));
}

/// Takes no notice.
struct unwatched {
    void add(V::vec) {}
    void add_one(float) {}
    [[nodiscard]] value_range found() const { return {}; }
};

template <typename E, int Step, typename Watch>
bool widen_rows_by(const plane_rows_args p) {
    Watch watch;
    const dim whole = p.count / V::lanes * V::lanes, rest = p.count - whole;
    for (dim depth = 0; depth < p.depths; ++depth)
        for (dim row = 0; row < p.rows; ++row) {
            const auto *in = reinterpret_cast<const typename E::type *>(
                p.in + depth * p.in_depth + row * p.in_row);
            auto *out = reinterpret_cast<char *>(p.out + depth * p.out_depth + row * p.out_row);
            for (dim x = 0; x < whole; x += V::lanes) {
                const V::vec v = every<E, Step>(in + x * Step, V::lanes);
                watch.add(v);
                V::store(out + 4 * x, v);
            }
            if (rest > 0) {
                const V::vec v = every<E, Step>(in + whole * Step, rest);
                watch.add(v);
                V::store(out + 4 * whole, v);
            }
        }
    return !watch.found().nonfinite;
}

template <typename E, typename Watch>
bool widen_rows_any(const plane_rows_args &p) {
    if (p.step == 1) return widen_rows_by<E, 1, Watch>(p);
    if (p.step == 2) return widen_rows_by<E, 2, Watch>(p);
    Watch watch;
    const bool few = p.count < V::lanes / 2;  // shuffles would take longer
    for (dim depth = 0; depth < p.depths; ++depth)
        for (dim row = 0; row < p.rows; ++row) {
            const auto *in = reinterpret_cast<const typename E::type *>(
                p.in + depth * p.in_depth + row * p.in_row);
            float *out = p.out + depth * p.out_depth + row * p.out_row;
            for (dim x = 0; few && x < p.count; ++x) {
                out[x] = E::to_float(in[x * p.step]);
                watch.add_one(out[x]);
            }
            for (dim x = 0; !few && x < p.count; x += V::lanes) {
                const V::vec v = V::load_between<E>(in + x * p.step, p.step, 0, p.count - x);
                watch.add(v);
                V::store(reinterpret_cast<char *>(out + x), v);
            }
        }
    return !watch.found().nonfinite;
}

template <typename E>
bool widen_rows_of(const plane_rows_args &p) {
    return p.watched ? widen_rows_any<E, V::watch>(p) : widen_rows_any<E, unwatched>(p);
}

bool widen_rows(const plane_rows_args &p) {
    if (p.type == data_type::bf16) return widen_rows_of<bf16_element>(p);
    if (p.type == data_type::f16) return widen_rows_of<f16_element>(p);
    return widen_rows_of<f32_element>(p);
}

/// n elements leave, `add` included; `room` of them may be written, because what follows is written
/// later.
template <typename E>
[[gnu::always_inline]] inline void leave(
    const plane_store_args &p, V::vec v, typename E::type *out, dim n, dim room) {
    if (p.accumulate) v = V::add(v, V::load_as_n<E>(out, n));
    if (p.relu) v = V::relu(v);
    if (p.stream && n >= V::lanes)
        V::stream_as<E>(out, v);
    else if (room >= V::lanes)
        V::store_as<E>(out, v);
    else
        V::store_as_n<E>(out, v, n);
}

/// Short rows without gaps that only leave: each store runs into the next row, which follows.
template <typename E>
void narrow_short_rows(const plane_store_args &p) {
    for (dim depth = 0; depth < p.depths; ++depth) {
        const float *in = p.in + depth * p.in_depth;
        auto *out = reinterpret_cast<typename E::type *>(p.out + depth * p.out_depth);
        dim row = 0;
        for (; (p.rows - row) * p.count >= V::lanes; ++row)
            V::store_as<E>(out + row * p.count, V::load_acc(in + row * p.in_row));
        for (; row < p.rows; ++row)
            V::store_as_n<E>(out + row * p.count, V::load_acc(in + row * p.in_row), p.count);
    }
}

constexpr dim most_held = 16;  // vectors of addends

/// If `Held`, all addends, at most `most_held` vectors of one depth, are read before the first
/// store.
template <typename E, bool Held>
void narrow_all_rows(const plane_store_args &p, bool dense) {
    using T = typename E::type;
    V::vec held[Held ? most_held : 1];
    dim next = 0;
    for (dim row = 0; Held && row < p.rows; ++row)
        for (dim x = 0; x < p.count; x += V::lanes)
            held[next++] = V::load_as_n<E>(
                reinterpret_cast<const T *>(p.add + row * p.add_row) + x, p.count - x);
    next = 0;
    for (dim depth = 0; depth < p.depths; ++depth)
        for (dim row = 0; row < p.rows; ++row) {
            const float *in = p.in + depth * p.in_depth + row * p.in_row;
            auto *out = reinterpret_cast<T *>(p.out + depth * p.out_depth + row * p.out_row);
            const char *add =
                p.add == nullptr ? nullptr : p.add + depth * p.add_depth + row * p.add_row;
            const dim after = dense ? (p.rows - 1 - row) * p.count : 0;
            const auto put = [&](V::vec v, dim x) __attribute__((always_inline)) {
                const dim n = p.count - x;
                if (n <= 0) return;
                if constexpr (Held)
                    v = V::add(v, held[next++]);
                else if (add != nullptr)
                    v = V::add(v, V::load_as_n<E>(reinterpret_cast<const T *>(add) + x, n));
                leave<E>(p, v, out + x, n < V::lanes ? n : V::lanes, n + after);
            };
            if (p.second == 0) {
                for (dim x = 0; x < p.count; x += V::lanes) put(V::load_acc(in + x), x);
                continue;
            }
            for (dim x = 0; x < p.count; x += 2 * V::lanes) {
                V::vec a = V::load_acc(in + x / 2), b = V::load_acc(in + p.second + x / 2);
                pair::interleave(a, b);
                put(a, x);
                put(b, x + V::lanes);
            }
        }
}

/// `add` is the output: some rows at a time, so that no store reaches an addend before it is read.
template <typename E>
void narrow_in_place(const plane_store_args &p, bool dense) {
    const dim vectors = (p.count + V::lanes - 1) / V::lanes;
    const dim block = vectors < most_held ? most_held / vectors : 1;
    for (dim depth = 0; depth < p.depths; ++depth)
        for (dim row = 0; row < p.rows; row += block) {
            plane_store_args some = p;
            some.depths = 1;
            some.rows = row + block < p.rows ? block : p.rows - row;
            some.in += depth * p.in_depth + row * p.in_row;
            some.out += depth * p.out_depth + row * p.out_row;
            some.add = some.out;
            if (vectors <= most_held)
                narrow_all_rows<E, true>(some, dense);
            else
                narrow_all_rows<E, false>(some, dense);
        }
}

template <typename E>
void narrow_rows_of(const plane_store_args &p) {
    // Rows that follow each other without a gap may be written beyond their end, except the last
    // ones, and unless what follows is still to be read.
    const bool dense =
        p.out_row == p.count * static_cast<dim>(sizeof(typename E::type)) && !p.accumulate;
    if (dense && p.count <= V::lanes && p.second == 0 && p.add == nullptr && !p.relu)
        return narrow_short_rows<E>(p);
    if (p.add == p.out) return narrow_in_place<E>(p, dense);
    narrow_all_rows<E, false>(p, dense);
}

void narrow_rows(const plane_store_args &p) {
    if (p.type == data_type::f32) narrow_rows_of<f32_element>(p);
    if (p.type == data_type::bf16) narrow_rows_of<bf16_element>(p);
    if (p.type == data_type::f16) narrow_rows_of<f16_element>(p);
}

/// Channels side by side: up to four vectors of them.
template <typename E, int Vectors>
void sum_channels(const position_sums_args &p, dim first, dim n) {
    V::vec sums[Vectors];
    for (V::vec &sum : sums) sum = V::zero();
    const dim rest = n - (Vectors - 1) * V::lanes;
    const char *row = p.in + first * p.channel;
    for (dim x = 0; x < p.positions; ++x, row += p.position) {
        const auto *in = reinterpret_cast<const typename E::type *>(row);
        for (int v = 0; v + 1 < Vectors; ++v)
            sums[v] = V::add(sums[v], V::load_as<E>(in + v * V::lanes));
        const auto *last = in + (Vectors - 1) * V::lanes;
        sums[Vectors - 1] = V::add(sums[Vectors - 1],
            rest == V::lanes ? V::load_as<E>(last) : V::load_as_n<E>(last, rest));
    }
    auto *out = reinterpret_cast<char *>(p.sums + first);
    for (int v = 0; v + 1 < Vectors; ++v) V::store(out + 4 * v * V::lanes, sums[v]);
    V::store_n(out + 4 * (Vectors - 1) * V::lanes, sums[Vectors - 1], rest);
}

/// Positions side by side: lanes are added at the end.
template <typename E>
float sum_row(const typename E::type *in, dim count) {
    V::vec sums[4] = {V::zero(), V::zero(), V::zero(), V::zero()};
    dim x = 0;
    for (; x + 4 * V::lanes <= count; x += 4 * V::lanes)
        for (int v = 0; v < 4; ++v) sums[v] = V::add(sums[v], V::load_as<E>(in + x + v * V::lanes));
    for (; x + V::lanes <= count; x += V::lanes) sums[0] = V::add(sums[0], V::load_as<E>(in + x));
    if (x < count) sums[1] = V::add(sums[1], V::load_as_n<E>(in + x, count - x));
    return V::sum(V::add(V::add(sums[0], sums[1]), V::add(sums[2], sums[3])));
}

template <typename E>
void sum_positions_of(const position_sums_args &p) {
    constexpr dim size = sizeof(typename E::type);
    if (p.channel == size) {
        for (dim c = 0; c < p.channels; c += 4 * V::lanes) {
            const dim n = p.channels - c < 4 * V::lanes ? p.channels - c : 4 * V::lanes;
            if (n > 3 * V::lanes)
                sum_channels<E, 4>(p, c, n);
            else if (n > 2 * V::lanes)
                sum_channels<E, 3>(p, c, n);
            else if (n > V::lanes)
                sum_channels<E, 2>(p, c, n);
            else
                sum_channels<E, 1>(p, c, n);
        }
        return;
    }
    for (dim c = 0; c < p.channels; ++c) {
        const char *in = p.in + c * p.channel;
        if (p.position == size) {
            p.sums[c] = sum_row<E>(reinterpret_cast<const typename E::type *>(in), p.positions);
            continue;
        }
        float sum = 0;
        for (dim x = 0; x < p.positions; ++x)
            sum += E::to_float(*reinterpret_cast<const typename E::type *>(in + x * p.position));
        p.sums[c] = sum;
    }
}

void sum_positions(const position_sums_args &p) {
    if (p.type == data_type::bf16) return sum_positions_of<bf16_element>(p);
    if (p.type == data_type::f16) return sum_positions_of<f16_element>(p);
    return sum_positions_of<f32_element>(p);
}
