// What the host passes to care.cu.
#pragma once

#include "args.hpp"

namespace convgrad::cuda {

constexpr int care_threads = 256;
constexpr int care_scan_blocks = 128;

/// Looks for values that are not finite.
struct care_scan_args {
    const void *data;  // at a multiple of 16 bytes
    wide length;       // elements
    unsigned *found;   // [care_scan_blocks]: not 0 where there is one
};

/// Outputs of a data pass that are not finite, if weights are not.
struct care_data_args {
    data_args data;
    const unsigned *found;
};

/// Weights gradients [group][oc][tap][ic], or with taps last, to where they belong.
struct care_weights_args {
    weights_args weights;                                      // partial: none
    const void *from;                                          // of the inputs' type
    void *out;                                                 // likewise; may be `from`
    wide group_stride, out_stride, in_stride, tap_strides[3];  // of out
    std::int32_t taps_last, accumulate;
    std::int32_t careful;  // what is not finite is computed again
};

}  // namespace convgrad::cuda
