// struct V for NEON on 64-bit ARM: four lanes, 32 registers, fused multiply-adds, conversions of
// f16. Included inside an anonymous namespace.

struct V {
    static constexpr int lanes = 4;
    // 32 registers: M·N accumulators + N of B + one broadcast.
    static constexpr int max_m[5] = {0, 28, 14, 9, 6};
    static constexpr int max_dot[5] = {0, 9, 9, 8, 6};
    static constexpr bool copies = false;  // see product_args::copy
    using vec = float32x4_t;

    /// In a register from here on: compilers would rather load a value again for each use.
    static void hold(vec &v) { __asm__("" : "+w"(v)); }
    static vec zero() { return vdupq_n_f32(0); }
    static vec set1(float x) { return vdupq_n_f32(x); }
    static vec add(vec a, vec b) { return vaddq_f32(a, b); }
    static vec relu(vec v) { return vbslq_f32(vcltzq_f32(v), zero(), v); }  // keeps NaN
    // Bytes: memory need not be aligned to elements.
    static vec load(const char *p) {
        return vreinterpretq_f32_u8(vld1q_u8(reinterpret_cast<const std::uint8_t *>(p)));
    }
    static void store(char *p, vec v) {
        vst1q_u8(reinterpret_cast<std::uint8_t *>(p), vreinterpretq_u8_f32(v));
    }
    static void store_n(char *p, vec v, dim n) {
        __builtin_memcpy(p, &v, static_cast<std::size_t>(n) * 4);
    }

    static vec widen_bf16(uint16x4_t v) { return vreinterpretq_f32_u32(vshll_n_u16(v, 16)); }
    /// Round to nearest even, NaN quiet.
    static uint16x4_t narrow_bf16(vec v) {
        const uint32x4_t bits = vreinterpretq_u32_f32(v);
        const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
        const uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
        const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
        return vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), rounded, quiet), 16);
    }

    template <typename E>
    static vec load_as(const typename E::type *p) {
        if constexpr (std::is_same_v<E, f32_element>) return vld1q_f32(p);
        if constexpr (std::is_same_v<E, bf16_element>) return widen_bf16(vld1_u16(p));
        if constexpr (std::is_same_v<E, f16_element>)
            return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
    }
    template <typename E>
    static vec load_as_n(const typename E::type *p, dim n) {
        typename E::type values[lanes] = {};
        __builtin_memcpy(values, p, static_cast<std::size_t>(n < lanes ? n : lanes) * sizeof *p);
        return load_as<E>(values);
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
        if constexpr (std::is_same_v<E, f32_element>) vst1q_f32(p, v);
        if constexpr (std::is_same_v<E, bf16_element>) vst1_u16(p, narrow_bf16(v));
        if constexpr (std::is_same_v<E, f16_element>)
            vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v)));
    }
    /// There is nothing that goes past the caches.
    template <typename E>
    static void stream_as(typename E::type *p, vec v) {
        store_as<E>(p, v);
    }
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
        return vreinterpretq_f32_u32(vld1q_u32(bits));
    }
    template <typename T>
    static void store_bits(char *p, vec v, dim n) {
        std::uint32_t bits[lanes];
        vst1q_u32(bits, vreinterpretq_u32_f32(v));
        T values[lanes];
        for (int i = 0; i < lanes; ++i) values[i] = static_cast<T>(bits[i]);
        __builtin_memcpy(p, values, static_cast<std::size_t>(n) * sizeof(T));
    }
    /// The lower and the upper 16 bits of all lanes.
    static void store_halves(char *low, char *high, vec v) {
        const uint32x4_t bits = vreinterpretq_u32_f32(v);
        vst1_u8(reinterpret_cast<std::uint8_t *>(low), vreinterpret_u8_u16(vmovn_u32(bits)));
        vst1_u8(reinterpret_cast<std::uint8_t *>(high), vreinterpret_u8_u16(vshrn_n_u32(bits, 16)));
    }

    /// Collects x·0, which is NaN exactly for infinities and NaNs.
    struct watch {
        vec sum = vdupq_n_f32(0);
        void add(vec v) { sum = vfmaq_f32(sum, v, zero()); }
        void add_one(float v) { add(set1(v)); }
        [[nodiscard]] value_range found() const {
            return {vminvq_u32(vceqq_f32(sum, sum)) == 0, 255, 0};
        }
    };

    static void transpose(vec (&r)[4]) {
        const vec a = vtrn1q_f32(r[0], r[1]), b = vtrn2q_f32(r[0], r[1]);
        const vec c = vtrn1q_f32(r[2], r[3]), d = vtrn2q_f32(r[2], r[3]);
        r[0] = vcombine_f32(vget_low_f32(a), vget_low_f32(c));
        r[1] = vcombine_f32(vget_low_f32(b), vget_low_f32(d));
        r[2] = vcombine_f32(vget_high_f32(a), vget_high_f32(c));
        r[3] = vcombine_f32(vget_high_f32(b), vget_high_f32(d));
    }

    static float sum(vec v) {
        const float32x2_t two = vadd_f32(vget_low_f32(v), vget_high_f32(v));
        return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
    }
    static void sum4(const vec (&v)[4], float *sums) {
        vst1q_f32(sums, vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3])));
    }

    // The product's side (product_vector.inl).
    using acc = vec;
    using unit = vec;
    static acc load_acc(const float *p) { return vld1q_f32(p); }
    static void store_acc(float *p, acc v) { vst1q_f32(p, v); }
    static unit broadcast(const char *p) {
        float x;
        __builtin_memcpy(&x, p, 4);
        return set1(x);
    }
    static acc madd(acc c, unit a, unit b) { return vfmaq_f32(c, a, b); }
};
