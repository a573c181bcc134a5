// What the host passes to quads.cu.
#pragma once

#include "args.hpp"

namespace convgrad::cuda {

/// Depthwise data passes of 3×3 taps with channels side by side, four a thread.
struct quads_args {
    depthwise_args base;
    std::int32_t vectors;  // of four channels
    // Whether pieces of four are aligned: of what is read, of what is stored (sums and nothing
    // else); taps of four channels, which lie one after the other.
    std::int32_t whole, out_whole, taps_whole;
};

constexpr int quads_threads = 128, quads_columns = 4;

}  // namespace convgrad::cuda
