// Convolutions of few channels as products of matrices: what each position reads is put into a row
// of its own, by one kernel, and multiplied like a layer of one tap.
#include "columns_args.hpp"
#include "implicit.cuh"
#include "instructions.cuh"
#include "weights_sum.cuh"

namespace convgrad::cuda {
inline namespace code {  // named: nvcc makes names of unnamed ones from the folder

constexpr int threads = columns_threads;

/// One term of a row: a tap, and a channel that it reads.
struct column_term {
    int tap[3], channel;
};
__device__ inline column_term find_term(const columns_args &q, int term) {
    column_term made;
    const int channels = static_cast<int>(q.channels);
    if (q.channels_inside != 0) {
        made.channel = term % channels;
        term /= channels;
    }
    for (int d = 2; d >= 0; --d) {
        const int kernel = static_cast<int>(q.x[d].kernel);
        made.tap[d] = term % kernel;
        term /= kernel;
    }
    if (q.channels_inside == 0) made.channel = term;
    return made;
}

/// Copies what the positions of a segment read to shared memory, zeros for padding: [axes][channel]
/// or [channel][axes]. `x`: where its first position reads from.
template <typename T>
__device__ inline void copy_box(const columns_args &q, T *box, const T *from, const int (&x)[3]) {
    const int length = q.box[2] * (q.channels_inside != 0 ? static_cast<int>(q.channels) : 1),
              rows =
                  q.box[0] * q.box[1] * (q.channels_inside != 0 ? 1 : static_cast<int>(q.channels)),
              lane = static_cast<int>(threadIdx.x) % 32;
    const unsigned run = static_cast<unsigned>(length / q.box[2]);
    for (int row = static_cast<int>(threadIdx.x) / 32; row < rows; row += threads / 32) {
        const int y = row % q.box[1], z = row / q.box[1] % q.box[0], c = row / q.box[1] / q.box[0];
        const bool inside = static_cast<unsigned>(x[0] + z) < static_cast<unsigned>(q.x[0].in)
                            && static_cast<unsigned>(x[1] + y) < static_cast<unsigned>(q.x[1].in);
        const T *const row_at =
            from + (x[0] + z) * q.src_x[0] + (x[1] + y) * q.src_x[1] + c * q.src_c;
        // Several loads at once, before any is waited for.
        constexpr int batch = 4;
        for (int first = lane; first < length; first += 32 * batch) {
            T v[batch];
#pragma unroll
            for (int i = 0; i < batch; ++i) {
                const int at = first + i * 32;
                const int column = static_cast<int>(static_cast<unsigned>(at) / run);
                round_to(v[i], 0.0f);
                if (inside && at < length
                    && static_cast<unsigned>(x[2] + column) < static_cast<unsigned>(q.x[2].in))
                    v[i] = row_at[(x[2] + column) * q.src_x[2]
                                  + (at - column * static_cast<int>(run)) * q.src_c];
            }
#pragma unroll
            for (int i = 0; i < batch; ++i)
                if (first + i * 32 < length) box[row * length + first + i * 32] = v[i];
        }
    }
}

/// Rows of what positions read. A block takes a segment of a line of them, a thread stores pieces
/// of 16 bytes.
template <typename T>
__device__ void pack_rows(const columns_args &q) {
    constexpr int chunk = 16 / sizeof(T);
    // Where the terms of a piece lie in the box, one after the other for neighbouring pieces.
    __shared__ unsigned short places[columns_most_terms + 8];
    T *const box = reinterpret_cast<T *>(dynamic_shared());
    const int pieces = q.padded / chunk, channels = static_cast<int>(q.channels);
    for (int i = static_cast<int>(threadIdx.x); i < q.terms; i += threads) {
        const column_term term = find_term(q, i);
        int at = q.channels_inside != 0 ? 0 : term.channel;
        for (int d = 0; d < 3; ++d)
            at = at * q.box[d] + term.tap[d] * static_cast<int>(q.x[d].dilation);
        if (q.channels_inside != 0) at = at * channels + term.channel;
        places[i % chunk * pieces + i / chunk] = static_cast<unsigned short>(at);
    }
    const int step = static_cast<int>(q.x[2].stride) * (q.channels_inside != 0 ? channels : 1),
              width = static_cast<int>(q.x[2].out);
    for (unsigned i = blockIdx.x; i < static_cast<unsigned>(q.lines * q.segments); i += gridDim.x) {
        const unsigned line = i / static_cast<unsigned>(q.segments);
        const int first = static_cast<int>(i % static_cast<unsigned>(q.segments)) * q.segment,
                  count = min(q.segment, width - first);
        const unsigned height = static_cast<unsigned>(q.x[1].out),
                       depth = static_cast<unsigned>(q.x[0].out);
        const int y[3] = {
            static_cast<int>(line / height % depth), static_cast<int>(line % height), first};
        int x[3];
        for (int d = 0; d < 3; ++d)
            x[d] = y[d] * static_cast<int>(q.x[d].stride) - static_cast<int>(q.x[d].pad);
        __syncthreads();
        copy_box(q, box, static_cast<const T *>(q.from) + line / height / depth * q.src_n, x);
        __syncthreads();
        T *const to = static_cast<T *>(q.to) + (static_cast<wide>(line) * width + first) * q.padded;
        for (int k = static_cast<int>(threadIdx.x); k < count * pieces; k += threads) {
            const int position = static_cast<int>(
                          static_cast<unsigned>(k) / static_cast<unsigned>(pieces)),
                      piece = k - position * pieces;
            const T *const at = box + position * step;
            __align__(16) T v[chunk];
#pragma unroll
            for (int e = 0; e < chunk; ++e) {
                round_to(v[e], 0.0f);
                if (piece * chunk + e < q.terms) v[e] = at[places[e * pieces + piece]];
            }
            *reinterpret_cast<uint4 *>(to + k * chunk) = *reinterpret_cast<const uint4 *>(v);
        }
    }
}

__device__ inline wide find_weight(const columns_args &q, wide out, int term) {
    const column_term t = find_term(q, term);
    wide at = out * q.w_out + t.channel * q.w_in;
    for (int d = 0; d < 3; ++d) at += t.tap[d] * q.w_tap[d];
    return at;
}

/// Rows of weights, in the same order.
template <typename T>
__device__ void pack_row_weights(const columns_args &q) {
    const wide all = q.out_channels * q.padded;
    for (wide i = static_cast<wide>(blockIdx.x) * threads + threadIdx.x; i < all;
         i += static_cast<wide>(gridDim.x) * threads) {
        const int term = static_cast<int>(i % q.padded);
        T v;
        round_to(v, 0.0f);
        if (term < q.terms) v = static_cast<const T *>(q.from)[find_weight(q, i / q.padded, term)];
        static_cast<T *>(q.to)[i] = v;
    }
}

/// Results that padding took part in are computed again where a weight is not finite: zero times
/// such a weight is NaN, whatever happens to the sum.
template <typename T>
__device__ void check_rows(const columns_args &q) {
    const data_args &p = q.data;
    const wide weights = q.out_channels * q.padded;
    bool special = false;
    for (wide i = threadIdx.x; i < weights; i += threads)
        special = special || !is_finite(to_f32(static_cast<const T *>(q.from)[i]));
    if (__syncthreads_or(special ? 1 : 0) == 0) return;
    axis_phase<int> phase[3];
    for (int d = 0; d < 3; ++d) phase[d] = make_phase<int>(p.x[d], false, 0);
    const wide all = q.positions * q.out_channels;
    for (wide i = static_cast<wide>(blockIdx.x) * threads + threadIdx.x; i < all;
         i += static_cast<wide>(gridDim.x) * threads) {
        const wide channel = i % q.out_channels;
        const int m = static_cast<int>(i / q.out_channels);
        int j[3];
        const int image = find_position(phase, m, j);
        wide at = image * p.end.out_strides.n + channel * p.end.out_strides.c,
             add = image * p.end.add_strides.n + channel * p.end.add_strides.c;
        for (int d = 0; d < 3; ++d) {
            at += j[d] * p.end.out_strides.x[d];
            add += j[d] * p.end.add_strides.x[d];
        }
        const float v = to_f32(static_cast<const T *>(p.end.out)[at]);
        if (v == v) continue;
        store_result<T>(p.end, careful_output<T>(p, phase, m, channel), channel, at, add);
    }
}

/// The sum of one weight without padding, by all threads of a block.
template <typename T>
__device__ float sum_weight(const columns_args &q, wide out, wide column, float *shared) {
    const weights_args &p = q.weights;
    const wide length = (p.positions + threads - 1) / threads, first = threadIdx.x * length,
               last = first + length < p.positions ? first + length : p.positions;
    shared[threadIdx.x] = careful_weight<T, true>(p, 0, out, column, first, last, 0.0f);
    __syncthreads();
    for (int n = threads / 2; n > 0; n /= 2) {
        if (static_cast<int>(threadIdx.x) < n) shared[threadIdx.x] += shared[threadIdx.x + n];
        __syncthreads();
    }
    const float sum = shared[0];
    __syncthreads();
    return sum;
}

/// Sums of rows to where weights lie; those that padding may have spoilt are computed again.
template <typename T>
__device__ void store_row_weights(const columns_args &q) {
    __shared__ float shared[threads], values[threads];
    __shared__ int spoilt[threads];
    const int t = static_cast<int>(threadIdx.x);
    const wide all = q.out_channels * q.terms;
    const auto find_column = [&](int term) {  // as careful_weight() has it
        const column_term at = find_term(q, term);
        wide tap = 0;
        for (int d = 0; d < 3; ++d) tap = tap * q.x[d].kernel + at.tap[d];
        return tap * q.channels + at.channel;
    };
    for (wide base = static_cast<wide>(blockIdx.x) * threads; base < all;
         base += static_cast<wide>(gridDim.x) * threads) {
        const wide i = base + t, out = i / q.terms;
        const int term = static_cast<int>(i % q.terms);
        const float v = i < all ? static_cast<const float *>(q.from)[out * q.padded + term] : 0.0f;
        values[t] = v;
        spoilt[t] = q.padding != 0 && !is_finite(v) ? 1 : 0;
        if (__syncthreads_or(spoilt[t]) != 0)
            for (int k = 0; k < threads; ++k) {
                if (spoilt[k] == 0) continue;
                const float sum = sum_weight<T>(q, (base + k) / q.terms,
                    find_column(static_cast<int>((base + k) % q.terms)), shared);
                if (t == k) values[k] = sum;
            }
        if (i < all) {
            const wide at = find_weight(q, out, term);
            const auto store = [&](auto *to) {
                round_to(to[at], values[t] + (q.accumulate != 0 ? to_f32(to[at]) : 0.0f));
            };
            if (q.out_type == element::f32)
                store(static_cast<float *>(q.to));
            else if (q.out_type == element::bf16)
                store(static_cast<bf16 *>(q.to));
            else
                store(static_cast<f16 *>(q.to));
        }
        __syncthreads();
    }
}

/// Rows of results of positions that share none to a tensor; zeros where there is no result.
template <typename T>
__device__ void spread_rows(const columns_args &q) {
    const unsigned channels = static_cast<unsigned>(q.channels),
                   lengths[3] = {static_cast<unsigned>(q.x[0].in), static_cast<unsigned>(q.x[1].in),
                       static_cast<unsigned>(q.x[2].in)},
                   all = static_cast<unsigned>(q.mb) * channels * lengths[0] * lengths[1]
                         * lengths[2];
    for (unsigned i = blockIdx.x * threads + threadIdx.x; i < all; i += gridDim.x * threads) {
        // As the tensor lies: channels fastest, or slowest.
        unsigned rest = i, channel = 0;
        if (q.channels_inside != 0) {
            channel = rest % channels;
            rest /= channels;
        }
        wide to = 0;
        int tap[3], y[3];
        bool there = true;
#pragma unroll
        for (int d = 2; d >= 0; --d) {
            const unsigned x = lengths[d] == 1 ? 0 : rest % lengths[d];
            if (lengths[d] != 1) rest /= lengths[d];
            const int padded = static_cast<int>(x) + static_cast<int>(q.x[d].pad),
                      stride = static_cast<int>(q.x[d].stride);
            y[d] = padded / stride;
            tap[d] = padded - y[d] * stride;
            there = there && tap[d] < q.x[d].kernel && y[d] < q.x[d].out;
            to += x * q.src_x[d];
        }
        if (q.channels_inside == 0) {
            channel = rest % channels;
            rest /= channels;
        }
        T v;
        round_to(v, 0.0f);
        if (there) {
            int term = 0, taps = 1;
            wide row = rest;
            for (int d = 0; d < 3; ++d) {
                const int kernel = static_cast<int>(q.x[d].kernel);
                row = row * q.x[d].out + y[d];
                term = term * kernel + tap[d];
                taps *= kernel;
            }
            term = q.channels_inside != 0
                       ? term * static_cast<int>(channels) + static_cast<int>(channel)
                       : static_cast<int>(channel) * taps + term;
            v = static_cast<const T *>(q.from)[row * q.padded + term];
        }
        static_cast<T *>(q.to)[to + rest * q.src_n + channel * q.src_c] = v;
    }
}

}  // namespace code

#define CONVGRAD_KERNEL(name, call)                                                                \
    extern "C" __global__ void __launch_bounds__(threads)                                          \
        name(const __grid_constant__ columns_args p) {                                             \
        call(p);                                                                                   \
    }
#define CONVGRAD_KERNELS(type, T)                                                                  \
    CONVGRAD_KERNEL(columns_##type, pack_rows<T>)                                                  \
    CONVGRAD_KERNEL(columns_weights_##type, pack_row_weights<T>)                                   \
    CONVGRAD_KERNEL(columns_check_##type, check_rows<T>)                                           \
    CONVGRAD_KERNEL(columns_store_##type, store_row_weights<T>)                                    \
    CONVGRAD_KERNEL(columns_spread_##type, spread_rows<T>)
CONVGRAD_KERNELS(f32, float)
CONVGRAD_KERNELS(bf16, bf16)
CONVGRAD_KERNELS(f16, f16)

}  // namespace convgrad::cuda
