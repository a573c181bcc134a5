// One channel per group with channels side by side: vectors run along channels, nothing is packed.
// Included like product_vector.inl.

/// `lanes` channels from p on, or the first n of them.
template <typename E, bool Whole>
V::vec channels_at(const char *p, dim n) {
    const auto *from = reinterpret_cast<const typename E::type *>(p);
    return Whole ? V::load_as<E>(from) : V::load_as_n<E>(from, n);
}

template <typename E, bool Whole, int X>
void depthwise_positions(const depthwise_args &p, dim x, dim c) {
    const char *in = p.in + x * p.step + c * static_cast<dim>(sizeof(typename E::type));
    V::vec acc[X];
    for (int i = 0; i < X; ++i) acc[i] = V::zero();
    for (dim tap = 0; tap < p.taps; ++tap) {
        const V::vec w = V::load_acc(p.weights[tap] + c);
        const char *at = in + p.run[tap];
#pragma GCC unroll 8
        for (int i = 0; i < X; ++i)
            acc[i] = V::madd(acc[i], channels_at<E, Whole>(at + i * p.step, p.channels - c), w);
    }
    for (int i = 0; i < X; ++i) V::store_acc(p.c + (x + i) * p.c_step + c, acc[i]);
}

template <typename E, bool Whole>
void depthwise_channels(const depthwise_args &p, dim c) {
    dim x = 0;
    for (; x + 8 <= p.count; x += 8) depthwise_positions<E, Whole, 8>(p, x, c);
    for (; x + 4 <= p.count; x += 4) depthwise_positions<E, Whole, 4>(p, x, c);
    for (; x < p.count; ++x) depthwise_positions<E, Whole, 1>(p, x, c);
}

template <typename E>
void depthwise_element(const depthwise_args &p) {
    dim c = 0;
    for (; c + V::lanes <= p.channels; c += V::lanes) depthwise_channels<E, true>(p, c);
    if (c < p.channels) depthwise_channels<E, false>(p, c);
}

void depthwise(const depthwise_args &p) {
    if (p.type == data_type::f32) depthwise_element<f32_element>(p);
    if (p.type == data_type::bf16) depthwise_element<bf16_element>(p);
    if (p.type == data_type::f16) depthwise_element<f16_element>(p);
}

template <typename E, bool Whole, int T>
void depthwise_taps(const depthwise_gradient_args &p, dim tap, dim c) {
    constexpr dim size = sizeof(typename E::type);
    V::acc acc[T];
    for (int i = 0; i < T; ++i) acc[i] = V::load_acc(p.c[tap + i] + c);
    for (dim x = 0; x < p.count; ++x) {
        const V::vec d = channels_at<E, Whole>(p.dst + x * p.dst_step + c * size, p.channels - c);
        const char *src = p.src + x * p.src_step + c * size;
#pragma GCC unroll 9
        for (int i = 0; i < T; ++i)
            acc[i] = V::madd(acc[i], channels_at<E, Whole>(src + p.run[tap + i], p.channels - c), d);
    }
    for (int i = 0; i < T; ++i) V::store_acc(p.c[tap + i] + c, acc[i]);
}

template <typename E, bool Whole>
void depthwise_gradient_channels(const depthwise_gradient_args &p, dim c) {
    dim tap = 0;
    for (; tap + 9 <= p.taps; tap += 9) depthwise_taps<E, Whole, 9>(p, tap, c);
    for (; tap + 3 <= p.taps; tap += 3) depthwise_taps<E, Whole, 3>(p, tap, c);
    for (; tap < p.taps; ++tap) depthwise_taps<E, Whole, 1>(p, tap, c);
}

template <typename E>
void depthwise_gradient_element(const depthwise_gradient_args &p) {
    dim c = 0;
    for (; c + V::lanes <= p.channels; c += V::lanes) depthwise_gradient_channels<E, true>(p, c);
    if (c < p.channels) depthwise_gradient_channels<E, false>(p, c);
}

void depthwise_gradient(const depthwise_gradient_args &p) {
    if (p.type == data_type::f32) depthwise_gradient_element<f32_element>(p);
    if (p.type == data_type::bf16) depthwise_gradient_element<bf16_element>(p);
    if (p.type == data_type::f16) depthwise_gradient_element<f16_element>(p);
}
