// Backward weights of every legal problem, and the sums that end it.
//
// Rows are output channels of one group, columns taps and input channels, and the sum runs over the
// positions of one part, in their order. Parts are cut by the problem, each writes its own sums,
// and a second kernel adds them in a fixed order: no atomics, the same bits on every run.
#include <type_traits>

#include "weights_sum.cuh"

namespace convgrad::cuda {
inline namespace code {  // named: nvcc makes names of unnamed ones from the folder

constexpr int depth = 16;
constexpr int threads = 256;

template <typename I>
struct place {
    wide offset;
    I x[3];
};

template <typename I, int BM, int BN>
struct weights_tile {
    float a[2][depth][BM + 4];  // diff_dst
    float b[2][depth][BN + 4];  // src
    place<I> columns[BN];       // what a tap and channel add to a position
    place<I> positions[2][depth];
    wide dst_at[2][depth];  // -1: beyond the end
};

template <typename T, typename I, int BM, int BN, int TM, int TN>
__device__ void weights_product(const weights_args &p) {
    __shared__ weights_tile<I, BM, BN> s;
    constexpr int a_loads = (BM * depth + threads - 1) / threads, b_loads = BN * depth / threads;
    constexpr I far = I(1) << (sizeof(I) * 8 - 2);
    const int t = static_cast<int>(threadIdx.x);
    const T *const src = static_cast<const T *>(p.src);
    const T *const dst = static_cast<const T *>(p.dst);
    using U = std::make_unsigned_t<I>;
    const U in0 = static_cast<U>(p.x[0].in), in1 = static_cast<U>(p.x[1].in),
            in2 = static_cast<U>(p.x[2].in);
    const I ic = static_cast<I>(p.ic);
    const wide columns = p.taps * p.ic;

    for (wide tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        wide rest = tile;
        const wide first_column = rest % p.tiles_n * BN;
        rest /= p.tiles_n;
        const wide first_row = rest % p.tiles_m * BM;
        rest /= p.tiles_m;
        const wide group = rest % p.groups, part = rest / p.groups;
        const wide first = part * p.part_length;
        const wide last = first + p.part_length < p.positions ? first + p.part_length : p.positions;
        __syncthreads();
        for (int c = t; c < BN; c += threads) {
            place<I> &to = s.columns[c];
            wide q = first_column + c;
            if (q >= columns) {
                to.offset = 0;
                to.x[0] = far;
                to.x[1] = to.x[2] = 0;
                continue;
            }
            I k = static_cast<I>(q);
            wide at = static_cast<wide>(k % ic) * p.src_strides.c;
            k /= ic;
            for (int d = 2; d >= 0; --d) {
                const I taps = static_cast<I>(p.x[d].kernel);
                to.x[d] = k % taps * static_cast<I>(p.x[d].dilation);
                k /= taps;
                at += static_cast<wide>(to.x[d]) * p.src_strides.x[d];
            }
            to.offset = at;
        }
        const auto describe = [&](int buffer, wide start) {
            if (t >= depth) return;
            place<I> &to = s.positions[buffer][t];
            if (start + t >= last) {
                to.offset = 0;
                to.x[0] = far;
                to.x[1] = to.x[2] = 0;
                s.dst_at[buffer][t] = -1;
                return;
            }
            I k = static_cast<I>(start + t);
            I y[3];
            for (int d = 2; d >= 0; --d) {
                const I length = static_cast<I>(p.x[d].out);
                y[d] = k % length;
                k /= length;
            }
            wide at = k * p.src_strides.n + group * p.ic * p.src_strides.c;
            wide out = k * p.dst_strides.n + group * p.oc * p.dst_strides.c;
            for (int d = 0; d < 3; ++d) {
                to.x[d] = y[d] * static_cast<I>(p.x[d].stride) - static_cast<I>(p.x[d].pad);
                at += static_cast<wide>(to.x[d]) * p.src_strides.x[d];
                out += static_cast<wide>(y[d]) * p.dst_strides.x[d];
            }
            to.offset = at;
            s.dst_at[buffer][t] = out;
        };
        const bool a_by_channel = p.dst_runs_along_channels != 0,
                   b_by_channel = p.src_runs_along_channels != 0;
        float a_next[a_loads], b_next[b_loads];
        const auto load = [&](int buffer) {
#pragma unroll
            for (int i = 0; i < a_loads; ++i) {
                const int e = t + i * threads;
                const int k = a_by_channel ? e / BM % depth : e % depth,
                          m = a_by_channel ? e % BM : e / depth;
                const bool inside =
                    e < BM * depth && s.dst_at[buffer][k] >= 0 && first_row + m < p.oc;
                a_next[i] =
                    inside ? to_f32(dst[s.dst_at[buffer][k] + (first_row + m) * p.dst_strides.c])
                           : 0.0f;
            }
            const auto b_at = [&](int k, int n) -> float {
                const place<I> &at = s.positions[buffer][k];
                const place<I> &c = s.columns[n];
                const bool inside = static_cast<U>(at.x[0] + c.x[0]) < in0
                                    && static_cast<U>(at.x[1] + c.x[1]) < in1
                                    && static_cast<U>(at.x[2] + c.x[2]) < in2;
                return inside ? to_f32(src[at.offset + c.offset]) : 0.0f;
            };
            if (b_by_channel) {
#pragma unroll
                for (int i = 0; i < b_loads; ++i)
                    b_next[i] = b_at(t / BN + i * (threads / BN), t % BN);
            } else {
#pragma unroll
                for (int i = 0; i < b_loads; ++i)
                    b_next[i] = b_at(t % depth, t / depth + i * (threads / depth));
            }
        };
        const auto keep = [&](int buffer) {
#pragma unroll
            for (int i = 0; i < a_loads; ++i) {
                const int e = t + i * threads;
                if (e < BM * depth)
                    s.a[buffer][a_by_channel ? e / BM : e % depth]
                       [a_by_channel ? e % BM : e / depth] = a_next[i];
            }
            if (b_by_channel) {
#pragma unroll
                for (int i = 0; i < b_loads; ++i)
                    s.b[buffer][t / BN + i * (threads / BN)][t % BN] = b_next[i];
            } else {
#pragma unroll
                for (int i = 0; i < b_loads; ++i)
                    s.b[buffer][t % depth][t / depth + i * (threads / depth)] = b_next[i];
            }
        };

        float sum[TM][TN];
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; ++j) sum[i][j] = 0;
        const int column = t % (BN / TN) * TN, row = t / (BN / TN) * TM;
        describe(0, first);
        describe(1, first + depth);
        __syncthreads();
        const wide steps = first < last ? (last - first + depth - 1) / depth : 0;
        if (steps > 0) {
            load(0);
            keep(0);
        }
        __syncthreads();
        for (wide step = 0; step < steps; ++step) {
            const int now = static_cast<int>(step & 1), next = now ^ 1;
            const bool more = step + 1 < steps;
            if (more) load(next);
            describe(now, first + (step + 2) * depth);
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
        float *const to = p.partial + ((part * p.groups + group) * p.oc) * columns;
#pragma unroll
        for (int i = 0; i < TM; ++i) {
            if (first_row + row + i >= p.oc) break;
#pragma unroll
            for (int j = 0; j < TN; ++j)
                if (first_column + column + j < columns) {
                    if (!is_finite(sum[i][j]))
                        sum[i][j] = careful_weight<T>(p, group, first_row + row + i,
                            first_column + column + j, first, last, sum[i][j]);
                    to[(first_row + row + i) * columns + first_column + column + j] = sum[i][j];
                }
        }
    }
}

}  // namespace code

#define CONVGRAD_KERNEL(name, T, I, BM, BN, TM, TN)                                                \
    extern "C" __global__ void __launch_bounds__(threads, 2)                                       \
        name(const __grid_constant__ weights_args p) {                                             \
        weights_product<T, I, BM, BN, TM, TN>(p);                                                  \
    }
CONVGRAD_KERNEL(general_weights_f32, float, int, 64, 128, 4, 8)
CONVGRAD_KERNEL(general_weights_bf16, bf16, int, 64, 128, 4, 8)
CONVGRAD_KERNEL(general_weights_f16, f16, int, 64, 128, 4, 8)
CONVGRAD_KERNEL(narrow_weights_f32, float, int, 8, 64, 1, 2)
CONVGRAD_KERNEL(narrow_weights_bf16, bf16, int, 8, 64, 1, 2)
CONVGRAD_KERNEL(narrow_weights_f16, f16, int, 8, 64, 1, 2)
CONVGRAD_KERNEL(wide_weights_f32, float, long long, 64, 128, 4, 8)
CONVGRAD_KERNEL(wide_weights_bf16, bf16, long long, 64, 128, 4, 8)
CONVGRAD_KERNEL(wide_weights_f16, f16, long long, 64, 128, 4, 8)

}  // namespace convgrad::cuda
