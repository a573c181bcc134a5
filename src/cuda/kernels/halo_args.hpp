// What the host passes to wgmma_halo.cu.
#pragma once

#include "args.hpp"

namespace convgrad::cuda {

/// Data passes of stride 1 whose taps share what is copied: a tile is `rows` rows of `images`
/// images, `width` positions each, of which those within the output count.
struct halo_args {
    bulk_args bulk;  // in[0]: boxes of whole rows
    std::int32_t width, rows, images;
    std::int32_t box_pixels;    // of one image, with the rows and columns that taps reach
    std::int32_t image_blocks;  // of 64 positions of one image
    std::int32_t stage_bytes;   // of a box, in whole kilobytes
    std::int32_t row_tiles, image_tiles;
};

/// A block computes four blocks of 64 positions by N channels.
template <int N>
struct halo_tiles {
    static constexpr int threads = 384, copy_registers = 40, registers = 232;
    static constexpr int boxes = 2, taps = N == 64 ? 9 : 5;  // stages of both rings
    static constexpr int tap_bytes = N * 128;
    static constexpr int most_shared = 232448;
    static constexpr int most_stage =
        (most_shared - 4096 - bulk_box - taps * tap_bytes) / boxes / 1024 * 1024;
    static constexpr int shared(int stage_bytes) {
        return boxes * stage_bytes + taps * tap_bytes + bulk_box + 1024;
    }
};

}  // namespace convgrad::cuda
