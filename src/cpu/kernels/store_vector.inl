// Storing results: c + bias + add + old contents, ReLU, one rounding, any layout. Included like
// pack_vector.inl.

template <typename E>
float finish(const store_args &p, float v, dim c, dim x) {
    using T = typename E::type;
    if (p.bias != nullptr) v += p.bias[c];
    if (p.add != nullptr)
        v += E::to_float(static_cast<const T *>(p.add)[c * p.add_cs + x * p.add_xs]);
    if (p.accumulate) v += E::to_float(static_cast<const T *>(p.out)[c * p.cs + x * p.xs]);
    if (p.relu) v = v < 0 ? 0 : v;
    return v;
}

template <typename E>
void store_scalar(const store_args &p) {
    auto *out = static_cast<typename E::type *>(p.out);
    for (dim x = 0; x < p.count; ++x)
        for (dim c = 0; c < p.channels; ++c)
            out[c * p.cs + x * p.xs] =
                E::from_float(finish<E>(p, p.c[c * p.c_cs + x * p.c_xs], c, x));
}

/// A whole vector leaves.
template <typename E>
[[gnu::always_inline]] inline void put(const store_args &p, typename E::type *out, V::vec v) {
    if (p.stream)
        V::template stream_as<E>(out, v);
    else
        V::template store_as<E>(out, v);
}

/// n values, the bias added already, leave for elements side by side from (c, x) on.
template <typename E>
void leave(const store_args &p, V::vec v, dim c, dim x, dim n) {
    using T = typename E::type;
    T *out = static_cast<T *>(p.out) + c * p.cs + x * p.xs;
    const T *add =
        static_cast<const T *>(p.add) + (p.add == nullptr ? 0 : c * p.add_cs + x * p.add_xs);
    if (n >= V::lanes) {
        if (p.add != nullptr) v = V::add(v, V::template load_as<E>(add));
        if (p.accumulate) v = V::add(v, V::template load_as<E>(out));
        if (p.relu) v = V::relu(v);
        put<E>(p, out, v);
        return;
    }
    if (p.add != nullptr) v = V::add(v, V::template load_as_n<E>(add, n));
    if (p.accumulate) v = V::add(v, V::template load_as_n<E>(out, n));
    if (p.relu) v = V::relu(v);
    V::template store_as_n<E>(out, v, n);
}

#ifdef __AVX512BF16__
inline void put_pairs(const store_args &p, void *out, __m512i v) {
    if (p.stream)
        _mm512_stream_si512(static_cast<__m512i *>(out), v);
    else
        _mm512_storeu_si512(out, v);
}
#endif

/// The first channels of a position, two vectors of plain results at a time where there is an
/// instruction for that; how many.
template <typename E>
dim store_pairs(const store_args &p, dim x) {
    dim c = 0;
#ifdef __AVX512BF16__
    if (!std::is_same_v<E, bf16_element>) return 0;
    for (; c + 32 <= p.channels; c += 32) {
        auto *out = static_cast<std::uint16_t *>(p.out) + x * p.xs + c;
        const V::vec low = _mm512_loadu_ps(p.c + x * p.c_xs + c);
        const V::vec high = _mm512_loadu_ps(p.c + x * p.c_xs + c + 16);
        constexpr int subnormal = 0x20;  // would be flushed
        if ((_mm512_fpclass_ps_mask(low, subnormal) | _mm512_fpclass_ps_mask(high, subnormal))
            == 0) {
            put_pairs(p, out, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
            continue;
        }
        V::store_as<bf16_element>(out, low);
        V::store_as<bf16_element>(out + 16, high);
    }
#else
    static_cast<void>(p);
    static_cast<void>(x);
#endif
    return c;
}

/// Channels side by side in C and out (NXC).
template <typename E>
void store_channels(const store_args &p) {
    const bool alone = p.add == nullptr && !p.accumulate;
    const bool plain = alone && p.bias == nullptr && !p.relu;
    for (dim x = 0; x < p.count; ++x) {
        const float *from = p.c + x * p.c_xs;
        auto *out = static_cast<typename E::type *>(p.out) + x * p.xs;
        dim c = plain ? store_pairs<E>(p, x) : 0;
        for (; alone && c + V::lanes <= p.channels; c += V::lanes) {
            typename V::vec v = V::template load_as<f32_element>(from + c);
            if (p.bias != nullptr) v = V::add(v, V::template load_as<f32_element>(p.bias + c));
            if (p.relu) v = V::relu(v);
            put<E>(p, out + c, v);
        }
        for (; c < p.channels; c += V::lanes) {
            const dim n = smaller(V::lanes, p.channels - c);
            typename V::vec v = V::template load_as_n<f32_element>(from + c, n);
            if (p.bias != nullptr) v = V::add(v, V::template load_as_n<f32_element>(p.bias + c, n));
            leave<E>(p, v, c, x, n);
        }
    }
}

/// Whether values leave as they are, but for bias and ReLU, for elements side by side.
inline bool leave_alone(const store_args &p) {
    return p.add == nullptr && !p.accumulate && p.xs == 1;
}

#ifdef __AVX512BF16__
/// Lane i has low[i] and high[i] as bf16, none of them subnormal.
inline V::vec paired(V::vec low, V::vec high) {
    const __m512i pairs = _mm512_or_si512(
        V::every(1), _mm512_slli_epi32(_mm512_add_epi32(V::every(1), _mm512_set1_epi32(16)), 16));
    return _mm512_castsi512_ps(
        _mm512_permutexvar_epi16(pairs, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low))));
}

/// Up to 32 positions of up to 16 channels, in pairs of positions; false if a value is subnormal,
/// which the instruction would flush.
inline bool transpose_pairs(const store_args &p, dim c, dim x) {
    const dim h = smaller(16, p.channels - c), w = smaller(32, p.count - x);
    const float *from = p.c + x * p.c_xs + c;
    const V::vec bias = p.bias != nullptr ? V::load_as_n<f32_element>(p.bias + c, h) : V::zero();
    V::vec rows[16];
    unsigned subnormal = 0;
    const auto row = [&](dim i) {
        V::vec v = V::zero();
        if (i < w) {
            v = _mm512_loadu_ps(from + i * p.c_xs);
            if (p.bias != nullptr) v = V::add(v, bias);
            if (p.relu) v = V::relu(v);
        }
        subnormal |= _mm512_fpclass_ps_mask(v, 0x20);
        return v;
    };
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
        const V::vec low = row(2 * i), high = row(2 * i + 1);
        rows[i] = paired(low, high);
    }
    // Lanes without a channel hold anything.
    if ((subnormal & V::first(h)) != 0) return false;
    V::transpose(rows);
    auto *out = static_cast<std::uint16_t *>(p.out) + c * p.cs + x;
    if (w == 32 && h == 16) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) put_pairs(p, out + i * p.cs, _mm512_castps_si512(rows[i]));
        return true;
    }
    const __mmask32 some = w == 32 ? ~__mmask32{0} : (__mmask32{1} << w) - 1;
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
        if (i < h) _mm512_mask_storeu_epi16(out + i * p.cs, some, _mm512_castps_si512(rows[i]));
    return true;
}
#endif

/// Up to `lanes` positions of up to `lanes` channels.
template <typename E>
void transpose_block(const store_args &p, dim c, dim x) {
    using T = typename E::type;
    const dim h = smaller(V::lanes, p.channels - c), w = smaller(V::lanes, p.count - x);
    const bool alone = leave_alone(p);
    typename V::vec rows[V::lanes], bias = V::zero();
    if (p.bias != nullptr) bias = V::template load_as_n<f32_element>(p.bias + c, h);
#pragma GCC unroll 16
    for (int i = 0; i < V::lanes; ++i) {
        rows[i] = V::zero();
        if (i < w) {
            rows[i] = V::load(reinterpret_cast<const char *>(p.c + (x + i) * p.c_xs + c));
            if (p.bias != nullptr) rows[i] = V::add(rows[i], bias);
            if (alone && p.relu) rows[i] = V::relu(rows[i]);
        }
    }
    V::transpose(rows);
    T *out = static_cast<T *>(p.out) + c * p.cs + x * p.xs;
    if (alone && w == V::lanes) {
#pragma GCC unroll 16
        for (int i = 0; i < V::lanes; ++i)
            if (i < h) put<E>(p, out + i * p.cs, rows[i]);
        return;
    }
    for (dim i = 0; i < h; ++i) {
        if (p.xs == 1) {
            leave<E>(p, rows[i], c + i, x, w);
            continue;
        }
        if (p.relu) rows[i] = V::relu(rows[i]);
        V::template store_spaced<E>(out + i * p.cs, rows[i], p.xs, w);
    }
}

/// Channels side by side in C, positions in out (NCX): transpose in registers.
template <typename E>
void store_transposed(const store_args &p) {
    for (dim c = 0; c < p.channels; c += V::lanes) {
        dim x = 0;
#ifdef __AVX512BF16__
        // Fewer than 17 positions are one block either way.
        if constexpr (std::is_same_v<E, bf16_element>)
            for (; leave_alone(p) && p.count - x > V::lanes; x += 32)
                if (!transpose_pairs(p, c, x)) {
                    transpose_block<E>(p, c, x);
                    transpose_block<E>(p, c, x + V::lanes);
                }
#endif
        for (; x < p.count; x += V::lanes) transpose_block<E>(p, c, x);
    }
}

/// Positions side by side in C and out, or spaced in out: channels and positions swap roles, except
/// for the bias.
template <typename E>
void store_positions(const store_args &p) {
    using T = typename E::type;
    const bool alone = leave_alone(p);
    for (dim c = 0; c < p.channels; ++c) {
        const float *from = p.c + c * p.c_cs;
        T *out = static_cast<T *>(p.out) + c * p.cs;
        const typename V::vec bias = p.bias != nullptr ? V::set1(p.bias[c]) : V::zero();
        dim x = 0;
        for (; alone && x + V::lanes <= p.count; x += V::lanes) {
            typename V::vec v = V::template load_as<f32_element>(from + x);
            if (p.bias != nullptr) v = V::add(v, bias);
            if (p.relu) v = V::relu(v);
            put<E>(p, out + x, v);
        }
        for (; x < p.count; x += V::lanes) {
            const dim n = smaller(V::lanes, p.count - x);
            typename V::vec v = V::template load_as_n<f32_element>(from + x, n);
            if (p.bias != nullptr) v = V::add(v, bias);
            if (p.xs == 1) {
                leave<E>(p, v, c, x, n);
                continue;
            }
            if (p.relu) v = V::relu(v);
            V::template store_spaced<E>(out + x * p.xs, v, p.xs, n);
        }
    }
}

#ifdef __AVX512BF16__
/// 32 channels of up to 16 positions, in pairs of channels; false if a value is subnormal.
inline bool turn_pairs(const store_args &p, dim c, dim x) {
    const dim w = smaller(16, p.count - x);
    const __mmask16 some = V::first(w);
    V::vec rows[16];
    unsigned subnormal = 0;
    const auto row = [&](dim i) {
        V::vec v = _mm512_maskz_loadu_ps(some, p.c + (c + i) * p.c_cs + x);
        if (p.bias != nullptr) v = V::add(v, V::set1(p.bias[c + i]));
        if (p.relu) v = V::relu(v);
        subnormal |= _mm512_fpclass_ps_mask(v, 0x20);
        return v;
    };
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
        const V::vec low = row(2 * i), high = row(2 * i + 1);
        rows[i] = paired(low, high);
    }
    if ((subnormal & some) != 0) return false;
    V::transpose(rows);
    auto *out = static_cast<std::uint16_t *>(p.out) + x * p.xs + c;
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
        if (i < w) _mm512_storeu_si512(out + i * p.xs, _mm512_castps_si512(rows[i]));
    return true;
}
#endif

/// Up to `lanes` channels of up to `lanes` positions.
template <typename E>
void turn_block(const store_args &p, dim c, dim x) {
    const dim w = smaller(V::lanes, p.count - x), h = smaller(V::lanes, p.channels - c);
    typename V::vec bias = V::zero(), rows[V::lanes];
    if (p.bias != nullptr) bias = V::template load_as_n<f32_element>(p.bias + c, h);
#pragma GCC unroll 16
    for (int i = 0; i < V::lanes; ++i)
        rows[i] =
            i < h ? V::template load_as_n<f32_element>(p.c + (c + i) * p.c_cs + x, w) : V::zero();
    V::transpose(rows);
    for (dim i = 0; i < w; ++i)
        leave<E>(p, p.bias != nullptr ? V::add(rows[i], bias) : rows[i], c, x + i, h);
}

/// Positions side by side in C, channels in out (NXC): transpose in registers.
template <typename E>
void store_back(const store_args &p) {
    for (dim x = 0; x < p.count; x += V::lanes) {
        dim c = 0;
#ifdef __AVX512BF16__
        if constexpr (std::is_same_v<E, bf16_element>)
            for (; p.add == nullptr && !p.accumulate && c + 32 <= p.channels; c += 32)
                if (!turn_pairs(p, c, x)) {
                    turn_block<E>(p, c, x);
                    turn_block<E>(p, c + V::lanes, x);
                }
#endif
        for (; c < p.channels; c += V::lanes) turn_block<E>(p, c, x);
    }
}

template <typename E>
void store_element(const store_args &p) {
    const bool same_c = p.add == nullptr || p.add_cs == 1,
               same_x = p.add == nullptr || p.add_xs == 1;
    // Every second position of NCX: a phase of a strided data gradient.
    const bool spaced = (p.xs < p.cs || p.channels == 1) && p.add == nullptr && !p.accumulate;
    if (p.c_cs == 1 && p.cs == 1 && same_c)
        store_channels<E>(p);
    else if (p.c_cs == 1 && (p.xs == 1 ? same_x : spaced))
        store_transposed<E>(p);
    else if (p.c_xs == 1 && (p.xs == 1 ? same_x : spaced))
        store_positions<E>(p);
    else if (p.c_xs == 1 && p.cs == 1 && same_c)
        store_back<E>(p);
    else
        store_scalar<E>(p);
}

void store(const store_args &p) {
    if (p.type == data_type::f32) store_element<f32_element>(p);
    if (p.type == data_type::bf16) store_element<bf16_element>(p);
    if (p.type == data_type::f16) store_element<f16_element>(p);
}
