// Depthwise kernels for planes (columns next to each other in memory), stride 1, "same" padding
// along rows: each lane loads its own columns of a row, once, and takes its neighbours' from their
// registers.
//
// A row of W columns has W / X lanes of X columns; as many rows of different images as fit share a
// warp. Longer rows are cut into strips, whose outer lanes only lend their columns.
#pragma once

#include "depthwise.cuh"

namespace convgrad::cuda::planes {

using depthwise::place;
constexpr int threads = depthwise_threads;

template <typename T, int X>
struct alignas(sizeof(T) * X) pack {
    T v[X];
};

/// Where a lane works.
struct lane_place {
    int group;    // of X columns, from 0
    int slot;     // which of the rows that share the warp
    bool inside;  // the group is one of the row's
    bool stores;  // and it is not only lent
};

template <int X, int P>
__device__ inline lane_place find_lane(const depthwise_args &p, int strip) {
    constexpr int halo = (P + X - 1) / X;
    const int lane = static_cast<int>(threadIdx.x) % 32, groups = p.out_columns / X;
    lane_place at;
    if (groups <= 32) {
        at.slot = lane / groups;
        at.group = lane % groups;
        at.inside = at.stores = at.slot < 32 / groups;
        return at;
    }
    at.slot = 0;
    at.group = strip * (32 - 2 * halo) - halo + lane;
    at.inside = at.group >= 0 && at.group < groups;
    at.stores = at.inside && lane >= halo && lane < 32 - halo;
    return at;
}

/// A row's window: own columns, and P neighbours on both sides, zero beyond the row's ends.
template <int X, int P>
__device__ inline void make_window(
    float (&w)[X + 2 * P], const float (&own)[X], int column, int columns) {
#pragma unroll
    for (int j = 0; j < X; ++j) w[P + j] = own[j];
#pragma unroll
    for (int d = 1; d <= P; ++d) {
        const int far = (d + X - 1) / X;
        const float left = __shfl_up_sync(0xffffffffU, own[far * X - d], far);
        const float right = __shfl_down_sync(0xffffffffU, own[(d - 1) % X], far);
        w[P - d] = column - d >= 0 ? left : 0.0f;
        w[P + X - 1 + d] = column + X - 1 + d < columns ? right : 0.0f;
    }
}

template <typename T, int X>
__device__ inline pack<T, X> load_pack(const T *from, bool there, int aligned) {
    pack<T, X> v;
    if (there && (X == 1 || aligned != 0)) {
        v = *reinterpret_cast<const pack<T, X> *>(from);
    } else if (there) {
#pragma unroll
        for (int j = 0; j < X; ++j) v.v[j] = from[j];
    } else {
#pragma unroll
        for (int j = 0; j < X; ++j) v.v[j] = T(0.0f);
    }
    return v;
}

/// An image and a segment of its rows.
__device__ inline place place_of(const depthwise_args &p, int item) {
    place at;
    at.n = item / p.segments;
    at.x = 0;
    at.y = item % p.segments * p.segment_rows;
    at.rows = min(p.segment_rows, p.out_rows - at.y);
    return at;
}

/// Forward, and backward data with flipped taps. A warp keeps its channel and goes through items.
template <typename T, int K, int X>
__device__ void data(const depthwise_args &p) {
    constexpr int P = K / 2, ahead = X == 1 ? 4 : 3;
    const int slots = p.out_columns / X <= 32 ? 32 / (p.out_columns / X) : 1;
    const int works = p.channels * p.parts * p.strips;
    for (int work =
             static_cast<int>(blockIdx.x) * (threads / 32) + static_cast<int>(threadIdx.x) / 32;
         work < works; work += static_cast<int>(gridDim.x) * (threads / 32)) {
        const int strip = work % p.strips, part = work / p.strips % p.parts,
                  channel = work / p.strips / p.parts;
        const lane_place lane = find_lane<X, P>(p, strip);
        const int column = lane.group * X;
        float taps[K * K];
        const T *const w = static_cast<const T *>(p.weights) + channel * p.w_channel;
#pragma unroll
        for (int i = 0; i < K * K; ++i) {
            const int tap = p.flip != 0 ? K * K - 1 - i : i;
            taps[i] = to_f32(w[tap / K * p.w_y + tap % K * p.w_x]);
        }
        const int end = min(p.items, (part + 1) * p.part_items);
        for (int first = part * p.part_items; first < end; first += slots) {
            const int item = first + lane.slot;
            const bool busy = lane.inside && item < end;
            const place at = place_of(p, busy ? item : first);
            const int first_row = at.y - p.pad_y, last = p.segment_rows + K - 1;
            const T *row = static_cast<const T *>(p.in) + at.n * p.in_n
                           + channel / p.multiplier * p.in_c + first_row * p.in_y + column;
            wide out = at.n * p.end.out_strides.n + channel * p.end.out_strides.c
                       + at.y * p.end.out_strides.x[1] + column;
            wide add = at.n * p.end.add_strides.n + channel * p.end.add_strides.c
                       + at.y * p.end.add_strides.x[1] + column * p.end.add_strides.x[2];
            unsigned long long left = 0;
            pack<T, X> coming[ahead];
            int loaded = 0;
            const auto load_next = [&](pack<T, X> &to) {
                const bool there =
                    busy && loaded < at.rows + K - 1
                    && static_cast<unsigned>(first_row + loaded) < static_cast<unsigned>(p.in_rows);
                to = load_pack<T, X>(row, there, p.aligned);
                row += p.in_y;
                ++loaded;
            };
#pragma unroll
            for (int i = 0; i < ahead; ++i) load_next(coming[i]);
            float sums[K][X];
#pragma unroll
            for (int i = 0; i < K; ++i)
#pragma unroll
                for (int j = 0; j < X; ++j) sums[i][j] = 0;
            for (int base = 0; base < last; base += K) {
#pragma unroll
                for (int u = 0; u < K; ++u) {
                    const int r = base + u;
                    if (r < last) {  // the same for all lanes: they need each other
                        float own[X], v[X + 2 * P];
#pragma unroll
                        for (int j = 0; j < X; ++j) own[j] = to_f32(coming[0].v[j]);
#pragma unroll
                        for (int i = 0; i + 1 < ahead; ++i) coming[i] = coming[i + 1];
                        load_next(coming[ahead - 1]);
                        make_window<X, P>(v, own, column, p.in_columns);
#pragma unroll
                        for (int ky = 0; ky < K; ++ky)
#pragma unroll
                            for (int kx = 0; kx < K; ++kx)
#pragma unroll
                                for (int j = 0; j < X; ++j)
                                    sums[(u - ky + K) % K][j] = fmaf(
                                        v[j + kx], taps[ky * K + kx], sums[(u - ky + K) % K][j]);
                        constexpr int ring = K;
                        const int slot = (u + 1) % ring, y = r - (K - 1);
                        if (y >= 0 && y < at.rows && busy && lane.stores) {
                            float all = 0;
#pragma unroll
                            for (int j = 0; j < X; ++j) all = fmaf(sums[slot][j], 0.0f, all);
                            if (all != 0.0f) {
                                left |= 1ULL << y;
                            } else if (p.plain != 0 && p.aligned != 0) {
                                pack<T, X> done;
#pragma unroll
                                for (int j = 0; j < X; ++j) round_to(done.v[j], sums[slot][j]);
                                *reinterpret_cast<pack<T, X> *>(static_cast<T *>(p.end.out) + out) =
                                    done;
                            } else {
#pragma unroll
                                for (int j = 0; j < X; ++j)
                                    store_result<T>(p.end, sums[slot][j], channel, out + j,
                                        add + j * p.end.add_strides.x[2]);
                            }
                        }
                        if (y >= 0) {
                            out += p.end.out_strides.x[1];
                            add += p.end.add_strides.x[1];
                        }
#pragma unroll
                        for (int j = 0; j < X; ++j) sums[slot][j] = 0;
                    }
                }
            }
            if (left != 0) {
                const place strip_at = {at.n, column, at.y, at.rows};
                depthwise::store_left<T, K, 1, false>(p, left, strip_at, channel, (1U << X) - 1U);
            }
            __syncwarp();
        }
    }
}

/// One tap of a weights gradient over a lane's items, without the products that padding took part
/// in.
template <typename T, int K, int X>
__device__ __noinline__ float careful_weight(
    const depthwise_args &p, int channel, int i, int column, int first, int end, int step) {
    float v = 0;
    for (int item = first; item < end; item += step) {
        const place at = place_of(p, item);
        for (int y = at.y; y < at.y + at.rows; ++y)
            for (int x = column; x < column + X; ++x) {
                const int row = y + i / K - p.pad_y, from = x + i % K - p.pad_x;
                if (row < 0 || row >= p.in_rows || from < 0 || from >= p.in_columns) continue;
                const T src = static_cast<const T *>(
                    p.in)[at.n * p.in_n + channel / p.multiplier * p.in_c + row * p.in_y + from];
                const T dst = static_cast<const T *>(
                    p.weights)[at.n * p.dst_n + channel * p.dst_c + y * p.dst_y + x];
                v = fmaf(to_f32(src), to_f32(dst), v);
            }
    }
    return v;
}

/// Backward weights: the warps of a block share a channel and a part of the items.
template <typename T, int K, int X>
__device__ void weights(const depthwise_args &p) {
    constexpr int P = K / 2, warps = threads / 32;
    __shared__ float shared_sums[warps][K * K];
    const int t = static_cast<int>(threadIdx.x), warp = t / 32;
    const int slots = p.out_columns / X <= 32 ? 32 / (p.out_columns / X) : 1;
    for (int block = static_cast<int>(blockIdx.x); block < p.blocks;
         block += static_cast<int>(gridDim.x)) {
        const int strip = block % p.strips, channel = block / p.strips % p.channels,
                  part = block / p.strips / p.channels;
        const lane_place lane = find_lane<X, P>(p, strip);
        const int column = lane.group * X, end = min(p.items, (part + 1) * p.part_items);
        float sums[K * K];
#pragma unroll
        for (int i = 0; i < K * K; ++i) sums[i] = 0;
        const int begin = part * p.part_items + warp * slots, step = warps * slots;
        for (int first = begin; first < end; first += step) {
            const int item = first + lane.slot;
            const bool busy = lane.inside && item < end;
            const place at = place_of(p, busy ? item : first);
            const int first_row = at.y - p.pad_y, last = p.segment_rows + K - 1;
            const T *row = static_cast<const T *>(p.in) + at.n * p.in_n
                           + channel / p.multiplier * p.in_c + first_row * p.in_y + column;
            const T *dst = static_cast<const T *>(p.weights) + at.n * p.dst_n + channel * p.dst_c
                           + at.y * p.dst_y + column;
            constexpr int ahead = 2;
            pack<T, X> coming[ahead], dst_coming[ahead];
            int loaded = 0;
            const auto load_next = [&](pack<T, X> &to, pack<T, X> &dst_to) {
                const bool there =
                    busy && loaded < at.rows + K - 1
                    && static_cast<unsigned>(first_row + loaded) < static_cast<unsigned>(p.in_rows);
                to = load_pack<T, X>(row, there, p.aligned);
                dst_to = load_pack<T, X>(dst, busy && lane.stores && loaded < at.rows, p.aligned);
                row += p.in_y;
                dst += p.dst_y;
                ++loaded;
            };
#pragma unroll
            for (int i = 0; i < ahead; ++i) load_next(coming[i], dst_coming[i]);
            float ring[K][X];
#pragma unroll
            for (int i = 0; i < K; ++i)
#pragma unroll
                for (int j = 0; j < X; ++j) ring[i][j] = 0;
            for (int base = 0; base < last; base += K) {
#pragma unroll
                for (int u = 0; u < K; ++u) {
                    if (base + u < last) {
                        float own[X], v[X + 2 * P];
#pragma unroll
                        for (int j = 0; j < X; ++j) {
                            own[j] = to_f32(coming[0].v[j]);
                            ring[u][j] = to_f32(dst_coming[0].v[j]);
                        }
#pragma unroll
                        for (int i = 0; i + 1 < ahead; ++i) {
                            coming[i] = coming[i + 1];
                            dst_coming[i] = dst_coming[i + 1];
                        }
                        load_next(coming[ahead - 1], dst_coming[ahead - 1]);
                        make_window<X, P>(v, own, column, p.in_columns);
#pragma unroll
                        for (int j = 0; j < X; ++j)
#pragma unroll
                            for (int ky = 0; ky < K; ++ky)
#pragma unroll
                                for (int kx = 0; kx < K; ++kx)
                                    sums[ky * K + kx] = fmaf(
                                        v[j + kx], ring[(u - ky + K) % K][j], sums[ky * K + kx]);
                    }
                }
            }
        }
        if (!lane.stores) {
#pragma unroll
            for (int i = 0; i < K * K; ++i) sums[i] = 0;
        } else {
#pragma unroll
            for (int i = 0; i < K * K; ++i)
                if (!is_finite(sums[i]))
                    sums[i] = careful_weight<T, K, X>(
                        p, channel, i, column, begin + lane.slot, end, step);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < K * K; ++i) {
#pragma unroll
            for (int far = 16; far > 0; far /= 2)
                sums[i] += __shfl_xor_sync(0xffffffffU, sums[i], far);
            if (t % 32 == 0) shared_sums[warp][i] = sums[i];
        }
        __syncthreads();
        if (t < K * K) {
            float sum = shared_sums[0][t];
#pragma unroll
            for (int i = 1; i < warps; ++i) sum += shared_sums[i][t];
            // Strips are parts of their own.
            p.partial[((static_cast<wide>(part) * p.strips + strip) * p.channels + channel)
                          * (K * K)
                      + t] = sum;
        }
        __syncthreads();
    }
}

}  // namespace convgrad::cuda::planes

#define CONVGRAD_PLANES(name, blocks, body)                                                        \
    extern "C" __global__ void __launch_bounds__(convgrad::cuda::depthwise_threads, blocks)        \
        name(const __grid_constant__ convgrad::cuda::depthwise_args p) {                           \
        using namespace convgrad::cuda;                                                            \
        body(p);                                                                                   \
    }
#define CONVGRAD_PLANES_SET(K, X, type, T, data_blocks, weights_blocks)                            \
    CONVGRAD_PLANES(planes_data_k##K##x##X##_##type, data_blocks, (planes::data<T, K, X>))         \
    CONVGRAD_PLANES(planes_weights_k##K##x##X##_##type, weights_blocks, (planes::weights<T, K, X>))
#define CONVGRAD_PLANES_SETS(K, data_blocks, weights_blocks)                                       \
    CONVGRAD_PLANES_SET(K, 1, f32, float, data_blocks, weights_blocks)                             \
    CONVGRAD_PLANES_SET(K, 1, bf16, bf16, data_blocks, weights_blocks)                             \
    CONVGRAD_PLANES_SET(K, 1, f16, f16, data_blocks, weights_blocks)                               \
    CONVGRAD_PLANES_SET(K, 2, f32, float, data_blocks, weights_blocks)                             \
    CONVGRAD_PLANES_SET(K, 2, bf16, bf16, data_blocks, weights_blocks)                             \
    CONVGRAD_PLANES_SET(K, 2, f16, f16, data_blocks, weights_blocks)                               \
    CONVGRAD_PLANES_SET(K, 4, f32, float, data_blocks, weights_blocks)                             \
    CONVGRAD_PLANES_SET(K, 4, bf16, bf16, data_blocks, weights_blocks)                             \
    CONVGRAD_PLANES_SET(K, 4, f16, f16, data_blocks, weights_blocks)
