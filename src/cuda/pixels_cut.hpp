// How a first layer is cut into boxes for kernels/pixels_*.cu: by the problem alone.
#pragma once

#include "cuda/general.hpp"
#include "cuda/kernels/pixels_args.hpp"

namespace convgrad::cuda {

/// A launch, but for its pointers and what follows from them.
struct pixels_cut {
    pixels_args args{};
    int rows = 0, columns = 0;  // 16-bit: 16 channels of a warp's products, 8 columns (or channels)
    int threads = 0, shared = 0;
    int at_once = 0;    // blocks of a multiprocessor
    double cycles = 0;  // of a nominal multiprocessor, or so
};

/// Whether some box fits into the shared memory of every device.
bool fits_pixels(const conv::problem &p);
/// As little effort as boxes that fit into so much shared memory allow.
pixels_cut cut_pixels(const conv::problem &p, int most_shared, const engines::plan_limits &limits);

/// Whether pieces of so many neighbours along columns are whole in rows of boxes of dst.
bool has_whole_rows(const pixels_args &a, int piece);

}  // namespace convgrad::cuda
