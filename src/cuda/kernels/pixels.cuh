// First layers: one group of 1 to 4 input channels, read as whole pixels.
//
// What a box of outputs reads is copied to shared memory as it lies in the tensor, while the box
// before is computed, and then put in order there: pixels of four channels, zeros for those that
// are missing and for padding. A tap is then a step of so many bytes, and neighbouring taps of a
// row are terms side by side, whatever the tensor's layout.
#pragma once

#include "implicit.cuh"
#include "instructions.cuh"
#include "pixels_args.hpp"

namespace convgrad::cuda::pixels {

template <typename T>
constexpr int pixel_bytes = 4 * sizeof(T);

/// What a pixel is stored as, and whose overload loads it.
template <int Bytes>
struct bits_of;
template <>
struct bits_of<2> {
    using type = bf16;
    using pixel = uint2;
};
template <>
struct bits_of<4> {
    using type = float;
    using pixel = uint4;
};

__device__ inline int lane_of() {
    return static_cast<int>(threadIdx.x) % 32;
}
__device__ inline int warp_of() {
    return static_cast<int>(threadIdx.x) / 32;
}
__device__ inline int warps() {
    return static_cast<int>(blockDim.x) / 32;
}

/// Where an item is, and how much of it lies in the tensor.
struct box {
    int n, y, x, rows, columns;
};
__device__ inline box box_of(const pixels_args &a, int item) {
    const int strip = item % a.strips, rest = item / a.strips;
    box at;
    at.n = rest / a.bands;
    at.y = rest % a.bands * a.box_rows;
    at.x = strip * a.box_columns;
    at.rows = min(a.box_rows, a.out_rows - at.y);
    at.columns = min(a.box_columns, a.out_columns - at.x);
    return at;
}

/// Tables of a block, by position: bytes to its first pixel, elements to its output, and its row
/// above its column. Those that only fill a tile have the last pixels, and no row that is there.
template <typename T>
__device__ inline void fill_tables(const pixels_args &a, unsigned char *memory) {
    int *const places = reinterpret_cast<int *>(memory + a.places_at),
               *const outs = reinterpret_cast<int *>(memory + a.outs_at),
               *const cells = reinterpret_cast<int *>(memory + a.cells_at);
    for (int f = static_cast<int>(threadIdx.x); f < a.padded_positions;
         f += static_cast<int>(blockDim.x)) {
        const int real = min(f, a.positions - 1), row = real / a.box_columns,
                  column = real % a.box_columns, x = column * a.stride_x;
        int place = a.phases > 1 ? column * pixel_bytes<T> : x * pixel_bytes<T>;
        if (a.copy != 0 && x % 2 != 0) place += a.copy + pixel_bytes<T>;
        places[f] = row * a.stride_y * a.pitch + place;
        outs[f] = static_cast<int>(row * a.dst_y + column * a.dst_x);
        cells[f] = f < a.positions ? row << 16 | column : 0x7fff0000;
    }
}
__device__ inline bool is_inside(const box &at, int cell) {
    return cell >> 16 < at.rows && (cell & 0xffff) < at.columns;
}

/// What a box reads: from a row and a column on, which may lie beside the tensor, and the columns
/// that do not.
struct window {
    int row, column, start, end;
};
__device__ inline window window_of(const pixels_args &a, const box &at) {
    window w;
    w.row = at.y * a.stride_y - a.pad_y;
    w.column = at.x * a.stride_x - a.pad_x;
    w.start = max(w.column, 0);
    w.end = min(a.in_columns, w.column + a.line_columns);
    return w;
}
/// Where the first line of a window starts in memory.
template <typename T>
__device__ inline const T *first_line(const pixels_args &a, const box &at, const window &w) {
    return static_cast<const T *>(a.src) + at.n * a.src_n + w.row * a.src_y + w.start * a.src_x;
}

/// 16 bytes at the end of a tensor, of which some are not its own.
template <typename T>
__device__ __noinline__ void copy_edge(const pixels_args &a, unsigned char *to, const char *from) {
    const char *const begin = static_cast<const char *>(a.src), *const end = begin + a.src_bytes;
    for (int i = 0; i < 16; i += static_cast<int>(sizeof(T)))
        if (from + i >= begin && from + i < end)
            *reinterpret_cast<T *>(to + i) = *reinterpret_cast<const T *>(from + i);
}

/// Starts copies of all lines that are there, as they lie: the pieces of 16 bytes that they have a
/// part in, so that lines need not be aligned.
template <typename T>
__device__ inline void copy_lines(
    const pixels_args &a, unsigned char *memory, unsigned shared, const box &at) {
    const window w = window_of(a, at);
    const int lines = a.raw_inside != 0 ? 1 : a.ic, across = a.raw_inside != 0 ? a.ic : 1;
    const int bytes = max(0, w.end - w.start) * across * static_cast<int>(sizeof(T));
    const char *const first = reinterpret_cast<const char *>(first_line<T>(a, at, w)),
                      *const begin = static_cast<const char *>(a.src),
                      *const end = begin + a.src_bytes;
    const wide down = a.src_y * int{sizeof(T)}, next = a.src_c * int{sizeof(T)};
    for (int i = warp_of(); i < a.line_rows * lines; i += warps()) {
        const int row = lines == 1 ? i : i / lines, channel = i - row * lines;
        if (static_cast<unsigned>(w.row + row) >= static_cast<unsigned>(a.in_rows)) continue;
        const char *from = first + row * down + channel * next;
        const int before = static_cast<int>(reinterpret_cast<std::uintptr_t>(from) % 16),
                  pieces = bytes == 0 ? 0 : (before + bytes + 15) / 16;
        from += lane_of() * 16 - before;
        const int to = a.raw_at + i * a.raw_pitch;
        const bool whole =
            from - lane_of() * 16 >= begin && from + (pieces - lane_of()) * 16 <= end;
        for (int k = lane_of(); k < pieces; k += 32) {
            if (whole || (from >= begin && from + 16 <= end))
                copy_async<16>(shared + to + k * 16, from);
            else
                copy_edge<T>(a, memory + to + k * 16, from);
            from += 32 * 16;
        }
    }
}
/// The same where neighbours do not lie side by side: one element after the other.
template <typename T>
__device__ __noinline__ void gather_lines(
    const pixels_args &a, unsigned char *memory, const box &at) {
    const window w = window_of(a, at);
    const T *const first = first_line<T>(a, at, w);
    const int count = max(0, w.end - w.start) * a.ic;
    for (int row = warp_of(); row < a.line_rows; row += warps()) {
        if (static_cast<unsigned>(w.row + row) >= static_cast<unsigned>(a.in_rows)) continue;
        T *const line = reinterpret_cast<T *>(memory + a.raw_at + row * a.raw_pitch);
        for (int k = lane_of(); k < count; k += 32) {
            const int x = k / a.ic, c = k - x * a.ic;
            line[k] = first[row * a.src_y + x * a.src_x + c * a.src_c];
        }
    }
}

/// A pixel of `count` channels that lie so far from `at`; `Three`: side by side.
template <bool Three>
__device__ inline uint2 load_pixel(
    const unsigned char *at, const int (&channel)[4], int count, int offset, bf16 /*type*/) {
    if constexpr (Three) {
        // Six bytes of two words, from the first or the second half on.
        const int place = channel[0] + offset;
        const unsigned *const words = reinterpret_cast<const unsigned *>(at + (place & ~3));
        const unsigned shift = (place & 2) * 8, high = words[1];
        return make_uint2(__funnelshift_r(words[0], high, shift), high >> shift & 0xffff);
    } else {
        unsigned half[4];
#pragma unroll
        for (int c = 0; c < 4; ++c)
            half[c] = c < count
                          ? *reinterpret_cast<const unsigned short *>(at + channel[c] + offset)
                          : 0U;
        return make_uint2(half[0] | half[1] << 16, half[2] | half[3] << 16);
    }
}
template <bool Three>
__device__ inline uint4 load_pixel(
    const unsigned char *at, const int (&channel)[4], int count, int offset, float /*type*/) {
    unsigned v[4];
#pragma unroll
    for (int c = 0; c < 4; ++c)
        v[c] = c < (Three ? 3 : count)
                   ? *reinterpret_cast<const unsigned *>(at + channel[c] + offset)
                   : 0U;
    return make_uint4(v[0], v[1], v[2], v[3]);
}
/// What is there, or zeros.
__device__ inline uint2 only_if(bool there, const uint2 &v) {
    return make_uint2(there ? v.x : 0, there ? v.y : 0);
}
__device__ inline uint4 only_if(bool there, const uint4 &v) {
    return make_uint4(there ? v.x : 0, there ? v.y : 0, there ? v.z : 0, there ? v.w : 0);
}

/// Puts what was copied in order: lines of whole pixels of three channels (`Three`), or any.
template <typename T, bool Three>
__device__ inline void make_pixels(const pixels_args &a, unsigned char *memory, const box &at) {
    using type = typename bits_of<sizeof(T)>::type;
    using pixel = typename bits_of<sizeof(T)>::pixel;
    const bool inside = Three || a.raw_inside != 0;
    const int channels = Three ? 3 : a.ic,
              step = (inside ? channels : 1) * static_cast<int>(sizeof(T));
    const window w = window_of(a, at);
    // How far lines start behind 16 bytes: the low bits of addresses are enough.
    const unsigned first = static_cast<unsigned>(
                       reinterpret_cast<std::uintptr_t>(first_line<T>(a, at, w))),
                   down = static_cast<unsigned>(a.src_y) * sizeof(T),
                   next = static_cast<unsigned>(a.src_c) * sizeof(T), mask = a.unit == 0 ? 0 : 15;
    const int lane = lane_of(), low = w.start - w.column, width = max(0, w.end - w.start);
    for (int row = warp_of(); row < a.line_rows; row += warps()) {
        const bool there = static_cast<unsigned>(w.row + row) < static_cast<unsigned>(a.in_rows);
        const unsigned columns = there ? width : 0, line = first + row * down;
        int channel[4];
#pragma unroll
        for (int c = 0; c < 4; ++c)
            channel[c] = inside ? static_cast<int>(line & mask) + c * int{sizeof(T)}
                                : static_cast<int>((line + c * next) & mask) + c * a.raw_pitch;
        const unsigned char *const from =
            memory + a.raw_at + row * (inside ? 1 : channels) * a.raw_pitch;
        unsigned char *to = memory + a.pixels_at + row * a.pitch;
        const int phases = sizeof(T) == 2 ? 1 : a.phases;
        for (int phase = 0; phase < phases; ++phase) {
            constexpr int batch = 2;  // pixels that are loaded before the first one is stored
            for (int j = lane; j < a.phase_columns; j += 32 * batch) {
                pixel v[batch];
#pragma unroll
                for (int u = 0; u < batch; ++u) {
                    const int x = (j + u * 32) * phases + phase - low;
                    const bool real = static_cast<unsigned>(x) < columns;
                    v[u] = only_if(real,
                        load_pixel<Three>(from, channel, channels, (real ? x : 0) * step, type{}));
                }
#pragma unroll
                for (int u = 0; u < batch; ++u) {
                    if (j + u * 32 >= a.phase_columns) continue;
                    pixel *const place = reinterpret_cast<pixel *>(to) + j + u * 32;
                    *place = v[u];
                    if (sizeof(T) == 2 && a.copy != 0)
                        *reinterpret_cast<pixel *>(
                            reinterpret_cast<unsigned char *>(place + 1) + a.copy) = v[u];
                }
            }
            to += a.phase_pitch;
        }
    }
}

/// Calls body(box, number) for items from `first` to `last` with their pixels in order; copies of
/// the next one, which `also` adds to, are under way then, and those of the first one when
/// `meanwhile` is called.
template <typename T, typename Meanwhile, typename Also, typename Body>
__device__ inline void for_each_box(const pixels_args &a, unsigned char *memory, unsigned shared,
    int first, int last, Meanwhile &&meanwhile, Also &&also, Body &&body) {
    const auto start = [&](int item) {
        if (item >= last) return;
        const box at = box_of(a, item);
        if (a.unit != 0)
            copy_lines<T>(a, memory, shared, at);
        else
            gather_lines<T>(a, memory, at);
        also(at, item - first);
    };
    __syncthreads();
    start(first);
    meanwhile();
    for (int item = first; item < last; ++item) {
        const box at = box_of(a, item);
        await_all_copies();
        __syncthreads();
        if (a.ic == 3 && a.raw_inside != 0)
            make_pixels<T, true>(a, memory, at);
        else
            make_pixels<T, false>(a, memory, at);
        __syncthreads();
        start(item + 1);
        body(at, item - first);
    }
}

/// One output as the specification has it, without bias and what comes after.
template <typename T>
__device__ __noinline__ float careful_position(
    const pixels_args &a, const box &at, int cell, int channel) {
    axis_phase<int> phase[3];
    for (int d = 0; d < 3; ++d) phase[d] = make_phase<int>(a.data.x[d], false, 0);
    const int y = at.y + (cell >> 16), x = at.x + (cell & 0xffff);
    return careful_output<T>(a.data, phase, (at.n * a.out_rows + y) * a.out_columns + x, channel);
}

/// Stores one sum, whatever happens to it before. Zeros of padding, of missing taps and of missing
/// channels may have met something that is not finite: it is NaN then, and computed again.
template <typename T>
__device__ inline void store_sum(
    const pixels_args &a, const unsigned char *memory, const box &at, int f, int channel, float v) {
    const int cell = reinterpret_cast<const int *>(memory + a.cells_at)[f];
    if (channel >= a.oc || !is_inside(at, cell)) return;
    if (v != v) v = careful_position<T>(a, at, cell, channel);
    const epilogue_args &e = a.data.end;
    const int y = at.y + (cell >> 16), x = at.x + (cell & 0xffff);
    store_result<T>(e, v, channel, at.n * a.dst_n + y * a.dst_y + x * a.dst_x + channel * a.dst_c,
        at.n * e.add_strides.n + y * e.add_strides.x[1] + x * e.add_strides.x[2]
            + channel * e.add_strides.c);
}

/// Bias of a block's channels, zeros where there is none.
template <typename T>
__device__ inline void load_bias(
    const pixels_args &a, unsigned char *memory, int first_channel, int channels) {
    const epilogue_args &e = a.data.end;
    float *const bias = reinterpret_cast<float *>(memory + a.bias_at);
    for (int i = static_cast<int>(threadIdx.x); i < channels; i += static_cast<int>(blockDim.x))
        bias[i] = e.bias != nullptr && first_channel + i < a.oc
                      ? to_f32(static_cast<const T *>(e.bias)[(first_channel + i) * e.bias_stride])
                      : 0.0f;
}

/// One weight's gradient over items, without the products that padding took part in.
template <typename T>
__device__ __noinline__ float careful_tap(
    const pixels_args &a, int channel, int ky, int kx, int c, int first, int last) {
    const T *const src = static_cast<const T *>(a.src) + c * a.src_c, *const dst =
                                                                          static_cast<const T *>(
                                                                              a.other)
                                                                          + channel * a.dst_c;
    float v = 0;
    for (int item = first; item < last; ++item) {
        const box at = box_of(a, item);
        for (int y = at.y; y < at.y + at.rows; ++y)
            for (int x = at.x; x < at.x + at.columns; ++x) {
                const int row = y * a.stride_y + ky - a.pad_y,
                          column = x * a.stride_x + kx - a.pad_x;
                if (row < 0 || row >= a.in_rows || column < 0 || column >= a.in_columns) continue;
                v = fmaf(to_f32(src[at.n * a.src_n + row * a.src_y + column * a.src_x]),
                    to_f32(dst[at.n * a.dst_n + y * a.dst_y + x * a.dst_x]), v);
            }
    }
    return v;
}

/// Stores one weight's gradient of a part.
template <typename T>
__device__ inline void store_tap(
    const pixels_args &a, int part, int channel, int ky, int kx, int c, float v) {
    if (v != v)
        v = careful_tap<T>(
            a, channel, ky, kx, c, part * a.part_items, min(a.items, (part + 1) * a.part_items));
    a.weights.partial[((static_cast<wide>(part) * a.oc + channel) * a.taps_y * a.taps_x
                          + ky * a.taps_x + kx)
                          * a.ic
                      + c] = v;
}

/// Element by element, neighbours in memory by neighbouring threads.
template <typename T, bool Planes>
__device__ __noinline__ void gather_dst(const pixels_args &a, unsigned char *memory,
    unsigned shared, const box &at, int to, const T *from, int channels) {
    const int *const outs = reinterpret_cast<const int *>(memory + a.outs_at),
                     *const cells = reinterpret_cast<const int *>(memory + a.cells_at);
    const int inner = Planes ? a.padded_positions : channels,
              outer = Planes ? channels : a.padded_positions;
    for (int i = warp_of(); i < outer; i += warps())
#pragma unroll 4
        for (int k = lane_of(); k < inner; k += 32) {
            const int f = Planes ? k : i, channel = Planes ? i : k;
            const bool inside = is_inside(at, cells[f]);
            const T *const source = from + outs[f] + channel * a.dst_c;
            const int place = to + i * a.dst_pitch + k * static_cast<int>(sizeof(T));
            if constexpr (sizeof(T) == 4) {
                copy_async<4>(shared + place, source, inside);
            } else {
                T v;
                round_to(v, 0.0f);
                if (inside) v = *source;
                *reinterpret_cast<T *>(memory + place) = v;
            }
        }
}

/// Starts copies of a box of diff_dst: positions of so many channels, or (planes) channels of
/// positions. Positions that are not there are zeros.
template <typename T, bool Planes>
__device__ inline void copy_dst(const pixels_args &a, unsigned char *memory, unsigned shared,
    const box &at, int to, int first_channel, int channels) {
    constexpr int piece = 16 / sizeof(T);
    const int *const outs = reinterpret_cast<const int *>(memory + a.outs_at),
                     *const cells = reinterpret_cast<const int *>(memory + a.cells_at);
    const T *const from = static_cast<const T *>(a.other) + at.n * a.dst_n + at.y * a.dst_y
                          + at.x * a.dst_x + first_channel * a.dst_c;
    const int there = min(channels, a.oc - first_channel), threads = static_cast<int>(blockDim.x);
    if (a.dst_unit != 16) {
        gather_dst<T, Planes>(a, memory, shared, at, to, from, there);
        return;
    }
    // Pieces of a position's channels, or of a channel's positions.
    const int inner = Planes ? a.padded_positions / piece : (there + piece - 1) / piece,
              outer = Planes ? there : a.padded_positions;
    int i = static_cast<int>(threadIdx.x) / inner, k = static_cast<int>(threadIdx.x) % inner;
    const int i_step = threads / inner, k_step = threads % inner;
    while (i < outer) {
        const int f = Planes ? k * piece : i, channel = Planes ? i : k * piece;
        const unsigned place = shared + to + i * a.dst_pitch + k * 16;
        const bool first = is_inside(at, cells[f]);
        const T *const source = from + outs[f] + channel * a.dst_c;
        if (!Planes || !first || is_inside(at, cells[f + piece - 1])) {
            copy_async<16>(place, source, first);
        } else {
            T *const line = reinterpret_cast<T *>(memory + to + i * a.dst_pitch + k * 16);
#pragma unroll 1
            for (int e = 0; e < piece; ++e) {
                round_to(line[e], 0.0f);
                if (is_inside(at, cells[f + e])) line[e] = source[outs[f + e] - outs[f]];
            }
        }
        k += k_step;
        i += i_step;
        if (k >= inner) {
            k -= inner;
            ++i;
        }
    }
}

}  // namespace convgrad::cuda::pixels
