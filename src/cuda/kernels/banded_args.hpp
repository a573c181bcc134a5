// What the host passes to banded_data.cu and banded_weights.cu.
#pragma once

#include "args.hpp"

namespace convgrad::cuda {

/// How boxes of a tensor get into shared memory as planes: rows of chunks, 8 columns (16 bytes)
/// each. Row 0, chunk 0 of the box at (y, x) is the tensor's row y + first_row, column x +
/// first_column; what lies beside the tensor is zero.
struct banded_planes {
    wide n, c, y, x;             // strides of the tensor; those of a box fit 32 bits
    std::int32_t rows, columns;  // of the tensor
    std::int32_t first_row, first_column;
    std::int32_t chunks, lines, live;             // of a row; of a plane; lines that are not zero
    std::int32_t pitch, image_bytes, slot_bytes;  // of a row, a plane, the planes of a channel
    std::int32_t at, raw_at;  // in shared memory: planes, and (channels side by side) what becomes
                              // planes
    std::int32_t table_at;    // likewise: where each chunk of a plane lies, here and there
    std::int32_t unit;        // elements that are copied at once
};

/// Depthwise passes of 16-bit types, stride 1, on tensor cores: see banded.cuh.
struct banded_args {
    depthwise_args base;
    banded_planes in, dst;  // dst: backward weights
    std::int32_t shift;     // from the window's first column to where the first tap reads
    std::int32_t channel_blocks;
    std::int32_t images, band_rows, strip_columns;  // of an item
    std::int32_t mb, bands, strips, items;
    std::int32_t column_tiles;  // of an item, across
    std::int32_t pairs;         // tiles are rows of two images, 8 of each
    std::int32_t part_items, blocks;
    std::int32_t taps_at, bias_at, out_table_at;  // in shared memory
    std::int32_t store_unit;   // columns (planes) or channels that go to memory together
    std::int32_t store_whole;  // and at once: they are aligned
};

constexpr int banded_threads = 256, banded_warps = banded_threads / 32;
constexpr int banded_channels = 16, banded_slots = banded_channels / banded_warps;  // of a warp
constexpr int banded_most_shared = 227 * 1024 / 2 - 1024;  // two blocks of a multiprocessor
/// Bytes of a line of a table, and of a chunk where it is copied to before it is turned.
constexpr int banded_line = 16, banded_raw_chunk = 8 * banded_channels * 2;

}  // namespace convgrad::cuda
