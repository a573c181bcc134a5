// Sums of 64 channels by 256 positions, through shared memory to where they are stored.
#pragma once

#include "bulk_store.cuh"
#include "halo_args.hpp"

namespace convgrad::cuda {
inline namespace code {  // named: nvcc makes names of unnamed ones from the folder

struct halo_tile {
    const halo_args &h;
    int first_column, first_position, group;
    static constexpr int number = 0;

    __device__ halo_tile(const halo_args &args, unsigned tile) : h(args) {
        const auto take = [&](wide of) {
            const unsigned length = static_cast<unsigned>(of), mine = tile % length;
            tile /= length;
            return static_cast<int>(mine);
        };
        first_column = take(h.bulk.data.tiles_n) * halo_tiles::columns;
        first_position = take(h.position_tiles) * halo_tiles::rows;
        group = static_cast<int>(tile);
    }
    /// The image and the place of a row of the tile, among those that positions run through.
    __device__ int find(int row, int &y, int &x) const {
        int at = first_position + row;
        x = at % h.width;
        at /= h.width;
        y = at % h.height;
        return at / h.height;
    }
    [[nodiscard]] __device__ int position(int row) const {
        int y, x;
        const int image = find(row, y, x);
        const bulk_phase &f = h.bulk.phase[0];
        return (image * f.count[1] + y) * f.count[2] + x;
    }
};

/// Looks at what a warpgroup stored of a tile. Told by number: what is pointed at would have to lie
/// in memory.
template <typename T>
__device__ __noinline__ void check_tile(const halo_args &h, unsigned number, const wide *out_at) {
    const halo_tile tile(h, number);
    for (int i = static_cast<int>(threadIdx.x) % 128; i < halo_tiles::rows * halo_tiles::columns;
         i += 128) {
        const int row = i / halo_tiles::columns;
        check_output<T>(h.bulk, tile, out_at[row], row, i % halo_tiles::columns);
    }
}

/// A thread's side of the output: as bulk_store, of sums whose rows are channels.
template <typename T>
struct halo_store : bulk_store<T> {
    using shape = halo_tiles;
    using base = bulk_store<T>;
    using base::base;
    using base::box;
    using base::lane;
    using base::q;
    using base::thread;
    using base::warp;

    /// Puts a slice of positions into shared memory.
    __device__ void stage(const float *sum) {
        // Matrices: channels 0–7 and 8–15 of positions 0–7, then of positions 8–15.
        const int part = lane() / 16;  // eight positions
        const bool along_channels = q.along_channels != 0;
        const unsigned to =
            box
            + (along_channels ? static_cast<unsigned>(
                   (part * 8 + lane() % 8) * shape::pitch + (warp() * 16 + lane() / 8 % 2 * 8) * 2)
                              : static_cast<unsigned>(
                                  (warp() * 16 + lane() % 16) * shape::pitch + part * 16));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            unsigned four[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) four[k] = this->round(sum + i * 8 + k * 2);
            if (along_channels)
                store_matrices_turned(to + static_cast<unsigned>(i * 16 * shape::pitch), four);
            else
                store_matrices(to + static_cast<unsigned>(i * 32), four);
        }
    }
    /// Pieces of eight channels.
    __device__ void store_channels(int first_row) const {
        const int column = thread() % 8 * 8;
        const bool there = this->first_column + column < q.out_channels;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = thread() / 8 + i * 16;
            const wide at = this->out_at[first_row + row];
            const uint4 v =
                load_piece(box + static_cast<unsigned>(row * shape::pitch + column * 2));
            if (there && at >= 0) *reinterpret_cast<uint4 *>(this->out + at + column) = v;
        }
    }
    template <int U>
    __device__ void store_positions(int first_row) const {
        constexpr int units = shape::slice / U;
        const int row = thread() % units * U;
        const wide at = this->out_at[first_row + row];
        if (at >= 0)
            code::store_positions<U>(this->out + at, q.data.end.out_strides.c,
                box + static_cast<unsigned>(row) * 2, shape::pitch, thread() / units,
                min(shape::columns, q.out_channels - this->first_column), 128 / units);
    }
    /// Stores what is staged.
    __device__ void store(int first_row) const {
        if (q.along_channels != 0)
            store_channels(first_row);
        else if (q.unit >= 4)
            store_positions<4>(first_row);
        else if (q.unit == 2)
            store_positions<2>(first_row);
        else
            store_positions<1>(first_row);
    }
};

/// Where the rows of a tile go.
__device__ inline void find_outputs(const halo_args &h, const halo_tile &tile, wide *out_at) {
    const bulk_phase &f = h.bulk.phase[0];
    const data_stride_args &s = h.bulk.data.end.out_strides;
    const unsigned width = static_cast<unsigned>(h.width), height = static_cast<unsigned>(h.height),
                   columns = static_cast<unsigned>(f.count[2]),
                   rows = static_cast<unsigned>(f.count[1]),
                   images = static_cast<unsigned>(h.bulk.data.mb);
    const wide step_n = s.n, step_y = s.x[1], step_x = s.x[2];
#pragma unroll
    for (int i = 0; i < halo_tiles::rows; i += 128) {
        const int row = i + static_cast<int>(threadIdx.x) % 128;
        const unsigned at = static_cast<unsigned>(tile.first_position + row), line = at / width,
                       x = at - line * width, image = line / height, y = line - image * height;
        out_at[row] = image < images && y < rows && x < columns
                          ? image * step_n + y * step_y + x * step_x
                          : -1;
    }
}

/// One loop, not unrolled: code that is run once for each slice would come from memory each time.
template <typename T>
__device__ inline void store_sums(const halo_args &h, const halo_tile &tile, unsigned number,
    float (&sum)[halo_tiles::rows / 2], wide *out_at, unsigned room) {
    constexpr int slices = halo_tiles::rows / halo_tiles::slice, sums = halo_tiles::slice / 2;
    halo_store<T> results(h.bulk, tile, out_at, room);
    if (results.decorates())
#pragma unroll
        for (int i = 0; i < halo_tiles::rows / 2; ++i)
            sum[i] =
                results.decorate(sum[i], results.warp() * 16 + results.lane() / 4 + i / 2 % 2 * 8);
    bulk::meet(results.which);
    find_outputs(h, tile, out_at);
#pragma unroll 1
    for (int i = 0; i < slices; ++i) {
        if (i != 0) bulk::meet(results.which);
#pragma unroll
        for (int k = 0; k < slices; ++k)
            if (i == k) results.stage(&sum[k * sums]);
        bulk::meet(results.which);
        results.store(i * halo_tiles::slice);
    }
    if (results.has_special()) check_tile<T>(h, number, out_at);
}

}  // namespace code
}  // namespace convgrad::cuda
