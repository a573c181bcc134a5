// What the host passes to wgmma_fold.cu, and how a problem's taps meet cells: computed by kernels
// and by the host.
#pragma once

#include "phases.hpp"

namespace convgrad::cuda {

/// Where a tap sends what it is multiplied with: position o of diff_dst goes to cell o + moved, of
/// which each has a place for every remainder modulo the stride.
struct fold_tap {
    int moved, rest;
};
CONVGRAD_ANYWHERE constexpr fold_tap find_fold_tap(const data_axis_args &a, int tap) {
    const int at = tap * static_cast<int>(a.dilation) - static_cast<int>(a.pad),
              stride = static_cast<int>(a.stride);
    const int moved = at >= 0 ? at / stride : -((stride - 1 - at) / stride);
    return {moved, at - moved * stride};
}

constexpr int fold_most_columns = 384, fold_most_slots = 192, fold_group = 8;
constexpr std::uint16_t fold_no_column = 0xffff;

/// Data gradients to few channels: see wgmma_fold.cu. Positions and cells lie in lines of `width`,
/// `height` lines to a plane; those beside the tensors are computed and not stored.
struct fold_args {
    data_args data;  // the problem as it is
    const void *in;  // channels next to each other
    const void *weights;
    wide in_n, in_x[3];              // strides
    wide small;                      // of packed weights: from large to small parts
    std::int32_t pieces, lines;      // of 16 and 128 bytes, that hold a position's channels
    std::int32_t padded;             // channels of packed weights: whole lines
    std::int32_t columns, chunks;    // weights of a position, in groups of eight; products of them
    std::int32_t first_slot, slots;  // results of a cell
    std::int32_t channels_inside;    // slots of neighbouring channels are neighbours
    std::int32_t run;                // slots that are neighbours in the output, from cell to cell
    std::uint32_t run_magic;
    std::int32_t pairs;  // two of them may be stored at once
    std::int32_t width, height;
    std::uint32_t width_magic, height_magic;
    std::int32_t cells[3];                 // that have results
    std::int32_t cell_lines;               // of an image
    std::int32_t segments, segment_lines;  // that an image is cut into
    std::int32_t items;
    std::int32_t move_min, reach;  // of taps, in cells
    std::int32_t ring;             // cells, a power of two
    std::int32_t plain;            // nothing but the sum is stored
    std::uint64_t meet;  // a bit for each group of columns that others must be done before
    std::uint16_t order[fold_most_columns];  // tap · channels + channel of each column
};

constexpr int fold_rows = 64, fold_stages = 2;
/// Of a block: products of f32 need more registers.
constexpr int fold_most_warpgroups(int columns, std::size_t element) {
    return columns > 32 && element == 4 ? 2 : 4;
}
constexpr int fold_most_shared = 232448 - 1024;
CONVGRAD_ANYWHERE constexpr int fold_slot_pitch(int ring) {
    return ring + 4;  // neighbouring slots in other banks
}
/// Bytes of what all warpgroups of a block share, and of what each has for itself.
constexpr int fold_common(int columns, int lines, int copies, int slots) {
    return columns * lines * 128 * copies + fold_most_columns * 8 + slots * 16 + 1024;
}
CONVGRAD_ANYWHERE constexpr int fold_own(int lines, int slots, int ring) {
    return (fold_stages * lines * fold_rows * 128 + slots * fold_slot_pitch(ring) * 4
               + fold_rows * 16 + 1023)
           / 1024 * 1024;
}

/// Weights as columns of a fold: [part][column][channel], zeros where there is none.
struct fold_weights_args {
    fold_args fold;
    const void *from;
    void *to;
    std::int32_t rows;  // columns with those that fill the last product
};

}  // namespace convgrad::cuda
