// Where the sums of a weights gradient's tile go: rows are input channels of a tap, columns output
// channels. A tile knows its `first_line` of 64 rows, its `first_out`, `group` and `part`, and the
// positions of that from `first` to `last`.
#pragma once

#include "weights_sum.cuh"

namespace convgrad::cuda {
inline namespace code {  // named: nvcc makes names of unnamed ones from the folder

/// Where the sums of one row go: to its group's output channels, those from `first` to `last` of
/// the tile's columns.
template <typename Tile>
struct weights_row {
    wide group, k;    // of the problem; tap and channel within it
    int first, last;  // none, if the row is none
    float *to;        // column 0, `pitch` from one to the next
    wide pitch;

    __device__ weights_row(const bulk_weights_args &q, const Tile &tile, int line_number, int row) {
        const weights_args &p = q.weights;
        const int l = tile.first_line + line_number, tap = l / q.lines, c = l % q.lines * 64 + row,
                  ic = static_cast<int>(p.ic), oc = static_cast<int>(p.oc), own = c / ic;
        group = tile.group * q.merged + own;
        k = static_cast<wide>(tap) * ic + c % ic;
        pitch = p.taps * p.ic;
        first = own * oc - tile.first_out;
        last = tap < p.taps && c < q.ic ? min(first + oc, q.oc - tile.first_out) : -1;
        to = p.partial + (tile.part * p.groups + group) * p.oc * pitch + k - first * pitch;
    }
    /// Sums that are not finite, with care: padding took part.
    template <typename T>
    __device__ __noinline__ void check_all(
        const bulk_weights_args &q, const Tile &tile, int columns, int column) const {
        for (int j = column; j < columns; j += 8)
            for (int e = j; e < j + 2; ++e) {
                if (e < first || e >= last || is_finite(to[e * pitch])) continue;
                to[e * pitch] = careful_weight<T, true>(
                    q.weights, group, e - first, k, tile.first, tile.last, to[e * pitch]);
            }
    }
};

/// Stores all sums of a tile. Few instructions for each: all of them are run once.
template <typename T, int M, int N, typename Tile>
__device__ inline void store_sums(
    const bulk_weights_args &q, const Tile &tile, const float (&sum)[M][N / 2]) {
    const int t = static_cast<int>(threadIdx.x), lane = t % 32, row = t / 32 % 4 * 16 + lane / 4,
              column = lane % 4 * 2;
    unsigned largest = 0;
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const weights_row<Tile> w(q, tile, t / 128 * M + m, row + h * 8);
            const int first = w.first - column, many = w.last - w.first;
            float *to = w.to + column * w.pitch;
#pragma unroll
            for (int j = 0; j < N / 8; ++j, to += 8 * w.pitch)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const float v = sum[m][j * 4 + h * 2 + e];
                    largest = max(largest, __float_as_uint(v) & 0x7fffffffU);
                    if (j * 8 + e - first >= 0 && j * 8 + e - first < many) to[e * w.pitch] = v;
                }
        }
    constexpr unsigned infinity = 0x7f800000;
    if (largest >= infinity)
        for (int i = 0; i < M * 2; ++i)
            weights_row<Tile>(q, tile, t / 128 * M + i / 2, row + i % 2 * 8)
                .template check_all<T>(q, tile, N, column);
}

}  // namespace code
}  // namespace convgrad::cuda
