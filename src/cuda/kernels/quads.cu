// Depthwise layers of 3×3 taps, channels side by side: a thread has four channels, which come and
// go as one piece, and walks down the rows of a strip of four columns. So few taps leave nothing to
// wait for but memory, and neighbouring strips share what they read in the first-level cache.
#include "depthwise.cuh"

#include "quads_args.hpp"

namespace convgrad::cuda::quads {

constexpr int K = 3, columns = quads_columns, C = 4;  // C: channels

/// What four elements are loaded as.
template <int Bytes>
struct words {
    using type = uint2;
};
template <>
struct words<4> {
    using type = uint4;
};
template <typename T>
using four = depthwise::pack<T, C>;

/// Four channels of a pixel, at once where they are aligned; zeros where it is not `there`.
template <typename T, bool Whole>
__device__ inline void load(float (&v)[C], const T *from, bool there) {
    four<T> raw;
    if constexpr (Whole) {
        using word = typename words<sizeof(T)>::type;
        word all{};
        if (there) all = __ldg(reinterpret_cast<const word *>(from));
        raw = *reinterpret_cast<const four<T> *>(&all);
    } else {
#pragma unroll
        for (int c = 0; c < C; ++c) raw.v[c] = there ? __ldg(from + c) : T(0.0f);
    }
#pragma unroll
    for (int c = 0; c < C; ++c) v[c] = to_f32(raw.v[c]);
}

/// Where a thread works: an item of its four channels.
struct place {
    int channel, n, x, y, rows;
};
__device__ inline place place_of(const quads_args &a, int vector, int item) {
    const int strip = item % a.base.strips, rest = item / a.base.strips;
    place at;
    at.channel = vector * C;
    at.n = rest / a.base.segments;
    at.x = strip * columns;
    at.y = rest % a.base.segments * a.base.segment_rows;
    at.rows = min(a.base.segment_rows, a.base.out_rows - at.y);
    return at;
}

/// Rows of the input that a strip reads, one after the other.
template <typename T, int Window, bool Whole>
struct reader {
    const T *row;
    wide down, right;
    int y, rows;
    unsigned inside;  // columns

    __device__ void next(float (&v)[Window][C]) {
        const unsigned there = static_cast<unsigned>(y) < static_cast<unsigned>(rows) ? inside : 0U;
#pragma unroll
        for (int j = 0; j < Window; ++j) load<T, Whole>(v[j], row + j * right, there >> j & 1U);
        row += down;
        ++y;
    }
};
template <typename T, int S, bool Whole>
__device__ inline reader<T, (columns - 1) * S + K, Whole> read_input(
    const quads_args &a, const place &at) {
    const depthwise_args &p = a.base;
    const int x = at.x * S - p.pad_x, y = at.y * S - p.pad_y;
    return {static_cast<const T *>(p.in) + at.n * p.in_n + at.channel + y * p.in_y + x * p.in_x,
        p.in_y, p.in_x, y, p.in_rows,
        depthwise::columns_inside(x, (columns - 1) * S + K, p.in_columns)};
}

template <typename T>
__device__ inline void load_taps(const quads_args &a, float (&taps)[K * K][C], int channel) {
    const depthwise_args &p = a.base;
    const T *const w = static_cast<const T *>(p.weights) + channel * p.w_channel;
    if (a.taps_whole != 0) {
        // 36 neighbours: nine pieces.
        float all[K * K * C];
#pragma unroll
        for (int i = 0; i < K * K; ++i) {
            float some[C];
            load<T, true>(some, w + i * C, true);
#pragma unroll
            for (int c = 0; c < C; ++c) all[i * C + c] = some[c];
        }
#pragma unroll
        for (int i = 0; i < K * K; ++i)
#pragma unroll
            for (int c = 0; c < C; ++c)
                taps[i][c] = p.flip != 0 ? all[c * K * K + K * K - 1 - i] : all[c * K * K + i];
        return;
    }
#pragma unroll
    for (int i = 0; i < K * K; ++i)
#pragma unroll
        for (int c = 0; c < C; ++c) {
            const int tap = p.flip != 0 ? K * K - 1 - i : i;
            taps[i][c] = to_f32(__ldg(w + c * p.w_channel + tap / K * p.w_y + tap % K * p.w_x));
        }
}

/// Stores a row that is not finite everywhere, or more than a sum.
template <typename T, int S>
__device__ __noinline__ void store_slowly(
    const quads_args &a, const float *sums, const place &at, int y, unsigned stored) {
    const epilogue_args &e = a.base.end;
    for (int j = 0; j < columns; ++j)
        for (int c = 0; c < C; ++c) {
            if ((stored >> j & 1U) == 0) continue;
            float v = sums[j * C + c];
            if (!is_finite(v))
                v = depthwise::careful_sum<T, K, S, false>(
                    a.base, at.n, at.channel + c, y, at.x + j);
            const depthwise::out_place to = depthwise::out_of(e, at.n, at.channel + c, y, at.x + j);
            store_result<T>(e, v, at.channel + c, to.out, to.add);
        }
}
template <typename T, int S>
__device__ inline void store(const quads_args &a, const float (&sums)[columns][C], const place &at,
    int y, T *out, unsigned stored) {
    float parts[C] = {}, all = 0;
#pragma unroll
    for (int j = 0; j < columns; ++j)
#pragma unroll
        for (int c = 0; c < C; ++c) parts[c] = fmaf(sums[j][c], 0.0f, parts[c]);
#pragma unroll
    for (int c = 0; c < C; ++c) all += parts[c];
    if (all != 0.0f || a.out_whole == 0) {
        float some[columns * C];  // in memory, so that the sums themselves need not be
#pragma unroll
        for (int i = 0; i < columns * C; ++i) some[i] = sums[i / C][i % C];
        store_slowly<T, S>(a, some, at, y, stored);
        return;
    }
#pragma unroll
    for (int j = 0; j < columns; ++j) {
        four<T> v;
#pragma unroll
        for (int c = 0; c < C; ++c) round_to(v.v[c], sums[j][c]);
        if (stored >> j & 1U)
            *reinterpret_cast<four<T> *>(out + j * a.base.end.out_strides.x[2]) = v;
    }
}

/// Adds a row of taps to sums, or starts them.
template <int S, bool First, int Window>
__device__ inline void add_row(
    float (&sums)[columns][C], const float (&v)[Window][C], const float (&taps)[K * K][C], int ky) {
#pragma unroll
    for (int kx = 0; kx < K; ++kx)
#pragma unroll
        for (int j = 0; j < columns; ++j)
#pragma unroll
            for (int c = 0; c < C; ++c) {
                const float before = First && kx == 0 ? 0.0f : sums[j][c];
                sums[j][c] = fmaf(v[j * S + kx][c], taps[ky * K + kx][c], before);
            }
}

/// Stride 1: the last three rows of sums are under way.
template <typename T, bool Whole>
__device__ inline void walk(
    const quads_args &a, const place &at, const float (&taps)[K * K][C], T *out, unsigned stored) {
    auto rows = read_input<T, 1, Whole>(a, at);
    float sums[K][columns][C];
    const int last = at.rows + K - 1;
    for (int base = 0; base < last; base += K) {
#pragma unroll
        for (int u = 0; u < K; ++u) {
            const int r = base + u;
            if (r >= last) break;
            float v[columns + K - 1][C];
            rows.next(v);
            add_row<1, true>(sums[u], v, taps, 0);
            add_row<1, false>(sums[(u + 2) % K], v, taps, 1);
            add_row<1, false>(sums[(u + 1) % K], v, taps, 2);
            if (r < K - 1) continue;
            store<T, 1>(a, sums[(u + 1) % K], at, at.y + r - (K - 1), out, stored);
            out += a.base.end.out_strides.x[1];
        }
    }
}

/// Stride 2: every second row ends an output row and starts the next.
template <typename T, bool Whole>
__device__ inline void walk_strided(
    const quads_args &a, const place &at, const float (&taps)[K * K][C], T *out, unsigned stored) {
    auto rows = read_input<T, 2, Whole>(a, at);
    constexpr int window = (columns - 1) * 2 + K;
    float sums[columns][C], v[window][C];
    rows.next(v);
    for (int y = 0; y < at.rows; ++y) {
        add_row<2, true>(sums, v, taps, 0);
        rows.next(v);
        add_row<2, false>(sums, v, taps, 1);
        rows.next(v);
        add_row<2, false>(sums, v, taps, 2);
        store<T, 2>(a, sums, at, at.y + y, out, stored);
        out += a.base.end.out_strides.x[1];
    }
}

template <typename T, int S, bool Whole>
__device__ inline void data(const quads_args &a) {
    const depthwise_args &p = a.base;
    for (int block = static_cast<int>(blockIdx.x); block < p.blocks;
         block += static_cast<int>(gridDim.x)) {
        const int index = block * quads_threads + static_cast<int>(threadIdx.x);
        const int item = index / a.vectors;
        if (item >= p.items) continue;
        const place at = place_of(a, index - item * a.vectors, item);
        float taps[K * K][C];
        load_taps<T>(a, taps, at.channel);
        const unsigned stored = depthwise::columns_inside(at.x, columns, p.out_columns);
        T *const out = static_cast<T *>(p.end.out)
                       + depthwise::out_of(p.end, at.n, at.channel, at.y, at.x).out;
        if constexpr (S == 1)
            walk<T, Whole>(a, at, taps, out, stored);
        else
            walk_strided<T, Whole>(a, at, taps, out, stored);
    }
}

}  // namespace convgrad::cuda::quads

#define CONVGRAD_QUADS(name, aligned, other)                                                       \
    extern "C" __global__ void __launch_bounds__(convgrad::cuda::quads_threads, 3)                 \
        name(const __grid_constant__ convgrad::cuda::quads_args a) {                               \
        using namespace convgrad::cuda;                                                            \
        if (a.whole != 0)                                                                          \
            aligned(a);                                                                            \
        else                                                                                       \
            other(a);                                                                              \
    }
#define CONVGRAD_QUADS_SET(type, T)                                                                \
    CONVGRAD_QUADS(quads_data_##type, (quads::data<T, 1, true>), (quads::data<T, 1, false>))       \
    CONVGRAD_QUADS(quads_data_s2_##type, (quads::data<T, 2, true>), (quads::data<T, 2, false>))
CONVGRAD_QUADS_SET(f32, float)
CONVGRAD_QUADS_SET(bf16, bf16)
CONVGRAD_QUADS_SET(f16, f16)
