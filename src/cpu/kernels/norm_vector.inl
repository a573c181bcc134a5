// Batch normalisation with a struct V. Included inside an anonymous namespace.

constexpr dim lanes = V::lanes;

template <typename E>
V::vec load_some(const char *p, dim n) {
    const auto *from = reinterpret_cast<const typename E::type *>(p);
    return n >= lanes ? V::load_as<E>(from) : V::load_as_n<E>(from, n);
}
template <typename E>
void store_some(char *p, V::vec v, dim n, bool stream) {
    auto *to = reinterpret_cast<typename E::type *>(p);
    if (stream && n >= lanes)
        V::stream_as<E>(to, v);
    else if (n >= lanes)
        V::store_as<E>(to, v);
    else
        V::store_as_n<E>(to, v, n);
}
inline V::vec load_floats(const float *p, dim n) {
    return load_some<f32_element>(reinterpret_cast<const char *>(p), n);
}
/// Ones in the first n lanes.
inline V::vec ones(dim n) {
    static constexpr float all[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    return load_floats(all, n);
}

/// Calls body(i, n): n elements from i on, as many as a vector has but for the last.
template <typename Body>
void for_vectors(dim length, const Body &body) {
    dim i = 0;
    for (; i + lanes <= length; i += lanes) body(i, lanes);
    if (i < length) body(i, length - i);
}

/// One value for each channel: a vector of them, or the same for all positions.
template <bool Planes>
struct per_channel {
    explicit per_channel(const float *values) : values_(values), first_(V::set1(values[0])) {}
    [[nodiscard]] V::vec at(dim i, dim n) const {
        return Planes ? first_ : load_floats(values_ + i, n);
    }

private:
    const float *values_;
    V::vec first_;
};

template <bool Clamped>
V::vec clamped(V::vec v, const norm_values &values) {
    if constexpr (Clamped) {
        const V::vec low = V::set1(values.low), high = V::set1(values.high);
        v = v < low ? low : v;  // NaN stays
        v = v > high ? high : v;
    }
    return v;
}

/// Gradients go where values are inside their bounds.
template <bool Clamped>
V::vec passed(V::vec g, V::vec v, const norm_values &values) {
    if constexpr (Clamped) {
        g = v <= V::set1(values.low) ? V::zero() : g;
        g = v >= V::set1(values.high) ? V::zero() : g;
    }
    return g;
}

// Sums. Rows of channels are gone through in the order of memory, with sums that stay in the first
// cache: columns of a few vectors, with sums in registers, took a fifth longer.

/// Calls body(i, n, bytes from the first element) for the vectors of all rows.
template <typename E, typename Body>
void for_rows(const norm_rows &where, const Body &body) {
    constexpr dim size = sizeof(typename E::type);
    for (dim row = 0; row < where.rows; ++row)
        for_vectors(where.length, [&](dim i, dim n) { body(i, n, row * where.pitch + i * size); });
}

// Sums have room for whole vectors: what part of a vector was stored cannot be loaded again before
// it has reached the cache.
inline V::vec load_sums(const float *sums) {
    return V::load_acc(sums);
}
inline void add_to(float *sums, V::vec v) {
    V::store_acc(sums, V::add(V::load_acc(sums), v));
}
inline void add_product_to(float *sums, V::vec a, V::vec b) {
    V::store_acc(sums, V::madd(V::load_acc(sums), a, b));
}
inline void clear(float *sums, dim count) {
    for (dim i = 0; i < count; i += lanes) V::store_acc(sums + i, V::zero());
}

/// Calls body(chain, x, n, row) for all vectors of a plane's rows; neighbours are of different
/// chains, so that sums need not wait for each other.
constexpr int chains = 4;
template <typename Body>
void for_plane(const norm_rows &where, const Body &body) {
    for (dim row = 0; row < where.rows; ++row) {
        dim x = 0;
        for (; x + chains * lanes <= where.length; x += chains * lanes)
            for (int i = 0; i < chains; ++i) body(i, x + i * lanes, lanes, row);
        for (; x + lanes <= where.length; x += lanes) body(0, x, lanes, row);
        if (x < where.length) body(1, x, where.length - x, row);
    }
}
inline float sum_of(const V::vec (&v)[chains]) {
    return V::sum(V::add(V::add(v[0], v[1]), V::add(v[2], v[3])));
}

template <typename E>
V::vec at_plane(const norm_rows &where, const char *p, dim row, dim x, dim n) {
    constexpr dim size = sizeof(typename E::type);
    return load_some<E>(p + row * where.pitch + x * size, n);
}

template <typename E>
void means_of(const norm_means_args &p) {
    if (p.where.planes) {
        V::vec total[chains];
        for (V::vec &v : total) v = V::zero();
        for_plane(p.where, [&](int i, dim x, dim n, dim row) {
            total[i] = V::add(total[i], at_plane<E>(p.where, p.src, row, x, n));
        });
        p.means[0] = sum_of(total) / static_cast<float>(p.where.rows * p.where.length);
        return;
    }
    clear(p.means, p.where.length);
    for_rows<E>(p.where,
        [&](dim i, dim n, dim offset) { add_to(p.means + i, load_some<E>(p.src + offset, n)); });
    const V::vec share = V::set1(1 / static_cast<float>(p.where.rows));
    for (dim i = 0; i < p.where.length; i += lanes)
        V::store_acc(p.means + i, load_sums(p.means + i) * share);
}

template <typename E>
void moments_of(const norm_moments_args &p) {
    if (p.where.planes) {
        const V::vec pivot = V::set1(p.pivots[0]);
        V::vec sum[chains], square[chains];
        for (int i = 0; i < chains; ++i) sum[i] = square[i] = V::zero();
        for_plane(p.where, [&](int i, dim x, dim n, dim row) {
            V::vec d = at_plane<E>(p.where, p.src, row, x, n) - pivot;
            if (n < lanes) d = d * ones(n);
            sum[i] = V::add(sum[i], d);
            square[i] = V::madd(square[i], d, d);
        });
        p.sums[0] = sum_of(sum);
        p.squares[0] = sum_of(square);
        return;
    }
    clear(p.sums, p.where.length);
    clear(p.squares, p.where.length);
    for_rows<E>(p.where, [&](dim i, dim n, dim offset) {
        const V::vec d = load_some<E>(p.src + offset, n) - load_sums(p.pivots + i);
        add_to(p.sums + i, d);
        add_product_to(p.squares + i, d, d);
    });
}

// Values.

template <typename E, bool Planes, bool Clamped>
void normalize_rows(const norm_args &p) {
    const per_channel<Planes> scale(p.values.scale), shift(p.values.shift);
    for_rows<E>(p.where, [&](dim i, dim n, dim offset) {
        const V::vec x = load_some<E>(p.src + offset, n);
        const V::vec v = V::madd(shift.at(i, n), x, scale.at(i, n));
        store_some<E>(p.dst + offset, clamped<Clamped>(v, p.values), n, p.stream);
    });
}

// Gradients.

template <typename E, bool Clamped>
void gradient_sums_of_plane(const norm_gradient_sums_args &p) {
    const V::vec scale = V::set1(p.values.scale[0]), shift = V::set1(p.values.shift[0]),
                 mean = V::set1(p.mean[0]);
    V::vec sum[chains], dot[chains];
    for (int i = 0; i < chains; ++i) sum[i] = dot[i] = V::zero();
    for_plane(p.where, [&](int i, dim x, dim n, dim row) {
        const V::vec in = at_plane<E>(p.where, p.src, row, x, n);
        const V::vec g = passed<Clamped>(
            at_plane<E>(p.where, p.diff_dst, row, x, n), V::madd(shift, in, scale), p.values);
        sum[i] = V::add(sum[i], g);
        dot[i] = V::madd(dot[i], g, in - mean);
    });
    p.sums[0] = sum_of(sum);
    p.dots[0] = sum_of(dot);
}

template <typename E, bool Planes, bool Clamped>
void gradient_sums_rows(const norm_gradient_sums_args &p) {
    if constexpr (Planes) return gradient_sums_of_plane<E, Clamped>(p);
    const per_channel<false> scale(p.values.scale), shift(p.values.shift), mean(p.mean);
    clear(p.sums, p.where.length);
    clear(p.dots, p.where.length);
    for_rows<E>(p.where, [&](dim i, dim n, dim offset) {
        const V::vec x = load_some<E>(p.src + offset, n);
        V::vec g = load_some<E>(p.diff_dst + offset, n);
        if constexpr (Clamped)
            g = passed<true>(g, V::madd(shift.at(i, n), x, scale.at(i, n)), p.values);
        add_to(p.sums + i, g);
        add_product_to(p.dots + i, g, x - mean.at(i, n));
    });
}

template <typename E, bool Planes, bool Clamped>
void gradient_rows(const norm_gradient_args &p) {
    const per_channel<Planes> scale(p.values.scale), shift(p.values.shift), mean(p.mean),
        of_g(p.of_g), of_src(p.of_src), constant(p.constant);
    for_rows<E>(p.where, [&](dim i, dim n, dim offset) {
        const V::vec x = load_some<E>(p.src + offset, n);
        V::vec g = load_some<E>(p.diff_dst + offset, n);
        if constexpr (Clamped)
            g = passed<true>(g, V::madd(shift.at(i, n), x, scale.at(i, n)), p.values);
        const V::vec rest = V::madd(constant.at(i, n), x - mean.at(i, n), of_src.at(i, n));
        store_some<E>(p.diff_src + offset, V::madd(rest, g, of_g.at(i, n)), n, p.stream);
    });
}

// For a type, an order of elements, with bounds and without.

#define CONVGRAD_NORM(name, rows, args_type)                                                       \
    template <typename E>                                                                          \
    void name##_of(const args_type &p) {                                                           \
        if (p.where.planes)                                                                        \
            return p.values.clamped ? rows<E, true, true>(p) : rows<E, true, false>(p);            \
        return p.values.clamped ? rows<E, false, true>(p) : rows<E, false, false>(p);              \
    }
CONVGRAD_NORM(normalize, normalize_rows, norm_args)
CONVGRAD_NORM(gradient_sums, gradient_sums_rows, norm_gradient_sums_args)
CONVGRAD_NORM(gradient, gradient_rows, norm_gradient_args)
#undef CONVGRAD_NORM

#define CONVGRAD_NORM(name, args_type)                                                             \
    void name(const args_type &p) {                                                                \
        if (p.where.type == data_type::bf16) return name##_of<bf16_element>(p);                    \
        if (p.where.type == data_type::f16) return name##_of<f16_element>(p);                      \
        return name##_of<f32_element>(p);                                                          \
    }
CONVGRAD_NORM(means, norm_means_args)
CONVGRAD_NORM(moments, norm_moments_args)
CONVGRAD_NORM(normalize, norm_args)
CONVGRAD_NORM(gradient_sums, norm_gradient_sums_args)
CONVGRAD_NORM(gradient, norm_gradient_args)
#undef CONVGRAD_NORM

constexpr norm_kernels vector_norm(isa set) {
    return {set, means, moments, normalize, gradient_sums, gradient};
}
