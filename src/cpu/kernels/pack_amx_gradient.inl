// Packing for the weights gradient on the matrix engine: positions become k, in pairs that keep
// their distance under every tap. Included after pack_amx.inl.

/// 16 × 16 pairs from channel c and position x on. Rows of `out`, `pitch` apart, are positions (B)
/// or channels (A).
template <typename E, int P, bool PositionRows>
void pack_block(const pack_args &p, const pair_row &q, dim c, dim x, char *out, dim pitch,
    dim part_pitch, range_watch &seen) {
    range_watch watch = seen;  // see pack_vector.inl
    using T = typename E::type;
    const bool across = p.cs != 1 && p.xs < p.cs;  // positions lie side by side, not channels
    const dim width = smaller(16, p.count - x), height = smaller(16, p.channels - c);
    const dim lines = across ? height : width, step = across ? p.xs : p.cs;
    const __mmask16 some = V::first(height);
    const __mmask16 here = lanes_of(p.lo - x, p.hi - x), there = lanes_of(q.lo - x, q.hi - x);
    V::vec first[16], second[16];
    // Channels of 16 positions at a time are more streams than hardware follows.
    for (int j = 0; !across && j < 16; ++j) {
        const dim next = c * p.cs + (x + 16 + j) * p.xs;
        _mm_prefetch(static_cast<const char *>(
                         static_cast<const void *>(static_cast<const T *>(p.in) + next)),
            _MM_HINT_T0);
        _mm_prefetch(static_cast<const char *>(
                         static_cast<const void *>(static_cast<const T *>(q.in) + next)),
            _MM_HINT_T0);
    }
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) {
        const dim at = across ? (c + j) * p.cs + x * p.xs : c * p.cs + (x + j) * p.xs;
        const bool real = ((here >> j) & 1) != 0, real2 = ((there >> j) & 1) != 0;
        const __mmask16 m = j >= lines ? 0 : across ? here : real ? some : 0;
        const __mmask16 m2 = j >= lines ? 0 : across ? there : real2 ? some : 0;
        first[j] = gather<E>(static_cast<const T *>(p.in) + at, step, m);
        second[j] = gather<E>(static_cast<const T *>(q.in) + at, step, m2);
    }
    if (across == PositionRows) {
        V::transpose(first);
        V::transpose(second);
    }
    const __mmask16 lanes = PositionRows ? 0xffff : V::first(width);
    for (dim j = 0; j < (PositionRows ? width : height); ++j) {
        __m512i pair[P];
        split_pair<E, P>(first[j], second[j], pair, watch);
#pragma GCC unroll 3
        for (int i = 0; i < P; ++i)
            _mm512_mask_storeu_epi32(out + i * part_pitch + j * pitch, lanes, pair[i]);
    }
    seen = watch;
}

/// Pairs of 32 bf16: the first 16 and the others.
struct two_pairs {
    __m512i low, high;
};
inline two_pairs interleave(__m512i a, __m512i b) {
    // Unpacking works within 128 bits: bring the quarters of both halves together first.
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    a = _mm512_permutexvar_epi64(order, a);
    b = _mm512_permutexvar_epi64(order, b);
    return {_mm512_unpacklo_epi16(a, b), _mm512_unpackhi_epi16(a, b)};
}

/// A block of positions ahead, of both rows: channels of 16 or more positions at a time are more
/// streams than hardware follows.
inline void expect_pairs(const pack_args &p, const pair_row &q, dim c, dim x) {
    const dim at = c + x * p.xs;
    __builtin_prefetch(static_cast<const std::uint16_t *>(p.in) + at, 0, 3);
    __builtin_prefetch(static_cast<const std::uint16_t *>(q.in) + at, 0, 3);
}

/// 32 channels from c on of position x and of its partner, channels side by side; bf16.
inline two_pairs pairs_at(const pack_args &p, const pair_row &q, dim c, dim x, range_watch &watch) {
    const dim at = c + x * p.xs, n = p.channels - c;
    const __mmask32 some = n >= 32 ? ~__mmask32{0} : (__mmask32{1} << n) - 1;
    const bool real = x >= p.lo && x < p.hi, real2 = x >= q.lo && x < q.hi;
    const __m512i a =
        _mm512_maskz_loadu_epi16(real ? some : 0, static_cast<const std::uint16_t *>(p.in) + at);
    const __m512i b =
        _mm512_maskz_loadu_epi16(real2 ? some : 0, static_cast<const std::uint16_t *>(q.in) + at);
    watch.add_bf16(a);
    watch.add_bf16(b);
    return interleave(a, b);
}

/// 32 positions from x on of channel c and of their partners, positions side by side; bf16.
struct position_masks {
    __mmask32 first, second;
};
inline position_masks masks_across(const pack_args &p, const pair_row &q, dim x) {
    const auto lanes = [](dim lo, dim hi) {
        const auto below = [](dim n) {
            return n <= 0 ? __mmask32{0} : n >= 32 ? ~__mmask32{0} : (__mmask32{1} << n) - 1;
        };
        return below(hi) & ~below(lo);
    };
    return {lanes(p.lo - x, p.hi - x), lanes(q.lo - x, q.hi - x)};
}
inline two_pairs pairs_across(const pack_args &p, const pair_row &q, dim c, dim x,
    const position_masks &m, range_watch &watch) {
    const dim at = c * p.cs + x;
    constexpr dim ahead = 128;  // elements
    __builtin_prefetch(static_cast<const std::uint16_t *>(p.in) + at + ahead, 0, 3);
    __builtin_prefetch(static_cast<const std::uint16_t *>(q.in) + at + ahead, 0, 3);
    const __m512i a =
        _mm512_maskz_loadu_epi16(m.first, static_cast<const std::uint16_t *>(p.in) + at);
    const __m512i b =
        _mm512_maskz_loadu_epi16(m.second, static_cast<const std::uint16_t *>(q.in) + at);
    watch.add_bf16(a);
    watch.add_bf16(b);
    return interleave(a, b);
}

// Both walk along memory: channels side by side position by position, planes channel by channel. A
// column of channels at a time, a line of each position, takes 1.3 to 1.7 times as long from L3.

inline value_range pack_positions_bf16(
    const pack_args &p, const pair_row &q, dim block, dim panel_pitch) {
    range_watch watch;
    if (p.xs == 1 && p.cs != 1) {
        for (dim c = 0; c < p.channels; c += 16)
            for (dim x = 0; x < p.count; x += 32) {
                const position_masks m = masks_across(p, q, x);
                __m512i low[16] = {}, high[16] = {};
                for (dim j = 0; j < smaller(16, p.channels - c); ++j) {
                    const two_pairs pairs = pairs_across(p, q, c + j, x, m, watch);
                    low[j] = pairs.low;
                    high[j] = pairs.high;
                }
                char *out = p.out + c / block * panel_pitch + 4 * (c % block) + 4 * block * x;
                const dim width = p.count - x;
                transpose(low);
                for (dim j = 0; j < smaller(16, width); ++j) store512(out + 4 * block * j, low[j]);
                if (width <= 16) continue;
                transpose(high);
                for (dim j = 16; j < smaller(32, width); ++j)
                    store512(out + 4 * block * j, high[j - 16]);
            }
        return watch.found();
    }
    for (dim x = 0; x < p.count; ++x)
        for (dim c = 0; c < p.channels; c += 32) {
            const dim c2 = c + 16;
            expect_pairs(p, q, c, x + 8);
            const two_pairs pairs = pairs_at(p, q, c, x, watch);
            char *out = p.out + 4 * block * x;
            store512(out + c / block * panel_pitch + 4 * (c % block), pairs.low);
            if (c2 < p.channels)
                store512(out + c2 / block * panel_pitch + 4 * (c2 % block), pairs.high);
        }
    return watch.found();
}

inline value_range pack_rows_bf16(const pack_args &p, const pair_row &q, dim row_pitch) {
    range_watch watch;
    if (p.xs == 1 && p.cs != 1) {
        for (dim c = 0; c < p.channels; ++c)
            for (dim x = 0; x < p.count; x += 32) {
                const position_masks m = masks_across(p, q, x);
                const dim width = p.count - x;
                const two_pairs pairs = pairs_across(p, q, c, x, m, watch);
                char *out = p.out + c * row_pitch + 4 * x;
                _mm512_mask_storeu_epi32(out, V::first(width), pairs.low);
                _mm512_mask_storeu_epi32(
                    out + 64, V::first(width < 16 ? 0 : width - 16), pairs.high);
            }
        return watch.found();
    }
    for (dim x = 0; x < p.count; x += 16)
        for (dim c = 0; c < p.channels; c += 32) {
            const dim width = smaller(16, p.count - x);
            __m512i low[16] = {}, high[16] = {};
            for (dim j = 0; j < width; ++j) {
                expect_pairs(p, q, c, x + 16 + j);
                const two_pairs pairs = pairs_at(p, q, c, x + j, watch);
                low[j] = pairs.low;
                high[j] = pairs.high;
            }
            const auto write = [&](__m512i(&pairs)[16], dim first) {
                transpose(pairs);
                for (dim j = 0; j < smaller(16, p.channels - first); ++j)
                    _mm512_mask_storeu_epi32(
                        p.out + (first + j) * row_pitch + 4 * x, V::first(width), pairs[j]);
            };
            write(low, c);
            if (c + 16 < p.channels) write(high, c + 16);
        }
    return watch.found();
}

/// Blocks of 16 channels × 16 positions, along memory.
template <typename Body>
void for_each_block(const pack_args &p, Body &&body) {
    if (p.cs == 1) {
        for (dim x = 0; x < p.count; x += 16)
            for (dim c = 0; c < p.channels; c += 16) body(c, x);
        return;
    }
    for (dim c = 0; c < p.channels; c += 16)
        for (dim x = 0; x < p.count; x += 16) body(c, x);
}

/// B of the weights gradient: see kernel_set::pack_positions.
template <typename E, int P>
value_range pack_positions(
    const pack_args &p, const pair_row &q, dim block, dim panel_pitch, dim part_pitch) {
    if constexpr (P == 1)
        if (p.cs == 1 || p.xs == 1) return pack_positions_bf16(p, q, block, panel_pitch);
    range_watch watch;
    for_each_block(p, [&](dim c, dim x) {
        pack_block<E, P, true>(p, q, c, x,
            p.out + c / block * panel_pitch + 4 * (c % block) + 4 * block * x, 4 * block,
            part_pitch, watch);
    });
    return watch.found();
}

/// A of the weights gradient: see kernel_set::pack_rows.
template <typename E, int P>
value_range pack_rows(const pack_args &p, const pair_row &q, dim row_pitch, dim part_pitch) {
    if constexpr (P == 1)
        if (p.cs == 1 || p.xs == 1) return pack_rows_bf16(p, q, row_pitch);
    range_watch watch;
    for_each_block(p, [&](dim c, dim x) {
        pack_block<E, P, false>(
            p, q, c, x, p.out + c * row_pitch + 4 * x, row_pitch, part_pitch, watch);
    });
    return watch.found();
}
