// Operands as products on tensor cores read them: channels next to each other, in whole pieces of
// 16 bytes, weights with zeros between merged groups.
#include "fold_args.hpp"
#include "tensor.cuh"

namespace convgrad::cuda {
inline namespace code {  // named: nvcc makes names of unnamed ones from the folder

constexpr int threads = pack_threads;

/// Tiles of positions by channels, through shared memory. Both sides are powers of two.
template <typename T>
struct pack_tile {
    const pack_args &p;
    T *turned;     // [channel][position]
    wide *places;  // of positions, -1: beyond the end
    int c_bits, p_bits, pitch;
    wide tiles_c, tiles_p;

    __device__ pack_tile(const pack_args &args, T *memory, wide *places_of, wide all_positions)
        : p(args), turned(memory), places(places_of) {
        c_bits = 31 - __clz(p.tile_channels);
        p_bits = pack_bits - c_bits;
        pitch = (1 << p_bits) + 1;  // odd: neighbouring channels in different banks
        const wide tile_c = 1 << c_bits, tile_p = 1 << p_bits;
        tiles_c = (p.padded_channels + tile_c - 1) / tile_c;
        tiles_p = (all_positions + tile_p - 1) / tile_p;
    }

    /// Reads a tile; zeros where there is nothing.
    __device__ void read(wide group, wide first_c, wide first_p) const {
        const int t = static_cast<int>(threadIdx.x);
        for (int i = t; i < 1 << p_bits; i += threads) {
            unsigned rest = static_cast<unsigned>(first_p) + static_cast<unsigned>(i);
            wide at = group * p.group_stride + first_c * p.channel_stride;
            const bool there = first_p + i < p.positions;
#pragma unroll
            for (int d = 4; d >= 0; --d) {
                const unsigned length = static_cast<unsigned>(p.lengths[d]);
                if (length == 1) continue;
                at += rest % length * p.strides[d];
                rest /= length;
            }
            places[i] = there ? at : -1;
        }
        __syncthreads();
        const int channels = static_cast<int>(p.channels - first_c);
        if (p.lanes_along_positions != 0)
            read_elements(channels, [&](int e, int &c, int &at) {
                c = e >> p_bits;
                at = e & ((1 << p_bits) - 1);
            });
        else
            read_elements(channels, [&](int e, int &c, int &at) {
                c = e & ((1 << c_bits) - 1);
                at = e >> c_bits;
            });
        __syncthreads();
    }

private:
    /// Several loads at once, before any is waited for.
    template <typename Find>
    __device__ void read_elements(int channels, Find &&find) const {
        constexpr int batch = 8;
        const T *const from = static_cast<const T *>(p.from);
        for (int first = static_cast<int>(threadIdx.x); first < 1 << pack_bits;
             first += threads * batch) {
            T v[batch];
#pragma unroll
            for (int i = 0; i < batch; ++i) {
                int c, at;
                find(first + i * threads, c, at);
                const wide place = places[at];
                round_to(v[i], 0.0f);
                if (c < channels && place >= 0) v[i] = from[place + c * p.channel_stride];
            }
#pragma unroll
            for (int i = 0; i < batch; ++i) {
                int c, at;
                find(first + i * threads, c, at);
                turned[c * pitch + at] = v[i];
            }
        }
    }
};

/// [position][group][channel]: pieces of 16 bytes are stored at once.
template <typename T>
__device__ void pack_tiles(const pack_args &p) {
    constexpr int chunk = 16 / sizeof(T);
    __shared__ T turned[(1 << pack_bits) + pack_most_channels];
    __shared__ wide places[(1 << pack_bits) / pack_fewest_channels];
    const pack_tile<T> tile(p, turned, places, p.positions);
    const int piece_bits = tile.c_bits - (sizeof(T) == 2 ? 3 : 2);
    for (wide i = blockIdx.x; i < tile.tiles_c * tile.tiles_p * p.groups; i += gridDim.x) {
        const wide first_c = i % tile.tiles_c << tile.c_bits, rest = i / tile.tiles_c,
                   group = rest % p.groups, first_p = rest / p.groups << tile.p_bits;
        __syncthreads();
        tile.read(group, first_c, first_p);
#pragma unroll 2
        for (int e = static_cast<int>(threadIdx.x); e < (1 << pack_bits) / chunk; e += threads) {
            const int c = (e & ((1 << piece_bits) - 1)) * chunk, at = e >> piece_bits;
            if (first_p + at >= p.positions || first_c + c >= p.padded_channels) continue;
            __align__(16) T piece[chunk];
#pragma unroll
            for (int k = 0; k < chunk; ++k) piece[k] = turned[(c + k) * tile.pitch + at];
            *reinterpret_cast<uint4 *>(static_cast<T *>(p.to)
                                       + ((first_p + at) * p.groups + group) * p.padded_channels
                                       + first_c + c) = *reinterpret_cast<const uint4 *>(piece);
        }
    }
}

/// Eight 16-bit values, of which `count` are there, by words of `U` values.
template <int U>
__device__ inline uint4 load_run(const unsigned short *from, int count) {
    __align__(16) unsigned short v[8];
#pragma unroll
    for (int i = 0; i < 8; i += U) {
        if constexpr (U == 8)
            *reinterpret_cast<uint4 *>(v) =
                count > 0 ? *reinterpret_cast<const uint4 *>(from) : make_uint4(0, 0, 0, 0);
        else if constexpr (U == 4)
            *reinterpret_cast<uint2 *>(v + i) =
                i < count ? *reinterpret_cast<const uint2 *>(from + i) : make_uint2(0, 0);
        else if constexpr (U == 2)
            *reinterpret_cast<unsigned *>(v + i) =
                i < count ? *reinterpret_cast<const unsigned *>(from + i) : 0;
        else
            v[i] = i < count ? from[i] : static_cast<unsigned short>(0);
    }
    return *reinterpret_cast<const uint4 *>(v);
}

/// Where eight positions of a channel lie in a tile: pieces are exchanged, so that what is stored
/// together and what is loaded together lie in different banks.
__device__ inline unsigned plane_piece(int channel, int piece) {
    return static_cast<unsigned>(channel) * (plane_tile * 2)
           + static_cast<unsigned>(piece ^ ((channel >> 3 & 3) << 1 | (channel & 1))) * 16;
}

/// Tiles of 64 channels by 64 positions of one image. A thread gets the eight channels of one
/// position that it stores by turned loads of matrices, whose rows are named in that order.
template <int U>
__device__ void pack_planes(const plane_args &p) {
    __shared__ __align__(128) unsigned char tile[plane_tile * plane_tile * 2];
    const unsigned memory = shared_address(tile);
    const int t = static_cast<int>(threadIdx.x), lane = t % 32, warp = t / 32;
    const unsigned tiles_c = static_cast<unsigned>(p.channels + plane_tile - 1) / plane_tile,
                   tiles_x = static_cast<unsigned>(p.positions + plane_tile - 1) / plane_tile;
    for (unsigned i = blockIdx.x; i < tiles_c * tiles_x * static_cast<unsigned>(p.images);
         i += gridDim.x) {
        const int first_c = static_cast<int>(i % tiles_c) * plane_tile,
                  first_x = static_cast<int>(i / tiles_c % tiles_x) * plane_tile;
        const wide image = i / tiles_c / tiles_x;
        const unsigned short *const from =
            static_cast<const unsigned short *>(p.from) + image * p.image_stride + first_x;
        uint4 piece[2];
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            const int c = t / 8 + k * 32, x = t % 8 * 8;
            piece[k] = load_run<U>(from + (first_c + c) * p.channel_stride + x,
                first_c + c < p.channels ? p.positions - first_x - x : 0);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 2; ++k)
            *reinterpret_cast<uint4 *>(tile + plane_piece(t / 8 + k * 32, t % 8)) = piece[k];
        __syncthreads();
        // A warp: eight positions of all channels.
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            const int r = lane % 8, c = k * 32 + (r >> 1) * 8 + lane / 8 * 2 + (r & 1);
            unsigned v[4];
            load_matrices_turned(memory + plane_piece(c, warp), v);
            const int x = first_x + warp * 8 + lane / 4, channel = first_c + k * 32 + lane % 4 * 8;
            if (x >= p.positions || channel >= p.channels) continue;
            *reinterpret_cast<uint4 *>(static_cast<unsigned short *>(p.to)
                                       + (image * p.positions + x) * p.channels + channel) =
                make_uint4(v[0], v[1], v[2], v[3]);
        }
    }
}

/// f32 as rows of positions, [group][channel][position], split into TF32 parts.
__device__ void turn_tiles(const pack_args &p) {
    __shared__ float turned[(1 << pack_bits) + pack_most_channels];
    __shared__ wide places[(1 << pack_bits) / pack_fewest_channels];
    const pack_tile<float> tile(p, turned, places, p.padded_positions);
    for (wide i = blockIdx.x; i < tile.tiles_c * tile.tiles_p * p.groups; i += gridDim.x) {
        const wide first_c = i % tile.tiles_c << tile.c_bits, rest = i / tile.tiles_c,
                   group = rest % p.groups, first_p = rest / p.groups << tile.p_bits;
        __syncthreads();
        tile.read(group, first_c, first_p);
#pragma unroll 4
        for (int e = static_cast<int>(threadIdx.x); e < 1 << pack_bits; e += threads) {
            const int c = e >> tile.p_bits, at = e & ((1 << tile.p_bits) - 1);
            if (first_c + c >= p.channels || first_p + at >= p.padded_positions) continue;
            float *const to = static_cast<float *>(p.to)
                              + (group * p.channels + first_c + c) * p.padded_positions + first_p
                              + at;
            unsigned large = __float_as_uint(turned[c * tile.pitch + at]), small;
            split(large, small);
            *to = __uint_as_float(large);
            if (p.small != 0) to[p.small] = __uint_as_float(round_tf32(small));
        }
    }
}

/// Weights of merged groups [group][out channel][tap][channel], in tiles of 32 by 32 channels of
/// one tap, turned in shared memory.
template <typename T>
__device__ void merge_weights(const merge_args &p) {
    __shared__ T turned[32][33];
    const int t = static_cast<int>(threadIdx.x), fast = t % 32, slow = t / 32;
    const int taps = static_cast<int>(p.taps[0] * p.taps[1] * p.taps[2]),
              out = static_cast<int>(p.out * p.merged), in = static_cast<int>(p.in * p.merged);
    const unsigned tiles_c = static_cast<unsigned>((p.padded + 31) / 32),
                   tiles_o = static_cast<unsigned>(out + 31) / 32,
                   tiles = static_cast<unsigned>(p.groups * taps) * tiles_o * tiles_c;
    for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int first_c = static_cast<int>(tile % tiles_c) * 32,
                  first_o = static_cast<int>(tile / tiles_c % tiles_o) * 32,
                  tap = static_cast<int>(tile / tiles_c / tiles_o) % taps;
        const wide group = static_cast<int>(tile / tiles_c / tiles_o) / taps;
        wide tap_at = 0;
        for (int d = 2, k = tap; d >= 0; --d) {
            tap_at += k % static_cast<int>(p.taps[d]) * p.tap_strides[d];
            k /= static_cast<int>(p.taps[d]);
        }
        __syncthreads();
        constexpr int rounds = 32 / (threads / 32);
        T v[rounds];
#pragma unroll
        for (int i = 0; i < rounds; ++i) {
            const int row = slow + i * (threads / 32),
                      o = first_o + (p.lanes_along_out != 0 ? fast : row),
                      c = first_c + (p.lanes_along_out != 0 ? row : fast);
            const int own_o = p.merged == 1 ? 0 : o / static_cast<int>(p.out),
                      own_c = p.merged == 1 ? 0 : c / static_cast<int>(p.in);
            round_to(v[i], 0.0f);
            if (o < out && c < in && own_c == own_o)
                v[i] = static_cast<const T *>(
                    p.from)[tap_at + (group * p.merged + own_o) * p.group_stride
                            + (o - own_o * static_cast<int>(p.out)) * p.out_stride
                            + (c - own_c * static_cast<int>(p.in)) * p.in_stride];
        }
#pragma unroll
        for (int i = 0; i < rounds; ++i) {
            const int row = slow + i * (threads / 32);
            (p.lanes_along_out != 0 ? turned[fast][row] : turned[row][fast]) = v[i];
        }
        __syncthreads();
        for (int i = slow; i < 32; i += threads / 32) {
            const int o = first_o + i, c = first_c + fast;
            if (o >= out || c >= p.padded) continue;
            const wide at = ((group * out + o) * taps + tap) * p.padded + c;
            T v = turned[i][fast];
            if constexpr (sizeof(T) == 4) {
                unsigned large = __float_as_uint(v), small;
                split(large, small);
                v = __uint_as_float(large);
                if (p.small != 0)
                    static_cast<T *>(p.to)[p.small + at] = __uint_as_float(round_tf32(small));
            }
            static_cast<T *>(p.to)[at] = v;
        }
    }
}

/// Weights as columns of a fold: few, one thread for each.
template <typename T>
__device__ void fold_weights(const fold_weights_args &a) {
    const data_args &p = a.fold.data;
    const int all = a.rows * a.fold.padded, channels = static_cast<int>(p.out_channels);
    for (int i = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x); i < all;
         i += static_cast<int>(gridDim.x) * threads) {
        const int column = i / a.fold.padded, c = i % a.fold.padded;
        T v;
        round_to(v, 0.0f);
        if (column < a.fold.columns && a.fold.order[column] != fold_no_column
            && c < p.in_channels) {
            wide at = c * p.w_in + a.fold.order[column] % channels * p.w_out;
            for (int d = 2, tap = a.fold.order[column] / channels; d >= 0; --d) {
                at += tap % static_cast<int>(p.x[d].kernel) * p.w_tap[d];
                tap /= static_cast<int>(p.x[d].kernel);
            }
            v = static_cast<const T *>(a.from)[at];
        }
        if constexpr (sizeof(T) == 4) {
            unsigned large = __float_as_uint(v), small;
            split(large, small);
            v = __uint_as_float(large);
            if (a.fold.small != 0)
                static_cast<T *>(a.to)[a.fold.small + i] = __uint_as_float(round_tf32(small));
        }
        static_cast<T *>(a.to)[i] = v;
    }
}

}  // namespace code

#define CONVGRAD_PACK(type, T)                                                                     \
    extern "C" __global__ void __launch_bounds__(threads)                                          \
        pack_##type(const __grid_constant__ pack_args p) {                                         \
        pack_tiles<T>(p);                                                                          \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(threads)                                          \
        merge_weights_##type(const __grid_constant__ merge_args p) {                               \
        merge_weights<T>(p);                                                                       \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(threads)                                          \
        fold_weights_##type(const __grid_constant__ fold_weights_args p) {                         \
        fold_weights<T>(p);                                                                        \
    }
extern "C" __global__ void __launch_bounds__(threads)
    turn_f32(const __grid_constant__ pack_args p) {
    turn_tiles(p);
}
#define CONVGRAD_PLANES(unit)                                                                      \
    extern "C" __global__ void __launch_bounds__(threads)                                          \
        pack_planes_##unit(const __grid_constant__ plane_args p) {                                 \
        pack_planes<unit>(p);                                                                      \
    }
CONVGRAD_PLANES(1)
CONVGRAD_PLANES(2)
CONVGRAD_PLANES(4)
CONVGRAD_PLANES(8)
CONVGRAD_PACK(f32, float)
CONVGRAD_PACK(bf16, bf16)
CONVGRAD_PACK(f16, f16)

}  // namespace convgrad::cuda
