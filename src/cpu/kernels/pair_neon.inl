// struct pair for NEON: two vectors of neighbouring elements (see pair_avx512.inl). Included after
// vector_neon.inl and pair_tails.inl.

struct pair : pair_tails<pair> {
    static constexpr int group = 2;           // vectors whose results are held together
    static constexpr int most_alone = 8;      // positions of one vector
    static constexpr int most_positions = 8;  // 16 of 32 registers hold results
    static constexpr int gradient_positions = 4;
    static constexpr int gradient_lines_alone = 1;
    static constexpr int gradient_lines = 1;

    static uint32x4_t rounded(V::vec v) {
        const uint32x4_t bits = vreinterpretq_u32_f32(v);
        const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
        return vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
    }

    template <typename E>
    static void load(const char *p, V::vec &a, V::vec &b) {
        if constexpr (std::is_same_v<E, bf16_element>) {
            const uint32x4_t v = vreinterpretq_u32_f32(V::load(p));
            a = vreinterpretq_f32_u32(vshlq_n_u32(v, 16));
            b = vreinterpretq_f32_u32(vandq_u32(v, vdupq_n_u32(0xffff0000U)));
        } else {
            const auto *from = reinterpret_cast<const typename E::type *>(p);
            a = V::load_as<E>(from);
            b = V::load_as<E>(from + V::lanes);
        }
    }
    /// Elements 0, 2, 4… of a and b.
    static V::vec evens(V::vec a, V::vec b) { return vuzp1q_f32(a, b); }
    /// a0 b0 a1 b1 …
    static void interleave(V::vec &a, V::vec &b) {
        const V::vec low = vzip1q_f32(a, b);
        b = vzip2q_f32(a, b);
        a = low;
    }
    static void store_split(char *p, V::vec a, V::vec b) {
        V::store(p, vreinterpretq_f32_u32(vsriq_n_u32(rounded(b), rounded(a), 16)));
    }
};
