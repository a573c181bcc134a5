// What the host passes to kernels of depthwise layers with any kernel: see sliding.cuh.
#pragma once

#include "args.hpp"

namespace convgrad::cuda {

constexpr int sliding_threads = 256;
constexpr int sliding_step = 4;       // taps at a time in data passes
constexpr int sliding_positions = 8;  // at a time in weights gradients

/// How a thread walks along the last axis (axes are in an order that makes it the one to walk): its
/// positions are `apart` from each other, and input `unit` apart is one step of its window.
struct sliding_walk {
    std::int32_t apart, unit;
};

struct sliding_data_args {
    data_args data;                           // the problem as it is
    const float *taps;                        // weights
    wide tap_channel, tap_in, tap_stride[3];  // of an output channel, of a channel of the sum
    sliding_walk walk;
    std::int32_t counts[3];       // positions of the longest phase; strips along the walk
    std::int32_t channels;        // threads along channels
    std::int32_t along_channels;  // lanes of a warp; else along columns:
    std::int32_t along_walk;      // which are the axis walked, or the one before
    std::int32_t pairs;           // two channels are stored at once
    wide items;                   // threads
};

struct sliding_weights_args {
    weights_args weights;  // the problem; parts are parts of the items
    sliding_walk walk;
    std::int32_t along_channels;
    std::int32_t along_walk;  // lanes of a warp are neighbours along the walk; else items
    wide tap_at[3];           // where a tap's sum goes, by axis
    std::int32_t chunks;      // of taps along the walk
    std::int32_t rows;        // warps of a channel: chunks of taps
    std::int32_t row_blocks, channel_blocks, blocks;
    std::int32_t items, part_items;  // items: positions along the other axes, of all images
};

/// Weights as f32, channels next to each other (lanes along channels) or taps.
struct sliding_taps_args {
    const void *from;
    float *to;
    wide group, out, tap[3];  // strides
    std::int32_t groups, outs, taps[3];
    std::int32_t along_channels;
};

}  // namespace convgrad::cuda
