// First layers in f32, by multiply-adds. See pixels.cuh.
//
// Forward, a thread has four positions by sixteen output channels; lanes are neighbouring
// positions, so that weights are the same for all of them and pixels different for each, both
// loaded as vectors. Columns are kept by their remainder modulo the stride: neighbouring positions
// then read neighbouring pixels. A weights gradient has threads of eight output channels by three
// taps, each with every so many positions.
#include "pixels.cuh"

namespace convgrad::cuda::pixels {

constexpr int own_positions = pixels_tile_f32 / 32, tile_channels = pixels_channels_f32;

/// The first C channels of a pixel.
template <int C>
__device__ inline void read_pixel(const unsigned char *at, float (&v)[C]) {
    if constexpr (C == 1) {
        v[0] = *reinterpret_cast<const float *>(at);
    } else {
        const float4 all = *reinterpret_cast<const float4 *>(at);
        const float some[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
        for (int c = 0; c < C; ++c) v[c] = some[c];
    }
}

/// How many taps of a row read columns of remainder `phase`.
__device__ inline int taps_of(const pixels_args &a, int phase) {
    return a.phase_taps + (phase < a.phases_with_more ? 1 : 0);
}

/// Weights of a block's channels: [tile][row][tap, by remainders][input channel][channel].
template <int C>
__device__ inline void load_weights(
    const pixels_args &a, unsigned char *memory, int first_channel) {
    float *const to = reinterpret_cast<float *>(memory + a.weights_at);
    const float *const weights = static_cast<const float *>(a.other);
    const int row = a.taps_x * C * tile_channels, half = lane_of() / tile_channels,
              lane = lane_of() % tile_channels;
    for (int i = warp_of(); i < a.channel_tiles * a.taps_y * a.phases; i += warps()) {
        const int phase = i % a.phases, ky = i / a.phases % a.taps_y,
                  tile = i / a.phases / a.taps_y;
        const int before = phase * a.phase_taps + min(phase, a.phases_with_more);
        float *const line = to + (tile * a.taps_y + ky) * row + before * C * tile_channels + lane;
        const int channel = first_channel + tile * tile_channels + lane;
        const float *const from = weights + channel * a.data.w_out + ky * a.data.w_tap[1];
#pragma unroll 4
        for (int k = half; k < taps_of(a, phase) * C; k += 32 / tile_channels) {
            const int kx = k / C * a.phases + phase, c = k % C;
            line[k * tile_channels] =
                c < a.ic && channel < a.oc ? from[kx * a.data.w_tap[2] + c * a.data.w_in] : 0.0f;
        }
    }
}

/// Sums of 128 positions by 16 channels.
template <int C>
__device__ inline void multiply_tile(const pixels_args &a, const unsigned char *memory,
    int first_position, int tile, float (&sums)[own_positions][tile_channels]) {
    const int *const places = reinterpret_cast<const int *>(memory + a.places_at);
    int at[own_positions];
#pragma unroll
    for (int i = 0; i < own_positions; ++i) {
        at[i] = a.pixels_at + places[first_position + i * 32 + lane_of()];
#pragma unroll
        for (int k = 0; k < tile_channels; ++k) sums[i][k] = 0;
    }
    const float4 *weights = reinterpret_cast<const float4 *>(memory + a.weights_at)
                            + tile * a.taps_y * a.taps_x * (C * tile_channels / 4);
    for (int ky = 0; ky < a.taps_y; ++ky)
        for (int phase = 0; phase < a.phases; ++phase) {
            const int count = taps_of(a, phase);
            const unsigned char *from = memory + ky * a.pitch + phase * a.phase_pitch;
#pragma unroll 1
            for (int k = 0; k < count; ++k) {
                float x[own_positions][C];
#pragma unroll
                for (int i = 0; i < own_positions; ++i) read_pixel<C>(from + at[i], x[i]);
                from += 16;
#pragma unroll
                for (int c = 0; c < C; ++c)
#pragma unroll
                    for (int j = 0; j < tile_channels; j += 4) {
                        const float4 w = *weights++;
#pragma unroll
                        for (int i = 0; i < own_positions; ++i) {
                            sums[i][j] = fmaf(x[i][c], w.x, sums[i][j]);
                            sums[i][j + 1] = fmaf(x[i][c], w.y, sums[i][j + 1]);
                            sums[i][j + 2] = fmaf(x[i][c], w.z, sums[i][j + 2]);
                            sums[i][j + 3] = fmaf(x[i][c], w.w, sums[i][j + 3]);
                        }
                    }
            }
        }
}

/// Sums of a thread one by one.
__device__ __noinline__ void store_slowly(const pixels_args &a, const unsigned char *memory,
    const box &at, int first_position, int first_channel, const float *sums) {
    for (int i = 0; i < own_positions * tile_channels; ++i)
        store_sum<float>(a, memory, at, first_position + i / tile_channels * 32 + lane_of(),
            first_channel + i % tile_channels, sums[i]);
}

/// Channels side by side: a position's are put into shared memory of the warp's own, so that four
/// threads store them.
__device__ inline void store_pixels(const pixels_args &a, unsigned char *memory, const box &at,
    float *to, int first_position, int left, const float (&sums)[own_positions][tile_channels]) {
    constexpr int pitch = pixels_room_pitch_f32;
    const int lane = lane_of(), channel = lane % 4 * 4;
    const int *const outs = reinterpret_cast<const int *>(memory + a.outs_at),
                     *const cells = reinterpret_cast<const int *>(memory + a.cells_at);
    unsigned char *const room = memory + a.room_at + warp_of() * 32 * pitch;
#pragma unroll
    for (int i = 0; i < own_positions; ++i) {
        __syncwarp();
#pragma unroll
        for (int j = 0; j < tile_channels; j += 4)
            *reinterpret_cast<float4 *>(room + lane * pitch + j * 4) =
                make_float4(sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]);
        __syncwarp();
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const int position = k * 8 + lane / 4, f = first_position + i * 32 + position;
            if (channel < left && is_inside(at, cells[f]))
                *reinterpret_cast<float4 *>(to + outs[f] + channel) =
                    *reinterpret_cast<const float4 *>(room + position * pitch + channel * 4);
        }
    }
}

/// Planes: lanes have neighbouring positions as it is.
__device__ inline void store_planes(const pixels_args &a, const unsigned char *memory,
    const box &at, float *to, int first_position, int left,
    const float (&sums)[own_positions][tile_channels]) {
    const int *const outs = reinterpret_cast<const int *>(memory + a.outs_at),
                     *const cells = reinterpret_cast<const int *>(memory + a.cells_at);
#pragma unroll
    for (int i = 0; i < own_positions; ++i) {
        const int f = first_position + i * 32 + lane_of();
        if (!is_inside(at, cells[f])) continue;
        float *place = to + outs[f];
#pragma unroll
        for (int j = 0; j < tile_channels; ++j) {
            if (j < left) *place = sums[i][j];
            place += a.dst_c;
        }
    }
}

template <bool Planes>
__device__ inline void store_tile(const pixels_args &a, unsigned char *memory, const box &at,
    int first_position, int tile, int first_channel, float (&sums)[own_positions][tile_channels]) {
    constexpr int count = own_positions * tile_channels;
    bool rare = a.plain == 0 || (!Planes && a.store_whole == 0);
#pragma unroll
    for (int i = 0; i < count; ++i) {
        const float v = sums[i / tile_channels][i % tile_channels];
        rare = rare || v != v;
    }
    if (__any_sync(~0U, rare ? 1 : 0) != 0) {
        float some[count];  // in memory, so that the sums themselves need not be
#pragma unroll
        for (int i = 0; i < count; ++i) some[i] = sums[i / tile_channels][i % tile_channels];
        store_slowly(a, memory, at, first_position, first_channel, some);
        return;
    }
    if (a.data.end.bias != nullptr || a.data.end.relu != 0) {
        const float *const bias =
            reinterpret_cast<const float *>(memory + a.bias_at) + tile * tile_channels;
        const bool relu = a.data.end.relu != 0;
#pragma unroll
        for (int i = 0; i < count; ++i) {
            float &v = sums[i / tile_channels][i % tile_channels];
            v += bias[i % tile_channels];
            if (relu) v = relu_of(v);
        }
    }
    float *const to = static_cast<float *>(a.data.end.out) + at.n * a.dst_n + at.y * a.dst_y
                      + at.x * a.dst_x + first_channel * a.dst_c;
    if constexpr (Planes)
        store_planes(a, memory, at, to, first_position, a.oc - first_channel, sums);
    else
        store_pixels(a, memory, at, to, first_position, a.oc - first_channel, sums);
}

template <int C, bool Planes>
__device__ void forward(const pixels_args &a) {
    unsigned char *const memory = dynamic_shared();
    const unsigned shared = shared_address(memory);
    fill_tables<float>(a, memory);
    for (int block = static_cast<int>(blockIdx.x); block < a.blocks;
         block += static_cast<int>(gridDim.x)) {
        const int channels = a.channel_tiles * tile_channels,
                  first_channel = block % a.channel_blocks * channels,
                  first = block / a.channel_blocks * a.part_items;
        const auto prepare = [&] {
            load_weights<C>(a, memory, first_channel);
            load_bias<float>(a, memory, first_channel, channels);
        };
        const auto nothing = [](const box &, int) {};
        for_each_box<float>(a, memory, shared, first, min(a.items, first + a.part_items), prepare,
            nothing, [&](const box &at, int) {
                const int tasks = a.padded_positions / pixels_tile_f32 * a.channel_tiles;
                for (int task = warp_of(); task < tasks; task += warps()) {
                    const int tile = task % a.channel_tiles,
                              position = task / a.channel_tiles * pixels_tile_f32,
                              channel = first_channel + tile * tile_channels;
                    if (channel >= a.oc) continue;
                    float sums[own_positions][tile_channels];
                    multiply_tile<C>(a, memory, position, tile, sums);
                    store_tile<Planes>(a, memory, at, position, tile, channel, sums);
                }
            });
    }
}

constexpr int own_channels = pixels_own_channels;
template <int C>
constexpr int own_taps = pixels_own_taps(C);

/// What a thread computes of a weights gradient.
struct unit {
    int channel, tap, sum;  // groups of channels and of taps; which positions
    bool works;
    __device__ explicit unit(const pixels_args &a) {
        const int t = static_cast<int>(threadIdx.x);
        channel = t % a.row_groups;
        tap = t / a.row_groups % a.tap_groups;
        sum = t / a.row_groups / a.tap_groups;
        works = sum < a.sum_groups;
    }
    /// Which of a block's channels is the thread's k-th: neighbouring threads read neighbouring
    /// vectors of a position, or neighbouring planes.
    template <bool Planes>
    __device__ int own_channel(const pixels_args &a, int k) const {
        return Planes ? k * a.row_groups + channel : k / 4 * a.row_groups * 4 + channel * 4 + k % 4;
    }
};

/// Two positions of a thread's channels of diff_dst, as they lie: vectors of channels, or of
/// positions.
template <bool Planes>
__device__ inline void load_positions(
    const pixels_args &a, const unsigned char *at, float (&v)[2][own_channels]) {
    if constexpr (Planes) {
#pragma unroll
        for (int k = 0; k < own_channels; ++k) {
            const float2 two = *reinterpret_cast<const float2 *>(at);
            v[0][k] = two.x;
            v[1][k] = two.y;
            at += a.row_groups * a.dst_pitch;
        }
    } else {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float4 low = *reinterpret_cast<const float4 *>(at),
                         high = *reinterpret_cast<const float4 *>(at + a.row_groups * 16);
            at += a.dst_pitch;
            v[i][0] = low.x;
            v[i][1] = low.y;
            v[i][2] = low.z;
            v[i][3] = low.w;
            v[i][4] = high.x;
            v[i][5] = high.y;
            v[i][6] = high.z;
            v[i][7] = high.w;
        }
    }
}

template <int C, bool Planes>
__device__ inline void multiply_box(const pixels_args &a, const unsigned char *memory, int dst_at,
    const unit &mine, const int (&taps)[own_taps<C>], float (&sums)[own_taps<C>][C][own_channels]) {
    const int2 *places = reinterpret_cast<const int2 *>(memory + a.places_at) + mine.sum,
               *const end =
                   reinterpret_cast<const int2 *>(memory + a.places_at) + a.padded_positions / 2;
    // Two positions of the first channels.
    const int step = Planes ? 8 : 2 * a.dst_pitch;
    const unsigned char *from =
        memory + dst_at + mine.sum * step + mine.channel * (Planes ? a.dst_pitch : 16);
    for (; places < end; places += a.sum_groups, from += a.sum_groups * step) {
        const int place[2] = {places->x, places->y};
        float dst[2][own_channels];
        load_positions<Planes>(a, from, dst);
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int t = 0; t < own_taps<C>; ++t) {
                float x[C];
                read_pixel<C>(memory + place[i] + taps[t], x);
#pragma unroll
                for (int c = 0; c < C; ++c)
#pragma unroll
                    for (int k = 0; k < own_channels; ++k)
                        sums[t][c][k] = fmaf(x[c], dst[i][k], sums[t][c][k]);
            }
    }
}

/// Adds sums of all groups in their order, in shared memory, and stores them.
template <int C, bool Planes>
__device__ inline void finish(const pixels_args &a, unsigned char *memory, const unit &mine,
    const float (&sums)[own_taps<C>][C][own_channels], int part, int first_channel, int first_tap) {
    constexpr int count = own_taps<C> * C * own_channels, odd = count + 1;  // for banks
    const int units = a.row_groups * a.tap_groups;
    float *const room =
        reinterpret_cast<float *>(memory) + static_cast<int>(threadIdx.x) % units * odd;
    for (int group = 0; group < a.sum_groups; ++group) {
        __syncthreads();
        if (group != mine.sum) continue;
#pragma unroll
        for (int i = 0; i < count; ++i) {
            const float v = sums[i / own_channels / C][i / own_channels % C][i % own_channels];
            room[i] = group == 0 ? v : room[i] + v;
        }
    }
    __syncthreads();
    if (mine.sum != 0) return;
#pragma unroll 1
    for (int t = 0; t < own_taps<C>; ++t) {
        const int tap = first_tap + mine.tap * own_taps<C> + t;
        if (tap >= a.taps_y * a.taps_x) break;
        const int ky = tap / a.taps_x, kx = tap - ky * a.taps_x;
        for (int k = 0; k < own_channels; ++k) {
            const int channel = first_channel + mine.own_channel<Planes>(a, k);
            for (int c = 0; c < a.ic && channel < a.oc; ++c)
                store_tap<float>(a, part, channel, ky, kx, c, room[(t * C + c) * own_channels + k]);
        }
    }
}

template <int C, bool Planes>
__device__ void weights(const pixels_args &a) {
    unsigned char *const memory = dynamic_shared();
    const unsigned shared = shared_address(memory);
    const unit mine(a);
    for (int block = static_cast<int>(blockIdx.x); block < a.blocks;
         block += static_cast<int>(gridDim.x)) {
        const int channels = a.row_groups * own_channels,
                  first_channel = block % a.channel_blocks * channels;
        const int rest = block / a.channel_blocks, part = rest / a.tap_blocks,
                  first_tap = rest % a.tap_blocks * a.tap_groups * own_taps<C>;
        const int first = part * a.part_items, last = min(a.items, first + a.part_items);
        int taps[own_taps<C>];
        float sums[own_taps<C>][C][own_channels];
#pragma unroll
        for (int t = 0; t < own_taps<C>; ++t) {
            const int tap = min(first_tap + mine.tap * own_taps<C> + t, a.taps_y * a.taps_x - 1);
            taps[t] = a.pixels_at + tap / a.taps_x * a.pitch + tap % a.taps_x * 16;
#pragma unroll
            for (int i = 0; i < C * own_channels; ++i)
                sums[t][i / own_channels][i % own_channels] = 0;
        }
        __syncthreads();
        fill_tables<float>(a, memory);
        for_each_box<float>(
            a, memory, shared, first, last, [] {},
            [&](const box &at, int number) {
                copy_dst<float, Planes>(a, memory, shared, at, a.dst_at + number % 2 * a.dst_bytes,
                    first_channel, channels);
            },
            [&](const box &, int number) {
                if (mine.works)
                    multiply_box<C, Planes>(
                        a, memory, a.dst_at + number % 2 * a.dst_bytes, mine, taps, sums);
            });
        finish<C, Planes>(a, memory, mine, sums, part, first_channel, first_tap);
    }
}

}  // namespace convgrad::cuda::pixels

#define CONVGRAD_PIXELS(name, threads, blocks, body)                                               \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                  \
        name(const __grid_constant__ convgrad::cuda::pixels_args a) {                              \
        using namespace convgrad::cuda;                                                            \
        body(a);                                                                                   \
    }
#define CONVGRAD_PIXELS_SET(C)                                                                     \
    CONVGRAD_PIXELS(pixels_data_c##C##p_f32, convgrad::cuda::pixels_most_threads, 2,               \
        (pixels::forward<C, true>))                                                                \
    CONVGRAD_PIXELS(pixels_data_c##C##c_f32, convgrad::cuda::pixels_most_threads, 2,               \
        (pixels::forward<C, false>))                                                               \
    CONVGRAD_PIXELS(pixels_weights_c##C##p_f32, convgrad::cuda::pixels_most_threads_f32, 1,        \
        (pixels::weights<C, true>))                                                                \
    CONVGRAD_PIXELS(pixels_weights_c##C##c_f32, convgrad::cuda::pixels_most_threads_f32, 1,        \
        (pixels::weights<C, false>))
CONVGRAD_PIXELS_SET(1)
CONVGRAD_PIXELS_SET(3)
CONVGRAD_PIXELS_SET(4)
