// Forward passes of first layers on tensor cores: 16-bit types. See pixels.cuh.
//
// Four neighbouring pixels of a row are one step of 16 terms, and a matrix of the unit's left
// operand is two pixels of eight positions, loaded from where the positions' taps begin: no row of
// terms is ever built. Rows of matrices have to be aligned, which two of three pixels of odd
// strides are not: a second copy of all pixels, one further, is for those.
#include "pack_two.cuh"
#include "pixels.cuh"

namespace convgrad::cuda::pixels {

constexpr int tile_rows = pixels_tile / 16;

/// Which channel of a tile is column `n` of product `j`. Where channels lie side by side, what a
/// thread has of four products is 16 bytes of a position, and four threads have 64.
template <int N, bool Planes>
__device__ constexpr int channel_of(int j, int n) {
    if (Planes) return j * 8 + n;
    return j / 4 * 32 + n / 2 * 8 + j % 4 * 2 + n % 2;
}

/// Weights of a block's channels, as threads hold them: two products' for each 16 bytes.
template <typename T, int N, bool Planes>
__device__ inline void load_weights(
    const pixels_args &a, unsigned char *memory, int first_channel) {
    const int lane = lane_of(), steps = a.taps_y * a.row_steps, first = lane % 4 * 2;
    const unsigned short *const weights = static_cast<const unsigned short *>(a.other);
    for (int i = warp_of(); i < a.channel_tiles * steps * (N / 2); i += warps()) {
        const int pair = i % (N / 2), step = i / (N / 2) % steps, tile = i / (N / 2) / steps;
        const int ky = step / a.row_steps, c = first % 4;
        unsigned v[4];
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const int kx = step % a.row_steps * 4 + w % 2 * 2 + first / 4;
            const int channel =
                first_channel + tile * N * 8 + channel_of<N, Planes>(pair * 2 + w / 2, lane / 4);
            const bool there = kx < a.taps_x && channel < a.oc;
            const unsigned short *const at = weights + channel * a.data.w_out + ky * a.data.w_tap[1]
                                             + kx * a.data.w_tap[2] + c * a.data.w_in;
            const unsigned low = there && c < a.ic ? at[0] : 0U,
                           high = there && c + 1 < a.ic ? at[a.data.w_in] : 0U;
            v[w] = low | high << 16;
        }
        *reinterpret_cast<uint4 *>(memory + a.weights_at + (i * 32 + lane) * 16) =
            make_uint4(v[0], v[1], v[2], v[3]);
    }
}

/// Sums of 32 positions by 8·N channels.
template <typename T, int N>
__device__ inline void multiply_tile(const pixels_args &a, const unsigned char *memory,
    unsigned shared, int first_position, int tile, float (&sums)[tile_rows][N][4]) {
    const int lane = lane_of();
    const int *const places = reinterpret_cast<const int *>(memory + a.places_at);
    unsigned at[tile_rows];
#pragma unroll
    for (int m = 0; m < tile_rows; ++m)
        at[m] = shared + a.pixels_at + places[first_position + m * 16 + lane % 16] + lane / 16 * 16;
#pragma unroll
    for (int m = 0; m < tile_rows; ++m)
#pragma unroll
        for (int i = 0; i < N * 4; ++i) sums[m][i / 4][i % 4] = 0;
    const uint4 *weights = reinterpret_cast<const uint4 *>(memory + a.weights_at)
                           + tile * a.taps_y * a.row_steps * (N / 2 * 32) + lane;
    for (int ky = 0; ky < a.taps_y; ++ky) {
#pragma unroll 1
        for (int step = 0; step < a.row_steps; ++step) {
            unsigned x[tile_rows][4];
            uint4 w[N / 2];
#pragma unroll
            for (int m = 0; m < tile_rows; ++m) load_matrices(at[m] + step * 32, x[m]);
#pragma unroll
            for (int j = 0; j < N / 2; ++j) w[j] = weights[j * 32];
            weights += N / 2 * 32;
#pragma unroll
            for (int j = 0; j < N; ++j) {
                const unsigned two[2] = {
                    j % 2 == 0 ? w[j / 2].x : w[j / 2].z, j % 2 == 0 ? w[j / 2].y : w[j / 2].w};
#pragma unroll
                for (int m = 0; m < tile_rows; ++m) multiply<T>(sums[m][j], x[m], two);
            }
        }
#pragma unroll
        for (int m = 0; m < tile_rows; ++m) at[m] += a.pitch;
    }
}

/// A product's 16 positions by 8 channels as they are stored, two words for positions 0 to 7 and 8
/// to 15; what is not finite leaves a mark.
template <typename T, int N, bool Planes>
__device__ inline void round_sums(const pixels_args &a, const unsigned char *memory, int tile,
    const float (&sums)[N][4], unsigned (&words)[N][2], unsigned &mark) {
    const bool decorates = a.data.end.bias != nullptr || a.data.end.relu != 0;
    if (decorates) {
        const float *const bias =
            reinterpret_cast<const float *>(memory + a.bias_at) + tile * N * 8;
        const bool relu = a.data.end.relu != 0;
#pragma unroll
        for (int j = 0; j < N; ++j) {
            const int channel = channel_of<N, Planes>(j, lane_of() % 4 * 2);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float low = sums[j][half * 2] + bias[channel],
                      high = sums[j][half * 2 + 1] + bias[channel + 1];
                if (relu) {
                    low = relu_of(low);
                    high = relu_of(high);
                }
                words[j][half] = pack_two<T>(low, high);
            }
        }
    } else {
#pragma unroll
        for (int j = 0; j < N; ++j)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                words[j][half] = pack_two<T>(sums[j][half * 2], sums[j][half * 2 + 1]);
    }
#pragma unroll
    for (int i = 0; i < N * 2; ++i) mark_special<T>(mark, words[i / 2][i % 2]);
}

/// Sums of 16 positions one by one, as each thread has them.
template <typename T, int N, bool Planes>
__device__ __noinline__ void store_slowly(const pixels_args &a, const unsigned char *memory,
    const box &at, int first_position, int first_channel, const float *sums) {
    for (int i = 0; i < N * 4; ++i)
        store_sum<T>(a, memory, at, first_position + i % 4 / 2 * 8 + lane_of() / 4,
            first_channel + channel_of<N, Planes>(i / 4, lane_of() % 4 * 2 + i % 2), sums[i]);
}
template <typename T, int N, bool Planes>
__device__ inline void store_rarely(const pixels_args &a, const unsigned char *memory,
    const box &at, int first_position, int first_channel, const float (&sums)[N][4]) {
    float some[N * 4];  // in memory, so that the sums themselves need not be
#pragma unroll
    for (int i = 0; i < N * 4; ++i) some[i] = sums[i / 4][i % 4];
    store_slowly<T, N, Planes>(a, memory, at, first_position, first_channel, some);
}

/// Channels side by side: straight from registers, in pieces of 16 bytes.
template <typename T, int N>
__device__ inline void store_pixels(const pixels_args &a, const unsigned char *memory,
    const box &at, T *to, int first_position, int tile, int first_channel,
    const float (&sums)[tile_rows][N][4]) {
    const int lane = lane_of();
    const int *const outs = reinterpret_cast<const int *>(memory + a.outs_at),
                     *const cells = reinterpret_cast<const int *>(memory + a.cells_at);
    const int left = a.oc - first_channel;
#pragma unroll
    for (int m = 0; m < tile_rows; ++m) {
        unsigned words[N][2], mark = 0;
        round_sums<T, N, false>(a, memory, tile, sums[m], words, mark);
        const int first = first_position + m * 16;
        if (a.store_whole == 0 || is_marked(mark)) {
            store_rarely<T, N, false>(a, memory, at, first, first_channel, sums[m]);
            continue;
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int f = first + half * 8 + lane / 4;
            if (!is_inside(at, cells[f])) continue;
            T *const pixel = to + outs[f] + first_channel;
#pragma unroll
            for (int j = 0; j < N; j += 4) {
                const int channel = j * 8 + lane % 4 * 8;
                if (channel < left)
                    *reinterpret_cast<uint4 *>(pixel + channel) = make_uint4(
                        words[j][half], words[j + 1][half], words[j + 2][half], words[j + 3][half]);
            }
        }
    }
}

/// Planes: positions of each channel are put in order in shared memory of the warp's own.
template <typename T, int N>
__device__ inline void store_planes(const pixels_args &a, unsigned char *memory, unsigned shared,
    const box &at, T *to, int first, int tile, int first_channel,
    const float (&sums)[tile_rows][N][4]) {
    const int lane = lane_of(), room_at = a.room_at + warp_of() * N * 8 * pixels_room_pitch;
    const int *const outs = reinterpret_cast<const int *>(memory + a.outs_at),
                     *const cells = reinterpret_cast<const int *>(memory + a.cells_at);
    const int left = min(N * 8, a.oc - first_channel);
    to += first_channel * a.dst_c;
    unsigned words[tile_rows][N][2], mark = 0;
#pragma unroll
    for (int m = 0; m < tile_rows; ++m)
        round_sums<T, N, true>(a, memory, tile, sums[m], words[m], mark);
    if (__any_sync(~0U, a.plain == 0 || is_marked(mark) ? 1 : 0) != 0) {
#pragma unroll
        for (int m = 0; m < tile_rows; ++m)
            store_rarely<T, N, true>(a, memory, at, first + m * 16, first_channel, sums[m]);
        return;
    }
    __syncwarp();
#pragma unroll
    for (int m = 0; m < tile_rows; ++m)
#pragma unroll
        for (int j = 0; j < N; j += 2)
            store_matrices_turned(shared + room_at
                                      + ((j + lane / 16) * 8 + lane % 8) * pixels_room_pitch
                                      + m * 32 + lane / 8 % 2 * 16,
                {words[m][j][0], words[m][j][1], words[m][j + 1][0], words[m][j + 1][1]});
    __syncwarp();
    const unsigned char *const room = memory + room_at;
    if (a.store_whole == 0) {
        if (!is_inside(at, cells[first + lane])) return;
        T *row = to + outs[first + lane];
        for (int channel = 0; channel < left; ++channel) {
            *row = *reinterpret_cast<const T *>(room + channel * pixels_room_pitch + lane * 2);
            row += a.dst_c;
        }
        return;
    }
    const int f = first + lane % 4 * 8;
    const bool some = is_inside(at, cells[f]), all = is_inside(at, cells[f + 7]);
    T *const row = to + outs[f];
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const int channel = i * 8 + lane / 4;
        if (!some || channel >= left) continue;
        const unsigned char *const from = room + channel * pixels_room_pitch + lane % 4 * 16;
        T *const place = row + channel * a.dst_c;
        if (all) {
            *reinterpret_cast<uint4 *>(place) = *reinterpret_cast<const uint4 *>(from);
        } else {
#pragma unroll 1
            for (int e = 0; e < 8; ++e)
                if (is_inside(at, cells[f + e])) place[e] = reinterpret_cast<const T *>(from)[e];
        }
    }
}

template <typename T, int N, bool Planes>
__device__ void forward(const pixels_args &a) {
    unsigned char *const memory = dynamic_shared();
    const unsigned shared = shared_address(memory);
    fill_tables<T>(a, memory);
    for (int block = static_cast<int>(blockIdx.x); block < a.blocks;
         block += static_cast<int>(gridDim.x)) {
        const int channels = a.channel_tiles * N * 8,
                  first_channel = block % a.channel_blocks * channels,
                  first = block / a.channel_blocks * a.part_items;
        const auto prepare = [&] {
            load_weights<T, N, Planes>(a, memory, first_channel);
            load_bias<T>(a, memory, first_channel, channels);
        };
        const auto nothing = [](const box &, int) {};
        for_each_box<T>(a, memory, shared, first, min(a.items, first + a.part_items), prepare,
            nothing, [&](const box &at, int) {
                T *const to = static_cast<T *>(a.data.end.out) + at.n * a.dst_n + at.y * a.dst_y
                              + at.x * a.dst_x;
                const int tasks = a.padded_positions / pixels_tile * a.channel_tiles;
                for (int task = warp_of(); task < tasks; task += warps()) {
                    const int tile = task % a.channel_tiles,
                              position = task / a.channel_tiles * pixels_tile,
                              channel = first_channel + tile * N * 8;
                    if (channel >= a.oc) continue;
                    float sums[tile_rows][N][4];
                    multiply_tile<T, N>(a, memory, shared, position, tile, sums);
                    if constexpr (Planes)
                        store_planes<T, N>(
                            a, memory, shared, at, to, position, tile, channel, sums);
                    else
                        store_pixels<T, N>(a, memory, at, to, position, tile, channel, sums);
                }
            });
    }
}

}  // namespace convgrad::cuda::pixels

#define CONVGRAD_PIXELS(name, T, N, planes)                                                        \
    extern "C" __global__ void __launch_bounds__(convgrad::cuda::pixels_most_threads, 2)           \
        name(const __grid_constant__ convgrad::cuda::pixels_args a) {                              \
        using namespace convgrad::cuda;                                                            \
        pixels::forward<T, N, planes>(a);                                                          \
    }
#define CONVGRAD_PIXELS_SET(N)                                                                     \
    CONVGRAD_PIXELS(pixels_data_n##N##p_bf16, bf16, N, true)                                       \
    CONVGRAD_PIXELS(pixels_data_n##N##p_f16, f16, N, true)                                         \
    CONVGRAD_PIXELS(pixels_data_n##N##c_bf16, bf16, N, false)                                      \
    CONVGRAD_PIXELS(pixels_data_n##N##c_f16, f16, N, false)
CONVGRAD_PIXELS_SET(4)
CONVGRAD_PIXELS_SET(8)
