// Forward and backward data of depthwise layers with any kernel: see sliding.cuh.
#include "sliding.cuh"

namespace convgrad::cuda::sliding {

/// One axis of a thread's positions, taps in the order of the input.
struct taps_walk {
    int taps, in, step, first_tap, tap_step;
    int x;  // input of the first tap
};
__device__ inline taps_walk order(const axis_phase<int> &f, int j) {
    const int x = f.in_first + f.in_step * j;
    if (f.shift >= 0) return {f.taps, f.in, f.shift, f.tap_first, f.tap_step, x};
    return {f.taps, f.in, -f.shift, f.tap_first + f.tap_step * (f.taps - 1), -f.tap_step,
        x + f.shift * (f.taps - 1)};
}

/// Where a thread works.
struct spot {
    int n, channel, j[3], phase[3];
};
template <int I, int V>
__device__ inline spot find_spot(const sliding_data_args &a, wide item) {
    const data_args &p = a.data;
    spot s;
    unsigned rest = static_cast<unsigned>(item);
    const auto take = [&](int length) {
        const unsigned by = static_cast<unsigned>(length), quotient = rest / by;
        const int found = static_cast<int>(rest - quotient * by);
        rest = quotient;
        return found;
    };
    if (a.along_channels != 0) s.channel = take(a.channels) * V;
    if (a.along_walk == 0) s.j[1] = take(a.counts[1]);
    const int strip = take(a.counts[2]);
    if (a.along_walk != 0) s.j[1] = take(a.counts[1]);
    s.j[0] = take(a.counts[0]);
    if (a.along_channels == 0) s.channel = take(a.channels);
    s.n = take(static_cast<int>(p.mb));
    for (int d = 2; d >= 0; --d) s.phase[d] = take(static_cast<int>(p.phases[d]));
    const int apart = a.walk.apart;
    s.j[2] = strip / apart * (apart * I) + strip % apart;
    return s;
}

/// Adds all taps along the walk's axis. R: steps of the window from position to position; 0: the
/// window has no input twice.
template <typename T, int I, int R, int V>
__device__ inline void slide(float (&sums)[I][V], const line<T> &in, const taps_walk &w, int apart,
    int unit, const float *taps, wide tap_stride) {
    if constexpr (R == 0) {
        for (int t = 0; t < w.taps; ++t) {
            float tap[V];
            load<float, V>(tap, taps + t * tap_stride, true);
#pragma unroll
            for (int i = 0; i < I; ++i) {
                float v[V];
                in.read(v, w.x + w.step * t + apart * i);
#pragma unroll
                for (int c = 0; c < V; ++c) sums[i][c] = fmaf(v[c], tap[c], sums[i][c]);
            }
        }
    } else {
        constexpr int S = sliding_step, kept = R * (I - 1);
        // Taps that meet nothing but padding are left out, at either end.
        const int before = -w.x - unit * kept;
        int t = before > 0 ? ceil_div(before, unit) : 0;
        const int end = w.x >= w.in ? 0 : min(w.taps, (w.in - 1 - w.x) / unit + 1);
        if (t >= end) return;
        float v[kept + S][V];
#pragma unroll
        for (int e = 0; e < kept; ++e) in.read(v[e], w.x + unit * (t + e));
        for (; t < end; t += S) {
            float tap[S][V];
#pragma unroll
            for (int s = 0; s < S; ++s) {
                in.read(v[kept + s], w.x + unit * (t + kept + s));
                load<float, V>(tap[s], taps + (t + s) * tap_stride, t + s < end);
            }
#pragma unroll
            for (int s = 0; s < S; ++s)
#pragma unroll
                for (int i = 0; i < I; ++i)
#pragma unroll
                    for (int c = 0; c < V; ++c)
                        sums[i][c] = fmaf(v[R * i + s][c], tap[s][c], sums[i][c]);
#pragma unroll
            for (int e = 0; e < kept; ++e)
#pragma unroll
                for (int c = 0; c < V; ++c) v[e][c] = v[e + S][c];
        }
    }
}

/// A sum without the products that padding took part in.
template <typename T>
__device__ __noinline__ float careful(const data_args &p, const spot &s, int channel) {
    axis_phase<int> phase[3];
    int m = s.n;
    for (int d = 0; d < 3; ++d) {
        phase[d] = make_phase<int>(p.x[d], p.backward != 0, s.phase[d]);
        m = m * phase[d].count + s.j[d];
    }
    return careful_output<T>(p, phase, m, channel);
}

template <typename T, int I, int V>
__device__ inline void store(const sliding_data_args &a, float (&sums)[I][V], const spot &first,
    const axis_phase<int> (&phase)[3]) {
    const data_args &p = a.data;
    const epilogue_args &e = p.end;
    wide out = first.n * e.out_strides.n + first.channel * e.out_strides.c,
         add = first.n * e.add_strides.n + first.channel * e.add_strides.c;
    for (int d = 0; d < 3; ++d) {
        const wide x = phase[d].out_first + phase[d].out_step * static_cast<wide>(first.j[d]);
        out += x * e.out_strides.x[d];
        add += x * e.add_strides.x[d];
    }
    const wide step = static_cast<wide>(phase[2].out_step) * a.walk.apart,
               out_step = step * e.out_strides.x[2], add_step = step * e.add_strides.x[2];
#pragma unroll
    for (int i = 0; i < I; ++i) {
        const int j = first.j[2] + a.walk.apart * i;
        if (j >= phase[2].count) break;
        const wide out_at = out + i * out_step, add_at = add + i * add_step;
#pragma unroll
        for (int c = 0; c < V; ++c) {
            if (!is_finite(sums[i][c])) {
                spot here = first;
                here.j[2] = j;
                sums[i][c] = careful<T>(p, here, first.channel + c);
            }
            if (V == 1 || a.pairs == 0)
                store_result<T>(e, sums[i][c], first.channel + c, out_at + c * e.out_strides.c,
                    add_at + c * e.add_strides.c);
        }
        if constexpr (V == 2) {
            if (a.pairs == 0) continue;
            T both[2];
            round_to(both[0], sums[i][0]);
            round_to(both[1], sums[i][1]);
            store_pair(static_cast<T *>(e.out) + out_at, both);
        }
    }
}

template <typename T, int I, int R, int V>
__device__ void data(const sliding_data_args &a) {
    const data_args &p = a.data;
    for (wide item = static_cast<wide>(blockIdx.x) * sliding_threads + threadIdx.x; item < a.items;
         item += static_cast<wide>(gridDim.x) * sliding_threads) {
        const spot s = find_spot<I, V>(a, item);
        axis_phase<int> phase[3];
        bool there = true;
        for (int d = 0; d < 3; ++d) {
            phase[d] = make_phase<int>(p.x[d], p.backward != 0, s.phase[d]);
            there = there && s.j[d] < phase[d].count;
        }
        if (!there) continue;
        const taps_walk o = order(phase[0], s.j[0]), n = order(phase[1], s.j[1]),
                        w = order(phase[2], s.j[2]);
        const int group = s.channel / static_cast<int>(p.out_channels);
        const int apart = phase[2].in_step * a.walk.apart;
        float sums[I][V] = {};
        for (int m = 0; m < static_cast<int>(p.in_channels); ++m) {
            const T *const in = static_cast<const T *>(p.in) + s.n * p.in_strides.n
                                + (group * p.in_channels + m) * p.in_strides.c;
            const float *const taps =
                a.taps + s.channel * a.tap_channel + m * a.tap_in + w.first_tap * a.tap_stride[2];
            for (int t = 0; t < o.taps; ++t) {
                const int x = o.x + o.step * t;
                if (static_cast<unsigned>(x) >= static_cast<unsigned>(o.in)) continue;
                for (int u = 0; u < n.taps; ++u) {
                    const int y = n.x + n.step * u;
                    if (static_cast<unsigned>(y) >= static_cast<unsigned>(n.in)) continue;
                    const line<T> row{in + x * p.in_strides.x[0] + y * p.in_strides.x[1],
                        static_cast<int>(p.in_strides.x[2]), w.in};
                    slide<T, I, R, V>(sums, row, w, apart, a.walk.unit,
                        taps + (o.first_tap + o.tap_step * t) * a.tap_stride[0]
                            + (n.first_tap + n.tap_step * u) * a.tap_stride[1],
                        w.tap_step * a.tap_stride[2]);
                }
            }
        }
        store<T, I, V>(a, sums, s, phase);
    }
}

/// Weights as f32.
template <typename T>
__device__ void put_taps(const sliding_taps_args &a) {
    const int taps = a.taps[0] * a.taps[1] * a.taps[2], channels = a.groups * a.outs;
    const wide all = static_cast<wide>(taps) * channels;
    for (wide i = static_cast<wide>(blockIdx.x) * sliding_threads + threadIdx.x; i < all;
         i += static_cast<wide>(gridDim.x) * sliding_threads) {
        const unsigned at = static_cast<unsigned>(i),
                       by = static_cast<unsigned>(a.along_channels != 0 ? channels : taps);
        const int slow = static_cast<int>(at / by), fast = static_cast<int>(at % by);
        int tap = a.along_channels != 0 ? slow : fast;
        const int channel = a.along_channels != 0 ? fast : slow;
        wide from = channel / a.outs * a.group + channel % a.outs * a.out;
        for (int d = 2; d >= 0; --d) {
            from += tap % a.taps[d] * a.tap[d];
            tap /= a.taps[d];
        }
        a.to[i] = to_f32(static_cast<const T *>(a.from)[from]);
    }
}

}  // namespace convgrad::cuda::sliding

#define CONVGRAD_SLIDING(name, T, I, R, V)                                                         \
    extern "C" __global__ void __launch_bounds__(convgrad::cuda::sliding_threads)                  \
        name(const __grid_constant__ convgrad::cuda::sliding_data_args a) {                        \
        convgrad::cuda::sliding::data<T, I, R, V>(a);                                              \
    }
#define CONVGRAD_SLIDING_SET(type, T)                                                              \
    CONVGRAD_SLIDING(sliding_data_i8_r0_##type, T, 8, 0, 1)                                        \
    CONVGRAD_SLIDING(sliding_data_i8_r1_##type, T, 8, 1, 1)                                        \
    CONVGRAD_SLIDING(sliding_data_i8_r2_##type, T, 8, 2, 1)                                        \
    CONVGRAD_SLIDING(sliding_data_i16_r1_##type, T, 16, 1, 1)                                      \
    CONVGRAD_SLIDING(sliding_data_i8_r1_v2_##type, T, 8, 1, 2)                                     \
    extern "C" __global__ void __launch_bounds__(convgrad::cuda::sliding_threads)                  \
        sliding_taps_##type(const __grid_constant__ convgrad::cuda::sliding_taps_args a) {         \
        convgrad::cuda::sliding::put_taps<T>(a);                                                   \
    }
CONVGRAD_SLIDING_SET(f32, float)
CONVGRAD_SLIDING_SET(bf16, convgrad::cuda::bf16)
CONVGRAD_SLIDING_SET(f16, convgrad::cuda::f16)
