// Depthwise layers on tensor cores: 16-bit types, stride 1.
//
// For each row of taps the unit multiplies 16 rows of a window of 16 columns by a band of that
// row's taps: 16 by 8 outputs of one channel. A weights gradient multiplies the same windows,
// turned, by diff_dst, and finds the taps on the diagonals of the sums.
//
// Both need planes, whose rows lie in shared memory as chunks of 8 columns. Where planes are what
// the tensor has, a warp copies those of its channels and needs nobody else. Channels that lie side
// by side are copied as they are while the item before is computed, and then turned: without that
// all blocks load at the same time and compute at the same time (56x56, 7x7 taps: 0.099 -> 0.094
// ms, and 0.118 with fewer loads under way).
#pragma once

#include "depthwise.cuh"
#include "tensor.cuh"

#include "banded_args.hpp"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define CONVGRAD_BANDED 0
#else
#define CONVGRAD_BANDED 1
#endif

#if CONVGRAD_BANDED
namespace convgrad::cuda::banded {

constexpr int channels = banded_channels, slots_of_warp = banded_slots;

/// Slots are in such an order that neither the chunks of eight channels that lie side by side meet
/// in a bank, nor those of every second pair.
template <bool Planes>
__device__ inline int channel_of(int slot) {
    if (Planes) return slot;
    const int high = slot / 8;
    return high * 8 + slot / 4 % 2 * 4 + (slot % 2 ^ high) * 2 + slot / 2 % 2;
}
/// Where channels lie side by side.
__device__ inline int slot_of(int channel) {
    const int high = channel / 8;
    return high * 8 + channel / 4 % 2 * 4 + channel % 2 * 2 + (channel / 2 % 2 ^ high);
}

/// Planes of a warp are its own where channels are; else the block turns them together.
template <bool Planes>
__device__ inline void sync() {
    if (Planes)
        __syncwarp();
    else
        __syncthreads();
}

/// What an item is: images from n on, and a box of them.
struct box {
    int n, y, x;
};
__device__ inline box box_of(const banded_args &a, int item) {
    const int strip = item % a.strips, rest = item / a.strips;
    return {rest / a.bands * a.images, rest % a.bands * a.band_rows, strip * a.strip_columns};
}

/// Tables say where units of an item lie, which is the same for all items: bytes in shared memory,
/// elements in memory, row, and column with the image above it.
constexpr int image_bit = 16;

/// Units of rows of images, `width` columns each.
__device__ inline void fill_table(int4 *table, int units, int rows, int images, int width,
    const banded_planes &p, const data_stride_args &strides) {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < images * rows * units; i += banded_threads) {
        const int unit = i % units, row = i / units % rows, image = i / units / rows;
        table[i] = make_int4(image * p.image_bytes + row * p.pitch + unit * width * 2,
            static_cast<int>(image * strides.n + row * strides.x[1] + unit * width * strides.x[2]),
            row, image << image_bit | unit * width);
    }
}
__device__ inline void fill_table(
    unsigned char *memory, const banded_args &a, const banded_planes &p) {
    const data_stride_args strides = {p.n, p.c, {0, p.y, p.x}};
    fill_table(
        reinterpret_cast<int4 *>(memory + p.table_at), p.chunks, p.lines, a.images, 8, p, strides);
}

/// Eight elements, each that is `there`; else zeros.
template <typename T>
__device__ inline void copy_slowly(unsigned to, const T *from, unsigned there) {
    unsigned v[4] = {};
    const unsigned short *const one = reinterpret_cast<const unsigned short *>(from);
#pragma unroll
    for (int i = 0; i < 8; ++i)
        if (there >> i & 1U) v[i / 2] |= static_cast<unsigned>(__ldg(one + i)) << i % 2 * 16;
    store_words(to, v);
}

/// Bits of the first `count` of `most`.
__device__ inline unsigned first_bits(int count, int most) {
    return count >= most ? (1U << most) - 1U : count <= 0 ? 0U : (1U << count) - 1U;
}

/// N chunks of a tile, as sums hold them: two words each, for rows 0 to 7 and 8 to 15.
template <int N>
__device__ inline void store_chunks(unsigned at, const unsigned (&r)[N][2]) {
#pragma unroll
    for (int c = 0; c + 1 < N; c += 2)
        store_matrices(at + c * 16, {r[c][0], r[c][1], r[c + 1][0], r[c + 1][1]});
    if constexpr (N % 2 != 0) store_two_matrices(at + (N - 1) * 16, r[N - 1]);
}

/// The part of a box that lies in its tensor, and where the box starts in memory.
template <typename T>
struct box_inside {
    int first_row, rows, images;  // images: above columns, as in tables
    const T *from;
    __device__ box_inside(
        const banded_args &a, const banded_planes &p, const T *tensor, const box &at, int channel) {
        const int top = at.y + p.first_row;
        first_row = max(0, -top);
        rows = max(0, min(p.live, p.rows - top) - first_row);
        images = min(a.mb - at.n, a.images) << image_bit;
        from = tensor + at.n * p.n + top * p.y + (at.x + p.first_column) * p.x + channel * p.c;
    }
    __device__ bool has(const int4 &unit) const {
        return static_cast<unsigned>(unit.z - first_row) < static_cast<unsigned>(rows)
               && unit.w < images;
    }
};

/// Channels side by side: 8 pixels of 16 channels are a chunk, 16 bytes of a pixel a lane's; so
/// that they can be read as matrices, the halves of every second four pixels change places.
template <typename T, bool Whole>
__device__ inline void copy_pixels(const banded_args &a, const banded_planes &p, const T *tensor,
    const unsigned char *memory, unsigned shared, const box &at, int first_channel) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int half = lane % 2, pixel = lane / 2 % 8, second = lane / 16;
    const int4 *const table = reinterpret_cast<const int4 *>(memory + p.table_at);
    box_inside<T> inside(a, p, tensor, at, first_channel + half * 8);
    const unsigned whole = first_bits(a.base.channels - first_channel - half * 8, 8);
    if (whole == 0) inside.rows = 0;
    const int column = at.x + p.first_column + pixel;
    const T *const from = inside.from + pixel * p.x;
    const unsigned to = shared + p.raw_at + pixel * 32 + (half ^ pixel / 4) * 16;
    const int units = p.lines * p.chunks * a.images;
#pragma unroll 4
    for (int unit = warp * 2 + second; unit < units; unit += 2 * banded_warps) {
        const int4 here = table[unit];
        const bool there =
            inside.has(here)
            && static_cast<unsigned>(column + (here.w & 0xffff)) < static_cast<unsigned>(p.columns);
        if constexpr (Whole)
            copy_async<16>(to + unit * banded_raw_chunk, from + here.y, there);
        else
            copy_slowly(to + unit * banded_raw_chunk, from + here.y, there ? whole : 0U);
    }
}

/// Turns what was copied to planes, two chunks at a time.
__device__ inline void turn_pixels(
    const banded_args &a, const banded_planes &p, const unsigned char *memory, unsigned shared) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int pixel = lane % 8, half = lane / 8 % 2, second = lane / 16;
    const int4 *const table = reinterpret_cast<const int4 *>(memory + p.table_at);
    const unsigned from = shared + p.raw_at + pixel * 32 + (half ^ pixel / 4) * 16;
    const unsigned to = shared + p.at + slot_of(half * 8 + lane % 8) * p.slot_bytes;
    const int units = p.lines * p.chunks * a.images;
#pragma unroll 4
    for (int unit = warp * 2; unit < units; unit += 2 * banded_warps) {
        // A last chunk alone is turned twice.
        const int mine = min(unit + second, units - 1);
        unsigned v[4];
        load_matrices(from + mine * banded_raw_chunk, v);
        store_matrices_turned(to + table[mine].x, v);
    }
}

/// Planes: a warp copies those of its own channels, a lane 8 columns at a time.
template <typename T, int Unit>
__device__ inline void copy_rows(const banded_args &a, const banded_planes &p, const T *tensor,
    const unsigned char *memory, unsigned shared, const box &at, int first_channel) {
    const int lane = static_cast<int>(threadIdx.x) % 32,
              first_slot = static_cast<int>(threadIdx.x) / 32 * slots_of_warp;
    const int4 *const table = reinterpret_cast<const int4 *>(memory + p.table_at);
    const box_inside<T> inside(a, p, tensor, at, first_channel + first_slot);
    const int left = a.base.channels - first_channel - first_slot;
    const unsigned to = shared + p.at + first_slot * p.slot_bytes;
    const int units = p.lines * p.chunks * a.images;
#pragma unroll 2
    for (int unit = lane; unit < units; unit += 32) {
        const int4 here = table[unit];
        const int column = at.x + p.first_column + (here.w & 0xffff);
        const unsigned columns = inside.has(here) ? p.columns : 0;
#pragma unroll
        for (int s = 0; s < slots_of_warp; ++s) {
            const unsigned place = to + here.x + s * p.slot_bytes;
            const T *const from = inside.from + here.y + s * p.c;
            const unsigned most = s < left ? columns : 0;
            if constexpr (Unit == 1) {
                const int end = static_cast<int>(most);
                copy_slowly(place, from, first_bits(end - column, 8) & ~first_bits(-column, 8));
            } else if (most == 0) {
                store_words(place, {0, 0, 0, 0});
            } else {
#pragma unroll
                for (int i = 0; i < 8; i += Unit)
                    copy_async<Unit * 2>(
                        place + i * 2, from + i, static_cast<unsigned>(column + i) < most);
            }
        }
    }
}

/// Starts copies of an item.
template <typename T, bool Planes>
__device__ inline void copy_planes(const banded_args &a, const banded_planes &p, const void *tensor,
    const unsigned char *memory, unsigned shared, int item, int first_channel) {
    const T *const from = static_cast<const T *>(tensor);
    const box at = box_of(a, item);
    if constexpr (Planes) {
        if (p.unit == 4)
            copy_rows<T, 4>(a, p, from, memory, shared, at, first_channel);
        else if (p.unit == 2)
            copy_rows<T, 2>(a, p, from, memory, shared, at, first_channel);
        else
            copy_rows<T, 1>(a, p, from, memory, shared, at, first_channel);
    } else if (p.unit != 1) {
        copy_pixels<T, true>(a, p, from, memory, shared, at, first_channel);
    } else {
        copy_pixels<T, false>(a, p, from, memory, shared, at, first_channel);
    }
}

/// Makes sure that an item's planes are there. Channels side by side have been copied while the
/// item before was computed: they are turned, and the next item's are under way. Warps with planes
/// of their own wait for them, each at its own time.
template <bool Planes, typename Copy, typename Turn>
__device__ inline void prepare(int item, Copy &&copy_item, Turn &&turn) {
    if constexpr (Planes) {
        copy_item(item);
        await_all_copies();
        __syncwarp();
    } else {
        await_all_copies();
        __syncthreads();
        turn();
        __syncthreads();
        copy_item(item + 1);
    }
}

/// What a lane names of four matrices: rows 0 to 7 and 8 to 15 of a tile in one chunk and the next.
__device__ inline unsigned lane_place(const banded_planes &p, bool pairs) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return lane % 8 * p.pitch + lane / 8 % 2 * (pairs ? p.image_bytes : 8 * p.pitch)
           + lane / 16 * 16;
}
/// N chunks of a tile's 16 rows: two words each, for rows 0 to 7 and 8 to 15.
template <int N, bool Turned>
__device__ inline void load_chunks(unsigned at, unsigned (&r)[N][2]) {
#pragma unroll
    for (int c = 0; c + 1 < N; c += 2) {
        unsigned four[4];
        if constexpr (Turned)
            load_matrices_turned(at + c * 16, four);
        else
            load_matrices(at + c * 16, four);
        r[c][0] = four[0];
        r[c][1] = four[1];
        r[c + 1][0] = four[2];
        r[c + 1][1] = four[3];
    }
    if constexpr (N % 2 != 0) load_two_matrices<Turned>(at + (N - 1) * 16, r[N - 1]);
}

/// A number that is known when code is compiled.
template <int N>
struct constant {
    static constexpr int value = N;
};
/// Calls body with the number of column tiles, four at most, as a constant, and the first of them.
template <typename Body>
__device__ inline void for_each_group(int tiles, Body &&body) {
    for (int first = 0; first < tiles; first += 4) switch (tiles - first) {
        case 1:
            body(constant<1>{}, first);
            break;
        case 2:
            body(constant<2>{}, first);
            break;
        case 3:
            body(constant<3>{}, first);
            break;
        default:
            body(constant<4>{}, first);
            break;
        }
}

}  // namespace convgrad::cuda::banded
#endif

#if CONVGRAD_BANDED
#define CONVGRAD_BANDED_KERNEL(name, body)                                                         \
    extern "C" __global__ void __launch_bounds__(convgrad::cuda::banded_threads, 2)                \
        name(const __grid_constant__ convgrad::cuda::banded_args a) {                              \
        using namespace convgrad::cuda;                                                            \
        body(a);                                                                                   \
    }
#else
#define CONVGRAD_BANDED_KERNEL(name, body)                                                         \
    extern "C" __global__ void name(const __grid_constant__ convgrad::cuda::banded_args) {}
#endif
#define CONVGRAD_BANDED_TAPS(pass, K)                                                              \
    CONVGRAD_BANDED_KERNEL(banded_##pass##_k##K##p_bf16, (banded::pass<bf16, K, true>))            \
    CONVGRAD_BANDED_KERNEL(banded_##pass##_k##K##p_f16, (banded::pass<f16, K, true>))              \
    CONVGRAD_BANDED_KERNEL(banded_##pass##_k##K##c_bf16, (banded::pass<bf16, K, false>))           \
    CONVGRAD_BANDED_KERNEL(banded_##pass##_k##K##c_f16, (banded::pass<f16, K, false>))
#define CONVGRAD_BANDED_SETS(pass)                                                                 \
    CONVGRAD_BANDED_TAPS(pass, 3)                                                                  \
    CONVGRAD_BANDED_TAPS(pass, 5)                                                                  \
    CONVGRAD_BANDED_TAPS(pass, 7)
