// AMX-BF16: tiles of 16 rows × 64 bytes, two by two. bf16 as it is, f16 and f32 as sums of bf16
// parts (split_amx.inl).
//
// Tiles 0–3 hold C, 4 and 5 two tiles of A, 6 and 7 two tiles of B. TDPBF16PS takes 16 cycles, and
// four independent C tiles cover its latency of about 52; a tile load from L1 takes 8.
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <type_traits>

#include "cpu/kernels/kernels.hpp"

namespace convgrad::cpu {
namespace {

#include "cpu/kernels/convert.inl"
#include "cpu/kernels/vector_avx512.inl"

inline V::acc V::madd(acc c, unit a, unit b) {
    return _mm512_fmadd_ps(a, b, c);
}

#include "cpu/kernels/split_amx.inl"
// Needs what stands above; the empty line keeps clang-format from sorting it before that.

#include "cpu/kernels/pack_amx.inl"
#include "cpu/kernels/pack_amx_gradient.inl"
#include "cpu/kernels/store_vector.inl"
#include "cpu/kernels/transpose_vector.inl"

#ifdef CONVGRAD_MODEL_TILES
#include "cpu/kernels/tile_model.inl"
void enter() {}
#else
struct alignas(64) tile_config {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Inline assembly, not _tile_loadconfig: GCC 12 believes that the latter reads only 8 bytes and
// drops the stores that fill the rest.
void enter() {
    const tile_config config;
    __asm__ volatile("ldtilecfg %0" ::"m"(config));
}
#endif
void leave() {
    _tile_release();
}

/// Where the tiles of one k step are.
struct step {
    const char *a, *b;
    const product_args &p;

    template <int N>
    void load_a(int part) const {
        const char *at = a + part * p.a_part;
        _tile_loadd(4, at, p.a_row);
        if constexpr (N == 2) _tile_loadd(5, at + p.a_tile, p.a_row);
    }
    template <int N>
    void load_b(int part) const {
        const char *at = b + part * p.b_part;
        _tile_loadd(6, at, p.b_row);
        if constexpr (N == 2) _tile_loadd(7, at + p.b_tile, p.b_row);
    }
};

/// C += A · B on the tiles that are loaded.
template <int M, int N>
void multiply() {
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (N == 2) _tile_dpbf16ps(1, 4, 7);
    if constexpr (M == 2) _tile_dpbf16ps(2, 5, 6);
    if constexpr (M == 2 && N == 2) _tile_dpbf16ps(3, 5, 7);
}

// Which products of parts make up a product of elements. Each class loads and multiplies one k
// step; the order keeps tiles loaded between products.
struct one_part {  // bf16
    template <int M, int N>
    static void run(const step &s) {
        s.load_b<N>(0);
        s.load_a<M>(0);
        multiply<M, N>();
    }
};
struct two_parts_exact {  // f16: all four products
    template <int M, int N>
    static void run(const step &s) {
        s.load_a<M>(1);
        s.load_b<N>(1);
        multiply<M, N>();
        s.load_a<M>(0);
        multiply<M, N>();
        s.load_b<N>(0);
        multiply<M, N>();
        s.load_a<M>(1);
        multiply<M, N>();
    }
};
struct two_parts {  // f32, fast: without low · low
    template <int M, int N>
    static void run(const step &s) {
        s.load_a<M>(0);
        s.load_b<N>(1);
        multiply<M, N>();
        s.load_b<N>(0);
        multiply<M, N>();
        s.load_a<M>(1);
        multiply<M, N>();
    }
};
struct three_parts {  // f32: the six products that reach f32's last bit
    template <int M, int N>
    static void run(const step &s) {
        s.load_a<M>(0);
        s.load_b<N>(2);
        multiply<M, N>();
        s.load_b<N>(1);
        multiply<M, N>();
        s.load_a<M>(1);
        multiply<M, N>();
        s.load_b<N>(0);
        multiply<M, N>();
        s.load_a<M>(2);
        multiply<M, N>();
        s.load_a<M>(0);
        multiply<M, N>();
    }
};

template <int M, int N>
void load_c(const product_args &p) {
    const dim pitch = 4 * p.ldc;
    if (!p.accumulate) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        return;
    }
    _tile_loadd(0, p.c, pitch);
    if constexpr (N == 2) _tile_loadd(1, p.c + 16, pitch);
    if constexpr (M == 2) _tile_loadd(2, p.c + 16 * p.ldc, pitch);
    if constexpr (M == 2 && N == 2) _tile_loadd(3, p.c + 16 * p.ldc + 16, pitch);
}

template <int M, int N>
void store_c(const product_args &p) {
    const dim pitch = 4 * p.ldc;
    _tile_stored(0, p.c, pitch);
    if constexpr (N == 2) _tile_stored(1, p.c + 16, pitch);
    if constexpr (M == 2) _tile_stored(2, p.c + 16 * p.ldc, pitch);
    if constexpr (M == 2 && N == 2) _tile_stored(3, p.c + 16 * p.ldc + 16, pitch);
}

template <typename Parts, int M, int N>
void product_block(const product_args &p) {
    load_c<M, N>(p);
    for (dim r = 0; r < p.runs; ++r) {
        const char *a = p.a + p.a_run[r];
        const char *b = p.b + p.b_run[r];
        for (dim k = 0; k < p.k; ++k, a += p.a_step, b += p.b_step)
            Parts::template run<M, N>(step{a, b, p});
    }
    store_c<M, N>(p);
}

template <typename Parts>
void product(const product_args &p, int m, int vectors) {
    if (m > 16 && vectors > 1)
        product_block<Parts, 2, 2>(p);
    else if (m > 16)
        product_block<Parts, 2, 1>(p);
    else if (vectors > 1)
        product_block<Parts, 1, 2>(p);
    else
        product_block<Parts, 1, 1>(p);
#ifdef CONVGRAD_MODEL_TILES
    tile_time.wait();
#endif
}

template <typename E, int P, typename Parts>
constexpr kernel_set make_set(format_limits limits) {
    return {
        .set = isa::amx_bf16,
        .format = operand_format::amx,
        .lanes = 16,
        .max_vectors = 2,
        .max_m = {0, 32, 32, 0, 0},
        .k_per_unit = 32,
        .unit_bytes = 64,
        .column_bytes = 64 * P,
        .parts = P,
        .limits = limits,
        .enter = enter,
        .leave = leave,
        .product = product<Parts>,
        .pack_channels = pack_channels<E, P>,
        .scan = P == 1 ? scan : nullptr,
        .pack_weights = pack_weights<E, P>,
        .pack_positions = pack_positions<E, P>,
        .pack_rows = pack_rows<E, P>,
        .store = store,
        .transpose = transpose_elements,
    };
}

}  // namespace

const kernel_set *amx_amx_bf16(data_type type, math_mode math) {
    static constexpr kernel_set bf16 = make_set<bf16_element, 1, one_part>(bf16_limits);
    static constexpr kernel_set f16 = make_set<f16_element, 2, two_parts_exact>(f16_limits);
    static constexpr kernel_set f32 = make_set<f32_element, 3, three_parts>(f32_limits);
    static constexpr kernel_set f32_fast = make_set<f32_element, 2, two_parts>(f32_limits);
    if (type == data_type::bf16) return &bf16;
    if (type == data_type::f16) return &f16;
    if (type == data_type::f32 && math == math_mode::accurate) return &f32;
    if (type == data_type::f32 && math == math_mode::fast) return &f32_fast;
    return nullptr;
}

}  // namespace convgrad::cpu
