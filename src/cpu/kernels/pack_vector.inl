// Packing and storing for vector instruction sets. Included by the instruction-set files inside an
// anonymous namespace, after struct V (see product_vector.inl), which here also has
//
//   V::vec                                  vector of `lanes` f32 (or of 32-bit units)
//   V::load_as<E>(p), load_as_n<E>(p, n)    convert `lanes` (or the first n) elements to f32
//   V::store_as<E>(p, v), store_as_n<E>(p, v, n)
//   V::set1(x), V::add(a, b), V::relu(a), V::transpose(rows[lanes])
//   F::watch                                notices infinities and NaNs: add(v), found()
//
// and a struct F for the operand format:
//
//   F::k_per_unit
//   F::join_rows<E>(p, p2, count, out, watch)
//                                           units of elements side by side in two rows (null:
//                                           zeros), as many as go at once; how many of `count`
//   F::units_at<E>(p, n, watch)             `lanes` consecutive units whose elements lie side by
//   side
//                                           from p on; n elements exist, the rest are zero
//   F::units_across<E>(p, xs, cs, n, w, watch)
//                                           units of `lanes` positions xs apart: unit x holds
//                                           p[x·xs], p[x·xs + cs], …; n ≤ k_per_unit channels and w
//                                           positions exist
//   F::units_between<E>(p, xs, cs, n, lo, hi, watch)
//                                           the same of positions [lo, hi), others are zero
//   F::unit<E>(p, cs, n, watch)             one unit of n elements cs apart, as 32 bits
//   F::positions_at<E>(p, p2, c, n, watch)  `lanes` columns from channel c on of position p (and of
//                                           its pair p2); null: zeros; n channels exist
//   F::positions_across<E>(row, lo, hi, row2, lo2, hi2, xs, w, watch)
//                                           one column of `lanes` positions: row[i·xs] where
//                                           lo ≤ i < hi and i < w, else 0; likewise its pair

inline dim round_up(dim value, dim to) {
    return (value + to - 1) / to * to;
}
inline dim smaller(dim a, dim b) {
    return a < b ? a : b;
}
inline dim larger(dim a, dim b) {
    return a > b ? a : b;
}

inline void store_unit(char *out, std::uint32_t unit) {
    __builtin_memcpy(out, &unit, 4);
}

/// Calls body(E {}) with the element type of `type`.
template <typename Body>
void with_element(data_type type, Body &&body) {
    if constexpr (F::only_bf16) {
        body(bf16_element{});
    } else {
        if (type == data_type::f32) body(f32_element{});
        if (type == data_type::bf16) body(bf16_element{});
        if (type == data_type::f16) body(f16_element{});
    }
}

/// Often one or two units beside a row: no call.
[[gnu::always_inline]] inline void zero_row(char *out, dim units) {
    for (; units >= V::lanes; units -= V::lanes, out += 4 * V::lanes) V::store(out, V::zero());
    if (units > 0) V::store_n(out, V::zero(), units);
}

// What packers notice is kept in a copy: in the caller's memory it would be read and written again
// with every store, which to the compiler might change it (a cycle per element).

// --- channels become k -------------------------------------------------------------------------

/// Positions side by side in memory (NCX), or every second, third…: each unit row is a copy.
template <typename E>
void channel_rows(const pack_args &p, dim k_pitch, F::watch &seen) {
    // Short rows (weights of a panel) are too far apart for the hardware to follow.
    constexpr dim ahead = 12, elements = 128 / static_cast<dim>(sizeof(typename E::type));
    const dim span = (p.count - 1) * p.xs;
    const bool short_rows = p.xs == 1 ? p.count <= elements : span <= 2 * elements;
    F::watch watch = seen;
    const auto *in = static_cast<const typename E::type *>(p.in);
    for (dim c = 0; c < p.channels; c += F::k_per_unit) {
        char *out = p.out + c / F::k_per_unit * k_pitch;
        const auto *row = in + c * p.cs;
        const dim n = smaller(F::k_per_unit, p.channels - c);
        for (dim next = c + ahead; short_rows && next < c + ahead + F::k_per_unit; ++next) {
            __builtin_prefetch(in + next * p.cs, 0, 3);
            __builtin_prefetch(in + next * p.cs + (p.xs == 1 ? elements - 1 : span), 0, 3);
        }
        if (p.count <= V::lanes) {
            V::store_n(
                out, F::template units_between<E>(row, p.xs, p.cs, n, p.lo, p.hi, watch), p.count);
            continue;
        }
        zero_row(out, p.lo);
        dim x = p.lo;
        if (p.xs == 1 && n > 1)
            x += F::template join_rows<E>(row + x, row + x + p.cs, p.hi - x, out + 4 * x, watch);
        for (; x + V::lanes <= p.hi; x += V::lanes)
            V::store(out + 4 * x,
                F::template units_across<E>(row + x * p.xs, p.xs, p.cs, n, V::lanes, watch));
        if (x < p.hi)
            V::store_n(out + 4 * x,
                F::template units_across<E>(row + x * p.xs, p.xs, p.cs, n, p.hi - x, watch),
                p.hi - x);
        zero_row(out + 4 * p.hi, p.count - p.hi);
    }
    seen = watch;
}

/// Channels side by side (NXC): transpose blocks of lanes × lanes units in registers.
template <typename E>
void channel_columns(const pack_args &p, dim k_pitch, F::watch &seen) {
    F::watch watch = seen;
    const auto *in = static_cast<const typename E::type *>(p.in);
    const dim units = (p.channels + F::k_per_unit - 1) / F::k_per_unit;
    for (dim x = 0; x < p.count; x += V::lanes) {
        const dim w = smaller(V::lanes, p.count - x);
        for (dim u = 0; u < units; u += V::lanes) {
            const dim c = u * F::k_per_unit;
            constexpr dim block = V::lanes * F::k_per_unit;
            typename V::vec rows[V::lanes];
            if (x >= p.lo && x + V::lanes <= p.hi && p.channels - c >= block) {
#pragma GCC unroll 16
                for (int i = 0; i < V::lanes; ++i)
                    rows[i] = F::template units_at<E>(in + c + (x + i) * p.xs, block, watch);
            } else {
#pragma GCC unroll 16
                for (int i = 0; i < V::lanes; ++i) {
                    const bool real = x + i >= p.lo && x + i < p.hi;
                    rows[i] = real ? F::template units_at<E>(
                                  in + c + (x + i) * p.xs, p.channels - c, watch)
                                   : V::zero();
                }
            }
            V::transpose(rows);
            char *out = p.out + u * k_pitch + 4 * x;
            const dim h = smaller(V::lanes, units - u);
            if (w == V::lanes) {
                for (dim i = 0; i < h; ++i) V::store(out + i * k_pitch, rows[i]);
            } else {
                for (dim i = 0; i < h; ++i) V::store_n(out + i * k_pitch, rows[i], w);
            }
        }
    }
    seen = watch;
}

value_range pack_channels(const pack_args &p, dim k_pitch, dim /*part_pitch*/) {
    F::watch watch;
    if (p.hi <= p.lo) {
        const dim units = (p.channels + F::k_per_unit - 1) / F::k_per_unit;
        for (dim u = 0; u < units; ++u) zero_row(p.out + u * k_pitch, p.count);
        return {};
    }
    with_element(p.type, [&](auto e) {
        using E = decltype(e);
        if (p.cs == 1 && p.channels > 1)
            channel_columns<E>(p, k_pitch, watch);
        else
            channel_rows<E>(p, k_pitch, watch);
    });
    return watch.found();
}

/// One row after the other, straight copies of the channels. Rows are too short, and often too far
/// apart, for the hardware to notice: a few are asked for ahead.
value_range pack_pixels(const pack_args &p, dim x_pitch) {
    constexpr dim ahead = 4;
    F::watch seen;
    const dim units = (p.channels + F::k_per_unit - 1) / F::k_per_unit;
    with_element(p.type, [&](auto e) {
        using E = decltype(e);
        F::watch watch = seen;
        const auto *in = static_cast<const typename E::type *>(p.in);
        for (dim x = 0; x < p.count; ++x) {
            char *out = p.out + x * x_pitch;
            if (x < p.lo || x >= p.hi) {
                zero_row(out, units);
                continue;
            }
            for (dim u = 0; u < units; u += V::lanes) {
                const dim c = u * F::k_per_unit;
                __builtin_prefetch(in + c + (x + ahead) * p.xs, 0, 3);
                V::store(
                    out + 4 * u, F::template units_at<E>(in + c + x * p.xs, p.channels - c, watch));
            }
        }
        seen = watch;
    });
    return seen.found();
}

value_range scan(const pack_args &p) {
    F::watch watch;
    with_element(p.type, [&](auto e) {
        using E = decltype(e);
        const auto *in = static_cast<const typename E::type *>(p.in);
        // Positions without gaps are one row.
        const bool dense = p.xs == p.channels && p.lo < p.hi;
        const dim first = dense ? 0 : p.lo, last = dense ? 1 : p.hi;
        const dim row = dense ? (p.hi - p.lo) * p.channels : p.channels;
        if (dense) in += p.lo * p.xs;
        constexpr dim step = V::lanes * F::k_per_unit;
        F::watch seen;  // in registers
        for (dim x = first; x < last; ++x) {
            const auto *from = in + x * p.xs;
            dim c = 0;
#pragma GCC unroll 4
            for (; c + step <= row; c += step)
                static_cast<void>(F::template units_at<E>(from + c, step, seen));
            if (c < row) static_cast<void>(F::template units_at<E>(from + c, row - c, seen));
        }
        watch = seen;
    });
    return watch.found();
}

// --- weights -----------------------------------------------------------------------------------

/// Taps side by side in memory (OIX, IOX), in no order of their own: blocks of columns × taps are
/// transposed in registers, and each tap leaves for where it is listed.
template <typename E>
void filter_blocks(const pack_args &p, const dim *slot, dim filter, dim width, dim tap_pitch,
    dim k_pitch, F::watch &seen) {
    F::watch watch = seen;
    const auto *in = static_cast<const typename E::type *>(p.in);
    for (dim n = 0; n < width; n += V::lanes)
        for (dim c = 0; c < p.channels; c += F::k_per_unit) {
            const dim have = smaller(F::k_per_unit, p.channels - c), h = p.count - n;
            const auto *from = in + c * p.cs + n * p.xs;
            char *out = p.out + c / F::k_per_unit * k_pitch + 4 * n;
            for (dim t = 0; t < filter; t += V::lanes) {
                const dim w = smaller(V::lanes, filter - t);
                F::watch unheeded;  // what lies between taps is none of ours
                typename V::vec rows[V::lanes];
#pragma GCC unroll 16
                for (int i = 0; i < V::lanes; ++i)
                    rows[i] = i < h ? F::template units_across<E>(
                                  from + i * p.xs + t, 1, p.cs, have, w, unheeded)
                                    : V::zero();
                V::transpose(rows);
                for (dim i = 0; i < w; ++i)
                    if (slot[t + i] >= 0) {
                        watch.add(rows[i]);
                        V::store(out + slot[t + i] * tap_pitch, rows[i]);
                    }
            }
        }
    seen = watch;
}

/// Any strides, one unit at a time.
template <typename E>
void filter_units(const pack_args &p, const dim *tap_in, dim taps, dim width, dim tap_pitch,
    dim k_pitch, F::watch &seen) {
    F::watch watch = seen;
    const auto *in = static_cast<const typename E::type *>(p.in);
    for (dim c = 0; c < p.channels; c += F::k_per_unit) {
        char *out = p.out + c / F::k_per_unit * k_pitch;
        const dim have = smaller(F::k_per_unit, p.channels - c);
        for (dim n = 0; n < p.count; ++n)
            for (dim t = 0; t < taps; ++t)
                store_unit(out + t * tap_pitch + 4 * n,
                    F::template unit<E>(in + c * p.cs + n * p.xs + tap_in[t], p.cs, have, watch));
        for (dim t = 0; t < taps; ++t) zero_row(out + t * tap_pitch + 4 * p.count, width - p.count);
    }
    seen = watch;
}

value_range pack_weights(
    const pack_args &p, const dim *tap_in, dim taps, int vectors, dim tap_pitch, dim k_pitch) {
    F::watch watch;
    const dim width = static_cast<dim>(vectors) * V::lanes;
    constexpr dim longest = 1024;
    dim slot[longest], filter = 0;
    const bool direct = p.xs == 1 || p.cs == 1;
    for (dim t = 0; !direct && t < taps; ++t)
        filter = tap_in[t] < 0 ? longest + 1 : larger(filter, tap_in[t] + 1);
    for (dim t = 0; filter <= longest && t < filter; ++t) slot[t] = -1;
    bool apart = filter <= longest;  // taps may share memory
    for (dim t = 0; !direct && apart && t < taps; ++t) {
        apart = slot[tap_in[t]] < 0;
        slot[tap_in[t]] = t;
    }
    with_element(p.type, [&](auto e) {
        using E = decltype(e);
        if (!direct && apart)
            return filter_blocks<E>(p, slot, filter, width, tap_pitch, k_pitch, watch);
        if (!direct) return filter_units<E>(p, tap_in, taps, width, tap_pitch, k_pitch, watch);
        for (dim t = 0; t < taps; ++t) {
            pack_args one = p;
            one.in = static_cast<const typename E::type *>(p.in) + tap_in[t];
            one.out = p.out + t * tap_pitch;
            one.lo = 0;
            one.hi = p.count;
            one.count = width;
            if (p.xs == 1)
                channel_rows<E>(one, k_pitch, watch);
            else
                channel_columns<E>(one, k_pitch, watch);
        }
    });
    return watch.found();
}

// --- positions become k ------------------------------------------------------------------------

/// Channels side by side (NXC): each position is a straight copy.
template <typename E>
void position_rows(
    const pack_args &p, const pair_row &pair, dim block, dim panel_pitch, F::watch &seen) {
    F::watch watch = seen;
    using T = typename E::type;
    for (dim x = 0; x < p.count; ++x) {
        const bool real = x >= p.lo && x < p.hi, real2 = x >= pair.lo && x < pair.hi;
        const T *in = real ? static_cast<const T *>(p.in) + x * p.xs : nullptr;
        const T *in2 = real2 ? static_cast<const T *>(pair.in) + x * p.xs : nullptr;
        char *out = p.out + 4 * x * block;
        for (dim first = 0; first < p.channels; first += block, out += panel_pitch) {
            const dim last = smaller(first + block, p.channels);
            dim c = first
                    + F::template join_rows<E>(real ? in + first : nullptr,
                        real2 ? in2 + first : nullptr, last - first, out, watch);
            for (; c < last; c += V::lanes)
                V::store(out + 4 * (c - first),
                    F::template positions_at<E>(in, in2, c, p.channels - c, watch));
        }
    }
    seen = watch;
}

/// Positions side by side (NCX), or every second, third…: transpose blocks in registers.
template <typename E>
void position_columns(
    const pack_args &p, const pair_row &pair, dim block, dim panel_pitch, F::watch &seen) {
    F::watch watch = seen;
    using T = typename E::type;
    const auto *in = static_cast<const T *>(p.in);
    const auto *in2 = pair.in != nullptr ? static_cast<const T *>(pair.in) : in;
    // Positions whose rows are loaded as whole vectors, with nothing to ask for each.
    const bool plain = F::loads_rows(in2 - in, p.xs);
    const dim first = F::k_per_unit > 1 ? larger(p.lo, pair.lo) : p.lo;
    const dim last = !plain              ? 0
                     : F::k_per_unit > 1 ? smaller(p.count, smaller(p.hi, pair.hi))
                                         : smaller(p.count, p.hi);
    for (dim c = 0; c < p.channels; c += V::lanes)
        for (dim x = 0; x < p.count; x += V::lanes) {
            const dim w = smaller(V::lanes, p.count - x);
            typename V::vec rows[V::lanes];
            if (c + V::lanes <= p.channels && x >= first && x + V::lanes <= last) {
                const dim at = c * p.cs + x * p.xs;
                F::template whole_rows<E>(in + at, in2 + at, p.cs, p.xs, rows, watch);
                V::transpose(rows);
                char *out = p.out + c / block * panel_pitch + 4 * (x * block + c % block);
#pragma GCC unroll 16
                for (int i = 0; i < V::lanes; ++i) V::store(out + 4 * i * block, rows[i]);
                continue;
            }
#pragma GCC unroll 16
            for (int i = 0; i < V::lanes; ++i) {
                const dim row = (c + i) * p.cs + x * p.xs;
                rows[i] = c + i < p.channels ? F::template positions_across<E>(in + row, p.lo - x,
                              p.hi - x, in2 + row, pair.lo - x, pair.hi - x, p.xs, w, watch)
                                             : V::zero();
            }
            V::transpose(rows);
            char *out = p.out + c / block * panel_pitch + 4 * (x * block + c % block);
            for (dim i = 0; i < w; ++i) V::store(out + 4 * i * block, rows[i]);
        }
    seen = watch;
}

value_range pack_positions(
    const pack_args &p, const pair_row &pair, dim block, dim panel_pitch, dim /*part_pitch*/) {
    F::watch watch;
    with_element(p.type, [&](auto e) {
        using E = decltype(e);
        if (p.cs == 1)
            position_rows<E>(p, pair, block, panel_pitch, watch);
        else
            position_columns<E>(p, pair, block, panel_pitch, watch);
    });
    return watch.found();
}
