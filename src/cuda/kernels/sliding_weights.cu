// Weights gradients of depthwise layers with any kernel: see sliding.cuh. A warp has S taps along
// the walk, and walks the positions with a window of src and some of diff_dst in registers. Warps
// of a block have other taps of the same channels, and find what they read in the first-level
// cache.
#include "sliding.cuh"
#include "weights_sum.cuh"

namespace convgrad::cuda::sliding {

/// The taps of a warp, and what its lanes walk through.
struct work {
    int channel, tap[3], part;  // tap[2]: the first
    int first, last, step;      // items
    int start, start_step;      // positions along the walk
};

__device__ inline work find_work(const sliding_weights_args &a, int block, int taps, int channels) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    work w;
    int row = block % a.row_blocks * (sliding_threads / 32) + warp;
    if (row >= a.rows) row = -1;
    block /= a.row_blocks;
    const int at = block % a.channel_blocks;
    w.channel = row < 0 ? -1 : a.along_channels != 0 ? (at * 32 + lane) * channels : at;
    w.part = block / a.channel_blocks;
    w.tap[2] = row % a.chunks * taps;
    row /= a.chunks;
    w.tap[1] = row % static_cast<int>(a.weights.x[1].kernel);
    w.tap[0] = row / static_cast<int>(a.weights.x[1].kernel);
    const bool by_item = a.along_channels == 0 && a.along_walk == 0;
    w.first = w.part * a.part_items + (by_item ? lane : 0);
    w.last = min((w.part + 1) * a.part_items, a.items);
    w.step = by_item ? 32 : 1;
    w.start = a.along_walk != 0 ? lane : 0;
    w.start_step = a.along_walk != 0 ? 32 : 1;
    return w;
}

/// Where an item's lines of src and diff_dst are; false if its taps lie in padding.
template <typename T>
__device__ inline bool find_lines(
    const weights_args &p, const work &w, int item, line<T> &src, line<T> &dst) {
    int j[2];
    j[1] = item % static_cast<int>(p.x[1].out);
    item /= static_cast<int>(p.x[1].out);
    j[0] = item % static_cast<int>(p.x[0].out);
    const int n = item / static_cast<int>(p.x[0].out);
    wide from = n * p.src_strides.n + w.channel / static_cast<int>(p.oc) * p.src_strides.c,
         to = n * p.dst_strides.n + w.channel * p.dst_strides.c;
    bool inside = true;
#pragma unroll
    for (int d = 0; d < 2; ++d) {
        const data_axis_args &axis = p.x[d];
        const int x = j[d] * static_cast<int>(axis.stride) - static_cast<int>(axis.pad)
                      + w.tap[d] * static_cast<int>(axis.dilation);
        inside = inside && x >= 0 && x < static_cast<int>(axis.in);
        from += x * p.src_strides.x[d];
        to += j[d] * p.dst_strides.x[d];
    }
    src = {static_cast<const T *>(p.src) + from, static_cast<int>(p.src_strides.x[2]),
        static_cast<int>(p.x[2].in)};
    dst = {static_cast<const T *>(p.dst) + to, static_cast<int>(p.dst_strides.x[2]),
        static_cast<int>(p.x[2].out)};
    return inside;
}

/// Adds the products of one line: positions start + apart·i, whose first tap reads x + R·unit·i (R
/// 0: x + jump·i).
template <typename T, int S, int R, int V>
__device__ inline void slide(float (&sums)[S][V], const line<T> &src, const line<T> &dst, int x,
    int start, int apart, int unit, int jump) {
    const int count = (dst.length - start + apart - 1) / apart;
    if constexpr (R == 0) {
#pragma unroll 2
        for (int i = 0; i < count; ++i) {
            float d[V];
            dst.read(d, start + apart * i);
#pragma unroll
            for (int s = 0; s < S; ++s) {
                float v[V];
                src.read(v, x + jump * i + unit * s);
#pragma unroll
                for (int c = 0; c < V; ++c) sums[s][c] = fmaf(v[c], d[c], sums[s][c]);
            }
        }
    } else {
        constexpr int P = sliding_positions, kept = S - R, whole = R * (P - 1) + S;
        static_assert(kept >= 0);
        // Positions whose taps all lie in padding are left out, at either end.
        const int before = -x - unit * (S - 1);
        int i = before > 0 ? ceil_div(before, unit * R) : 0;
        const int end = x >= src.length ? 0 : min(count, (src.length - 1 - x) / (unit * R) + 1);
        if (i >= end) return;
        float v[whole][V];
#pragma unroll
        for (int e = 0; e < kept; ++e) src.read(v[e], x + unit * (R * i + e));
        for (; i < end; i += P) {
            float d[P][V];
#pragma unroll
            for (int e = kept; e < whole; ++e) src.read(v[e], x + unit * (R * i + e));
#pragma unroll
            for (int k = 0; k < P; ++k)
                load<T, V>(d[k], dst.data + static_cast<wide>(start + apart * (i + k)) * dst.stride,
                    i + k < end);
#pragma unroll
            for (int k = 0; k < P; ++k)
#pragma unroll
                for (int s = 0; s < S; ++s)
#pragma unroll
                    for (int c = 0; c < V; ++c)
                        sums[s][c] = fmaf(v[R * k + s][c], d[k][c], sums[s][c]);
#pragma unroll
            for (int e = 0; e < kept; ++e)
#pragma unroll
                for (int c = 0; c < V; ++c) v[e][c] = v[e + R * P][c];
        }
    }
}

/// One tap of a lane without the products that padding took part in.
template <typename T>
__device__ __noinline__ float careful(
    const sliding_weights_args &a, work w, int more_taps, int more_channels) {
    const weights_args &p = a.weights;
    w.channel += more_channels;
    const int tap = w.tap[2] + more_taps;
    float sum = 0;
    for (int item = w.first; item < w.last; item += w.step) {
        line<T> src, dst;
        if (!find_lines<T>(p, w, item, src, dst)) continue;
        for (int start = w.start; start < a.walk.apart; start += w.start_step)
            for (int j = start; j < dst.length; j += a.walk.apart) {
                const int x = j * static_cast<int>(p.x[2].stride) - static_cast<int>(p.x[2].pad)
                              + tap * static_cast<int>(p.x[2].dilation);
                if (x < 0 || x >= src.length) continue;
                float v[1], d[1];
                src.read(v, x);
                dst.read(d, j);
                sum = fmaf(v[0], d[0], sum);
            }
    }
    return sum;
}

template <typename T, int S, int R, int V>
__device__ void weights(const sliding_weights_args &a) {
    const weights_args &p = a.weights;
    const int channels = static_cast<int>(p.groups * p.oc), taps = static_cast<int>(p.x[2].kernel),
              stride = static_cast<int>(p.x[2].stride),
              dilation = static_cast<int>(p.x[2].dilation);
    for (int block = static_cast<int>(blockIdx.x); block < a.blocks;
         block += static_cast<int>(gridDim.x)) {
        const work w = find_work(a, block, S, V);
        // A warp of planes has one channel: none of its lanes is left out alone.
        if (w.channel < 0 || w.channel >= channels) continue;
        float sums[S][V] = {};
        for (int item = w.first; item < w.last; item += w.step) {
            line<T> src, dst;
            if (!find_lines<T>(p, w, item, src, dst)) continue;
            for (int start = w.start; start < a.walk.apart; start += w.start_step)
                slide<T, S, R, V>(sums, src, dst,
                    start * stride - static_cast<int>(p.x[2].pad) + w.tap[2] * dilation, start,
                    a.walk.apart, a.walk.unit, stride * a.walk.apart);
        }
#pragma unroll
        for (int s = 0; s < S; ++s)
#pragma unroll
            for (int c = 0; c < V; ++c) {
                if (w.tap[2] + s >= taps) continue;
                float sum = sums[s][c];
                if (!is_finite(sum)) sum = careful<T>(a, w, s, c);
                if (a.along_channels == 0) {
                    for (int lanes = 16; lanes > 0; lanes /= 2)
                        sum += __shfl_xor_sync(~0U, sum, lanes);
                    if (threadIdx.x % 32 != 0) continue;
                }
                p.partial[(static_cast<wide>(w.part) * channels + w.channel + c) * p.taps
                          + w.tap[0] * a.tap_at[0] + w.tap[1] * a.tap_at[1]
                          + (w.tap[2] + s) * a.tap_at[2]] = sum;
            }
    }
}

}  // namespace convgrad::cuda::sliding

#define CONVGRAD_SLIDING(name, T, S, R, V)                                                         \
    extern "C" __global__ void __launch_bounds__(convgrad::cuda::sliding_threads)                  \
        name(const __grid_constant__ convgrad::cuda::sliding_weights_args a) {                     \
        convgrad::cuda::sliding::weights<T, S, R, V>(a);                                           \
    }
#define CONVGRAD_SLIDING_SET(type, T)                                                              \
    CONVGRAD_SLIDING(sliding_weights_s1_r0_##type, T, 1, 0, 1)                                     \
    CONVGRAD_SLIDING(sliding_weights_s4_r0_##type, T, 4, 0, 1)                                     \
    CONVGRAD_SLIDING(sliding_weights_s8_r0_##type, T, 8, 0, 1)                                     \
    CONVGRAD_SLIDING(sliding_weights_s4_r1_##type, T, 4, 1, 1)                                     \
    CONVGRAD_SLIDING(sliding_weights_s8_r1_##type, T, 8, 1, 1)                                     \
    CONVGRAD_SLIDING(sliding_weights_s4_r2_##type, T, 4, 2, 1)                                     \
    CONVGRAD_SLIDING(sliding_weights_s8_r2_##type, T, 8, 2, 1)                                     \
    CONVGRAD_SLIDING(sliding_weights_s4_r1_v2_##type, T, 4, 1, 2)                                  \
    CONVGRAD_SLIDING(sliding_weights_s8_r1_v2_##type, T, 8, 1, 2)
CONVGRAD_SLIDING_SET(f32, float)
CONVGRAD_SLIDING_SET(bf16, convgrad::cuda::bf16)
CONVGRAD_SLIDING_SET(f16, convgrad::cuda::f16)
