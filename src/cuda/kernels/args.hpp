// What the host passes to kernels: plain structs, the same for both compilers.
//
// Sizes and strides are 64-bit here; a kernel computes with 32 bits where the host says that all
// sizes fit (see host side of each kernel).
#pragma once

#include <cstddef>
#include <cstdint>

namespace convgrad::cuda {

using wide = std::int64_t;

/// Element types, as kernels know them.
enum class element : std::int32_t { f32, bf16, f16 };

/// Strides of a data tensor in elements.
struct data_stride_args {
    wide n, c, x[3];
};

/// One axis of a data pass, forward or backward. Output positions run in phases: position
/// phase + step·j reads input start(phase) + scale·j + shift·t through tap first(phase) + every·t.
struct data_axis_args {
    wide in, out;  // lengths
    wide kernel;   // taps
    wide stride, dilation, pad;
};

/// What happens to a sum before it is stored.
struct epilogue_args {
    const void *bias;
    const void *add;
    void *out;
    data_stride_args out_strides, add_strides;
    wide bias_stride;
    std::int32_t relu, accumulate;
};

/// General forward and backward data.
struct data_args {
    const void *in;
    const void *weights;
    wide mb, groups, in_channels, out_channels;  // channels per group
    data_axis_args x[3];
    data_stride_args in_strides;
    wide w_group, w_out, w_in, w_tap[3];  // strides of weights; out: channels of the output
    epilogue_args end;
    std::int32_t backward;
    std::int32_t in_runs_along_channels;  // which neighbours in memory are loaded together
    std::int32_t weights_run_along_in;    // likewise
    wide phases[3];                       // of output positions, by axis
    wide tiles_m, tiles_n, tiles;         // tiles of one phase and group; all
};

/// General backward weights, one part of the positions for each block.
struct weights_args {
    const void *src;
    const void *dst;
    float *partial;  // [part][group][oc][tap][ic]
    wide mb, groups, ic, oc;
    data_axis_args x[3];  // in: src, out: dst
    data_stride_args src_strides, dst_strides;
    std::int32_t src_runs_along_channels, dst_runs_along_channels;
    wide taps, positions, part_length, parts;
    wide tiles_m, tiles_n, tiles;
};

/// Adds parts in their order and stores the sums.
struct sum_args {
    const float *partial;
    wide parts, length;           // elements of one part
    wide lengths[6], strides[6];  // of the output, slowest first, as the parts lie
    void *out;
    element type;
    std::int32_t accumulate;
};

/// Sums over batch and space, by channel.
struct channel_sum_args {
    const void *data;
    float *partial;  // [part][channel]
    wide mb, channels, x[3];
    data_stride_args strides;
    wide positions, part_length, parts;
    std::int32_t lanes_along_channels;
};

/// Depthwise passes: one input channel per group, two axes, square kernels. A thread computes
/// strips of `depthwise_columns` columns down the rows of a segment.
struct depthwise_args {
    const void *in;       // data passes: the input; backward weights: src
    const void *weights;  // backward weights: diff_dst
    float *partial;       // backward weights: [part][channel][tap]
    std::int32_t in_rows, in_columns, out_rows, out_columns;  // weights: src and dst
    std::int32_t pad_y, pad_x;
    std::int32_t flip;        // taps in reverse order
    std::int32_t multiplier;  // output channels of an input channel
    std::int32_t channels;    // of the output
    std::int32_t lanes_along_channels;
    std::int32_t strips, segments, segment_rows, items;  // items: images × segments × strips
    std::int32_t blocks;
    std::int32_t parts, part_items;  // backward weights
    wide in_n, in_c, in_y, in_x;     // strides
    wide w_channel, w_y, w_x;        // strides of weights; backward weights: those of diff_dst:
    wide dst_n, dst_c, dst_y, dst_x;
    epilogue_args end;
    std::int32_t plain;    // nothing but the sum is stored
    std::int32_t aligned;  // planes: packs of columns may be loaded and stored at once
};

constexpr int depthwise_columns = 7;
constexpr int depthwise_back_columns = 8;  // backward data, stride 2
constexpr int depthwise_threads = 128;
constexpr int depthwise_most_rows = 64;  // of a segment

/// How taps meet positions: stride 1 (and its backward data, mirrored), stride 2, backward data of
/// stride 2.
enum class staged_mode : std::int32_t { plain, strided, back };

/// What a thread of a staged kernel computes: a patch of outputs, from a window of inputs.
struct staged_shape {
    int rows, columns;          // of the patch
    int in_rows, in_columns;    // of its window
    int row_step, column_step;  // of the input, from patch to patch
    int first;  // where the window of output 0 starts, if the pad is half the kernel
};
constexpr staged_shape staged_shape_of(int taps, staged_mode mode, bool planes) {
    const bool back = mode == staged_mode::back;
    const int stride = mode == staged_mode::strided ? 2 : 1, parity = taps / 2 % 2;
    const int rows = planes && !back ? 7 : 4, columns = back ? 8 : planes ? 4 : 7;
    if (back)
        return {rows, columns, rows / 2 + taps / 2, columns / 2 + taps / 2, rows / 2, columns / 2,
            (taps / 2 - parity) / 2 + parity - taps / 2};
    return {rows, columns, (rows - 1) * stride + taps, (columns - 1) * stride + taps, rows * stride,
        columns * stride, -(taps / 2)};
}

/// Channels of a thread: pairs of short values where sums and taps fit into registers.
constexpr int staged_channels(int taps, staged_mode mode, bool planes, std::size_t element) {
    if (planes || element != 2 || mode == staged_mode::strided) return 1;
    return taps == 3 || (taps == 5 && mode == staged_mode::plain) ? 2 : 1;
}

/// How rows of a tensor get into shared memory: in chunks of `unit` elements, `units` of which make
/// a line, and `lines` a row. Lines are columns, or planes.
struct staged_copy {
    wide c, y, x;          // strides of the tensor
    std::int32_t columns;  // of the tensor
    std::int32_t unit, units, lines;
    wide unit_step, line_step;          // in the tensor
    std::int32_t row_step;              // rows that a block copies at once
    std::int32_t next_unit, next_line;  // to a thread's next chunk, where a row has more of them
    std::int32_t unit_columns;          // columns of such a unit: 1, or the same (planes)
    std::int32_t first, window, strip_step;  // columns that a strip needs
    std::int32_t shift;                      // column 0 of strip 0 goes to this column
    std::int32_t line, row;                  // steps in shared memory, in elements
};

/// Depthwise passes through shared memory: see staged.cuh.
struct staged_args {
    depthwise_args base;  // the problem
    staged_copy copy, dst_copy;
    std::int32_t lanes, column_groups, row_groups;  // threads of a block
    std::int32_t block_channels, channel_blocks;
    std::int32_t strips, strip_columns;
    std::int32_t segments, segment_rows, items;  // items: images × segments
    std::int32_t band_rows, window_rows, row_shift;
    std::int32_t band_step;  // rows of the input from band to band
    std::int32_t slots;      // rows of the ring
    std::int32_t lead;       // columns before the first, in planes
    std::int32_t ring_bytes, dst_bytes;
    std::int32_t box_bytes;  // for outputs of whole planes, stored together; 0: each thread stores
    std::int32_t part_items, blocks;
    std::int32_t store_unit;  // columns (planes) or channels stored at once; 0: not only sums
};

constexpr int staged_threads = 256;
constexpr int staged_most_shared = 98304;  // bytes of a block

/// Dense data passes on tensor cores: operands packed with channels next to each other.
struct dense_args {
    data_args data;              // the problem as it is: epilogue, and sums with care
    const void *packed_in;       // [n][x...][group][channels]
    const void *packed_weights;  // [group][out channel][tap][channels]
    std::int32_t channels;       // of a group, padded to 16 bytes
};

/// Loops that show what a device can do.
struct peak_args {
    const void *data;
    float *out;
    wide bytes;
    std::int32_t rounds;
};

constexpr int peak_threads = 256, peak_blocks = 8;  // blocks of a multiprocessor
constexpr int peak_fma_chains = 8, peak_unroll = 16, peak_mma_chains = 8;

/// Packs data or weights for a dense pass; what pads channels is zero.
struct pack_args {
    const void *from;
    void *to;
    wide lengths[5], strides[5];  // of positions (data) or group, out channel, taps (weights)
    wide groups, group_stride, channels, channel_stride;
    wide padded;  // channels
    wide positions;
    std::int32_t lanes_along_positions;
};

constexpr int dense_rows = 128, dense_columns = 64, dense_threads = 128, dense_stages = 3;
constexpr int dense_shared = dense_stages * (dense_rows + dense_columns) * 128;

}  // namespace convgrad::cuda
