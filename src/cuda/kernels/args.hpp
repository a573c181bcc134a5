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

/// Who adds the parts of an element.
enum class sum_form : std::int32_t {
    chains,  // eight threads
    ones,    // a thread for each
    fours,   // a thread for four neighbours
};

/// Adds parts in their order and stores the sums.
struct sum_args {
    const float *partial;
    wide parts, length;           // elements of one part
    wide lengths[6], strides[6];  // of the output, slowest first, as the parts lie; `axes` of them
    void *out;
    element type;
    std::int32_t accumulate;
    std::int32_t axes;
    sum_form form;
    std::int32_t whole;  // fours: the output has four neighbours as one piece
};

/// How a tensor lies whose channels are summed.
enum class channel_sum_form : std::int32_t {
    rows,      // channels next to each other
    planes,    // positions of an image next to each other
    anywhere,  // neither, or more than 32 bits count
};

/// Sums over batch and space, by channel.
struct channel_sum_args {
    const void *data;
    float *partial;  // [part][channel]
    channel_sum_form form;
    wide channels, x[3];
    data_stride_args strides;
    wide step;                               // rows: between positions
    wide image_positions, image_runs, runs;  // runs: positions, or 16 bytes of them (planes)
    wide part_length, parts;                 // in runs
    std::int32_t lanes;                      // rows: threads along channels
    std::int32_t whole;                      // runs of 16 bytes are whole and aligned
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

/// What the copy engine is told about a tensor: a CUtensorMap.
struct alignas(64) tensor_map {
    std::uint64_t words[16];
};

/// Weights gradients on tensor cores: see dense_weights.cu. Channels are those of merged groups.
struct dense_weights_args {
    weights_args weights;   // the problem as it is, cut into tiles of merged groups
    const void *src, *dst;  // channels next to each other
    data_stride_args src_strides, dst_strides;
    wide src_group, dst_group;  // strides of merged groups
    wide groups, merged;        // merged groups, and how many of the problem's each has
    wide turned_row, small;     // dst as rows of positions: of a channel; from large to small parts
    std::int32_t ic, oc;
    std::int32_t tap_pieces;  // 16-byte pieces of a tap's input channels
    tensor_map turned;        // dst as rows of positions, where a warpgroup of its own copies
};

constexpr int dense_weights_rows = 64, dense_weights_columns = 128, dense_weights_threads = 128,
              dense_weights_stages = 3;
constexpr int dense_weights_shared =
    dense_weights_stages * (dense_weights_rows + dense_weights_columns + 16) * 128;

/// Data passes by products of warpgroups: see wgmma_data.cu. Channels are those of merged groups.
struct wgmma_args {
    data_args data;       // the problem as it is, cut into tiles of merged groups
    const void *in;       // channels next to each other
    const void *weights;  // [group][out channel][tap][channel]; f32: large parts, then small ones
    wide in_n, in_x[3], in_group;  // strides
    wide weights_row;              // of an output channel
    wide small;                    // from large to small parts
    wide groups;
    std::int32_t channels;      // of the sum, padded to 16 bytes
    std::int32_t out_channels;  // of the output
    std::int32_t tap_pieces;    // 16-byte pieces of a tap in a line: 1, 2, 4 or 8
    std::int32_t lines;         // of a tap
    std::int32_t pairs;         // neighbouring channels may be stored at once
    std::int32_t plain;         // nothing but the sum is stored
};

constexpr int wgmma_rows = 128, wgmma_threads = 256, wgmma_stages = 3, wgmma_most_taps = 64;
/// Bytes of the ring and what aligns it; `copies` of the weights: 2 where they are split.
constexpr int wgmma_shared(int columns, int copies) {
    return wgmma_stages * (wgmma_rows + columns * copies) * 128 + 1024;
}

/// Weights gradients: the most that a block takes.
constexpr int wgmma_weights_shared = wgmma_stages * 34816 + 1024;
/// Of f32 by tiles of 64 output channels and more: a warpgroup more, which copies; `copies` of
/// diff_dst: 2 where it is split.
constexpr int wgmma_roles_threads = 384, wgmma_roles_stages = 4;
constexpr int wgmma_roles_shared(int columns, int copies) {
    return wgmma_roles_stages * (17408 + columns * copies * 128) + 1024;
}

/// Output positions of one phase of a data pass, as boxes of the input are found: position j reads
/// from `start + step·j`, through tap t at `offset + offset_step·t` from there.
struct bulk_phase {
    std::int32_t count[3], taps[3];
    std::int32_t first_tap[3], tap_step[3];  // in the weights
    std::int32_t start[3], offset[3], offset_step[3];
    std::int32_t out_first[3];
};

constexpr int bulk_most_phases = 4;

/// Data passes of 16-bit types through the copy engine: see wgmma_bulk_data.cu.
struct bulk_args {
    tensor_map in[bulk_most_phases];  // of each phase
    tensor_map weights;               // [group and out channel][tap][channel], or turned:
                                      // [channel][tap][out channel]
    data_args data;                   // the problem as it is, cut into tiles of merged groups
    bulk_phase phase[bulk_most_phases];
    std::int32_t step[3], out_step[3];  // from position to position
    std::int32_t groups, channels;      // merged groups; channels of one in the input's map
    std::int32_t out_channels;          // of a merged group
    std::int32_t lines;                 // of 64 channels
    std::int32_t three_axes;
    std::int32_t turned_weights;
    std::int32_t along_channels;  // pieces of 16 bytes of channels are stored, else of positions:
    std::int32_t unit;            // so many positions at once
    std::int32_t by_engine;       // the copy engine stores, through `out`
    tensor_map out;               // slices of channels of a merged group by rows
};

constexpr int bulk_slice = 32;
/// Bytes where a warpgroup puts 64 rows of a slice in order: for its own stores, and for those of
/// the copy engine.
constexpr int bulk_own_box = 64 * (bulk_slice * 2 + 16), bulk_engine_box = 64 * bulk_slice * 2;
/// A block computes 128·M rows by N columns; 64 terms of the sum are a stage.
template <int M, int N>
struct bulk_tiles {
    static constexpr int rows = 128 * M, columns = N;
    static constexpr int at_once = M == 1 && N == 128 ? 2 : 1;  // blocks of a multiprocessor
    static constexpr int stage = (rows + N) * 128, stages = at_once == 2 ? 3 : 4;  // stage: bytes
    static constexpr int boxes = at_once == 2 ? 2 : 4;  // that the copy engine stores from
    // Of a warpgroup: its boxes, or one of its own and the places of its rows.
    static constexpr int room = boxes * bulk_engine_box;
    static_assert(room >= bulk_own_box + 64 * M * 8);
    // With what barriers take before it, to the next kilobyte: two blocks just fit.
    static constexpr int shared = stages * stage + 2 * room + 1024 - 16 * stages;
    // Two warpgroups multiply, and a thread of another warp copies: of a third warpgroup, that
    // gives its registers up, where the others need them.
    static constexpr int threads = at_once == 2 ? 288 : 384;
    static constexpr int copy_registers = 56, registers = 224;
};

constexpr int bulk_depth = 64;  // positions of a weights gradient's stage

/// Weights gradients of 16-bit types through the copy engine: see wgmma_bulk_weights.cu.
struct bulk_weights_args {
    tensor_map src, dst;
    weights_args weights;                            // the problem as it is
    std::int32_t groups, merged;                     // merged groups, and how many each has
    std::int32_t ic, oc;                             // of a merged group
    std::int32_t src_channels, dst_channels;         // of one in the maps
    std::int32_t lines;                              // of 64 input channels
    std::int32_t start[3], step[3], offset_step[3];  // as in bulk_phase
    std::int32_t advance[3];                         // of positions, from stage to stage
    std::int32_t advance_image;
    std::int32_t three_axes;
};

/// Weights as wgmma_args has them, with zeros between merged groups.
struct merge_args {
    const void *from;
    void *to;
    wide groups, merged;    // merged groups, and how many of the problem's each has
    wide out, in, taps[3];  // channels of one of the problem's groups
    wide group_stride, out_stride, in_stride, tap_strides[3];
    wide padded;  // channels of the sum
    wide small;   // from large to small parts; 0: large ones only
    std::int32_t lanes_along_out;
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

/// Packs data or weights for a product; what pads channels or positions is zero.
struct pack_args {
    const void *from;
    void *to;
    wide lengths[5], strides[5];  // of positions (data) or group, out channel, taps (weights)
    wide groups, group_stride, channels, channel_stride;
    wide padded_channels;
    wide positions;
    wide padded_positions;  // where channels are turned to rows of positions
    wide small;             // likewise: from large to small parts; 0: large ones only
    std::int32_t lanes_along_positions;
    std::int32_t tile_channels;  // a power of two
};

constexpr int pack_threads = 256, pack_bits = 12;  // 4096 elements of a tile
constexpr int pack_fewest_channels = 4, pack_most_channels = 64;

/// Packs planes of 16-bit values, [image][channel][position] to [image][position][channel].
struct plane_args {
    const void *from;
    void *to;
    wide image_stride, channel_stride;
    std::int32_t images, channels, positions;  // channels: whole pieces of 16 bytes
    std::int32_t unit;                         // positions that are read at once
};

constexpr int plane_tile = 64;  // channels, and positions

constexpr int dense_rows = 128, dense_columns = 64, dense_threads = 128, dense_stages = 3;
constexpr int dense_shared = dense_stages * (dense_rows + dense_columns) * 128;

}  // namespace convgrad::cuda
