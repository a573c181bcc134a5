// What a thread of a staged kernel computes, and how it gets to memory.
#pragma once

#include "depthwise.cuh"

namespace convgrad::cuda::staged {

template <int K, staged_mode M, bool Planes>
struct patch {
    static constexpr staged_shape s = staged_shape_of(K, M, Planes);
    static constexpr bool back = M == staged_mode::back;
    static constexpr int stride = M == staged_mode::strided ? 2 : 1;
    static constexpr int parity = K / 2 % 2;
    /// The tap through which input row (or column) `in` of the window meets output `out`.
    static __device__ constexpr int tap(int in, int out) {
        return back ? out + parity - 2 * (in + parity - (K - 1) / 2) : in - out * stride;
    }
    static __device__ constexpr bool meet(int in, int out) {
        return tap(in, out) >= 0 && tap(in, out) < K;
    }
    /// The first row of the input that an output row's window has, with `shift` for pads.
    static __device__ int first_row(int y, int shift) {
        return (back ? y / 2 : y * stride) + shift;
    }
};

/// Where a patch goes.
struct patch_place {
    int n, channel, y, x, rows;
    unsigned mask;  // of columns
};

/// Stores a patch of one channel with all that may happen to sums, each value where it belongs.
template <typename T, int K, staged_mode M, bool Planes>
__device__ __noinline__ void store_slowly(
    const staged_args &a, const float *sums, const patch_place &to) {
    using p = patch<K, M, Planes>;
    const depthwise_args &d = a.base;
    const depthwise::out_place out = depthwise::out_of(d.end, to.n, to.channel, to.y, to.x);
    for (int i = 0; i < to.rows; ++i)
        for (int j = 0; j < p::s.columns; ++j) {
            if ((to.mask >> j & 1U) == 0) continue;
            float v = sums[i * p::s.columns + j];
            if (!is_finite(v))
                v = depthwise::careful_sum < T, K, p::back ? 2 : p::stride,
                p::back > (d, to.n, to.channel, to.y + i, to.x + j);
            store_result<T>(d.end, v, to.channel,
                out.out + i * d.end.out_strides.x[1] + j * d.end.out_strides.x[2],
                out.add + i * d.end.add_strides.x[1] + j * d.end.add_strides.x[2]);
        }
}

/// Whether all sums are finite: a chain for each row, so that they overlap.
template <int Rows, int Columns, int C>
__device__ inline bool is_finite_patch(const float (&sums)[Rows][Columns][C]) {
    float all = 0, parts[Rows] = {};
#pragma unroll
    for (int j = 0; j < Columns; ++j)
#pragma unroll
        for (int e = 0; e < C; ++e)
#pragma unroll
            for (int i = 0; i < Rows; ++i) parts[i] = fmaf(sums[i][j][e], 0.0f, parts[i]);
#pragma unroll
    for (int i = 0; i < Rows; ++i) all += parts[i];
    return all == 0.0f;
}

/// Puts a patch where its plane is put together.
template <typename T, int Rows, int Columns>
__device__ inline void box_patch(const staged_args &a, T *box,
    const float (&sums)[Rows][Columns][1], int lane, const patch_place &to) {
    T *row = box + (lane * a.base.out_rows + to.y) * a.base.out_columns + to.x;
#pragma unroll
    for (int i = 0; i < Rows; ++i) {
        if (i < to.rows)
#pragma unroll
            for (int j = 0; j < Columns; ++j)
                if (to.mask >> j & 1U) round_to(row[j], sums[i][j][0]);
        row += a.base.out_columns;
    }
}

/// Stores all planes of a block, which lie behind each other in memory.
template <typename T>
__device__ inline void store_box(const staged_args &a, const T *box, int n, int channel) {
    T *const to = static_cast<T *>(a.base.end.out) + n * a.base.end.out_strides.n
                  + channel * a.base.end.out_strides.c;
    const int count =
        min(a.lanes, a.base.channels - channel) * a.base.out_rows * a.base.out_columns;
    constexpr int pack = 16 / sizeof(T);
    const int t = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
    const int packs = reinterpret_cast<unsigned long long>(to) % 16 == 0 ? count / pack : 0;
    for (int i = t; i < packs; i += threads)
        reinterpret_cast<uint4 *>(to)[i] = reinterpret_cast<const uint4 *>(box)[i];
    for (int i = packs * pack + t; i < count; i += threads) to[i] = box[i];
}

/// Stores a patch: at once where all of it is finite and nothing else is to be done.
template <typename T, int K, staged_mode M, bool Planes, int C>
__device__ inline void store_patch(const staged_args &a,
    const float (&sums)[patch<K, M, Planes>::s.rows][patch<K, M, Planes>::s.columns][C],
    const patch_place &to) {
    constexpr staged_shape s = patch<K, M, Planes>::s;
    if (!is_finite_patch(sums) || a.store_unit == 0 || (C == 2 && a.store_unit != 2)) {
#pragma unroll
        for (int e = 0; e < C; ++e) {
            float one[s.rows * s.columns];
#pragma unroll
            for (int i = 0; i < s.rows * s.columns; ++i)
                one[i] = sums[i / s.columns][i % s.columns][e];
            patch_place at = to;
            at.channel += e;
            if (at.channel < a.base.channels) store_slowly<T, K, M, Planes>(a, one, at);
        }
        return;
    }
    T *row = static_cast<T *>(a.base.end.out)
             + depthwise::out_of(a.base.end, to.n, to.channel, to.y, to.x).out;
    const wide down = a.base.end.out_strides.x[1], right = a.base.end.out_strides.x[2];
    const bool packs = Planes && a.store_unit == 4 && to.mask == (1U << s.columns) - 1U,
               pairs = Planes && a.store_unit == 2;
#pragma unroll
    for (int i = 0; i < s.rows; ++i) {
        if (i < to.rows) {
            if (packs) {
#pragma unroll
                for (int j = 0; j < s.columns; j += 4) {
                    depthwise::pack<T, 4> done;
#pragma unroll
                    for (int k = 0; k < 4; ++k)
                        round_to(done.v[k], sums[i][(j + k) % s.columns][0]);
                    *reinterpret_cast<depthwise::pack<T, 4> *>(row + j) = done;
                }
            } else if (pairs) {
#pragma unroll
                for (int j = 0; j < s.columns; j += 2) {
                    depthwise::pack<T, 2> done;
                    round_to(done.v[0], sums[i][j][0]);
                    round_to(done.v[1], sums[i][(j + 1) % s.columns][0]);
                    if (to.mask >> j & 1U)
                        *reinterpret_cast<depthwise::pack<T, 2> *>(row + j) = done;
                }
            } else {
                T *at = row;
#pragma unroll
                for (int j = 0; j < s.columns; ++j) {
                    depthwise::pack<T, C> done;
#pragma unroll
                    for (int e = 0; e < C; ++e) round_to(done.v[e], sums[i][j][e]);
                    if (to.mask >> j & 1U) *reinterpret_cast<depthwise::pack<T, C> *>(at) = done;
                    at += right;
                }
            }
        }
        row += down;
    }
}

}  // namespace convgrad::cuda::staged
