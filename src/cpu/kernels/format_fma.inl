// Operand format "fma": a unit is one f32; 16-bit elements are widened while packing. See
// pack_vector.inl for the meaning of the functions.

struct F {
    using watch = V::watch;
    static constexpr int k_per_unit = 1;
    static constexpr bool only_bf16 = false;
    static constexpr format_limits limits{0, 0, 510};  // not consulted: this is plain f32

    /// The unit of A at `a`, used once.
    static V::acc madd_at(V::acc c, const char *a, V::unit b) {
        return V::madd(c, V::broadcast(a), b);
    }
    /// The vector of B at `b`, loaded once more for each use: it has no register.
    static V::acc madd_from(V::acc c, V::unit a, const char *&b) {
        c = V::madd(c, a, V::load(b));
        __asm__("" : "+r"(b));
        return c;
    }

    template <typename E>
    static V::vec some(const typename E::type *p, dim n, V::watch &watch) {
        const V::vec v = n >= V::lanes ? V::load_as<E>(p) : V::load_as_n<E>(p, n);
        watch.add(v);
        return v;
    }
    /// There is nothing to join.
    template <typename E>
    static dim join_rows(
        const typename E::type *, const typename E::type *, dim, char *, V::watch &) {
        return 0;
    }
    template <typename E>
    static V::vec units_at(const typename E::type *p, dim n, V::watch &watch) {
        return some<E>(p, n, watch);
    }
    template <typename E>
    static V::vec units_across(
        const typename E::type *p, dim xs, dim, dim, dim w, V::watch &watch) {
        if (xs == 1) return some<E>(p, w, watch);
        const V::vec v = V::load_between<E>(p, xs, 0, w);
        watch.add(v);
        return v;
    }
    template <typename E>
    static V::vec units_between(
        const typename E::type *p, dim xs, dim, dim, dim lo, dim hi, V::watch &watch) {
        const V::vec v = V::load_between<E>(p, xs, lo, hi);
        watch.add(v);
        return v;
    }
    template <typename E>
    static std::uint32_t unit(const typename E::type *p, dim, dim, V::watch &watch) {
        const float v = E::to_float(*p);
        watch.add_one(v);
        return float_to_bits(v);
    }
    template <typename E>
    static V::vec positions_at(
        const typename E::type *p, const typename E::type *, dim c, dim n, V::watch &watch) {
        return p != nullptr ? some<E>(p + c, n, watch) : V::zero();
    }
    /// Whether whole_rows() can load rows whose positions are `xs` apart.
    static bool loads_rows(dim /*partner*/, dim xs) { return xs == 1; }
    /// A vector of positions of as many channels.
    template <typename E>
    [[gnu::always_inline]] static void whole_rows(const typename E::type *p,
        const typename E::type *, dim cs, dim, V::vec (&rows)[V::lanes], V::watch &watch) {
#pragma GCC unroll 16
        for (int i = 0; i < V::lanes; ++i) {
            rows[i] = V::load_as<E>(p + i * cs);
            watch.add(rows[i]);
        }
    }
    template <typename E>
    static V::vec positions_across(const typename E::type *row, dim lo, dim hi,
        const typename E::type *, dim, dim, dim xs, dim w, V::watch &watch) {
        if (xs == 1 && lo <= 0 && w <= hi) return some<E>(row, w, watch);
        const V::vec v = V::load_between<E>(row, xs, lo, w < hi ? w : hi);
        watch.add(v);
        return v;
    }
};
