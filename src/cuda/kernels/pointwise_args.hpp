// What the host passes to wgmma_pointwise*.cu.
#pragma once

#include "args.hpp"

namespace convgrad::cuda {

/// Positions of a plane that are copied at once: 128 bytes.
constexpr int pointwise_box(std::size_t element) {
    return static_cast<int>(128 / element);
}

/// How planes are cut into boxes, the last of each in part beside it. Pixels: all of them are one
/// plane.
struct plane_boxes {
    std::int32_t positions;  // of a plane
    std::int32_t of_image, all;
    wide step;  // from position to position of the output
};

/// Data passes of one tap between planes. The maps: `in[0]` and `out` of positions, channels and
/// images.
struct pointwise_args {
    bulk_args bulk;
    plane_boxes boxes;
    std::int32_t terms;  // whole_tiles: channels of a box
};

/// 16-bit types, few channels on both sides: a block computes all channels of 128 positions, N at a
/// time.
template <int N>
struct whole_tiles {
    static constexpr int weights = 32768,  // bytes of all
        stage = 128 * 128, stages = 3;
    static constexpr int boxes = 4, room = boxes * bulk_engine_box;
    // With what barriers take before it, to the next kilobyte: two blocks just fit.
    static constexpr int shared = weights + stages * stage + 2 * room + 1024 - 16 * (stages + 1);
    static constexpr int threads = bulk_tiles<1, 128>::threads;
};

/// f32: a block computes 128 positions or input channels by N output channels, 32 terms a stage;
/// `copies` of weights or diff_dst: 2 where they are split.
template <int N, bool Exact>
struct pointwise_tiles {
    static constexpr int rows = 128, copies = Exact ? 2 : 1;
    static constexpr int in_bytes = rows * 128, out_bytes = N * 128,
                         stage = in_bytes + copies * out_bytes, stages = N == 64 ? 6 : 4;
    // Slices of 32 channels by a warpgroup's 64 positions, that the copy engine stores from.
    static constexpr int slices = 2, slice = 64 * 32 * 4;
    static constexpr int shared = stages * stage + 2 * slices * slice + 1024,
                         weights_shared = stages * stage + 1024;
    // Two warpgroups multiply. Of a third one, which gives its registers up, a thread copies, and
    // in a weights gradient three warps split.
    static constexpr int threads = 384, splitters = 96, copy_registers = 56, registers = 224;
};

/// Weights gradients of one tap between planes: both maps of positions, channels and images.
struct pointwise_weights_args {
    bulk_weights_args bulk;
    plane_boxes boxes;
    std::int32_t part_boxes;
};

}  // namespace convgrad::cuda
