// What the host passes to columns.cu.
#pragma once

#include "args.hpp"

namespace convgrad::cuda {

/// A convolution as a product: what each position reads is a row of a matrix, and so are the
/// weights of each output channel. See columns.cu.
struct columns_args {
    const void *from;
    void *to;
    data_args data;        // forward: the problem as it is, for results with care
    weights_args weights;  // weights gradients: likewise
    wide mb, channels;
    data_axis_args x[3];  // in: src, out: dst
    wide src_n, src_c, src_x[3];
    wide w_out, w_in, w_tap[3];  // strides of weights, in and out as in the forward pass
    wide out_channels;
    wide positions;                  // of all images
    wide lines;                      // of positions
    std::int32_t segments, segment;  // of a line, and positions of one
    std::int32_t box[3];             // what a segment reads, along each axis
    std::int32_t terms, padded;      // of a row; with what fills 16 bytes
    std::int32_t channels_inside;    // a term's neighbour is the next channel, else the next tap
    std::int32_t padding;            // some position reads beside the tensor
    std::int32_t accumulate;         // weights gradients
    element out_type;                // likewise
};

constexpr int columns_threads = 256, columns_most_terms = 1024;
constexpr int columns_most_segment = 64, columns_most_box = 40960;  // positions; bytes

}  // namespace convgrad::cuda
