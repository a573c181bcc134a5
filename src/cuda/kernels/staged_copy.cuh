// Rows of a tensor on their way to shared memory, as staged kernels copy them.
#pragma once

#include "instructions.cuh"

namespace convgrad::cuda::staged {

/// Copies 16, 8 or 4 bytes; which is the same for all threads.
__device__ inline void copy_async(unsigned to, const void *from, int bytes) {
    if (bytes == 16)
        cuda::copy_async<16>(to, from);
    else if (bytes == 8)
        cuda::copy_async<8>(to, from);
    else
        cuda::copy_async<4>(to, from);
}

/// What of each row a thread copies to where, for one block.
struct copier {
    int row;           // the first row that it copies
    int to;            // where that is in shared memory, without the row
    int from;          // and in the image
    int lines, units;  // of the block: at the ends of tensors fewer than usual
};

template <bool Planes>
__device__ inline copier make_copier(
    const staged_copy &c, int channel, int channels, int strip, int block_channels) {
    const int t = static_cast<int>(threadIdx.x);
    const int low = max(0, strip * c.strip_step + c.first) / c.unit_columns * c.unit_columns;
    const int high = min(c.columns, strip * c.strip_step + c.first + c.window);
    const int to = low + c.shift - strip * c.strip_step;
    const int columns = max(0, high - low), most = min(block_channels, channels - channel);
    copier k;
    k.units = ((Planes ? columns : most) + c.unit - 1) / c.unit;
    k.lines = Planes ? most : columns;
    const int row_chunks = c.lines * c.units;
    k.row = c.row_step > 1 ? t / row_chunks : 0;
    const int q = t - k.row * row_chunks, line = q / c.units, unit = q - line * c.units;
    k.to = (Planes ? to : to * c.line) + line * c.line + unit * c.unit;
    k.from = static_cast<int>(channel * c.c + low * c.x + line * c.line_step + unit * c.unit_step);
    if (k.row >= c.row_step || (c.row_step > 1 && (line >= k.lines || unit >= k.units)))
        k.row = 1 << 30;
    return k;
}

/// One chunk of each of a thread's rows among rows 0 … count − 1, which go to slots from `slot` on.
template <typename T>
__device__ inline void copy_column(
    const staged_copy &c, T *to, int slots, int slot, const T *from, int first, int count) {
    const wide step = c.row_step * c.y;
    from += first * c.y;
    if (sizeof(T) == 2 && c.unit == 1) {
        // No copy moves single short values by itself: a few are on their way at once.
        constexpr int ahead = 4;
        for (int r = first; r < count; r += ahead * c.row_step) {
            T v[ahead];
#pragma unroll
            for (int i = 0; i < ahead; ++i)
                if (r + i * c.row_step < count) v[i] = __ldg(from + i * step);
#pragma unroll
            for (int i = 0; i < ahead; ++i) {
                int at = slot + r + i * c.row_step;
                if (at >= slots) at -= slots;
                if (r + i * c.row_step < count) to[at * c.row] = v[i];
            }
            from += ahead * step;
        }
        return;
    }
    const unsigned base = shared_address(to), row = c.row * static_cast<unsigned>(sizeof(T));
    const int bytes = c.unit * static_cast<int>(sizeof(T));
#pragma unroll 2
    for (int r = first; r < count; r += c.row_step) {
        int at = slot + r;
        if (at >= slots) at -= slots;
        copy_async(base + static_cast<unsigned>(at) * row, from, bytes);
        from += step;
    }
}
/// Copies rows row … row + count − 1 of an image to slots of a ring, from `slot` on.
template <typename T>
__device__ inline void copy_rows(const staged_copy &c, const copier &k, T *ring, int slots,
    int slot, const T *image, int row, int count) {
    image += row * c.y + k.from;
    ring += k.to;
    int line = 0, unit = 0;
    if (c.row_step == 1) {
        line = static_cast<int>(threadIdx.x) / c.units;
        unit = static_cast<int>(threadIdx.x) - line * c.units;
    }
#pragma unroll 1
    while (line < k.lines) {
        if (unit < k.units) copy_column<T>(c, ring, slots, slot, image, k.row, count);
        if (c.row_step > 1) break;
        // More chunks in a row than threads.
        unit += c.next_unit;
        line += c.next_line;
        ring += c.next_line * c.line + c.next_unit * c.unit;
        image += c.next_line * c.line_step + c.next_unit * c.unit_step;
        if (unit >= c.units) {
            unit -= c.units;
            ++line;
            ring += c.line - c.units * c.unit;
            image += c.line_step - c.units * c.unit_step;
        }
    }
}

}  // namespace convgrad::cuda::staged
