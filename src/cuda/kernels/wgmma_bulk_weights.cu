// Backward weights of 16-bit types on Hopper's tensor cores, fed by the copy engine: taps and input
// channels by output channels, summed over the positions of a part.
//
// A block computes 2·M lines of 64 input channels of one tap each by N output channels. A stage has
// 64 positions: the pixels of src that they read through a tap, and those of diff_dst, rows of
// channels as they come, which the unit turns. Parts and merged groups as in dense_weights.cu.
#include "bulk_frame.cuh"
#include "weights_sum.cuh"

namespace convgrad::cuda {
inline namespace code {  // named: nvcc makes names of unnamed ones from the folder

constexpr int depth = 64;                                 // positions of a stage
[[maybe_unused]] constexpr unsigned block = depth * 128;  // bytes of 64 channels

struct bulk_weights_tile {
    int first_line, lines, first_out, group;
    wide part, first, last;  // positions
    int steps;

    __device__ bulk_weights_tile(const bulk_weights_args &q, unsigned tile, int rows, int columns) {
        const weights_args &p = q.weights;
        const auto take = [&](wide of) {
            const unsigned length = static_cast<unsigned>(of), mine = tile % length;
            tile /= length;
            return static_cast<int>(mine);
        };
        first_line = take(p.tiles_n) * rows;
        lines = min(rows, static_cast<int>(p.taps) * q.lines - first_line);
        first_out = take(p.tiles_m) * columns;
        group = take(q.groups);
        part = tile;
        first = part * p.part_length;
        last = first + p.part_length < p.positions ? first + p.part_length : p.positions;
        steps = first < last ? static_cast<int>((last - first + depth - 1) / depth) : 0;
    }
};

/// Copies the stages of a tile.
template <int M, int N, int Stages>
__device__ inline void copy_tile(
    const bulk_weights_args &q, const bulk_weights_tile &tile, bulk::ring<Stages> &ring) {
    const weights_args &p = q.weights;
    bulk::box src[2 * M];
    const int outs = min(N / 64, (q.oc - tile.first_out + 63) / 64);
#pragma unroll
    for (int i = 0; i < 2 * M; ++i) {
        const int l = tile.first_line + i;
        int tap = l / q.lines;
        src[i].channel = tile.group * q.src_channels + l % q.lines * 64;
        for (int d = 2; d >= 0; --d) {
            const int kernel = static_cast<int>(p.x[d].kernel);
            src[i].offset[d] = static_cast<unsigned short>(tap % kernel * q.offset_step[d]);
            tap /= kernel;
        }
    }
    for (int step = 0; step < tile.steps; ++step) {
        int rest = static_cast<int>(tile.first) + step * depth, y[3];
        for (int d = 2; d >= 0; --d) {
            const int length = static_cast<int>(p.x[d].out);
            y[d] = rest % length;
            rest /= length;
        }
        bulk::wait(ring.is_empty(), ring.parity ^ 1U);
        bulk::expect(ring.is_full(), static_cast<unsigned>(tile.lines + outs) * block);
#pragma unroll
        for (int i = 0; i < 2 * M; ++i) {
            if (i >= tile.lines) break;
            src[i].image = rest;
            for (int d = 0; d < 3; ++d) src[i].x[d] = q.start[d] + q.step[d] * y[d];
            bulk::copy_pixels(ring.at() + static_cast<unsigned>(i) * block, q.src, ring.is_full(),
                src[i], q.three_axes != 0);
        }
        bulk::box dst{0, {y[0], y[1], y[2]}, rest, {0, 0, 0}};
        for (int i = 0; i < outs; ++i) {
            dst.channel = tile.group * q.dst_channels + tile.first_out + i * 64;
            bulk::copy_pixels(ring.at() + static_cast<unsigned>(2 * M + i) * block, q.dst,
                ring.is_full(), dst, q.three_axes != 0);
        }
        ring.next();
    }
}

/// Where a thread's sums of one row go.
template <typename T>
struct weights_row {
    const bulk_weights_args &q;
    const bulk_weights_tile &tile;
    wide own, k;  // the group within the merged one; tap and channel within it
    bool there;
    float *to;

    __device__ weights_row(
        const bulk_weights_args &args, const bulk_weights_tile &of, int line_number, int row)
        : q(args), tile(of) {
        const weights_args &p = q.weights;
        const int l = tile.first_line + line_number, tap = l / q.lines, c = l % q.lines * 64 + row,
                  ic = static_cast<int>(p.ic);
        own = c / ic;
        k = static_cast<wide>(tap) * ic + c % ic;
        there = tap < p.taps && c < q.ic;
        to = p.partial + (tile.part * p.groups + tile.group * q.merged + own) * p.oc * p.taps * p.ic
             + k;
    }
    /// Which of the group's output channels column `column` is; -1: none.
    [[nodiscard]] __device__ int find(int column) const {
        const int out = tile.first_out + column,
                  o = out - static_cast<int>(own) * static_cast<int>(q.weights.oc);
        return out < q.oc && o >= 0 && o < q.weights.oc ? o : -1;
    }
    [[nodiscard]] __device__ float *at(int o) const {
        return to + o * (q.weights.taps * q.weights.ic);
    }
    /// Sums that are not finite, with care: padding took part.
    __device__ __noinline__ void check_all(int columns, int first_column) const {
        for (int j = 0; j < columns; j += 8)
            for (int e = 0; e < 2; ++e) {
                const int o = find(j + first_column + e);
                if (!there || o < 0 || is_finite(*at(o))) continue;
                *at(o) = careful_weight<T, true>(
                    q.weights, tile.group * q.merged + own, o, k, tile.first, tile.last, *at(o));
            }
    }
};

template <typename T, int M, int N>
__device__ inline void store_sums(
    const bulk_weights_args &q, const bulk_weights_tile &tile, const float (&sum)[M][N / 2]) {
    const int t = static_cast<int>(threadIdx.x), lane = t % 32, row = t / 32 % 4 * 16 + lane / 4,
              column = lane % 4 * 2;
    bool fine = true;
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const weights_row<T> w(q, tile, t / 128 * M + m, row + h * 8);
            if (!w.there) continue;
#pragma unroll
            for (int j = 0; j < N / 8; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const int o = w.find(j * 8 + column + e);
                    if (o < 0) continue;
                    const float v = sum[m][j * 4 + h * 2 + e];
                    fine = fine && is_finite(v);
                    *w.at(o) = v;
                }
        }
    if (!fine)
        for (int i = 0; i < M * 2; ++i)
            weights_row<T>(q, tile, t / 128 * M + i / 2, row + i % 2 * 8).check_all(N, column);
}

template <typename T, int M, int N, int Stages>
__device__ inline void multiply_tile(
    const bulk_weights_args &q, const bulk_weights_tile &tile, bulk::ring<Stages> &ring) {
    const int t = static_cast<int>(threadIdx.x);
    float sum[M][N / 2];
    bulk::sum_stages(sum, tile.steps, ring, [&](float(&to)[M][N / 2]) {
        const std::uint64_t a = wgmma::describe_turned(
                                ring.at() + static_cast<unsigned>(t / 128 * M) * block, block),
                            b = wgmma::describe_turned(ring.at() + 2 * M * block, block);
#pragma unroll
        for (int k = 0; k < depth / 16; ++k)
#pragma unroll
            for (int m = 0; m < M; ++m)
                wgmma::turned_product<T, N>::add(to[m],
                    a + static_cast<unsigned>(k) * wgmma::next_turned_terms
                        + static_cast<unsigned>(m) * (block >> 4),
                    b + static_cast<unsigned>(k) * wgmma::next_turned_terms, 1);
    });
    store_sums<T, M, N>(q, tile, sum);
}

template <typename T, int M, int N>
__device__ inline void bulk_weights(const bulk_weights_args &q) {
    using shape = bulk_tiles<M, N>;
    constexpr int stages = shape::stages;
    extern __shared__ unsigned char shared_bytes[];
    __shared__ __align__(8) std::uint64_t barriers[bulk::ring<stages>::barriers];
    bulk::ring<stages> ring(bulk::stages_at(shared_bytes),
        static_cast<unsigned>(__cvta_generic_to_shared(barriers)),
        static_cast<unsigned>(shape::stage));
    if (threadIdx.x == 0) ring.open();
    __syncthreads();
    bulk::in_roles<shape::threads, shape::copy_registers, shape::registers>(
        static_cast<unsigned>(q.weights.tiles),
        [&](unsigned i) { copy_tile<M, N>(q, bulk_weights_tile(q, i, 2 * M, N), ring); },
        [&](unsigned i) { multiply_tile<T, M, N>(q, bulk_weights_tile(q, i, 2 * M, N), ring); });
}

}  // namespace code

#define CONVGRAD_WEIGHTS(name, T, m, n)                                                            \
    extern "C" __global__ void __launch_bounds__((bulk_tiles<m, n>::threads),                      \
        (bulk_tiles<m, n>::at_once)) name(const __grid_constant__ bulk_weights_args p) {           \
        CONVGRAD_BODY(bulk_weights<T, m, n>(p);)                                                   \
    }
#define CONVGRAD_TILES(type, T)                                                                    \
    CONVGRAD_WEIGHTS(bulk_weights_256x64_##type, T, 2, 64)                                         \
    CONVGRAD_WEIGHTS(bulk_weights_128x128_##type, T, 1, 128)                                       \
    CONVGRAD_WEIGHTS(bulk_weights_256x128_##type, T, 2, 128)                                       \
    CONVGRAD_WEIGHTS(bulk_weights_128x256_##type, T, 1, 256)
CONVGRAD_TILES(bf16, bf16)
CONVGRAD_TILES(f16, f16)

}  // namespace convgrad::cuda
