// What pairs have in common where there are no masked loads and stores: incomplete ones go through
// a buffer.

template <typename Pair>
struct pair_tails {
    template <typename E>
    [[gnu::noinline]] static void load_n(const char *p, dim n, V::vec &a, V::vec &b) {
        typename E::type values[2 * V::lanes] = {};
        __builtin_memcpy(values, p, static_cast<std::size_t>(n) * sizeof values[0]);
        Pair::template load<E>(reinterpret_cast<const char *>(values), a, b);
    }
    /// As load<bf16> orders them.
    static void store_split_n(char *p, dim n, V::vec a, V::vec b) {
        std::uint16_t values[2 * V::lanes];
        Pair::store_split(reinterpret_cast<char *>(values), a, b);
        __builtin_memcpy(p, values, static_cast<std::size_t>(n) * sizeof values[0]);
    }
    /// Past the caches where it can, to a boundary of both.
    template <typename In, typename Out>
    static void stream(char *p, V::vec a, V::vec b) {
        if constexpr (std::is_same_v<In, bf16_element>) {
            Pair::stream_split(p, a, b);
        } else {
            auto *to = reinterpret_cast<typename Out::type *>(p);
            V::stream_as<Out>(to, a);
            V::stream_as<Out>(to + V::lanes, b);
        }
    }
    static void stream_split(char *p, V::vec a, V::vec b) { Pair::store_split(p, a, b); }
    /// In memory order.
    template <typename E>
    static void store(char *p, V::vec a, V::vec b) {
        auto *to = reinterpret_cast<typename E::type *>(p);
        V::store_as<E>(to, a);
        V::store_as<E>(to + V::lanes, b);
    }
    template <typename E>
    [[gnu::noinline]] static void store_n(char *p, dim n, V::vec a, V::vec b) {
        typename E::type values[2 * V::lanes];
        store<E>(reinterpret_cast<char *>(values), a, b);
        __builtin_memcpy(p, values, static_cast<std::size_t>(n) * sizeof values[0]);
    }
};
