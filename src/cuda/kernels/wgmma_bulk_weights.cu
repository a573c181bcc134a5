// Backward weights of 16-bit types on Hopper's tensor cores, fed by the copy engine: taps and input
// channels by output channels, summed over the positions of a part.
//
// A block computes 2·M lines of 64 input channels of one tap each by N output channels. A stage has
// 64 positions: the pixels of src that they read through a tap, and those of diff_dst, rows of
// channels as they come, which the unit turns. Parts and merged groups as in dense_weights.cu.
#include "bulk_frame.cuh"
#include "bulk_sums.cuh"

namespace convgrad::cuda {
inline namespace code {  // named: nvcc makes names of unnamed ones from the folder

constexpr int depth = bulk_depth;
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

/// Copies the stages of a tile. One thread does, so that each step waits for the one before: what
/// the loop needs is in registers, and nothing is divided in it.
template <int M, int N, int Stages>
__device__ inline void copy_tile(
    const bulk_weights_args &q, const bulk_weights_tile &tile, bulk::ring<Stages> &ring) {
    const weights_args &p = q.weights;
    const int steps = tile.steps, lines = tile.lines, ins = q.lines,
              outs = min(N / 64, (q.oc - tile.first_out + 63) / 64);
    const bool three_axes = q.three_axes != 0;
    // Of each line: its channel, and how far its tap is away.
    int channel[2 * M];
    unsigned short offset[2 * M][3];
#pragma unroll
    for (int i = 0; i < 2 * M; ++i) {
        const int l = tile.first_line + i;
        int tap = l / ins;
        channel[i] = tile.group * q.src_channels + l % ins * 64;
#pragma unroll
        for (int d = 2; d >= 0; --d) {
            const int kernel = static_cast<int>(p.x[d].kernel);
            offset[i][d] = static_cast<unsigned short>(tap % kernel * q.offset_step[d]);
            tap /= kernel;
        }
    }
    int rest = static_cast<int>(tile.first), y[3], length[3], advance[3], start[3], step[3];
#pragma unroll
    for (int d = 2; d >= 0; --d) {
        length[d] = static_cast<int>(p.x[d].out);
        advance[d] = q.advance[d];
        start[d] = q.start[d];
        step[d] = q.step[d];
        y[d] = rest % length[d];
        rest /= length[d];
    }
    const int advance_image = q.advance_image,
              first_out = tile.group * q.dst_channels + tile.first_out;
    const unsigned bytes = static_cast<unsigned>(lines + outs) * block;
    for (int s = 0; s < steps; ++s) {
        bulk::wait(ring.is_empty(), ring.parity ^ 1U);
        bulk::expect(ring.is_full(), bytes);
#pragma unroll
        for (int i = 0; i < 2 * M; ++i)
            if (i < lines)
                bulk::copy_pixels(ring.at() + static_cast<unsigned>(i) * block, q.src,
                    ring.is_full(),
                    {channel[i],
                        {start[0] + step[0] * y[0], start[1] + step[1] * y[1],
                            start[2] + step[2] * y[2]},
                        rest, {offset[i][0], offset[i][1], offset[i][2]}},
                    three_axes);
#pragma unroll
        for (int i = 0; i < N / 64; ++i)
            if (i < outs)
                bulk::copy_pixels(ring.at() + static_cast<unsigned>(2 * M + i) * block, q.dst,
                    ring.is_full(), {first_out + i * 64, {y[0], y[1], y[2]}, rest, {0, 0, 0}},
                    three_axes);
        ring.next();
        int carry = 0;
#pragma unroll
        for (int d = 2; d >= 0; --d) {
            y[d] += advance[d] + carry;
            carry = y[d] >= length[d] ? 1 : 0;
            y[d] -= carry != 0 ? length[d] : 0;
        }
        rest += advance_image + carry;
    }
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
