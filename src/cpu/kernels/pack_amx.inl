// Packing for the matrix engine. Included inside an anonymous namespace after split_amx.inl.
//
// A tile row is 32 consecutive k of one row m (64 bytes), as 16 pairs. A tile of B is 16 rows of 16
// columns × 2 k, a pair in each. E is the element type in memory, P the number of parts. Channels
// are paired as they come if they need no splitting (one copy packs a tile row), otherwise i with
// 16 + i (no shuffle packs two vectors).

inline dim smaller(dim a, dim b) {
    return a < b ? a : b;
}

template <int P>
constexpr int first_of_pair(int i) {
    return P == 1 ? 2 * i : i;
}
template <int P>
constexpr int second_of_pair(int i) {
    return P == 1 ? 2 * i + 1 : 16 + i;
}

/// Two sets of parts joined: a in the low, b in the high half of each 32-bit lane.
inline __m512i join(__m512i a, __m512i b) {
    return _mm512_or_si512(_mm512_srli_epi32(a, 16), b);
}

inline void store512(char *p, __m512i v) {
    _mm512_storeu_si512(p, v);
}

inline void transpose(__m512i (&r)[16]) {
    V::vec rows[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) rows[i] = _mm512_castsi512_ps(r[i]);
    V::transpose(rows);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) r[i] = _mm512_castps_si512(rows[i]);
}

/// 32 elements side by side → one tile row per part.
template <typename E, int P>
[[gnu::always_inline]] inline void split_row(
    const typename E::type *in, dim n, char *out, dim part_pitch, range_watch &watch) {
    if constexpr (P == 1) {
        const __mmask32 m = n >= 32 ? ~__mmask32{0} : (__mmask32{1} << (n < 0 ? 0 : n)) - 1;
        const __m512i row = _mm512_maskz_loadu_epi16(m, in);
        watch.add_bf16(row);
        store512(out, row);
        return;
    }
    const __m512 low = V::load_as_n<E>(in, n < 0 ? 0 : n);
    const __m512 high = V::load_as_n<E>(in + 16, n - 16 < 0 ? 0 : n - 16);
    watch.add(low);
    watch.add(high);
    __m512i a[P], b[P];
    split<E, P>::of(low, a);
    split<E, P>::of(high, b);
#pragma GCC unroll 3
    for (int i = 0; i < P; ++i) store512(out + i * part_pitch, join(a[i], b[i]));
}

inline __mmask16 lanes_of(dim lo, dim hi) {
    return V::lanes_of(lo, hi);
}

/// 16 elements `step` apart, those in `m`; others zero.
template <typename E>
inline __m512 gather(const typename E::type *in, dim step, __mmask16 m) {
    if (step == 1) return V::load_as_mask<E>(in, m);
    return V::value_of<E>(V::spaced_bits(in, step, m));
}

/// The same 16 channels or positions of two rows, split and joined.
template <typename E, int P>
[[gnu::always_inline]] inline void split_pair(
    __m512 first, __m512 second, __m512i (&pair)[P], range_watch &watch) {
    watch.add(first);
    watch.add(second);
    __m512i a[P], b[P];
    split<E, P>::of(first, a);
    split<E, P>::of(second, b);
#pragma GCC unroll 3
    for (int i = 0; i < P; ++i) pair[i] = join(a[i], b[i]);
}

/// 16 positions, those in `m`, × 32 k, `cs` and `xs` apart → `rows` tile rows per part.
template <typename E, int P>
void split_columns(const typename E::type *in, dim cs, dim xs, dim channels, __mmask16 m, char *out,
    dim part_pitch, dim rows, range_watch &seen) {
    range_watch watch = seen;  // see pack_vector.inl
    if constexpr (P == 1) {
        __m512i pairs[16];
#pragma GCC unroll 16
        for (int j = 0; j < 16; ++j) {
            const dim k = 2 * j, l = k + 1;
            pairs[j] = _mm512_or_si512(V::spaced_bits(in + k * cs, xs, k < channels ? m : 0),
                _mm512_slli_epi32(V::spaced_bits(in + l * cs, xs, l < channels ? m : 0), 16));
            watch.add_bf16(pairs[j]);
        }
        transpose(pairs);
        for (dim x = 0; x < rows; ++x) store512(out + 64 * x, pairs[x]);
        seen = watch;
        return;
    }
    // Two transpositions before splitting, not one per part after it.
    V::vec first[16], second[16];
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) {
        first[j] = gather<E>(in + j * cs, xs, j < channels ? m : 0);
        second[j] = gather<E>(in + (16 + j) * cs, xs, 16 + j < channels ? m : 0);
    }
    V::transpose(first);
    V::transpose(second);
    for (dim x = 0; x < rows; ++x) {
        __m512i pair[P];
        split_pair<E, P>(first[x], second[x], pair, watch);
#pragma GCC unroll 3
        for (int i = 0; i < P; ++i) store512(out + i * part_pitch + 64 * x, pair[i]);
    }
    seen = watch;
}

/// Channels side by side: 16 positions at a time, so that both the reads (a few streams of whole
/// lines) and the writes (whole tiles) run on.
template <typename E, int P>
void split_pixels(const pack_args &p, dim k_pitch, dim part_pitch, range_watch &seen) {
    range_watch watch = seen;  // see pack_vector.inl
    const auto *in = static_cast<const typename E::type *>(p.in);
    const dim units = (p.channels + 31) / 32;
    for (dim x0 = 0; x0 < p.count; x0 += 16) {
        const dim x1 = smaller(x0 + 16, p.count);
        const dim lo = smaller(x1, p.lo > x0 ? p.lo : x0), hi = smaller(x1, p.hi > lo ? p.hi : lo);
        for (dim k = 0; k < units; ++k) {
            char *out = p.out + k * k_pitch;
            const dim n = p.channels - 32 * k;
            for (dim x = lo; x < hi; ++x)
                split_row<E, P>(in + 32 * k + x * p.xs, n, out + 64 * x, part_pitch, watch);
            for (int i = 0; i < P; ++i) {
                char *part = out + i * part_pitch;
                for (dim x = x0; x < lo; ++x) store512(part + 64 * x, _mm512_setzero_si512());
                for (dim x = hi; x < x1; ++x) store512(part + 64 * x, _mm512_setzero_si512());
            }
        }
    }
    seen = watch;
}

template <typename E, int P>
value_range pack_channels(const pack_args &p, dim k_pitch, dim part_pitch) {
    range_watch watch;
    if (p.cs == 1) {
        split_pixels<E, P>(p, k_pitch, part_pitch, watch);
        return watch.found();
    }
    const auto *in = static_cast<const typename E::type *>(p.in);
    for (dim c = 0; c < p.channels; c += 32)
        for (dim x = 0; x < p.count; x += 16)
            split_columns<E, P>(in + c * p.cs + x * p.xs, p.cs, p.xs, p.channels - c,
                lanes_of(p.lo - x, p.hi - x), p.out + c / 32 * k_pitch + 64 * x, part_pitch,
                smaller(16, p.count - x), watch);
    return watch.found();
}

/// What pack_channels would have noticed, of whole tile rows with channels side by side.
inline value_range scan(const pack_args &p) {
    range_watch watch;
    const auto *in = static_cast<const std::uint16_t *>(p.in);
    for (dim x = p.lo; x < p.hi; ++x)
        for (dim c = 0; c < p.channels; c += 32)
            watch.add_bf16(_mm512_loadu_si512(in + x * p.xs + c));
    return watch.found();
}

template <typename E, int P>
value_range pack_weights(
    const pack_args &p, const dim *tap_in, dim taps, int vectors, dim tap_pitch, dim k_pitch) {
    range_watch watch;
    const auto *in = static_cast<const typename E::type *>(p.in);
    const dim part_pitch = k_pitch / P;
    for (dim t = 0; t < taps; ++t)
        for (dim c = 0; c < p.channels; c += 32)
            for (int v = 0; v < vectors; ++v) {
                const dim n = p.channels - c, columns = smaller(16, p.count - 16 * dim{v});
                const auto *from = in + tap_in[t] + c * p.cs + 16 * dim{v} * p.xs;
                char *out = p.out + t * tap_pitch + c / 32 * k_pitch + 1024 * dim{v};
                if (p.cs == 1) {  // columns of k side by side: transpose what split_row would make
                    alignas(64) char rows[P][1024];
                    for (int x = 0; x < 16; ++x)
                        split_row<E, P>(
                            from + x * p.xs, x < columns ? n : 0, rows[0] + 64 * x, 1024, watch);
                    for (int i = 0; i < P; ++i) {
                        __m512i r[16];
                        for (int x = 0; x < 16; ++x) r[x] = _mm512_load_si512(rows[i] + 64 * x);
                        transpose(r);
                        for (int x = 0; x < 16; ++x) store512(out + i * part_pitch + 64 * x, r[x]);
                    }
                    continue;
                }
                const __mmask16 some = lanes_of(0, columns);
                for (int j = 0; j < 16; ++j) {
                    const dim k = first_of_pair<P>(j), l = second_of_pair<P>(j);
                    __m512i pair[P];
                    split_pair<E, P>(gather<E>(from + k * p.cs, p.xs, k < n ? some : 0),
                        gather<E>(from + l * p.cs, p.xs, l < n ? some : 0), pair, watch);
                    for (int i = 0; i < P; ++i) store512(out + i * part_pitch + 64 * j, pair[i]);
                }
            }
    return watch.found();
}
