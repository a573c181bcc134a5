// Dense forward and backward data on tensor cores: an implicit product of packed operands.
//
// Rows of 128 bytes (64 or 32 channels of one tap) go through a ring of stages in shared memory,
// swizzled, by asynchronous copies that write zeros where padding is. f32 is split into two TF32
// parts, three products (in `fast`: rounded, one), and the sum of 16 terms is added to the total by
// a rounded addition: sums inside the tensor unit are cut off, not rounded.
#include "implicit.cuh"
#include "tensor.cuh"

namespace convgrad::cuda {
inline namespace code {  // named: nvcc makes names of unnamed ones from the folder

constexpr int rows = dense_rows, columns = dense_columns, threads = dense_threads,
              stages = dense_stages;
constexpr unsigned line = 128, a_bytes = rows * line, stage_bytes = (rows + columns) * line;

struct dense_tile {
    place<int> in[rows];  // packed input of tap 0
    wide original[rows];  // the same in the tensor itself
    wide out_at[rows], add_at[rows];
    axis_phase<int> phase[3];
};

/// The fragments that a warp multiplies, 64 rows by 32 columns: where a lane reads them in a stage.
struct fragments {
    unsigned a_at, b_at;  // rows of this lane
    int a_piece, b_piece, swizzle;

    __device__ fragments(unsigned base, int lane, int warp_m, int warp_n)
        : a_at(
            base + static_cast<unsigned>(warp_m * 64 + (lane & 7) + ((lane >> 3) & 1) * 8) * line),
          b_at(base + a_bytes
               + static_cast<unsigned>(warp_n * 32 + (lane & 7) + (lane >> 4) * 8) * line),
          a_piece(lane >> 4), b_piece((lane >> 3) & 1), swizzle(lane & 7) {}
    /// 16 rows, and 16 columns, of 32 bytes along the sum.
    __device__ void load_a(int i, int k, unsigned (&a)[4]) const {
        load_matrices(a_at + static_cast<unsigned>(i) * 16 * line
                          + static_cast<unsigned>(((2 * k + a_piece) ^ swizzle) << 4),
            a);
    }
    __device__ void load_b(int j, int k, unsigned (&b)[4]) const {
        load_matrices(b_at + static_cast<unsigned>(j) * 8 * line
                          + static_cast<unsigned>(((2 * k + b_piece) ^ swizzle) << 4),
            b);
    }
};

using warp_sums = float[4][4][4];

__device__ inline void clear(warp_sums &sum) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) sum[i][j][e] = 0;
}

/// Adds the products of a stage: 16-bit values, or f32 rounded to TF32.
template <typename T>
__device__ inline void multiply_stage(warp_sums &sum, const fragments &from) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        unsigned a[4][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            from.load_a(i, k, a[i]);
            round_terms<T>(a[i]);
        }
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            unsigned b[4];
            from.load_b(j, k, b);
            round_terms<T>(b);
#pragma unroll
            for (int h = 0; h < 2; ++h)
#pragma unroll
                for (int i = 0; i < 4; ++i) multiply<T>(sum[i][j + h], a[i], b + 2 * h);
        }
    }
}

/// The same of f32 by three products, those with a small part first, while the sum is 2^-11 of what
/// it will be, and sums of 16 terms are added: the unit cuts off, it does not round.
__device__ inline void multiply_split(warp_sums &sum, const fragments &from) {
#pragma unroll
    for (int first = 0; first < 4; first += 2) {
        unsigned b[2][2][4], b_small[2][2][4];
#pragma unroll
        for (int k = 0; k < 2; ++k)
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                from.load_b(2 * j, first + k, b[k][j]);
                split(b[k][j], b_small[k][j]);
            }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            unsigned a[2][4], a_small[2][4];
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                from.load_a(i, first + k, a[k]);
                split(a[k], a_small[k]);
            }
            float part[4][4] = {};
#pragma unroll
            for (int product = 0; product < 3; ++product)
#pragma unroll
                for (int k = 0; k < 2; ++k)
#pragma unroll
                    for (int j = 0; j < 4; ++j)
                        multiply<float>(part[j], (product == 0 ? a_small : a)[k],
                            (product == 1 ? b_small : b)[k][j / 2] + j % 2 * 2);
#pragma unroll
            for (int j = 0; j < 4; ++j) add(sum[i][j], part[j]);
        }
    }
}

template <typename T, bool Fast>
__device__ void dense_product(const dense_args &q) {
    constexpr bool exact = sizeof(T) == 4 && !Fast;
    constexpr int chunk = 16 / sizeof(T), deep = static_cast<int>(line / sizeof(T));
    unsigned char *const shared_bytes = dynamic_shared();
    __shared__ dense_tile s;
    const unsigned ring = shared_address(shared_bytes);
    const data_args &p = q.data;
    const int t = static_cast<int>(threadIdx.x), lane = t % 32, warp = t / 32, warp_m = warp % 2,
              warp_n = warp / 2;
    const T *const in = static_cast<const T *>(q.packed_in), *const weights =
                                                                 static_cast<const T *>(
                                                                     q.packed_weights);
    const wide packed_x2 = p.groups * q.channels, packed_x1 = packed_x2 * p.x[2].in,
               packed_x0 = packed_x1 * p.x[1].in;
    const wide packed_n = packed_x0 * p.x[0].in;

    for (wide tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        wide rest = tile;
        const wide first_column = rest % p.tiles_n * columns;
        rest /= p.tiles_n;
        const wide first_row = rest % p.tiles_m * rows;
        rest /= p.tiles_m;
        const wide group = rest % p.groups;
        rest /= p.groups;
        __syncthreads();
        if (t < 3) {
            wide phase = rest;
            for (int d = 2; d > t; --d) phase /= p.phases[d];
            s.phase[t] = make_phase<int>(p.x[t], p.backward != 0, phase % p.phases[t]);
        }
        __syncthreads();
        const wide all_rows = p.mb * s.phase[0].count * s.phase[1].count * s.phase[2].count;
        if (first_row >= all_rows) continue;
        for (int r = t; r < rows; r += threads) {
            int m = static_cast<int>(first_row) + r;
            const bool valid = m < all_rows;
            if (!valid) m = 0;
            int j[3];
            for (int d = 2; d >= 0; --d) {
                j[d] = m % s.phase[d].count;
                m /= s.phase[d].count;
            }
            wide at = m * packed_n + group * q.channels,
                 original = m * p.in_strides.n + group * p.in_channels * p.in_strides.c;
            wide out = m * p.end.out_strides.n, add = m * p.end.add_strides.n;
            const wide steps[3] = {packed_x0, packed_x1, packed_x2};
            for (int d = 0; d < 3; ++d) {
                const axis_phase<int> &f = s.phase[d];
                const int x = f.in_first + f.in_step * j[d];
                const wide y = f.out_first + f.out_step * static_cast<wide>(j[d]);
                s.in[r].x[d] = x;
                at += x * steps[d];
                original += x * p.in_strides.x[d];
                out += y * p.end.out_strides.x[d];
                add += y * p.end.add_strides.x[d];
            }
            if (!valid) s.in[r].x[0] = 1 << 30;
            s.in[r].offset = at;
            s.original[r] = original;
            s.out_at[r] = valid ? out : -1;
            s.add_at[r] = add;
        }
        __syncthreads();

        // Loads: 16 rows of 8 pieces at a time. The next step's tap and first channel:
        int tap[3] = {0, 0, 0}, channel = 0, loaded = 0;
        const int per_tap = (q.channels + deep - 1) / deep;
        const int steps = s.phase[0].taps * s.phase[1].taps * s.phase[2].taps * per_tap;
        const int piece = t % 8, own_row = t / 8;
        const unsigned in0 = static_cast<unsigned>(p.x[0].in),
                       in1 = static_cast<unsigned>(p.x[1].in),
                       in2 = static_cast<unsigned>(p.x[2].in);
        const wide taps = p.x[0].kernel * p.x[1].kernel * p.x[2].kernel;
        const auto load = [&] {
            if (loaded < steps) {
                const unsigned base = ring + static_cast<unsigned>(loaded % stages) * stage_bytes;
                const int dx0 = s.phase[0].shift * tap[0], dx1 = s.phase[1].shift * tap[1],
                          dx2 = s.phase[2].shift * tap[2];
                const int c = channel + piece * chunk;
                const wide moved = dx0 * packed_x0 + dx1 * packed_x1 + dx2 * packed_x2 + c;
#pragma unroll
                for (int i = 0; i < rows / 16; ++i) {
                    const int r = own_row + 16 * i;
                    const place<int> &at = s.in[r];
                    const bool there = c < q.channels && static_cast<unsigned>(at.x[0] + dx0) < in0
                                       && static_cast<unsigned>(at.x[1] + dx1) < in1
                                       && static_cast<unsigned>(at.x[2] + dx2) < in2;
                    copy_16(base + static_cast<unsigned>(r) * line
                                + static_cast<unsigned>((piece ^ (r & 7)) << 4),
                        there ? in + at.offset + moved : in, there);
                }
                const wide number =
                    ((s.phase[0].tap_first + s.phase[0].tap_step * tap[0]) * p.x[1].kernel
                        + s.phase[1].tap_first + s.phase[1].tap_step * tap[1])
                        * p.x[2].kernel
                    + s.phase[2].tap_first + s.phase[2].tap_step * tap[2];
#pragma unroll
                for (int i = 0; i < columns / 16; ++i) {
                    const int r = own_row + 16 * i;
                    const bool there = c < q.channels && first_column + r < p.out_channels;
                    copy_16(base + a_bytes + static_cast<unsigned>(r) * line
                                + static_cast<unsigned>((piece ^ (r & 7)) << 4),
                        there ? weights
                                    + ((group * p.out_channels + first_column + r) * taps + number)
                                          * q.channels
                                    + c
                              : weights,
                        there);
                }
                channel += deep;
                if (channel >= q.channels) {
                    channel = 0;
                    if (++tap[2] == s.phase[2].taps) {
                        tap[2] = 0;
                        if (++tap[1] == s.phase[1].taps) {
                            tap[1] = 0;
                            ++tap[0];
                        }
                    }
                }
                ++loaded;
            }
            commit_copies();
        };

        warp_sums sum;
        clear(sum);
#pragma unroll
        for (int i = 0; i < stages - 1; ++i) load();
        for (int step = 0; step < steps; ++step) {
            await_copies<stages - 2>();
            __syncthreads();
            load();
            const fragments from(
                ring + static_cast<unsigned>(step % stages) * stage_bytes, lane, warp_m, warp_n);
            if constexpr (exact)
                multiply_split(sum, from);
            else
                multiply_stage<T>(sum, from);
        }
        await_copies<0>();
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int r = warp_m * 64 + i * 16 + lane / 4 + h * 8;
                if (s.out_at[r] < 0) continue;
#pragma unroll
                for (int j = 0; j < 4; ++j)
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        const wide c = first_column + warp_n * 32 + j * 8 + lane % 4 * 2 + e;
                        if (c >= p.out_channels) continue;
                        float v = sum[i][j][h * 2 + e];
                        // Splitting makes NaN of infinities, too.
                        if (!is_finite(v)) {
                            place<int> row = s.in[r];
                            row.offset = s.original[r];
                            v = careful_sum<T, int, true>(p, s.phase, row, group, c, v);
                        }
                        const wide out_channel = group * p.out_channels + c;
                        store_result<T>(p.end, v, out_channel,
                            s.out_at[r] + out_channel * p.end.out_strides.c,
                            s.add_at[r] + out_channel * p.end.add_strides.c);
                    }
            }
    }
}

}  // namespace code

#define CONVGRAD_DENSE(type, T, fast)                                                              \
    extern "C" __global__ void __launch_bounds__(threads, 2)                                       \
        dense_data_##type(const __grid_constant__ dense_args p) {                                  \
        dense_product<T, fast>(p);                                                                 \
    }
CONVGRAD_DENSE(f32, float, false)
CONVGRAD_DENSE(bf16, bf16, false)
CONVGRAD_DENSE(f16, f16, false)
CONVGRAD_DENSE(tf32, float, true)

}  // namespace convgrad::cuda
