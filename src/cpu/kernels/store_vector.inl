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
void store_scalar(const store_args &p, dim c0, dim c1, dim x0, dim x1) {
    auto *out = static_cast<typename E::type *>(p.out);
    for (dim x = x0; x < x1; ++x)
        for (dim c = c0; c < c1; ++c)
            out[c * p.cs + x * p.xs] =
                E::from_float(finish<E>(p, p.c[c * p.c_cs + x * p.c_xs], c, x));
}

/// Two vectors of channels of plain results at a time, where there is an instruction for that.
template <typename E>
bool store_pairs(const store_args &p) {
#ifdef __AVX512BF16__
    const bool plain = p.bias == nullptr && p.add == nullptr && !p.accumulate && !p.relu;
    if (!plain || !std::is_same_v<E, bf16_element> || p.channels % 32 != 0) return false;
    for (dim x = 0; x < p.count; ++x)
        for (dim c = 0; c < p.channels; c += 32) {
            auto *out = static_cast<std::uint16_t *>(p.out) + x * p.xs + c;
            const V::vec low = _mm512_loadu_ps(p.c + x * p.c_xs + c);
            const V::vec high = _mm512_loadu_ps(p.c + x * p.c_xs + c + 16);
            constexpr int subnormal = 0x20;  // would be flushed
            if ((_mm512_fpclass_ps_mask(low, subnormal) | _mm512_fpclass_ps_mask(high, subnormal))
                == 0) {
                _mm512_storeu_si512(out, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
                continue;
            }
            V::store_as<bf16_element>(out, low);
            V::store_as<bf16_element>(out + 16, high);
        }
    return true;
#else
    static_cast<void>(p);
    return false;
#endif
}

/// Channels side by side in C and out (NXC).
template <typename E>
void store_channels(const store_args &p) {
    using T = typename E::type;
    if (store_pairs<E>(p)) return;
    const dim whole = p.channels / V::lanes * V::lanes;
    for (dim x = 0; x < p.count; ++x) {
        T *out = static_cast<T *>(p.out) + x * p.xs;
        for (dim c = 0; c < whole; c += V::lanes) {
            typename V::vec v = V::load(reinterpret_cast<const char *>(p.c + x * p.c_xs + c));
            if (p.bias != nullptr)
                v = V::add(v, V::load(reinterpret_cast<const char *>(p.bias + c)));
            if (p.add != nullptr)
                v = V::add(
                    v, V::template load_as<E>(static_cast<const T *>(p.add) + c + x * p.add_xs));
            if (p.accumulate) v = V::add(v, V::template load_as<E>(out + c));
            if (p.relu) v = V::relu(v);
            V::template store_as<E>(out + c, v);
        }
    }
    store_scalar<E>(p, whole, p.channels, 0, p.count);
}

/// Channels side by side in C, positions in out (NCX): transpose in registers.
template <typename E>
void store_transposed(const store_args &p) {
    using T = typename E::type;
    const dim whole = p.count / V::lanes * V::lanes;
    for (dim c = 0; c < p.channels; c += V::lanes) {
        const dim h = smaller(V::lanes, p.channels - c);
        for (dim x = 0; x < whole; x += V::lanes) {
            typename V::vec rows[V::lanes];
#pragma GCC unroll 16
            for (int i = 0; i < V::lanes; ++i)
                rows[i] = V::load(reinterpret_cast<const char *>(p.c + (x + i) * p.c_xs + c));
            V::transpose(rows);
            for (dim i = 0; i < h; ++i) {
                typename V::vec v = rows[i];
                T *out = static_cast<T *>(p.out) + (c + i) * p.cs + x;
                if (p.bias != nullptr) v = V::add(v, V::set1(p.bias[c + i]));
                if (p.add != nullptr)
                    v = V::add(v, V::template load_as<E>(
                                      static_cast<const T *>(p.add) + (c + i) * p.add_cs + x));
                if (p.accumulate) v = V::add(v, V::template load_as<E>(out));
                if (p.relu) v = V::relu(v);
                V::template store_as<E>(out, v);
            }
        }
    }
    store_scalar<E>(p, 0, p.channels, whole, p.count);
}

/// Positions side by side in C and out: channels and positions swap roles, except for the bias.
template <typename E>
void store_positions(const store_args &p) {
    using T = typename E::type;
    const dim whole = p.count / V::lanes * V::lanes;
    for (dim c = 0; c < p.channels; ++c) {
        T *out = static_cast<T *>(p.out) + c * p.cs;
        for (dim x = 0; x < whole; x += V::lanes) {
            typename V::vec v = V::load(reinterpret_cast<const char *>(p.c + c * p.c_cs + x));
            if (p.bias != nullptr) v = V::add(v, V::set1(p.bias[c]));
            if (p.add != nullptr)
                v = V::add(
                    v, V::template load_as<E>(static_cast<const T *>(p.add) + c * p.add_cs + x));
            if (p.accumulate) v = V::add(v, V::template load_as<E>(out + x));
            if (p.relu) v = V::relu(v);
            V::template store_as<E>(out + x, v);
        }
    }
    store_scalar<E>(p, 0, p.channels, whole, p.count);
}

/// Positions side by side in C, channels in out (NXC): transpose in registers.
template <typename E>
void store_back(const store_args &p) {
    using T = typename E::type;
    const dim whole = p.channels / V::lanes * V::lanes;
    for (dim x = 0; x < p.count; x += V::lanes) {
        const dim w = smaller(V::lanes, p.count - x);
        for (dim c = 0; c < whole; c += V::lanes) {
            typename V::vec rows[V::lanes];
#pragma GCC unroll 16
            for (int i = 0; i < V::lanes; ++i)
                rows[i] = V::load(reinterpret_cast<const char *>(p.c + (c + i) * p.c_cs + x));
            V::transpose(rows);
            for (dim i = 0; i < w; ++i) {
                typename V::vec v = rows[i];
                T *out = static_cast<T *>(p.out) + c + (x + i) * p.xs;
                if (p.bias != nullptr)
                    v = V::add(v, V::load(reinterpret_cast<const char *>(p.bias + c)));
                if (p.add != nullptr)
                    v = V::add(v, V::template load_as<E>(
                                      static_cast<const T *>(p.add) + c + (x + i) * p.add_xs));
                if (p.accumulate) v = V::add(v, V::template load_as<E>(out));
                if (p.relu) v = V::relu(v);
                V::template store_as<E>(out, v);
            }
        }
    }
    store_scalar<E>(p, whole, p.channels, 0, p.count);
}

template <typename E>
void store_element(const store_args &p) {
    const bool same_c = p.add == nullptr || p.add_cs == 1,
               same_x = p.add == nullptr || p.add_xs == 1;
    if (p.c_cs == 1 && p.cs == 1 && same_c)
        store_channels<E>(p);
    else if (p.c_cs == 1 && p.xs == 1 && same_x)
        store_transposed<E>(p);
    else if (p.c_xs == 1 && p.xs == 1 && same_x)
        store_positions<E>(p);
    else if (p.c_xs == 1 && p.cs == 1 && same_c)
        store_back<E>(p);
    else
        store_scalar<E>(p, 0, p.channels, 0, p.count);
}

void store(const store_args &p) {
    if (p.type == data_type::f32) store_element<f32_element>(p);
    if (p.type == data_type::bf16) store_element<bf16_element>(p);
    if (p.type == data_type::f16) store_element<f16_element>(p);
}
