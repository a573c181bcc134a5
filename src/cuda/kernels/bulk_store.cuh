// Sums of 64 rows by slices of channels, through shared memory to where they are stored: in whole
// pieces along channels or along positions.
#pragma once

#include "bulk.cuh"
#include "implicit.cuh"
#include "wgmma.cuh"

namespace convgrad::cuda {
inline namespace code {  // named: nvcc makes names of unnamed ones from the folder

constexpr int slice = bulk_slice;  // channels that are put in order at once
constexpr unsigned row_pitch = slice * 2 + 16, column_pitch = 64 * 2 + 16;

/// Whether a value, as it is stored, is not finite.
template <typename T>
__device__ inline bool is_special(unsigned short bits) {
    constexpr unsigned short exponent = sizeof(T) == 2 && alignof(T) == 2 ? 0x7c00 : 0;
    return (bits & exponent) == exponent;
}
template <>
__device__ inline bool is_special<bf16>(unsigned short bits) {
    return (bits & 0x7f80) == 0x7f80;
}

/// Two values as they are stored: bits 15 and 31 tell which are not finite.
template <typename T>
__device__ inline unsigned special_signs(unsigned pair) {
    constexpr unsigned exponents = 0x7c007c00, one = 0x04000400;
    return (pair & exponents) + one;
}
template <>
__device__ inline unsigned special_signs<bf16>(unsigned pair) {
    return (pair & 0x7f807f80U) + 0x00800080U;
}
constexpr unsigned special_bits = 0x80008000;

/// Neighbours, as they are stored.
template <typename T>
__device__ inline unsigned pair_of(float low, float high) {
    T pair[2];
    round_to(pair[0], low);
    round_to(pair[1], high);
    return *reinterpret_cast<const unsigned short *>(&pair[0])
           | static_cast<unsigned>(*reinterpret_cast<const unsigned short *>(&pair[1])) << 16;
}

__device__ inline uint4 load_piece(unsigned from) {
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(from));
    return v;
}
/// Pieces of `U` positions from shared memory, of every `step`th channel from `first` on.
template <int U, typename T>
__device__ inline void store_positions(
    T *to, wide channel_stride, unsigned from, unsigned pitch, int first, int channels, int step) {
    to += first * channel_stride;
    from += static_cast<unsigned>(first) * pitch;
#pragma unroll 4
    for (int c = first; c < channels; c += step) {
        if constexpr (U == 8) {
            *reinterpret_cast<uint4 *>(to) = load_piece(from);
        } else if constexpr (U == 4) {
            uint2 v;
            asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(from));
            *reinterpret_cast<uint2 *>(to) = v;
        } else if constexpr (U == 2) {
            unsigned v;
            asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(from));
            *reinterpret_cast<unsigned *>(to) = v;
        } else {
            unsigned short v;
            asm volatile("ld.shared.b16 %0, [%1];" : "=h"(v) : "r"(from));
            *reinterpret_cast<unsigned short *>(to) = v;
        }
        to += step * channel_stride;
        from += static_cast<unsigned>(step) * pitch;
    }
}

/// One stored value, computed again with care if it is not finite: padding and the groups beside it
/// took part. A tile knows its `group`, its `first_column`, the `number` of its phase, and which
/// `position` of the phase a row is.
template <typename T, typename Tile>
__device__ inline void check_output(
    const bulk_args &q, const Tile &tile, wide out_at, int row, int column) {
    if (out_at < 0 || tile.first_column + column >= q.out_channels) return;
    const int channel = tile.group * q.out_channels + tile.first_column + column;
    T *const at = static_cast<T *>(q.data.end.out) + out_at + channel * q.data.end.out_strides.c;
    if (!is_special<T>(__ldcg(reinterpret_cast<const unsigned short *>(at)))) return;
    axis_phase<int> phase[3];
    int number = tile.number;
    for (int d = 2; d >= 0; --d) {
        const int phases = static_cast<int>(q.data.phases[d]);
        phase[d] = make_phase<int>(q.data.x[d], q.data.backward != 0, number % phases);
        number /= phases;
    }
    const float v = careful_output<T>(q.data, phase, tile.position(row), channel);
    round_to(*at, finish_sum<T>(q.data.end, v, channel, 0, 0));
}

/// A thread's side of a tile's output. Few instructions for each sum: all of them are run once for
/// each tile, by one or two warps of a scheduler.
template <typename T>
struct bulk_store {
    const bulk_args &q;
    int first_column, group;
    T *out;              // of the tile's first channel
    const wide *out_at;  // of the warpgroup's rows, -1: nothing is stored
    unsigned box;        // shared memory of the warpgroup
    int which;           // warpgroup
    unsigned special = 0;

    template <typename Tile>
    __device__ bulk_store(const bulk_args &args, const Tile &tile, const wide *rows_at, unsigned at)
        : q(args), first_column(tile.first_column), group(tile.group),
          out(static_cast<T *>(q.data.end.out)
              + (group * q.out_channels + first_column) * q.data.end.out_strides.c),
          out_at(rows_at), box(at), which(static_cast<int>(threadIdx.x) / 128) {}
    [[nodiscard]] static __device__ int thread() { return static_cast<int>(threadIdx.x) % 128; }
    [[nodiscard]] static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
    [[nodiscard]] static __device__ int warp() { return thread() / 32; }

    /// Whether something happens to sums before they are rounded.
    [[nodiscard]] __device__ bool decorates() const {
        return q.data.end.bias != nullptr || q.data.end.relu != 0;
    }
    /// Bias and ReLU, of a channel of the tile.
    [[nodiscard]] __device__ float decorate(float v, int column) const {
        const epilogue_args &end = q.data.end;
        if (end.bias != nullptr && first_column + column < q.out_channels)
            v += to_f32(static_cast<const T *>(
                end.bias)[(group * q.out_channels + first_column + column) * end.bias_stride]);
        return end.relu != 0 ? relu_of(v) : v;
    }
    /// The same of a warpgroup's sums.
    template <int M, int Sums>
    __device__ void decorate_all(float (&sum)[M][Sums]) const {
        if (!decorates()) return;
#pragma unroll
        for (int m = 0; m < M; ++m)
#pragma unroll
            for (int i = 0; i < Sums; ++i)
                sum[m][i] = decorate(sum[m][i], i / 4 * 8 + lane() % 4 * 2 + i % 2);
    }
    /// Two neighbours; if one is not finite, that leaves a sign.
    [[nodiscard]] __device__ unsigned round(const float *sum) {
        const unsigned pair = pair_of<T>(sum[0], sum[1]);
        special |= special_signs<T>(pair);
        return pair;
    }
    /// Whether the warpgroup has stored something that is not finite; all of it is stored then.
    [[nodiscard]] __device__ bool has_special() const {
        return bulk::any(which, (special & special_bits) != 0);
    }
};

/// Slices of 64 rows, as sums with rows of positions hold them.
template <typename T>
struct slice_store : bulk_store<T> {
    using base = bulk_store<T>;
    using base::box;
    using base::lane;
    using base::q;
    using base::thread;
    using base::warp;
    // Where matrices go: rows 0–7 and 8–15 of columns 0–7, then of columns 8–15; both halves of a
    // slice. For the copy engine rows of 64 bytes, whose pieces are exchanged by bits of the row.
    unsigned to[2];
    bool turned;

    template <typename Tile>
    __device__ slice_store(
        const bulk_args &args, const Tile &tile, const wide *rows_at, unsigned at)
        : base(args, tile, rows_at, at), turned(q.along_channels == 0) {
        const unsigned row = static_cast<unsigned>(warp() * 16 + lane() % 16),
                       piece = static_cast<unsigned>(lane() / 16), turn = row / 2 % 4;
#pragma unroll
        for (unsigned half = 0; half < 2; ++half)
            if (q.by_engine != 0)
                to[half] = box + row * 64 + ((half * 2 + piece) ^ turn) * 16;
            else if (!turned)
                to[half] = box + row * row_pitch + (half * 2 + piece) * 16;
            else
                to[half] = box + (half * 16 + piece * 8 + row % 8) * column_pitch + row / 8 * 16;
    }
    /// Puts a slice of sums into shared memory, into the box that begins `moved` bytes later.
    __device__ void stage(const float *sum, unsigned moved) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            unsigned four[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) four[i] = this->round(sum + half * 8 + i * 2);
            if (turned)
                store_matrices_turned(to[half] + moved, four);
            else
                store_matrices(to[half] + moved, four);
        }
    }
    /// Those who share what is staged: a warp, or all of the warpgroup.
    __device__ void meet() const {
        if (turned || q.by_engine != 0)
            bulk::meet(this->which);
        else
            __syncwarp();
    }
    /// Pieces of channels, of this warp's 16 rows.
    __device__ void store_channels(int first_row, int column) const {
        const int mine = lane() % 4 * 8;
        const bool there = this->first_column + column + mine < q.out_channels;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = warp() * 16 + i * 8 + lane() / 4;
            const wide at = this->out_at[first_row + row];
            const uint4 v = load_piece(
                box + static_cast<unsigned>(row) * row_pitch + static_cast<unsigned>(mine) * 2);
            if (there && at >= 0) *reinterpret_cast<uint4 *>(this->out + at + column + mine) = v;
        }
    }
    /// Pieces of positions, of all channels of a slice.
    template <int U>
    __device__ void store_positions(int first_row, int column) const {
        constexpr int units = 64 / U;
        const int row = thread() % units * U;
        const wide at = this->out_at[first_row + row], c = q.data.end.out_strides.c;
        if (at >= 0)
            code::store_positions<U>(this->out + at + column * c, c,
                box + static_cast<unsigned>(row) * 2, column_pitch, thread() / units,
                min(slice, q.out_channels - this->first_column - column), 128 / units);
    }
    /// Stores what is staged.
    __device__ void store(int first_row, int column) const {
        if (!turned)
            store_channels(first_row, column);
        else if (q.unit == 8)
            store_positions<8>(first_row, column);
        else if (q.unit == 4)
            store_positions<4>(first_row, column);
        else if (q.unit == 2)
            store_positions<2>(first_row, column);
        else
            store_positions<1>(first_row, column);
    }
};

/// Stores all sums of a warpgroup's rows, slice after slice: itself, or through the copy engine,
/// whose stores queue(box, m, column) asks for in its first thread, from one of so many boxes. One
/// loop, not unrolled: code that is run once for each slice would come from memory each time.
template <int M, int N, int Boxes, typename T, typename Queue>
__device__ inline void store_slices(
    slice_store<T> &results, float (&sum)[M][N / 2], Queue &&queue) {
    constexpr int slices = N / slice, rounds = M * slices;
    static_assert(rounds % Boxes == 0, "the next tile begins with the first box");
    results.decorate_all(sum);
    const bool by_engine = results.q.by_engine != 0, speaks = results.thread() == 0;
#pragma unroll 1
    for (int i = 0; i < rounds; ++i) {
        const int column = i % slices * slice;
        const unsigned moved = by_engine ? static_cast<unsigned>(i % Boxes * bulk_engine_box) : 0;
        if (!by_engine) results.meet();
#pragma unroll
        for (int k = 0; k < rounds; ++k)
            if (i == k) results.stage(&sum[k / slices][k % slices * (slice / 2)], moved);
        if (by_engine) {
            wgmma::publish();
            // The next box is free.
            if (speaks) bulk::await_reads<Boxes - 2>();
        }
        results.meet();
        if (!by_engine) {
            results.store(i / slices * 64, column);
        } else if (speaks) {
            queue(results.box + moved, i / slices, column);
            bulk::commit_stores();
        }
    }
}

}  // namespace code
}  // namespace convgrad::cuda
