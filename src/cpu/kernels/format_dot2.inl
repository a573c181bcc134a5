// Operand format "dot2": a unit is two bf16, which VDPBF16PS multiplies and adds together. Pairs
// are neighbouring channels, or positions of two rows (see pack_positions). Raw bits, no
// conversion.

struct F {
    static constexpr int k_per_unit = 2;
    static constexpr bool only_bf16 = true;

    /// VDPBF16PS takes subnormals for zero, in and out: 2^-118 leaves room for a sum to be normal.
    static constexpr format_limits limits{1, 254 - 118, 510};

    /// The unit of A at `a`, used once: loaded by the instruction that multiplies. Compilers load
    /// it by one of its own, which costs a third of VDPBF16PS (Zen 4).
    static V::acc madd_at(V::acc c, const char *a, V::unit b) {
        __asm__("vdpbf16ps %1%{1to16%}, %2, %0"
                : "+v"(c)
                : "m"(*reinterpret_cast<const float *>(a)), "v"(b));
        return c;
    }

    /// The vector of B at `b`, likewise.
    static V::acc madd_from(V::acc c, V::unit a, const char *b) {
        __asm__("vdpbf16ps %1, %2, %0"
                : "+v"(c)
                : "m"(*reinterpret_cast<const V::vec *>(b)), "v"(a));
        return c;
    }

    struct watch {
        __m512i least = _mm512_set1_epi16(-1), most = _mm512_setzero_si512();
        void add(V::vec v) {
            const __m512i size =
                _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi16(0x7fff));
            // Zero becomes the largest number.
            least = _mm512_min_epu16(least, _mm512_sub_epi16(size, _mm512_set1_epi16(1)));
            most = _mm512_max_epu16(most, size);
        }
        [[nodiscard]] value_range found() const { return range_of_bf16(least, most); }
    };

    static V::vec seen(__m512i v, watch &w) {
        w.add(_mm512_castsi512_ps(v));
        return _mm512_castsi512_ps(v);
    }
    /// Elements of `p` in the low and of `p2` in the high half of each unit, `step` apart.
    static __m512i join(
        const std::uint16_t *p, __mmask16 m, const std::uint16_t *p2, __mmask16 m2, dim step = 1) {
        return _mm512_or_si512(
            V::spaced_bits(p, step, m), _mm512_slli_epi32(V::spaced_bits(p2, step, m2), 16));
    }

    /// 16 elements side by side of each row.
    static __m512i join_whole(const std::uint16_t *p, const std::uint16_t *p2) {
        const auto load = [](const std::uint16_t *from) {
            return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from));
        };
        const __m512i pairs = _mm512_or_si512(V::every(1),
            _mm512_slli_epi32(_mm512_add_epi32(V::every(1), _mm512_set1_epi32(16)), 16));
        return _mm512_permutexvar_epi16(
            pairs, _mm512_inserti64x4(_mm512_castsi256_si512(load(p)), load(p2), 1));
    }
    /// Units of elements side by side in two rows, 32 at a time; how many of `count`.
    template <typename E>
    static dim join_rows(
        const std::uint16_t *p, const std::uint16_t *p2, dim count, char *out, watch &w) {
        const __m512i first = _mm512_or_si512(V::every(1),
            _mm512_slli_epi32(_mm512_add_epi32(V::every(1), _mm512_set1_epi32(32)), 16));
        const __m512i rest = _mm512_add_epi16(first, _mm512_set1_epi16(16));
        const dim step = p != nullptr ? 1 : 0, step2 = p2 != nullptr ? 1 : 0;
        const std::uint16_t *from = step > 0 ? p : no_row, *from2 = step2 > 0 ? p2 : no_row;
        dim x = 0;
        for (; x + 32 <= count; x += 32) {
            const __m512i a = _mm512_loadu_si512(from + x * step);
            const __m512i b = _mm512_loadu_si512(from2 + x * step2);
            w.add(_mm512_castsi512_ps(a));
            w.add(_mm512_castsi512_ps(b));
            _mm512_storeu_si512(out + 4 * x, _mm512_permutex2var_epi16(a, first, b));
            _mm512_storeu_si512(out + 4 * x + 64, _mm512_permutex2var_epi16(a, rest, b));
        }
        return x;
    }
    /// What stands for a row that does not exist.
    static constexpr std::uint16_t no_row[32] = {};

    template <typename E>
    static V::vec units_at(const std::uint16_t *p, dim n, watch &w) {
        const __mmask32 m = n >= 32 ? ~__mmask32{0} : (__mmask32{1} << n) - 1;
        return seen(_mm512_maskz_loadu_epi16(m, p), w);
    }
    template <typename E>
    static V::vec units_across(const std::uint16_t *p, dim xs, dim cs, dim n, dim width, watch &w) {
        if (xs == 1 && n > 1 && width >= 16) return seen(join_whole(p, p + cs), w);
        const __mmask16 m = V::first(width);
        return seen(join(p, m, n > 1 ? p + cs : p, n > 1 ? m : __mmask16{0}, xs), w);
    }
    template <typename E>
    static V::vec units_between(
        const std::uint16_t *p, dim xs, dim cs, dim n, dim lo, dim hi, watch &w) {
        const __mmask16 m = V::lanes_of(lo, hi);
        return seen(join(p, m, n > 1 ? p + cs : p, n > 1 ? m : __mmask16{0}, xs), w);
    }
    static std::uint32_t pair(std::uint16_t low, std::uint16_t high, watch &w) {
        const std::uint32_t both = static_cast<std::uint32_t>(high) << 16 | low;
        w.add(_mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(both))));
        return both;
    }
    template <typename E>
    static std::uint32_t unit(const std::uint16_t *p, dim cs, dim n, watch &w) {
        return pair(p[0], n > 1 ? p[cs] : std::uint16_t{0}, w);
    }
    template <typename E>
    static V::vec positions_at(
        const std::uint16_t *p, const std::uint16_t *p2, dim c, dim n, watch &w) {
        // A load from nowhere faults inside the processor even if its mask is empty: hundreds of
        // cycles.
        const __mmask16 m = V::first(n);
        return seen(join(p != nullptr ? p + c : no_row, m, p2 != nullptr ? p2 + c : no_row, m), w);
    }
    /// Whether whole_rows() can load rows whose positions are `xs` apart, pairs `partner`.
    static bool loads_rows(dim partner, dim xs) { return xs == 1 || (xs == 2 && partner == 1); }
    /// A vector of pairs of as many channels.
    template <typename E>
    [[gnu::always_inline]] static void whole_rows(const std::uint16_t *p, const std::uint16_t *p2,
        dim cs, dim xs, V::vec (&rows)[V::lanes], watch &w) {
        if (xs == 2) {
#pragma GCC unroll 16
            for (int i = 0; i < V::lanes; ++i) rows[i] = seen(_mm512_loadu_si512(p + i * cs), w);
            return;
        }
#pragma GCC unroll 16
        for (int i = 0; i < V::lanes; ++i) rows[i] = seen(join_whole(p + i * cs, p2 + i * cs), w);
    }
    template <typename E>
    static V::vec positions_across(const std::uint16_t *row, dim lo, dim hi,
        const std::uint16_t *row2, dim lo2, dim hi2, dim xs, dim width, watch &w) {
        if (xs == 1 && width >= 16 && lo <= 0 && hi >= 16 && lo2 <= 0 && hi2 >= 16)
            return seen(join_whole(row, row2), w);
        // Pairs as they lie; of the last one only a half may exist.
        if (xs == 2 && row2 == row + 1 && lo <= 0 && lo2 <= 0) {
            const dim all = (width < hi ? width : hi) + (width < hi2 ? width : hi2);
            if (all >= 32) return seen(_mm512_loadu_si512(row), w);
            return all <= 0 ? V::zero()
                            : seen(_mm512_maskz_loadu_epi16((__mmask32{1} << all) - 1, row), w);
        }
        const __mmask16 m = V::first(width);
        return seen(join(row, static_cast<__mmask16>(m & V::lanes_of(lo, hi)), row2,
                        static_cast<__mmask16>(m & V::lanes_of(lo2, hi2)), xs),
            w);
    }
};
