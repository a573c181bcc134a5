// What the host passes to ring*.cu.
#pragma once

#include "args.hpp"

namespace convgrad::cuda {

/// What a thread has: a strip of columns of one channel, or of two that lie side by side.
struct ring_shape {
    int channels;
    int columns;  // of the output
    int window;   // columns of the input that they read
    int step;     // of the input, from strip to strip
    int rows;     // of sums (weights gradients: of diff_dst) that wait in registers
    int lane_bytes;
};
constexpr ring_shape ring_shape_of(int taps, staged_mode mode, std::size_t element) {
    // Two channels where their sums and taps fit into registers.
    const int channels = element == 2 && taps == 3 ? 2 : 1;
    const int lane_bytes = channels * static_cast<int>(element);
    if (mode == staged_mode::back) {
        const int columns = taps == 7 ? 6 : 8;
        return {channels, columns, columns / 2 + taps / 2, columns / 2, taps, lane_bytes};
    }
    const int stride = mode == staged_mode::strided ? 2 : 1, columns = 7;
    return {channels, columns, (columns - 1) * stride + taps, columns * stride,
        stride == 2 ? (taps + 1) / 2 : taps, lane_bytes};
}
/// Rows of a warp in shared memory: one is computed with, the others are on their way.
constexpr int ring_stages = 4;
/// Bytes of such a row: of the input, and for a weights gradient of diff_dst behind it.
constexpr int ring_row_bytes(const ring_shape &s, bool weights) {
    return 32 * s.lane_bytes * (s.window + (weights ? s.columns : 0));
}
/// Bytes of a warp: its rows; of a data pass what sums start with, and sums that are put aside
/// where they cannot be stored at once.
constexpr int ring_warp_bytes(const ring_shape &s, staged_mode mode, bool weights, bool slow) {
    const int rows = ring_stages * ring_row_bytes(s, weights);
    if (weights) return rows;
    return rows + 32 * s.lane_bytes
           + (slow ? 32 * 4 * s.columns * s.channels * (mode == staged_mode::back ? 2 : 1) : 0);
}
/// Threads of a multiprocessor that registers must suffice for.
constexpr int ring_threads_at_once(int taps, int channels) {
    return taps == 7 ? 512 : taps == 5 || channels == 2 ? 640 : 768;
}
constexpr int ring_most_shared = 98304;  // bytes of a block
constexpr int ring_most_threads = 512;   // of a block
constexpr int ring_most_rounds = 512;

/// A tensor whose rows are copied: steps in bytes.
struct ring_source {
    const void *data;
    wide image, row;
    std::int32_t column;
    std::int32_t columns;  // their number
    std::int32_t unit;     // bytes that are copied at once: 16; else a lane's own, or an element
};

/// Depthwise passes whose channels lie side by side: see ring.cuh.
struct ring_args {
    depthwise_args base;  // the problem; nothing of a bias is left in `end`
    const void *bias;     // that sums start with
    ring_source in, dst;  // dst: of a weights gradient
    wide out_row;         // steps of the output in bytes
    std::int32_t out_column;
    std::int32_t images;
    std::int32_t lanes;         // threads of a block along channels
    std::int32_t block_strips;  // along columns
    std::int32_t block_images;
    std::int32_t rounds;  // images that a thread computes one after the other, at most
    std::int32_t channel_blocks, strip_blocks;
    std::int32_t warp_bytes;        // of shared memory
    std::int32_t shift_y, shift_x;  // backward with stride 2: outputs that strips have before 0
    std::int32_t slow;  // tensors are not aligned, or more than sums is stored: row by row
    std::int32_t taps_along_channels;
};

}  // namespace convgrad::cuda
