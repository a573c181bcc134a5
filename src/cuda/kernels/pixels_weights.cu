// Weights gradients of first layers on tensor cores: 16-bit types. See pixels.cuh.
//
// The sum runs over positions: rows of the products are output channels, columns two pixels of a
// row of taps, both operands read turned from where they lie. A warp keeps its sums through all
// items of a part; warps share out channels, taps and positions.
#include "pixels.cuh"

namespace convgrad::cuda::pixels {

/// What a warp computes: M·16 output channels by N pairs of taps, every `sum_groups`th 16
/// positions.
struct share {
    int row, tap, sum;  // groups
    __device__ explicit share(const pixels_args &a) {
        const int warp = warp_of();
        row = warp % a.row_groups;
        tap = warp / a.row_groups % a.tap_groups;
        sum = warp / a.row_groups / a.tap_groups;
    }
};

/// Adds products of a box.
template <typename T, int M, int N, bool Planes>
__device__ inline void multiply_box(const pixels_args &a, const unsigned char *memory,
    unsigned shared, int dst_at, const share &mine, const int (&taps)[N / 2],
    float (&sums)[M][N][4]) {
    const int lane = lane_of();
    const int *const places = reinterpret_cast<const int *>(memory + a.places_at);
    // Rows of matrices are positions, or channels of planes.
    const int place =
        Planes ? (mine.row * M * 16 + lane % 16) * a.dst_pitch + lane / 16 * 16
               : (lane % 8 + lane / 16 * 8) * a.dst_pitch + mine.row * M * 32 + lane / 8 % 2 * 16;
    const int down = Planes ? 16 * a.dst_pitch : 32,  // to the next 16 channels
        step = Planes ? 32 : 16 * a.dst_pitch;        // to the next 16 positions
    const int steps = a.padded_positions / 16;
    for (int k = mine.sum; k < steps; k += a.sum_groups) {
        const unsigned src = shared + a.pixels_at + places[k * 16 + lane % 16],
                       dst = shared + dst_at + place + k * step;
        unsigned d[M][4];
#pragma unroll
        for (int m = 0; m < M; ++m)
            if constexpr (Planes)
                load_matrices(dst + m * down, d[m]);
            else
                load_matrices_turned(dst + m * down, d[m]);
#pragma unroll
        for (int i = 0; i < N / 2; ++i) {
            unsigned x[4];
            load_matrices_turned(src + taps[i], x);
#pragma unroll
            for (int m = 0; m < M; ++m) {
                multiply<T>(sums[m][2 * i], d[m], x);
                multiply<T>(sums[m][2 * i + 1], d[m], x + 2);
            }
        }
    }
}

/// Adds sums of all groups in their order, in shared memory: rows of channels.
template <int M, int N>
__device__ inline void gather_sums(
    const pixels_args &a, unsigned char *memory, const share &mine, const float (&sums)[M][N][4]) {
    const int lane = lane_of(), columns = a.tap_groups * N * 8;
    float *const room = reinterpret_cast<float *>(memory) + (mine.row * M * 16 + lane / 4) * columns
                        + mine.tap * N * 8 + lane % 4 * 2;
    for (int group = 0; group < a.sum_groups; ++group) {
        __syncthreads();
        if (group != mine.sum) continue;
#pragma unroll
        for (int m = 0; m < M; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int j = 0; j < N; ++j) {
                    float2 *const at =
                        reinterpret_cast<float2 *>(room + (m * 16 + half * 8) * columns + j * 8);
                    const float2 before = group == 0 ? make_float2(0.0f, 0.0f) : *at;
                    *at = make_float2(
                        before.x + sums[m][j][half * 2], before.y + sums[m][j][half * 2 + 1]);
                }
    }
    __syncthreads();
}

/// Lanes have columns, each of which is a tap and an input channel, or none.
template <int N>
__device__ inline void store_sums(const pixels_args &a, const unsigned char *memory, int part,
    int first_channel, int channels, int first_tile) {
    const int columns = a.tap_groups * N * 8, pairs = (a.taps_x + 1) / 2;
    for (int column = lane_of(); column < columns; column += 32) {
        const int tile = first_tile + column / 8, c = column % 4;
        const int ky = tile / pairs, kx = tile % pairs * 2 + column / 4 % 2;
        if (tile >= a.tap_tiles || kx >= a.taps_x || c >= a.ic) continue;
        const float *const room = reinterpret_cast<const float *>(memory) + column;
#pragma unroll 4
        for (int i = warp_of(); i < min(channels, a.oc - first_channel); i += warps())
            if (a.half != 0)
                store_tap<f16>(a, part, first_channel + i, ky, kx, c, room[i * columns]);
            else
                store_tap<bf16>(a, part, first_channel + i, ky, kx, c, room[i * columns]);
    }
}

/// Both types by one kernel, which only multiplies twice: all else moves 16 bits.
template <int M, int N, bool Planes>
__device__ void weights(const pixels_args &a) {
    unsigned char *const memory = dynamic_shared();
    const unsigned shared = shared_address(memory);
    const share mine(a);
    for (int block = static_cast<int>(blockIdx.x); block < a.blocks;
         block += static_cast<int>(gridDim.x)) {
        const int channels = a.row_groups * M * 16,
                  first_channel = block % a.channel_blocks * channels;
        const int rest = block / a.channel_blocks, part = rest / a.tap_blocks,
                  first_tile = rest % a.tap_blocks * a.tap_groups * N;
        const int first = part * a.part_items, last = min(a.items, first + a.part_items);
        int taps[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; ++i) {
            const int pairs = (a.taps_x + 1) / 2;
            const int tile =
                min(first_tile + mine.tap * N + 2 * i + lane_of() / 16, a.tap_tiles - 1);
            taps[i] = tile / pairs * a.pitch + tile % pairs * 16;
        }
        float sums[M][N][4];
#pragma unroll
        for (int i = 0; i < M * N * 4; ++i) sums[i / (N * 4)][i / 4 % N][i % 4] = 0;
        __syncthreads();
        fill_tables<bf16>(a, memory);
        for_each_box<bf16>(
            a, memory, shared, first, last, [] {},
            [&](const box &at, int number) {
                copy_dst<bf16, Planes>(a, memory, shared, at, a.dst_at + number % 2 * a.dst_bytes,
                    first_channel, channels);
            },
            [&](const box &, int number) {
                const int dst_at = a.dst_at + number % 2 * a.dst_bytes;
                if (a.half != 0)
                    multiply_box<f16, M, N, Planes>(a, memory, shared, dst_at, mine, taps, sums);
                else
                    multiply_box<bf16, M, N, Planes>(a, memory, shared, dst_at, mine, taps, sums);
            });
        gather_sums<M, N>(a, memory, mine, sums);
        store_sums<N>(a, memory, part, first_channel, channels, first_tile);
    }
}

}  // namespace convgrad::cuda::pixels

#define CONVGRAD_PIXELS(name, M, N, planes)                                                        \
    extern "C" __global__ void __launch_bounds__(                                                  \
        convgrad::cuda::pixels_weights_threads(M, N), convgrad::cuda::pixels_weights_blocks(M, N)) \
        name(const __grid_constant__ convgrad::cuda::pixels_args a) {                              \
        using namespace convgrad::cuda;                                                            \
        pixels::weights<M, N, planes>(a);                                                          \
    }
#define CONVGRAD_PIXELS_SET(M, N)                                                                  \
    CONVGRAD_PIXELS(pixels_weights_m##M##n##N##p, M, N, true)                                      \
    CONVGRAD_PIXELS(pixels_weights_m##M##n##N##c, M, N, false)
CONVGRAD_PIXELS_SET(2, 6)
CONVGRAD_PIXELS_SET(2, 8)
CONVGRAD_PIXELS_SET(4, 4)
CONVGRAD_PIXELS_SET(4, 6)
