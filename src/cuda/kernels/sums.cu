// Sums that end a weights gradient: of its parts, and of diff_dst by channel for the bias.
#include "device.cuh"

namespace convgrad::cuda {
inline namespace code {  // named: nvcc makes names of unnamed ones from the folder

constexpr int threads = 256;

/// 16 bytes of neighbours, of which the first `count` are there; at once, if they are aligned.
template <typename T, int V>
__device__ inline void add_run(const T *from, int count, bool whole, float (&sum)[V]) {
    __align__(16) T v[V];
    if (whole) {
        *reinterpret_cast<uint4 *>(v) = *reinterpret_cast<const uint4 *>(from);
#pragma unroll
        for (int e = 0; e < V; ++e) sum[e] += to_f32(v[e]);
    } else {
#pragma unroll
        for (int e = 0; e < V; ++e)
            if (e < count) sum[e] += to_f32(from[e]);
    }
}

/// Channels next to each other: `lanes` threads have a position's, V each, and rows of threads
/// the positions in turn.
template <typename T>
__device__ void add_rows(const channel_sum_args &p) {
    constexpr int V = 16 / sizeof(T);
    __shared__ float sums[V][threads];
    const int t = static_cast<int>(threadIdx.x), lanes = p.lanes, rows = threads / lanes;
    const unsigned tiles = static_cast<unsigned>((p.channels + lanes * V - 1) / (lanes * V)),
                   image = static_cast<unsigned>(p.image_runs);
    for (unsigned tile = blockIdx.x; tile < tiles * static_cast<unsigned>(p.parts);
         tile += gridDim.x) {
        const int channel = static_cast<int>(tile % tiles) * lanes * V + t % lanes * V,
                  count = static_cast<int>(p.channels) - channel;
        const unsigned part = tile / tiles, length = static_cast<unsigned>(p.part_length),
                       last = min((part + 1) * length, static_cast<unsigned>(p.runs));
        const T *const from = static_cast<const T *>(p.data) + channel;
        float sum[V] = {};
        if (count > 0)
#pragma unroll 4
            for (unsigned i = part * length + static_cast<unsigned>(t / lanes); i < last;
                 i += static_cast<unsigned>(rows))
                add_run<T, V>(
                    from + i / image * p.strides.n + i % image * p.step, count, p.whole != 0, sum);
        __syncthreads();
#pragma unroll
        for (int e = 0; e < V; ++e) sums[e][t] = sum[e];
        __syncthreads();
        for (int half = rows / 2; half > 0; half /= 2) {
            if (t / lanes < half)
#pragma unroll
                for (int e = 0; e < V; ++e) sums[e][t] += sums[e][t + half * lanes];
            __syncthreads();
        }
        if (t < lanes)
#pragma unroll
            for (int e = 0; e < V; ++e)
                if (e < count) p.partial[part * p.channels + channel + e] = sums[e][t];
    }
}

/// Planes: all threads have runs of V neighbouring positions of one channel in turn.
template <typename T>
__device__ void add_planes(const channel_sum_args &p) {
    constexpr int V = 16 / sizeof(T);
    __shared__ float sums[threads];
    const int t = static_cast<int>(threadIdx.x);
    const unsigned channels = static_cast<unsigned>(p.channels),
                   image = static_cast<unsigned>(p.image_runs);
    for (unsigned tile = blockIdx.x; tile < channels * static_cast<unsigned>(p.parts);
         tile += gridDim.x) {
        const unsigned part = tile / channels, channel = tile % channels,
                       length = static_cast<unsigned>(p.part_length),
                       last = min((part + 1) * length, static_cast<unsigned>(p.runs));
        const T *const from = static_cast<const T *>(p.data) + channel * p.strides.c;
        float sum[V] = {};
#pragma unroll 4
        for (unsigned i = part * length + static_cast<unsigned>(t); i < last; i += threads) {
            const int first = static_cast<int>(i % image) * V;
            add_run<T, V>(from + i / image * p.strides.n + first,
                static_cast<int>(p.image_positions) - first, p.whole != 0, sum);
        }
#pragma unroll
        for (int half = V / 2; half > 0; half /= 2)
#pragma unroll
            for (int e = 0; e < half; ++e) sum[e] += sum[e + half];
        __syncthreads();
        sums[t] = sum[0];
        __syncthreads();
        for (int half = threads / 2; half > 0; half /= 2) {
            if (t < half) sums[t] += sums[t + half];
            __syncthreads();
        }
        if (t == 0) p.partial[static_cast<wide>(part) * p.channels + channel] = sums[0];
    }
}

/// Any strides and sizes: one channel by 256 positions.
template <typename T>
__device__ void add_anywhere(const channel_sum_args &p) {
    __shared__ float sums[threads];
    const int t = static_cast<int>(threadIdx.x);
    for (wide tile = blockIdx.x; tile < p.channels * p.parts; tile += gridDim.x) {
        const wide channel = tile % p.channels, part = tile / p.channels,
                   last = min((part + 1) * p.part_length, p.runs);
        float sum = 0;
        for (wide i = part * p.part_length + t; i < last; i += threads) {
            wide at = channel * p.strides.c, k = i;
            for (int d = 2; d >= 0; --d) {
                at += k % p.x[d] * p.strides.x[d];
                k /= p.x[d];
            }
            sum += to_f32(static_cast<const T *>(p.data)[at + k * p.strides.n]);
        }
        __syncthreads();
        sums[t] = sum;
        __syncthreads();
        for (int half = threads / 2; half > 0; half /= 2) {
            if (t < half) sums[t] += sums[t + half];
            __syncthreads();
        }
        if (t == 0) p.partial[part * p.channels + channel] = sums[0];
    }
}

template <typename T>
__device__ void add_channels(const channel_sum_args &p) {
    if (p.form == channel_sum_form::rows)
        add_rows<T>(p);
    else if (p.form == channel_sum_form::planes)
        add_planes<T>(p);
    else
        add_anywhere<T>(p);
}

/// Where the output has an element.
__device__ inline wide place_of(const sum_args &p, wide e) {
    wide at = 0;
    if (p.axes == 1) return e * p.strides[0];
    if (e < (wide{1} << 31)) {  // 64-bit division is slow
        unsigned rest = static_cast<unsigned>(e);
        for (int d = p.axes - 1; d > 0; --d) {
            const unsigned length = static_cast<unsigned>(p.lengths[d]);
            at += rest % length * p.strides[d];
            rest /= length;
        }
        return at + rest * p.strides[0];
    }
    for (int d = p.axes - 1; d > 0; --d) {
        at += e % p.lengths[d] * p.strides[d];
        e /= p.lengths[d];
    }
    return at + e * p.strides[0];
}

/// Stores the sums of V neighbours, which lie `step` apart in the output; at once, if they are
/// whole and nothing is added.
template <typename T, int V>
__device__ inline void store_sums(
    const sum_args &p, const float (&sums)[V], wide at, wide step, bool whole) {
    T *const out = static_cast<T *>(p.out) + at;
    __align__(16) T v[V];
#pragma unroll
    for (int i = 0; i < V; ++i)
        round_to(v[i], p.accumulate != 0 ? sums[i] + to_f32(out[i * step]) : sums[i]);
    if (V > 1 && whole) {
        if constexpr (V * sizeof(T) == 16)
            *reinterpret_cast<uint4 *>(out) = *reinterpret_cast<const uint4 *>(v);
        if constexpr (V * sizeof(T) == 8)
            *reinterpret_cast<uint2 *>(out) = *reinterpret_cast<const uint2 *>(v);
        return;
    }
#pragma unroll
    for (int i = 0; i < V; ++i) out[i * step] = v[i];
}
template <int V>
__device__ inline void store_elements(const sum_args &p, const float (&sums)[V], wide e) {
    const wide at = place_of(p, e), step = p.strides[p.axes - 1];
    const bool whole = p.whole != 0;
    if (p.type == element::f32)
        store_sums<float>(p, sums, at, step, whole);
    else if (p.type == element::bf16)
        store_sums<bf16>(p, sums, at, step, whole);
    else
        store_sums<f16>(p, sums, at, step, whole);
}

/// 32 neighbouring elements by 8 chains: chain i adds the parts i, i + 8, …, then the chains are
/// added as a tree. What a thread adds is asked for 16 parts at a time: one after the other, 400
/// parts of 1,296 elements took 8.6 µs on an H200, nearly all of it waiting.
__device__ inline void add_few(const sum_args &p) {
    constexpr int ahead = 16;
    __shared__ float chains[threads];
    const int t = static_cast<int>(threadIdx.x), chain = t / 32;
    const wide tiles = (p.length + 31) / 32;
    for (wide tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const wide e = tile * 32 + t % 32;
        float v = 0;
        if (e < p.length) {
            const float *from = p.partial + chain * p.length + e;
            for (wide left = (p.parts - chain + 7) / 8; left > 0; left -= ahead) {
                float next[ahead];
#pragma unroll
                for (int i = 0; i < ahead; ++i)
                    if (i < left) next[i] = from[i * 8 * p.length];
#pragma unroll
                for (int i = 0; i < ahead; ++i)
                    if (i < left) v += next[i];
                from += ahead * 8 * p.length;
            }
        }
        __syncthreads();
        chains[t] = v;
        __syncthreads();
        for (int half = 4; half > 0; half /= 2) {
            if (chain < half) chains[t] += chains[t + half * 32];
            __syncthreads();
        }
        if (chain == 0 && e < p.length) store_elements<1>(p, {chains[t]}, e);
    }
}

/// The same sums, where there are elements enough for V of each thread's own.
template <int V>
__device__ inline void add_many(const sum_args &p) {
    for (wide e = (static_cast<wide>(blockIdx.x) * threads + static_cast<int>(threadIdx.x)) * V;
         e < p.length; e += static_cast<wide>(gridDim.x) * threads * V) {
        float chain[8][V] = {};
        const float *from = p.partial + e;
        for (wide left = p.parts; left > 0; left -= 8) {
            __align__(16) float next[8][V];
#pragma unroll
            for (int i = 0; i < 8; ++i)
                if (i < left) {
                    if constexpr (V == 4)
                        *reinterpret_cast<uint4 *>(next[i]) =
                            *reinterpret_cast<const uint4 *>(from + i * p.length);
                    else
                        next[i][0] = from[i * p.length];
                }
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int k = 0; k < V; ++k)
                    if (i < left) chain[i][k] += next[i][k];
            from += 8 * p.length;
        }
#pragma unroll
        for (int half = 4; half > 0; half /= 2)
#pragma unroll
            for (int i = 0; i < half; ++i)
#pragma unroll
                for (int k = 0; k < V; ++k) chain[i][k] += chain[i + half][k];
        store_elements<V>(p, chain[0], e);
    }
}

}  // namespace code

#define CONVGRAD_CHANNEL_SUM(name, T)                                                              \
    extern "C" __global__ void __launch_bounds__(threads)                                          \
        name(const __grid_constant__ channel_sum_args p) {                                         \
        add_channels<T>(p);                                                                        \
    }
CONVGRAD_CHANNEL_SUM(channel_sum_f32, float)
CONVGRAD_CHANNEL_SUM(channel_sum_bf16, bf16)
CONVGRAD_CHANNEL_SUM(channel_sum_f16, f16)

extern "C" __global__ void __launch_bounds__(threads)
    sum_parts(const __grid_constant__ sum_args p) {
    if (p.form == sum_form::fours)
        add_many<4>(p);
    else if (p.form == sum_form::ones)
        add_many<1>(p);
    else
        add_few(p);
}

}  // namespace convgrad::cuda
