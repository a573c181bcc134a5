// struct V in plain C++: four lanes in the compiler's own vector type, which is SSE2 on any x86-64
// and whatever else other machines have. Included inside an anonymous namespace.

struct V {
    static constexpr int lanes = 4;
    // 16 registers, as with AVX2; products are rounded before they are added (no FMA).
    static constexpr int max_m[5] = {0, 12, 6, 4, 2};
    static constexpr int max_dot[5] = {0, 9, 6, 4, 2};
    static constexpr bool copies = false;  // see product_args::copy
    using vec = float __attribute__((vector_size(16)));

    static void hold(vec &) {}
    static vec zero() { return vec{}; }
    static vec set1(float x) { return vec{x, x, x, x}; }
    static vec add(vec a, vec b) { return a + b; }
    static vec relu(vec v) { return v < 0 ? vec{} : v; }  // keeps NaN
    static vec load(const char *p) {
        vec v;
        __builtin_memcpy(&v, p, sizeof v);
        return v;
    }
    static void store(char *p, vec v) { __builtin_memcpy(p, &v, sizeof v); }
    static void store_n(char *p, vec v, dim n) {
        __builtin_memcpy(p, &v, static_cast<std::size_t>(n) * 4);
    }

    template <typename E>
    static vec load_as(const typename E::type *p) {
        vec v;
        for (int i = 0; i < lanes; ++i) v[i] = E::to_float(p[i]);
        return v;
    }
    template <typename E>
    static vec load_as_n(const typename E::type *p, dim n) {
        vec v = {};
        for (int i = 0; i < lanes && i < n; ++i) v[i] = E::to_float(p[i]);
        return v;
    }
    /// Elements `step` apart in lanes [lo, hi), zeros in the others.
    template <typename E>
    static vec load_between(const typename E::type *p, dim step, dim lo, dim hi) {
        if (lo <= 0 && hi >= lanes && step == 1) return load_as<E>(p);
        typename E::type values[lanes] = {};
        for (dim i = lo < 0 ? 0 : lo; i < lanes && i < hi; ++i) values[i] = p[i * step];
        return load_as<E>(values);
    }
    template <typename E>
    static void store_as(typename E::type *p, vec v) {
        for (int i = 0; i < lanes; ++i) p[i] = E::from_float(v[i]);
    }

    /// There is nothing that goes past the caches.
    template <typename E>
    static void stream_as(typename E::type *p, vec v) {
        store_as<E>(p, v);
    }

    /// Collects x·0, which is NaN exactly for infinities and NaNs.
    struct watch {
        vec sum = {};
        void add(vec v) { sum += v * 0.0F; }
        void add_one(float v) { sum[0] += v * 0.0F; }
        [[nodiscard]] value_range found() const {
            bool nan = false;
            for (int i = 0; i < lanes; ++i) nan = nan || sum[i] != sum[i];
            return {nan, 255, 0};
        }
    };

    template <typename E>
    static void store_as_n(typename E::type *p, vec v, dim n) {
        typename E::type values[lanes];
        store_as<E>(values, v);
        __builtin_memcpy(p, values, static_cast<std::size_t>(n) * sizeof *p);
    }
    /// The first n, `step` apart.
    template <typename E>
    static void store_spaced(typename E::type *p, vec v, dim step, dim n) {
        typename E::type values[lanes];
        store_as<E>(values, v);
        for (dim i = 0; i < n; ++i) p[i * step] = values[i];
    }

    /// Up to n elements as they are, one in each 32-bit lane; others zero.
    template <typename T>
    static vec load_bits(const char *p, dim n) {
        T values[lanes] = {};
        __builtin_memcpy(values, p, static_cast<std::size_t>(n) * sizeof(T));
        std::uint32_t bits[lanes];
        for (int i = 0; i < lanes; ++i) bits[i] = values[i];
        vec v;
        __builtin_memcpy(&v, bits, sizeof v);
        return v;
    }
    template <typename T>
    static void store_bits(char *p, vec v, dim n) {
        std::uint32_t bits[lanes];
        __builtin_memcpy(bits, &v, sizeof v);
        T values[lanes];
        for (int i = 0; i < lanes; ++i) values[i] = static_cast<T>(bits[i]);
        __builtin_memcpy(p, values, static_cast<std::size_t>(n) * sizeof(T));
    }
    /// The lower and the upper 16 bits of all lanes.
    static void store_halves(char *low, char *high, vec v) {
        std::uint32_t bits[lanes];
        __builtin_memcpy(bits, &v, sizeof v);
        std::uint16_t halves[2][lanes];
        for (int i = 0; i < lanes; ++i) {
            halves[0][i] = static_cast<std::uint16_t>(bits[i]);
            halves[1][i] = static_cast<std::uint16_t>(bits[i] >> 16);
        }
        __builtin_memcpy(low, halves[0], sizeof halves[0]);
        __builtin_memcpy(high, halves[1], sizeof halves[1]);
    }

    static void transpose(vec (&r)[4]) {
        vec t[4];
        for (int i = 0; i < 4; ++i) t[i] = vec{r[0][i], r[1][i], r[2][i], r[3][i]};
        for (int i = 0; i < 4; ++i) r[i] = t[i];
    }

    static float sum(vec v) { return (v[0] + v[2]) + (v[1] + v[3]); }
    static void sum4(const vec (&v)[4], float *sums) {
        for (int i = 0; i < 4; ++i) sums[i] = sum(v[i]);
    }

    // The product's side (product_vector.inl).
    using acc = vec;
    using unit = vec;
    static acc load_acc(const float *p) { return load(reinterpret_cast<const char *>(p)); }
    static void store_acc(float *p, acc v) { store(reinterpret_cast<char *>(p), v); }
    static unit broadcast(const char *p) {
        float x;
        __builtin_memcpy(&x, p, 4);
        return set1(x);
    }
    static acc madd(acc c, unit a, unit b) { return c + a * b; }
};
