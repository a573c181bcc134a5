// What the host passes to planes*.cu.
#pragma once

#include "args.hpp"

namespace convgrad::cuda {

constexpr int planes_columns = 7;          // of a strip
constexpr int planes_warps = 1;            // of a block
constexpr int planes_most_shared = 28000;  // bytes of a block: eight for 227 KB

/// A tensor whose planes are copied: steps in elements.
struct planes_source {
    const void *data;
    wide image, channel;
    std::int32_t slot;   // elements of shared memory from run to run
    std::int32_t plane;  // and from plane to plane
    std::int32_t at;     // where the first one is, in bytes
};

/// Depthwise passes on planes as large as their outputs: see planes.cuh.
struct planes_args {
    depthwise_args base;    // the problem; segments: bands of rows
    planes_source in, dst;  // dst: of a weights gradient
    std::int32_t images;
    std::int32_t warp_planes;     // that a warp computes at once
    std::int32_t channel_blocks;  // of so many channels
    std::int32_t rounds;          // images that it computes one after the other, at most
    std::int32_t jobs;            // of warps
    std::int32_t whole;           // planes of a warp are one run of memory
    std::int32_t warp_bytes;      // of shared memory
    std::int32_t slow;            // tensors are not aligned: element by element
};

}  // namespace convgrad::cuda
