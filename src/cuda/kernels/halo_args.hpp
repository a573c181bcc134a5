// What the host passes to wgmma_halo.cu.
#pragma once

#include "args.hpp"

namespace convgrad::cuda {

/// Data passes of stride 1 whose taps share what is copied. Positions run through rows of `width`
/// and images of `height` rows; those beside the output are computed and not stored.
struct halo_args {
    bulk_args bulk;  // in[0]: boxes of positions, with what taps reach
    std::int32_t width, height;
    std::int32_t box_pixels;
    std::int32_t stage_bytes;  // of a box, in whole kilobytes
    std::int32_t position_tiles;
};

/// A warpgroup computes 256 positions by 64 channels.
struct halo_tiles {
    static constexpr int rows = 256, columns = 64, threads = 384;
    static constexpr int copy_registers = 56, registers = 224;
    static constexpr int boxes = 2, taps = 9;  // stages of both rings
    static constexpr int tap_bytes = columns * 128;
    // Of a warpgroup, where sums are put in order: so many positions of all channels at a time, and
    // the places of all.
    static constexpr int slice = 64;
    static constexpr int pitch = 64 * 2 + 16;  // of rows of channels, and of positions
    static constexpr int box = 64 * pitch, room = box + rows * 8;
    static constexpr int most_shared = 232448 - 4096;
    static constexpr int most_stage =
        (most_shared - 2 * room - taps * tap_bytes) / boxes / 1024 * 1024;
    static constexpr int shared(int stage_bytes) {
        return boxes * stage_bytes + taps * tap_bytes + 2 * room + 1024;
    }
};
static_assert(halo_tiles::slice == 64 && halo_tiles::columns == 64);

}  // namespace convgrad::cuda
