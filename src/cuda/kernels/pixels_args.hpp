// What the host passes to pixels_*.cu.
#pragma once

#include "args.hpp"

namespace convgrad::cuda {

/// First layers: one group, 1 to 4 input channels, pixels in shared memory. See pixels.cuh.
struct pixels_args {
    data_args data;        // forward: the problem as it is, for sums with care
    weights_args weights;  // weights gradient: likewise, and its partial sums
    const void *src;
    wide src_bytes;     // from its first to its last element
    const void *other;  // weights; weights gradient: diff_dst
    wide src_n, src_c, src_y, src_x;
    wide dst_n, dst_c, dst_y, dst_x;
    std::int32_t ic, oc, mb;
    std::int32_t in_rows, in_columns, out_rows, out_columns;
    std::int32_t taps_y, taps_x, stride_y, stride_x, pad_y, pad_x;

    // A box of outputs of one image is an item; positions are its outputs row by row.
    std::int32_t box_rows, box_columns, positions, bands, strips, items;
    std::int32_t part_items, parts;
    std::int32_t blocks;  // parts × blocks of channels (× blocks of taps)

    // What a box reads.
    std::int32_t line_rows, line_columns;
    // Columns are kept by their remainder (f32 forward): how many there are, taps of the last one,
    // those before that have one more.
    std::int32_t phases, phase_taps, phases_with_more;
    std::int32_t phase_columns, phase_pitch;  // pitch: bytes
    std::int32_t pitch, copy;  // bytes of a row; to the copy that is one pixel further, or 0
    // The same as it lies in memory: rows of pixels, or of each channel.
    std::int32_t raw_inside, raw_pitch;
    std::int32_t unit;  // 16: lines are copied by pieces; 0: one element after the other

    // Output channels of a block, in tiles; weights gradients: of all its warps.
    std::int32_t channel_tiles, channel_blocks;
    std::int32_t row_steps;  // 16-bit forward: of a row of taps

    // Weights gradients.
    std::int32_t tap_tiles, tap_groups, tap_blocks;  // 16-bit: pairs of taps; f32: threes
    std::int32_t row_groups;                         // 16-bit: warps along output channels
    std::int32_t sum_groups;                         // threads that share sums out
    std::int32_t half;                               // f16, else bf16
    std::int32_t padded_positions;
    std::int32_t dst_pitch, dst_bytes;  // of a position, or of a channel (planes); of an item
    std::int32_t dst_unit;              // bytes that are copied at once; 0: elements

    // In shared memory.
    std::int32_t raw_at, pixels_at, places_at, outs_at, cells_at, weights_at, bias_at, room_at,
        dst_at;

    std::int32_t plain;        // nothing but bias and ReLU happens to a sum
    std::int32_t store_whole;  // pieces of 16 bytes are aligned
};

/// Positions by which a warp computes: 16-bit types, f32.
constexpr int pixels_tile = 32, pixels_tile_f32 = 128;
/// Output channels of an f32 tile.
constexpr int pixels_channels_f32 = 16;
/// Bytes between positions where a warp puts 32 positions of pixels in order, in f32.
constexpr int pixels_room_pitch_f32 = pixels_channels_f32 * 4 + 16;
/// Of an f32 weights gradient: output channels and taps of a thread, by input channels.
constexpr int pixels_own_channels = 8;
constexpr int pixels_own_taps(int channels) {
    return channels == 4 ? 2 : 3;
}
/// Input channels that f32 kernels compute with.
constexpr int pixels_kernel_channels(int channels) {
    return channels == 2 ? 3 : channels;
}
/// Bytes between channels where a warp puts 32 positions of planes in order.
constexpr int pixels_room_pitch = 32 * 2 + 16;
constexpr int pixels_most_threads = 256, pixels_most_threads_f32 = 512;
/// Of 16-bit weights gradients, by what a warp computes: so that sums have registers, and a
/// multiprocessor as many warps as then fit.
constexpr int pixels_weights_threads(int rows, int columns) {
    return rows * columns > 16 ? 128 : 256;
}
constexpr int pixels_weights_blocks(int rows, int columns) {
    return rows * columns > 16 ? 3 : 2;
}
/// Shared memory that every device has for a block, and what the largest have.
constexpr int pixels_least_shared = 98304, pixels_most_shared = 227 * 1024;

}  // namespace convgrad::cuda
