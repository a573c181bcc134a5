// Sums of 64 rows by slices of channels, through shared memory to where they are stored: in whole
// pieces along channels or along positions.
#pragma once

#include "bulk.cuh"
#include "implicit.cuh"

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

/// A thread's side of the output. A tile knows its `group`, its `first_column`, the `number` of its
/// phase, and which `position` of the phase a row is.
template <typename T, typename Tile>
struct bulk_store {
    const bulk_args &q;
    Tile tile;             // a copy: what is pointed at would have to lie in memory
    const wide *out_at;    // of 64 rows, -1: nothing is stored
    unsigned box;          // shared memory of the warpgroup
    int first_row, which;  // of the tile; warpgroup

    /// A sum that is not finite, computed with care: padding and the groups beside it took part.
    __device__ T repair(int row, int channel) const {
        axis_phase<int> phase[3];
        int number = tile.number;
        for (int d = 2; d >= 0; --d) {
            const int phases = static_cast<int>(q.data.phases[d]);
            phase[d] = make_phase<int>(q.data.x[d], q.data.backward != 0, number % phases);
            number /= phases;
        }
        const float v = careful_output<T>(q.data, phase, tile.position(first_row + row), channel);
        T result;
        round_to(result, finish_sum<T>(q.data.end, v, channel, 0, 0));
        return result;
    }
    [[nodiscard]] __device__ bool is_there(int row, int column) const {
        return out_at[row] >= 0 && tile.first_column + column < q.out_channels;
    }
    [[nodiscard]] __device__ T *out(int row, int column) const {
        return static_cast<T *>(q.data.end.out) + out_at[row]
               + (tile.group * q.out_channels + tile.first_column + column)
                     * q.data.end.out_strides.c;
    }
    __device__ void check(int row, int column) const {
        if (!is_there(row, column)) return;
        T *const at = out(row, column);
        if (is_special<T>(*reinterpret_cast<const unsigned short *>(at)))
            *at = repair(row, tile.group * q.out_channels + tile.first_column + column);
    }
    /// What this thread stored of 64 rows, as put() does.
    __device__ __noinline__ void check_all(int columns) const {
        const int t = static_cast<int>(threadIdx.x) % 128, units = 64 / q.unit;
        for (int first = 0; first < columns; first += slice)
            if (q.along_channels != 0)
                for (int i = 0; i < 16; ++i)
                    check(t / 32 * 16 + i / 8 * 8 + t % 32 / 4, first + t % 4 * 8 + i % 8);
            else
                for (int i = t; i < slice * units; i += 128)
                    for (int e = 0; e < q.unit; ++e)
                        check(i % units * q.unit + e, first + i / units);
    }
    /// `U` neighbours; false if some are not finite.
    template <int U>
    [[nodiscard]] __device__ bool piece(unsigned from, int row, int column) const {
        if (!is_there(row, column)) return true;
        __align__(16) unsigned short v[U];
        if constexpr (U == 8)
            asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                         : "=r"(reinterpret_cast<unsigned *>(v)[0]),
                         "=r"(reinterpret_cast<unsigned *>(v)[1]),
                         "=r"(reinterpret_cast<unsigned *>(v)[2]),
                         "=r"(reinterpret_cast<unsigned *>(v)[3])
                         : "r"(from));
        else
#pragma unroll
            for (int i = 0; i < U; ++i)
                asm volatile("ld.shared.b16 %0, [%1];" : "=h"(v[i]) : "r"(from + 2 * i));
        bool fine = true;
#pragma unroll
        for (int i = 0; i < U; ++i) fine = fine && !is_special<T>(v[i]);
        T *const to = out(row, column);
        if constexpr (U == 8)
            *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(v);
        else if constexpr (U == 4)
            *reinterpret_cast<uint2 *>(to) = *reinterpret_cast<const uint2 *>(v);
        else if constexpr (U == 2)
            *reinterpret_cast<unsigned *>(to) = *reinterpret_cast<const unsigned *>(v);
        else
            *reinterpret_cast<unsigned short *>(to) = v[0];
        return fine;
    }
    /// Pieces of positions, of all channels of a slice.
    template <int U>
    [[nodiscard]] __device__ bool positions(int first_column) const {
        bool fine = true;
        for (int i = static_cast<int>(threadIdx.x) % 128; i < slice * 64 / U; i += 128) {
            const int column = i / (64 / U), row = i % (64 / U) * U;
            fine &= piece<U>(
                box + static_cast<unsigned>(column) * column_pitch + static_cast<unsigned>(row) * 2,
                row, first_column + column);
        }
        return fine;
    }
    /// Pieces of channels, of this warp's 16 rows.
    [[nodiscard]] __device__ bool channels(int first_column) const {
        bool fine = true;
        const int lane = static_cast<int>(threadIdx.x) % 32,
                  warp = static_cast<int>(threadIdx.x) / 32 % 4;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = warp * 16 + i * 8 + lane / 4, column = lane % 4 * 8;
            fine &= piece<8>(
                box + static_cast<unsigned>(row) * row_pitch + static_cast<unsigned>(column) * 2,
                row, first_column + column);
        }
        return fine;
    }

    /// Bias, ReLU, rounding: pairs of channels, as sums hold them.
    __device__ void finish(const float *sum, int first_column, unsigned (&pairs)[8]) const {
        const epilogue_args &end = q.data.end;
        const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int column = tile.first_column + first_column + j * 8 + lane % 4 * 2;
            float bias[2] = {0, 0};
            if (end.bias != nullptr)
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    if (column + e < q.out_channels)
                        bias[e] = to_f32(static_cast<const T *>(
                            end.bias)[(tile.group * q.out_channels + column + e)
                                      * end.bias_stride]);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                T pair[2];
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    float v = sum[j * 4 + h * 2 + e];
                    if (end.bias != nullptr) v += bias[e];
                    if (end.relu != 0) v = relu_of(v);
                    round_to(pair[e], v);
                }
                pairs[j * 2 + h] =
                    *reinterpret_cast<const unsigned short *>(&pair[0])
                    | static_cast<unsigned>(*reinterpret_cast<const unsigned short *>(&pair[1]))
                          << 16;
            }
        }
    }
    /// Puts a slice of the sums of 64 rows into shared memory.
    __device__ void stage(const float *sum, int first_column) const {
        const int lane = static_cast<int>(threadIdx.x) % 32,
                  warp = static_cast<int>(threadIdx.x) / 32 % 4;
        unsigned pairs[8];
        finish(sum, first_column, pairs);
        // Matrices: rows 0–7 and 8–15 of columns 0–7, then of columns 8–15.
        const int row = warp * 16 + (lane / 8 & 1) * 8, column = lane / 16 * 8, i = lane % 8;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const unsigned four[4] = {
                pairs[half * 4], pairs[half * 4 + 1], pairs[half * 4 + 2], pairs[half * 4 + 3]};
            if (q.along_channels != 0)
                bulk::store_matrices(box + static_cast<unsigned>(row + i) * row_pitch
                                         + static_cast<unsigned>(half * 16 + column) * 2,
                    four);
            else
                bulk::store_matrices_turned(
                    box + static_cast<unsigned>(half * 16 + column + i) * column_pitch
                        + static_cast<unsigned>(row) * 2,
                    four);
        }
    }
    /// Those who share what is staged: a warp, or all of the warpgroup.
    __device__ void meet() const {
        if (q.along_channels != 0)
            __syncwarp();
        else
            bulk::meet(which);
    }
    /// Stores what is staged; false if some is not finite.
    [[nodiscard]] __device__ bool store(int first_column) const {
        if (q.along_channels != 0) return channels(first_column);
        if (q.unit == 8) return positions<8>(first_column);
        if (q.unit == 4) return positions<4>(first_column);
        if (q.unit == 2) return positions<2>(first_column);
        return positions<1>(first_column);
    }
};

/// Stores all sums of a warpgroup's rows, slice after slice. One loop, not unrolled: code that is
/// run once for each slice would come from memory each time.
template <typename T, int M, int N, typename Tile>
__device__ inline void store_sums(const bulk_args &q, const Tile &tile,
    const float (&sum)[M][N / 2], const wide *out_at, unsigned box, int first_row, int which) {
    constexpr int slices = N / slice;
    bool fine = true;
#pragma unroll 1
    for (int i = 0; i < M * slices; ++i) {
        const int row = first_row + i / slices * 64, column = i % slices * slice;
        const bulk_store<T, Tile> results{q, tile, out_at + row, box, row, which};
        results.meet();
#pragma unroll
        for (int k = 0; k < M * slices; ++k)
            if (i == k) results.stage(&sum[k / slices][k % slices * (slice / 2)], column);
        results.meet();
        fine &= results.store(column);
    }
    if (!fine)
        for (int m = 0; m < M; ++m) {
            const int row = first_row + m * 64;
            bulk_store<T, Tile>{q, tile, out_at + row, box, row, which}.check_all(N);
        }
}

}  // namespace code
}  // namespace convgrad::cuda
