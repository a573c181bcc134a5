// What the host passes to kernels: plain structs, the same for both compilers.
//
// Sizes and strides are 64-bit here; a kernel computes with 32 bits where the host says that all
// sizes fit (see host side of each kernel).
#pragma once

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

/// Dense data passes on tensor cores: operands packed with channels next to each other.
struct dense_args {
    data_args data;              // the problem as it is: epilogue, and sums with care
    const void *packed_in;       // [n][x...][group][channels]
    const void *packed_weights;  // [group][out channel][tap][channels]
    std::int32_t channels;       // of a group, padded to 16 bytes
};

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
