// Depthwise kernels: straight from memory through the first-level cache into registers.
//
// A thread has one channel and a strip of columns, and walks down the rows of a segment. With
// stride 1 it keeps the last K rows of sums (or of diff_dst) in registers, so that each row of the
// input is loaded once; sums move on with the first product of a row of taps, diff_dst is a ring
// whose loop is unrolled by K, which makes its slots names.
// Lanes of a warp are neighbouring channels (channels last) or neighbouring strips (planes).
#pragma once

#include "device.cuh"

namespace convgrad::cuda::depthwise {

constexpr int columns = depthwise_columns;
constexpr int threads = depthwise_threads;

/// Neighbours that are loaded or stored at once.
template <typename T, int X>
struct alignas(sizeof(T) * X) pack {
    T v[X];
};

/// Where a thread works: the image, the strip's first column, the segment's rows.
struct place {
    int n, x, y, rows;
};

__device__ inline place place_of(const depthwise_args &p, int item, int strip_columns) {
    const int strip = item % p.strips, rest = item / p.strips;
    const int segment = rest % p.segments;
    place at;
    at.n = rest / p.segments;
    at.x = strip * strip_columns;
    at.y = segment * p.segment_rows;
    at.rows = min(p.segment_rows, p.out_rows - at.y);
    return at;
}

/// Loads `Count` neighbouring columns of a row; zero where `mask` says so.
template <typename T, int Count>
__device__ inline void load_row(float (&v)[Count], const T *row, wide step, unsigned mask) {
#pragma unroll
    for (int j = 0; j < Count; ++j) v[j] = mask >> j & 1U ? to_f32(__ldg(row + j * step)) : 0.0f;
}

/// The same, as it lies in memory: what is loaded ahead must not be waited for by a conversion.
template <typename T, int Count>
__device__ inline void load_raw(T (&v)[Count], const T *row, wide step, unsigned mask) {
#pragma unroll
    for (int j = 0; j < Count; ++j) v[j] = mask >> j & 1U ? __ldg(row + j * step) : T(0.0f);
}
template <typename T, int Count>
__device__ inline void convert_row(float (&v)[Count], const T (&raw)[Count]) {
#pragma unroll
    for (int j = 0; j < Count; ++j) v[j] = to_f32(raw[j]);
}

/// Sums of one row of taps, from the registers where they are to the next ones: a loop down the
/// rows need not be unrolled, which kept it out of the instruction cache and took the compiler
/// long.
template <int K, int Count>
__device__ __forceinline__ void multiply_row(float (&to)[Count], const float (&from)[Count],
    const float (&v)[Count + K - 1], const float *taps) {
#pragma unroll
    for (int j = 0; j < Count; ++j) to[j] = fmaf(v[j], taps[0], from[j]);
#pragma unroll
    for (int kx = 1; kx < K; ++kx)
#pragma unroll
        for (int j = 0; j < Count; ++j) to[j] = fmaf(v[j + kx], taps[kx], to[j]);
}

/// Computes those of a thread's sums for channel e again that are not finite: one call for all.
template <int Count, int C, typename Again>
__device__ inline void sum_again(float (&sums)[Count][C], int e, Again &&again) {
    static_assert(Count <= 64);
    unsigned long long bad = 0;
#pragma unroll
    for (int i = 0; i < Count; ++i)
        if (!is_finite(sums[i][e])) bad |= 1ULL << i;
#pragma unroll 1
    for (int i = 0; bad != 0; ++i, bad >>= 1) {
        if ((bad & 1U) == 0) continue;
        const float v = again(i);
#pragma unroll
        for (int k = 0; k < Count; ++k)
            if (k == i) sums[k][e] = v;
    }
}

/// Bits of the columns first … first + count − 1 that lie in [0, length).
__device__ inline unsigned columns_inside(int first, int count, int length) {
    unsigned mask = 0;
    for (int j = 0; j < count; ++j)
        if (first + j >= 0 && first + j < length) mask |= 1U << j;
    return mask;
}

template <typename T, int K>
__device__ inline void load_taps(const depthwise_args &p, float (&taps)[K * K], float *shared,
    int channel, int lane, int first_channel) {
    const T *const w = static_cast<const T *>(p.weights);
    const auto at = [&](int c, int i) {
        const int tap = p.flip != 0 ? K * K - 1 - i : i;
        return to_f32(w[c * p.w_channel + tap / K * p.w_y + tap % K * p.w_x]);
    };
    if (p.lanes_along_channels != 0) {
        // A warp's loads would be K·K elements apart: through shared memory, then.
        __syncthreads();
        for (int e = static_cast<int>(threadIdx.x); e < 32 * K * K; e += threads)
            shared[e] = first_channel + e / (K * K) < p.channels
                            ? at(first_channel + e / (K * K), e % (K * K))
                            : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < K * K; ++i) taps[i] = shared[lane * K * K + i];
    } else {
#pragma unroll
        for (int i = 0; i < K * K; ++i) taps[i] = at(channel, i);
    }
}

/// Channel and item of this thread in a block of a data pass; false if it has none.
__device__ inline bool find_work(
    const depthwise_args &p, int block, int &channel, int &item, int &first_channel) {
    const int t = static_cast<int>(threadIdx.x);
    if (p.lanes_along_channels != 0) {
        const int tiles = (p.channels + 31) / 32;
        first_channel = block % tiles * 32;
        channel = first_channel + t % 32;
        item = block / tiles * (threads / 32) + t / 32;
        return channel < p.channels && item < p.items;
    }
    const wide flat = static_cast<wide>(block) * threads + t;
    channel = static_cast<int>(flat / p.items);
    item = static_cast<int>(flat % p.items);
    first_channel = 0;
    if (channel < p.channels) return true;
    channel = 0;
    return false;
}

/// One output without the products that padding took part in. Back: backward data with stride 2.
template <typename T, int K, int S, bool Back>
__device__ __noinline__ float careful_sum(
    const depthwise_args &p, int n, int channel, int y, int x) {
    const T *const w = static_cast<const T *>(p.weights) + channel * p.w_channel;
    const T *const in = static_cast<const T *>(p.in) + n * p.in_n + channel / p.multiplier * p.in_c;
    float v = 0;
    for (int i = 0; i < K * K; ++i) {
        const int ky = i / K, kx = i % K, tap = p.flip != 0 ? K * K - 1 - i : i;
        int row = y * S + ky - p.pad_y, column = x * S + kx - p.pad_x;
        bool inside = true;
        if (Back) {
            row = y + p.pad_y - ky;
            column = x + p.pad_x - kx;
            inside = row >= 0 && column >= 0 && row % 2 == 0 && column % 2 == 0;
            row /= 2;
            column /= 2;
        }
        if (inside && row >= 0 && row < p.in_rows && column >= 0 && column < p.in_columns)
            v = fmaf(to_f32(in[row * p.in_y + column * p.in_x]),
                to_f32(w[tap / K * p.w_y + tap % K * p.w_x]), v);
    }
    return v;
}

/// What a thread of a weights gradient has seen: images, rows and columns of diff_dst.
struct seen_outputs {
    int image, image_step, images;
    int y, end_y, x, end_x;
};
/// One tap over that, without the products that padding took part in.
template <typename T, int K, int S>
__device__ __noinline__ float careful_tap(
    const depthwise_args &p, int channel, int i, const seen_outputs &seen) {
    float v = 0;
    for (int count = 0; count < seen.images; ++count) {
        const int n = seen.image + count * seen.image_step;
        for (int y = seen.y; y < seen.end_y; ++y)
            for (int x = seen.x; x < seen.end_x; ++x) {
                const int row = y * S + i / K - p.pad_y, from = x * S + i % K - p.pad_x;
                if (row < 0 || row >= p.in_rows || from < 0 || from >= p.in_columns) continue;
                const T src = static_cast<const T *>(
                    p.in)[n * p.in_n + channel * p.in_c + row * p.in_y + from * p.in_x];
                const T dst = static_cast<const T *>(
                    p.weights)[n * p.dst_n + channel * p.dst_c + y * p.dst_y + x * p.dst_x];
                v = fmaf(to_f32(src), to_f32(dst), v);
            }
    }
    return v;
}

/// Stores row y of a strip, each column computed again with care.
template <typename T, int K, int S, bool Back>
__device__ __noinline__ void store_careful(
    const depthwise_args &p, int n, int channel, int y, int x, unsigned mask) {
    const epilogue_args &e = p.end;
    for (int j = 0; mask != 0; ++j, mask >>= 1)
        if ((mask & 1U) != 0)
            store_result<T>(e, careful_sum<T, K, S, Back>(p, n, channel, y, x + j), channel,
                n * e.out_strides.n + channel * e.out_strides.c + y * e.out_strides.x[1]
                    + (x + j) * e.out_strides.x[2],
                n * e.add_strides.n + channel * e.add_strides.c + y * e.add_strides.x[1]
                    + (x + j) * e.add_strides.x[2]);
}

/// The rows of a strip whose sums were not finite, one bit each: left for the end of the strip, so
/// that no loop has a call in it.
template <typename T, int K, int S, bool Back>
__device__ inline void store_left(
    const depthwise_args &p, unsigned long long rows, const place &at, int channel, unsigned mask) {
    for (int y = at.y; rows != 0; ++y, rows >>= 1)
        if ((rows & 1U) != 0) store_careful<T, K, S, Back>(p, at.n, channel, y, at.x, mask);
}

/// Stores neighbouring columns of a row; false, and nothing is stored, if a sum is not finite.
template <typename T, int Count>
__device__ inline bool store_row(const depthwise_args &p, const float (&v)[Count], unsigned mask,
    wide out_at, wide add_at, int channel) {
    float all = 0;
#pragma unroll
    for (int j = 0; j < Count; ++j) all = fmaf(v[j], 0.0f, all);
    if (all != 0.0f) return false;
    if (p.plain != 0) {
        T *out = static_cast<T *>(p.end.out) + out_at;
#pragma unroll
        for (int j = 0; j < Count; ++j)
            if (mask >> j & 1U) round_to(out[j * p.end.out_strides.x[2]], v[j]);
        return true;
    }
#pragma unroll
    for (int j = 0; j < Count; ++j)
        if (mask >> j & 1U)
            store_result<T>(p.end, v[j], channel, out_at + j * p.end.out_strides.x[2],
                add_at + j * p.end.add_strides.x[2]);
    return true;
}

/// Offsets of the first element of a strip in the output and in what is added.
struct out_place {
    wide out, add;
};
__device__ inline out_place out_of(const epilogue_args &e, int n, int channel, int y, int x) {
    return {n * e.out_strides.n + channel * e.out_strides.c + y * e.out_strides.x[1]
                + x * e.out_strides.x[2],
        n * e.add_strides.n + channel * e.add_strides.c + y * e.add_strides.x[1]
            + x * e.add_strides.x[2]};
}

/// Forward, and backward data with flipped taps, stride 1.
template <typename T, int K>
__device__ void data_ring(const depthwise_args &p) {
    __shared__ float shared_taps[32 * K * K];
    constexpr int window = columns + K - 1;
    for (int block = static_cast<int>(blockIdx.x); block < p.blocks;
         block += static_cast<int>(gridDim.x)) {
        int channel, item, first_channel;
        const bool busy = find_work(p, block, channel, item, first_channel);
        float taps[K * K];
        load_taps<T, K>(
            p, taps, shared_taps, channel, static_cast<int>(threadIdx.x) % 32, first_channel);
        if (!busy) continue;
        const place at = place_of(p, item, columns);
        const unsigned inside = columns_inside(at.x - p.pad_x, window, p.in_columns);
        const unsigned stored = columns_inside(at.x, columns, p.out_columns);
        const int first_row = at.y - p.pad_y;
        const T *row = static_cast<const T *>(p.in) + at.n * p.in_n
                       + channel / p.multiplier * p.in_c + first_row * p.in_y
                       + (at.x - p.pad_x) * p.in_x;
        out_place out = out_of(p.end, at.n, channel, at.y, at.x);
        unsigned long long left = 0;
        float sums[K][columns];  // those that the next row meets through row ky of taps
#pragma unroll
        for (int i = 0; i < K; ++i)
#pragma unroll
            for (int j = 0; j < columns; ++j) sums[i][j] = 0;
        const int last = at.rows + K - 1;      // input rows
        constexpr int ahead = K == 3 ? 2 : 1;  // rows that are on their way
        T coming[ahead][window];
        int loaded = 0;
        const auto load_next = [&](T(&to)[window]) {
            const bool there =
                loaded < last
                && static_cast<unsigned>(first_row + loaded) < static_cast<unsigned>(p.in_rows);
            load_raw<T>(to, row, p.in_x, there ? inside : 0U);
            row += p.in_y;
            ++loaded;
        };
#pragma unroll
        for (int i = 0; i < ahead; ++i) load_next(coming[i]);
#pragma unroll 1
        for (int r = 0; r < last; ++r) {
            float v[window], done[columns];
            convert_row<T>(v, coming[0]);
#pragma unroll
            for (int i = 0; i + 1 < ahead; ++i)
#pragma unroll
                for (int j = 0; j < window; ++j) coming[i][j] = coming[i + 1][j];
            load_next(coming[ahead - 1]);
            multiply_row<K>(done, sums[K - 1], v, taps + (K - 1) * K);
#pragma unroll
            for (int ky = K - 2; ky >= 0; --ky)
                multiply_row<K>(sums[ky + 1], sums[ky], v, taps + ky * K);
            if (r < K - 1) continue;
            if (!store_row<T>(p, done, stored, out.out, out.add, channel))
                left |= 1ULL << (r - (K - 1));
            out.out += p.end.out_strides.x[1];
            out.add += p.end.add_strides.x[1];
        }
        store_left<T, K, 1, false>(p, left, at, channel, stored);
    }
}

/// Forward with stride S > 1: each output row from its K input rows, which the cache keeps.
template <typename T, int K, int S>
__device__ void data_strided(const depthwise_args &p) {
    __shared__ float shared_taps[32 * K * K];
    constexpr int window = (columns - 1) * S + K;
    for (int block = static_cast<int>(blockIdx.x); block < p.blocks;
         block += static_cast<int>(gridDim.x)) {
        int channel, item, first_channel;
        const bool busy = find_work(p, block, channel, item, first_channel);
        float taps[K * K];
        load_taps<T, K>(
            p, taps, shared_taps, channel, static_cast<int>(threadIdx.x) % 32, first_channel);
        if (!busy) continue;
        const place at = place_of(p, item, columns);
        const int first_column = at.x * S - p.pad_x;
        const unsigned inside = columns_inside(first_column, window, p.in_columns);
        const unsigned stored = columns_inside(at.x, columns, p.out_columns);
        const T *const image = static_cast<const T *>(p.in) + at.n * p.in_n
                               + channel / p.multiplier * p.in_c + first_column * p.in_x;
        out_place out = out_of(p.end, at.n, channel, at.y, at.x);
        unsigned long long left = 0;
        for (int y = at.y; y < at.y + at.rows; ++y) {
            float sums[columns];
#pragma unroll
            for (int j = 0; j < columns; ++j) sums[j] = 0;
#pragma unroll
            for (int ky = 0; ky < K; ++ky) {
                const int row = y * S + ky - p.pad_y;
                const bool there = static_cast<unsigned>(row) < static_cast<unsigned>(p.in_rows);
                float v[window];
                load_row<T>(v, image + row * p.in_y, p.in_x, there ? inside : 0U);
#pragma unroll
                for (int kx = 0; kx < K; ++kx)
#pragma unroll
                    for (int j = 0; j < columns; ++j)
                        sums[j] = fmaf(v[j * S + kx], taps[ky * K + kx], sums[j]);
            }
            if (!store_row<T>(p, sums, stored, out.out, out.add, channel))
                left |= 1ULL << (y - at.y);
            out.out += p.end.out_strides.x[1];
            out.add += p.end.add_strides.x[1];
        }
        store_left<T, K, S, false>(p, left, at, channel, stored);
    }
}

/// Rows of backward data with stride 2 whose position plus pad leaves remainder R.
template <typename T, int K, int R>
__device__ inline void back_row(const depthwise_args &p, float (&sums)[depthwise_back_columns],
    const float (&taps)[K * K], const T *image, int row, unsigned inside) {
    constexpr int half = (K - 1) / 2, window = half + depthwise_back_columns / 2;
#pragma unroll
    for (int ky = R; ky < K; ky += 2) {
        const int y = (row + p.pad_y - ky) / 2;
        const bool there = row + p.pad_y >= ky && y < p.in_rows;
        float v[window];
        load_row<T>(v, image + y * p.in_y, p.in_x, there ? inside : 0U);
#pragma unroll
        for (int i = 0; i < depthwise_back_columns; ++i)
#pragma unroll
            for (int kx = i % 2; kx < K; kx += 2)
                sums[i] = fmaf(v[half + (i - kx) / 2], taps[ky * K + kx], sums[i]);
    }
}

/// Backward data, stride 2: a strip starts where position plus pad is even, so that the taps that
/// meet a column are known when this is compiled.
template <typename T, int K>
__device__ void data_back(const depthwise_args &p) {
    __shared__ float shared_taps[32 * K * K];
    constexpr int half = (K - 1) / 2, window = half + depthwise_back_columns / 2;
    for (int block = static_cast<int>(blockIdx.x); block < p.blocks;
         block += static_cast<int>(gridDim.x)) {
        int channel, item, first_channel;
        const bool busy = find_work(p, block, channel, item, first_channel);
        float taps[K * K];
        load_taps<T, K>(
            p, taps, shared_taps, channel, static_cast<int>(threadIdx.x) % 32, first_channel);
        if (!busy) continue;
        place at = place_of(p, item, depthwise_back_columns);
        at.x -= p.pad_x & 1;
        const int first_column = (at.x + p.pad_x) / 2 - half;
        const unsigned inside = columns_inside(first_column, window, p.in_columns);
        const unsigned stored = columns_inside(at.x, depthwise_back_columns, p.out_columns);
        const T *const image =
            static_cast<const T *>(p.in) + at.n * p.in_n + channel * p.in_c + first_column * p.in_x;
        out_place out = out_of(p.end, at.n, channel, at.y, at.x);
        unsigned long long left = 0;
        for (int y = at.y; y < at.y + at.rows; ++y) {
            float sums[depthwise_back_columns];
#pragma unroll
            for (int j = 0; j < depthwise_back_columns; ++j) sums[j] = 0;
            if (((y + p.pad_y) & 1) != 0)
                back_row<T, K, 1>(p, sums, taps, image, y, inside);
            else
                back_row<T, K, 0>(p, sums, taps, image, y, inside);
            if (!store_row<T>(p, sums, stored, out.out, out.add, channel))
                left |= 1ULL << (y - at.y);
            out.out += p.end.out_strides.x[1];
            out.add += p.end.add_strides.x[1];
        }
        store_left<T, K, 2, true>(p, left, at, channel, stored);
    }
}

/// One item of a weights gradient, stride 1: the last K rows of diff_dst are a ring.
template <typename T, int K>
__device__ inline void weights_ring(
    const depthwise_args &p, float (&sums)[K * K], const place &at, int channel) {
    constexpr int window = columns + K - 1;
    const unsigned inside = columns_inside(at.x - p.pad_x, window, p.in_columns);
    const unsigned there = columns_inside(at.x, columns, p.out_columns);
    const int first_row = at.y - p.pad_y;
    const T *row = static_cast<const T *>(p.in) + at.n * p.in_n + channel / p.multiplier * p.in_c
                   + first_row * p.in_y + (at.x - p.pad_x) * p.in_x;
    const T *dst = static_cast<const T *>(p.weights) + at.n * p.dst_n + channel * p.dst_c
                   + at.y * p.dst_y + at.x * p.dst_x;
    float ring[K][columns];
#pragma unroll
    for (int i = 0; i < K; ++i)
#pragma unroll
        for (int j = 0; j < columns; ++j) ring[i][j] = 0;
    const int last = at.rows + K - 1;
    T coming[window], dst_coming[columns];
    int loaded = 0;
    const auto load_next = [&] {
        load_raw<T>(dst_coming, dst, p.dst_x, loaded < at.rows ? there : 0U);
        const bool row_there =
            loaded < last
            && static_cast<unsigned>(first_row + loaded) < static_cast<unsigned>(p.in_rows);
        load_raw<T>(coming, row, p.in_x, row_there ? inside : 0U);
        dst += p.dst_y;
        row += p.in_y;
        ++loaded;
    };
    load_next();
    for (int base = 0; base < last; base += K) {
#pragma unroll
        for (int u = 0; u < K; ++u) {
            const int r = base + u;
            if (r < last) {
                float v[window];
                convert_row<T>(v, coming);
                convert_row<T>(ring[u], dst_coming);
                load_next();
#pragma unroll
                for (int j = 0; j < columns; ++j)
#pragma unroll
                    for (int ky = 0; ky < K; ++ky)
#pragma unroll
                        for (int kx = 0; kx < K; ++kx)
                            sums[ky * K + kx] =
                                fmaf(v[j + kx], ring[(u - ky + K) % K][j], sums[ky * K + kx]);
            }
        }
    }
}

template <typename T, int K, int S>
__device__ inline void weights_strided(
    const depthwise_args &p, float (&sums)[K * K], const place &at, int channel) {
    constexpr int window = (columns - 1) * S + K;
    const int first_column = at.x * S - p.pad_x;
    const unsigned inside = columns_inside(first_column, window, p.in_columns);
    const unsigned there = columns_inside(at.x, columns, p.out_columns);
    const T *const image = static_cast<const T *>(p.in) + at.n * p.in_n
                           + channel / p.multiplier * p.in_c + first_column * p.in_x;
    const T *dst = static_cast<const T *>(p.weights) + at.n * p.dst_n + channel * p.dst_c
                   + at.y * p.dst_y + at.x * p.dst_x;
    for (int y = at.y; y < at.y + at.rows; ++y) {
        float d[columns];
        load_row<T>(d, dst, p.dst_x, there);
        dst += p.dst_y;
#pragma unroll
        for (int ky = 0; ky < K; ++ky) {
            const int row = y * S + ky - p.pad_y;
            const bool row_there = static_cast<unsigned>(row) < static_cast<unsigned>(p.in_rows);
            float v[window];
            load_row<T>(v, image + row * p.in_y, p.in_x, row_there ? inside : 0U);
#pragma unroll
            for (int j = 0; j < columns; ++j)
#pragma unroll
                for (int kx = 0; kx < K; ++kx)
                    sums[ky * K + kx] = fmaf(v[j * S + kx], d[j], sums[ky * K + kx]);
        }
    }
}

/// The sum of one tap over this thread's items, without the products that padding took part in.
template <typename T, int K, int S>
__device__ __noinline__ float careful_weight(
    const depthwise_args &p, int channel, int i, int first, int last, int step) {
    float v = 0;
    for (int item = first; item < last; item += step) {
        const place at = place_of(p, item, columns);
        for (int y = at.y; y < at.y + at.rows; ++y)
            for (int x = at.x; x < min(at.x + columns, p.out_columns); ++x) {
                const int row = y * S + i / K - p.pad_y, column = x * S + i % K - p.pad_x;
                if (row < 0 || row >= p.in_rows || column < 0 || column >= p.in_columns) continue;
                const T src =
                    static_cast<const T *>(p.in)[at.n * p.in_n + channel / p.multiplier * p.in_c
                                                 + row * p.in_y + column * p.in_x];
                const T dst = static_cast<const T *>(
                    p.weights)[at.n * p.dst_n + channel * p.dst_c + y * p.dst_y + x * p.dst_x];
                v = fmaf(to_f32(src), to_f32(dst), v);
            }
    }
    return v;
}

/// Backward weights: a block sums its part of the items for 32 channels (or one), in a fixed order.
template <typename T, int K, int S>
__device__ void weights_parts(const depthwise_args &p) {
    constexpr int warps = threads / 32;
    __shared__ float shared_sums[warps][K * K][32];
    const int t = static_cast<int>(threadIdx.x), lane = t % 32, warp = t / 32;
    const int lanes = p.lanes_along_channels != 0 ? 32 : 1;
    const int tiles = (p.channels + lanes - 1) / lanes;
    for (int block = static_cast<int>(blockIdx.x); block < p.blocks;
         block += static_cast<int>(gridDim.x)) {
        const int first_channel = block % tiles * lanes, part = block / tiles;
        const int channel = first_channel + t % lanes;
        float sums[K * K];
#pragma unroll
        for (int i = 0; i < K * K; ++i) sums[i] = 0;
        const int last = min(p.items, (part + 1) * p.part_items);
        if (channel < p.channels)
            for (int item = part * p.part_items + t / lanes; item < last; item += threads / lanes) {
                const place at = place_of(p, item, columns);
                if constexpr (S == 1)
                    weights_ring<T, K>(p, sums, at, channel);
                else
                    weights_strided<T, K, S>(p, sums, at, channel);
            }
        if (channel < p.channels)
            sum_again(reinterpret_cast<float(&)[K * K][1]>(sums), 0, [&](int i) {
                return careful_weight<T, K, S>(
                    p, channel, i, part * p.part_items + t / lanes, last, threads / lanes);
            });
        if (lanes == 1) {
#pragma unroll
            for (int i = 0; i < K * K; ++i)
#pragma unroll
                for (int far = 16; far > 0; far /= 2)
                    sums[i] += __shfl_xor_sync(0xffffffffU, sums[i], far);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < K * K; ++i) shared_sums[warp][i][lane] = sums[i];
        __syncthreads();
        for (int e = t; e < lanes * K * K; e += threads) {
            const int c = e / (K * K), i = e % (K * K);
            if (first_channel + c >= p.channels) break;
            float sum = shared_sums[0][i][c];
#pragma unroll
            for (int w = 1; w < warps; ++w) sum += shared_sums[w][i][c];
            p.partial[(static_cast<wide>(part) * p.channels + first_channel + c) * (K * K) + i] =
                sum;
        }
        __syncthreads();
    }
}

}  // namespace convgrad::cuda::depthwise

#define CONVGRAD_DEPTHWISE(name, blocks, body)                                                     \
    extern "C" __global__ void __launch_bounds__(convgrad::cuda::depthwise_threads, blocks)        \
        name(const __grid_constant__ convgrad::cuda::depthwise_args p) {                           \
        using namespace convgrad::cuda;                                                            \
        using namespace convgrad::cuda::depthwise;                                                 \
        body(p);                                                                                   \
    }
#define CONVGRAD_DEPTHWISE_SET(K, type, T, data_blocks, weights_blocks)                            \
    CONVGRAD_DEPTHWISE(depthwise_data_k##K##_##type, data_blocks, (data_ring<T, K>))               \
    CONVGRAD_DEPTHWISE(depthwise_data_k##K##s2_##type, 4, (data_strided<T, K, 2>))                 \
    CONVGRAD_DEPTHWISE(depthwise_back_k##K##s2_##type, 4, (data_back<T, K>))                       \
    CONVGRAD_DEPTHWISE(depthwise_weights_k##K##_##type, weights_blocks, (weights_parts<T, K, 1>))  \
    CONVGRAD_DEPTHWISE(depthwise_weights_k##K##s2_##type, weights_blocks, (weights_parts<T, K, 2>))
