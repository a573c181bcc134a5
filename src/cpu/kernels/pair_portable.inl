// struct pair in plain C++: two vectors of neighbouring elements (see pair_avx512.inl). Included
// after vector_portable.inl and pair_tails.inl.

struct pair : pair_tails<pair> {
    static constexpr int group = 2;       // vectors whose results are held together
    static constexpr int most_alone = 2;  // positions of one vector
    static constexpr int most_positions = 2;
    static constexpr int gradient_positions = 2;
    static constexpr int gradient_lines_alone = 1;
    static constexpr int gradient_lines = 1;

    template <typename E>
    [[gnu::noinline]] static void load(const char *p, V::vec &a, V::vec &b) {
        const auto *from = reinterpret_cast<const typename E::type *>(p);
        if constexpr (std::is_same_v<E, bf16_element>) {
            a = b = V::zero();
            for (int i = 0; i < V::lanes; ++i) {
                a[i] = E::to_float(from[2 * i]);
                b[i] = E::to_float(from[2 * i + 1]);
            }
        } else {
            a = V::load_as<E>(from);
            b = V::load_as<E>(from + V::lanes);
        }
    }
    /// Elements 0, 2, 4… of a and b.
    static V::vec evens(V::vec a, V::vec b) { return V::vec{a[0], a[2], b[0], b[2]}; }
    /// a0 b0 a1 b1 …
    static void interleave(V::vec &a, V::vec &b) {
        const V::vec low{a[0], b[0], a[1], b[1]};
        b = V::vec{a[2], b[2], a[3], b[3]};
        a = low;
    }
    static void store_split(char *p, V::vec a, V::vec b) {
        auto *to = reinterpret_cast<std::uint16_t *>(p);
        for (int i = 0; i < V::lanes; ++i) {
            to[2 * i] = float_to_bf16(a[i]);
            to[2 * i + 1] = float_to_bf16(b[i]);
        }
    }
};
