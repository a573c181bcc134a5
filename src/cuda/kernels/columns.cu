// Convolutions of few channels as products of matrices: what each position reads is put into a row
// of its own, by one kernel, and multiplied like a layer of one tap.
#include "columns_args.hpp"
#include "implicit.cuh"
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

/// What a term adds to a position's place, and where it is from there.
struct __align__(16) term_place {
    wide at;
    short x[3], unused;
};

/// Rows of what positions read, zeros for padding. A thread stores pieces of 16 bytes.
template <typename T>
__device__ void pack_rows(const columns_args &q) {
    constexpr int chunk = 16 / sizeof(T);
    __shared__ term_place terms[columns_most_terms];
    for (int i = static_cast<int>(threadIdx.x); i < q.terms; i += threads) {
        const column_term term = find_term(q, i);
        wide at = term.channel * q.src_c;
        for (int d = 0; d < 3; ++d) {
            const int x = term.tap[d] * static_cast<int>(q.x[d].dilation);
            terms[i].x[d] = static_cast<short>(x);
            at += x * q.src_x[d];
        }
        terms[i].at = at;
    }
    __syncthreads();
    const unsigned pieces = static_cast<unsigned>(q.padded / chunk);
    const wide all = q.positions * pieces;
    const int in[3] = {static_cast<int>(q.x[0].in), static_cast<int>(q.x[1].in),
        static_cast<int>(q.x[2].in)};
    for (wide i = static_cast<wide>(blockIdx.x) * threads + threadIdx.x; i < all;
         i += static_cast<wide>(gridDim.x) * threads) {
        unsigned rest = static_cast<unsigned>(i / pieces);
        const int first = static_cast<int>(i - static_cast<wide>(rest) * pieces) * chunk;
        int x[3];
        wide at = 0;
#pragma unroll
        for (int d = 2; d >= 0; --d) {
            const unsigned length = static_cast<unsigned>(q.x[d].out);
            const unsigned y = length == 1 ? 0 : rest % length;
            if (length != 1) rest /= length;
            x[d] = static_cast<int>(y) * static_cast<int>(q.x[d].stride)
                   - static_cast<int>(q.x[d].pad);
            at += x[d] * q.src_x[d];
        }
        const T *const from = static_cast<const T *>(q.from) + rest * q.src_n + at;
        __align__(16) T piece[chunk];
#pragma unroll
        for (int k = 0; k < chunk; ++k) {
            round_to(piece[k], 0.0f);
            if (first + k >= q.terms) continue;
            const term_place term = terms[first + k];
            if (static_cast<unsigned>(x[0] + term.x[0]) < static_cast<unsigned>(in[0])
                && static_cast<unsigned>(x[1] + term.x[1]) < static_cast<unsigned>(in[1])
                && static_cast<unsigned>(x[2] + term.x[2]) < static_cast<unsigned>(in[2]))
                piece[k] = from[term.at];
        }
        *reinterpret_cast<uint4 *>(static_cast<T *>(q.to) + i * chunk) =
            *reinterpret_cast<const uint4 *>(piece);
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
        if (term < q.terms)
            v = static_cast<const T *>(q.from)[find_weight(q, i / q.padded, term)];
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
    const wide lengths[4] = {q.channels, q.x[0].in, q.x[1].in, q.x[2].in};
    wide all = q.mb;
    for (const wide length : lengths) all *= length;
    for (wide i = static_cast<wide>(blockIdx.x) * threads + threadIdx.x; i < all;
         i += static_cast<wide>(gridDim.x) * threads) {
        // As the tensor lies: channels fastest, or slowest.
        wide rest = i, channel = 0, to = 0, row = 0;
        int tap[3], y[3];
        bool there = true;
        if (q.channels_inside != 0) {
            channel = rest % q.channels;
            rest /= q.channels;
        }
        for (int d = 2; d >= 0; --d) {
            const unsigned length = static_cast<unsigned>(q.x[d].in);
            const unsigned x = static_cast<unsigned>(rest % length);
            rest /= length;
            const int padded = static_cast<int>(x) + static_cast<int>(q.x[d].pad),
                      stride = static_cast<int>(q.x[d].stride);
            y[d] = padded / stride;
            tap[d] = padded - y[d] * stride;
            there = there && tap[d] < q.x[d].kernel && y[d] < q.x[d].out;
            to += x * q.src_x[d];
        }
        if (q.channels_inside == 0) {
            channel = rest % q.channels;
            rest /= q.channels;
        }
        to += rest * q.src_n + channel * q.src_c;
        T v;
        round_to(v, 0.0f);
        if (there) {
            wide term = 0;
            row = rest;
            for (int d = 0; d < 3; ++d) {
                row = row * q.x[d].out + y[d];
                term = term * q.x[d].kernel + tap[d];
            }
            const wide taps = q.x[0].kernel * q.x[1].kernel * q.x[2].kernel;
            term = q.channels_inside != 0 ? term * q.channels + channel : channel * taps + term;
            v = static_cast<const T *>(q.from)[row * q.padded + term];
        }
        static_cast<T *>(q.to)[to] = v;
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
