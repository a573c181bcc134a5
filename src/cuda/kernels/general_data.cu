// Forward and backward data of every legal problem: an implicit product of tiles in shared memory.
//
// Rows are output positions of one phase, columns output channels of one group, and the sum runs
// over taps and input channels, in this order for every tile, so that bits depend on the problem
// alone. Backward data cuts output positions by their remainder modulo the stride: within such a
// phase the same taps meet the output, and none is wasted.
#include <type_traits>

#include "implicit.cuh"

namespace convgrad::cuda {
inline namespace code {  // named: nvcc makes names of unnamed ones from the folder

constexpr int depth = 16;  // of a step of the sum
constexpr int threads = 256;

template <typename I, int BM, int BN>
struct data_tile {
    static constexpr int a_pitch = BM + 4, b_pitch = BN + 4;
    float a[2][depth][a_pitch];
    float b[2][depth][b_pitch];
    place<I> rows[BM];  // input of tap 0; x[0] far out of range for rows beyond the end
    wide out_at[BM], add_at[BM];
    place<I> terms[2][depth];  // what a tap and channel add to that
    wide weight_at[2][depth];
    axis_phase<I> phase[3];
};

template <typename T, typename I, int BM, int BN, int TM, int TN>
__device__ void data_product(const data_args &p) {
    using tile_t = data_tile<I, BM, BN>;
    __shared__ tile_t s;
    constexpr int a_loads = BM * depth / threads, b_loads = (BN * depth + threads - 1) / threads;
    const int t = static_cast<int>(threadIdx.x);
    const T *const in = static_cast<const T *>(p.in);
    const T *const weights = static_cast<const T *>(p.weights);

    for (wide tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        // Which tile: columns fastest, so that neighbours read the same input.
        wide rest = tile;
        const wide tile_n = rest % p.tiles_n;
        rest /= p.tiles_n;
        const wide tile_m = rest % p.tiles_m;
        rest /= p.tiles_m;
        const wide group = rest % p.groups;
        rest /= p.groups;
        __syncthreads();
        if (t < 3) {
            wide phase = rest;
            for (int d = 2; d > t; --d) phase /= p.phases[d];
            s.phase[t] = make_phase<I>(p.x[t], p.backward != 0, phase % p.phases[t]);
        }
        __syncthreads();
        const I rows =
            static_cast<I>(p.mb) * s.phase[0].count * s.phase[1].count * s.phase[2].count;
        const I first_row = static_cast<I>(tile_m * BM);
        if (first_row >= rows) continue;
        const I in_channels = static_cast<I>(p.in_channels);
        const I terms = s.phase[0].taps * s.phase[1].taps * s.phase[2].taps * in_channels;
        for (int r = t; r < BM; r += threads) {
            I m = first_row + r;
            const bool valid = m < rows;
            if (!valid) m = 0;
            I j[3];
            for (int d = 2; d >= 0; --d) {
                j[d] = m % s.phase[d].count;
                m /= s.phase[d].count;
            }
            wide at = m * p.in_strides.n + group * p.in_channels * p.in_strides.c;
            wide out = m * p.end.out_strides.n, add = m * p.end.add_strides.n;
            for (int d = 0; d < 3; ++d) {
                const axis_phase<I> &f = s.phase[d];
                const I x = f.in_first + f.in_step * j[d];
                const wide y = f.out_first + f.out_step * static_cast<wide>(j[d]);
                s.rows[r].x[d] = x;
                at += x * p.in_strides.x[d];
                out += y * p.end.out_strides.x[d];
                add += y * p.end.add_strides.x[d];
            }
            // No tap brings this back into range: lengths stay below a quarter of the range.
            if (!valid) s.rows[r].x[0] = I(1) << (sizeof(I) * 8 - 2);
            s.rows[r].offset = at;
            s.out_at[r] = valid ? out : -1;
            s.add_at[r] = add;
        }
        const auto describe = [&](int buffer, I first_term) {
            if (t >= depth) return;
            I k = first_term + t;
            place<I> &to = s.terms[buffer][t];
            if (k >= terms) {
                to.x[0] = I(1) << (sizeof(I) * 8 - 2);
                to.x[1] = to.x[2] = 0;
                to.offset = 0;
                s.weight_at[buffer][t] = -1;
                return;
            }
            const I channel = k % in_channels;
            k /= in_channels;
            wide at = channel * p.in_strides.c;
            wide w = group * p.w_group + channel * p.w_in;
            for (int d = 2; d >= 0; --d) {
                const axis_phase<I> &f = s.phase[d];
                const I tap = k % f.taps;
                k /= f.taps;
                to.x[d] = f.shift * tap;
                at += static_cast<wide>(to.x[d]) * p.in_strides.x[d];
                w += (f.tap_first + f.tap_step * static_cast<wide>(tap)) * p.w_tap[d];
            }
            to.offset = at;
            s.weight_at[buffer][t] = w;
        };
        using U = std::make_unsigned_t<I>;
        const U in0 = static_cast<U>(p.x[0].in), in1 = static_cast<U>(p.x[1].in),
                in2 = static_cast<U>(p.x[2].in);
        const wide first_column = tile_n * BN;
        float a_next[a_loads], b_next[b_loads];
        const bool a_by_channel = p.in_runs_along_channels != 0,
                   b_by_in = p.weights_run_along_in != 0;
        const auto load = [&](int buffer) {
            const auto a_at = [&](int row, int k) -> float {
                const place<I> &r = s.rows[row];
                const place<I> &term = s.terms[buffer][k];
                const bool inside = static_cast<U>(r.x[0] + term.x[0]) < in0
                                    && static_cast<U>(r.x[1] + term.x[1]) < in1
                                    && static_cast<U>(r.x[2] + term.x[2]) < in2;
                return inside ? to_f32(in[r.offset + term.offset]) : 0.0f;
            };
            if (a_by_channel) {
#pragma unroll
                for (int i = 0; i < a_loads; ++i)
                    a_next[i] = a_at(t / depth + i * (threads / depth), t % depth);
            } else {
#pragma unroll
                for (int i = 0; i < a_loads; ++i)
                    a_next[i] = a_at(t % BM, t / BM + i * (threads / BM));
            }
#pragma unroll
            for (int i = 0; i < b_loads; ++i) {
                const int e = t + i * threads;
                const int k = b_by_in ? e % depth : e / BN, n = b_by_in ? e / depth : e % BN;
                const bool inside = e < BN * depth && s.weight_at[buffer][k % depth] >= 0
                                    && first_column + n < p.out_channels;
                b_next[i] =
                    inside ? to_f32(weights[s.weight_at[buffer][k] + (first_column + n) * p.w_out])
                           : 0.0f;
            }
        };
        const auto keep = [&](int buffer) {
            if (a_by_channel) {
#pragma unroll
                for (int i = 0; i < a_loads; ++i)
                    s.a[buffer][t % depth][t / depth + i * (threads / depth)] = a_next[i];
            } else {
#pragma unroll
                for (int i = 0; i < a_loads; ++i)
                    s.a[buffer][t / BM + i * (threads / BM)][t % BM] = a_next[i];
            }
#pragma unroll
            for (int i = 0; i < b_loads; ++i) {
                const int e = t + i * threads;
                if (e < BN * depth)
                    s.b[buffer][b_by_in ? e % depth : e / BN][b_by_in ? e / depth : e % BN] =
                        b_next[i];
            }
        };

        float sum[TM][TN];
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; ++j) sum[i][j] = 0;
        const int column = t % (BN / TN) * TN, row = t / (BN / TN) * TM;
        describe(0, 0);
        describe(1, depth);
        __syncthreads();
        const I steps = (terms + depth - 1) / depth;
        if (steps > 0) {
            load(0);
            keep(0);
        }
        __syncthreads();
        for (I step = 0; step < steps; ++step) {
            const int now = static_cast<int>(step & 1), next = now ^ 1;
            const bool more = step + 1 < steps;
            if (more) load(next);
            describe(now, (step + 2) * depth);  // read at the step after the next one only
#pragma unroll
            for (int k = 0; k < depth; ++k) {
                float a[TM], b[TN];
#pragma unroll
                for (int i = 0; i < TM; ++i) a[i] = s.a[now][k][row + i];
#pragma unroll
                for (int j = 0; j < TN; ++j) b[j] = s.b[now][k][column + j];
#pragma unroll
                for (int i = 0; i < TM; ++i)
#pragma unroll
                    for (int j = 0; j < TN; ++j) sum[i][j] = fmaf(a[i], b[j], sum[i][j]);
            }
            if (more) keep(next);
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < TM; ++i) {
            if (s.out_at[row + i] < 0) continue;
#pragma unroll
            for (int j = 0; j < TN; ++j) {
                const wide c = first_column + column + j;
                if (c >= p.out_channels) continue;
                const wide channel = group * p.out_channels + c;
                if (!is_finite(sum[i][j]))
                    sum[i][j] = careful_sum<T, I>(p, s.phase, s.rows[row + i], group, c, sum[i][j]);
                store_result<T>(p.end, sum[i][j], channel,
                    s.out_at[row + i] + channel * p.end.out_strides.c,
                    s.add_at[row + i] + channel * p.end.add_strides.c);
            }
        }
    }
}

}  // namespace code

#define CONVGRAD_KERNEL(name, T, I, BM, BN, TM, TN)                                                \
    extern "C" __global__ void __launch_bounds__(threads, 2)                                       \
        name(const __grid_constant__ data_args p) {                                                \
        data_product<T, I, BM, BN, TM, TN>(p);                                                     \
    }
CONVGRAD_KERNEL(general_data_f32, float, int, 128, 64, 8, 4)
CONVGRAD_KERNEL(general_data_bf16, bf16, int, 128, 64, 8, 4)
CONVGRAD_KERNEL(general_data_f16, f16, int, 128, 64, 8, 4)
CONVGRAD_KERNEL(narrow_data_f32, float, int, 256, 8, 2, 4)
CONVGRAD_KERNEL(narrow_data_bf16, bf16, int, 256, 8, 2, 4)
CONVGRAD_KERNEL(narrow_data_f16, f16, int, 256, 8, 2, 4)
CONVGRAD_KERNEL(wide_data_f32, float, long long, 128, 64, 8, 4)
CONVGRAD_KERNEL(wide_data_bf16, bf16, long long, 128, 64, 8, 4)
CONVGRAD_KERNEL(wide_data_f16, f16, long long, 128, 64, 8, 4)

}  // namespace convgrad::cuda
