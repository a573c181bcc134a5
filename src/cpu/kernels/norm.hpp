// Kernels of batch normalisation (cpu/batch_norm.hpp): one file norm.<set>.cpp for each set of
// f32 multiply-adds in kernels.inc.
#pragma once

#include <convgrad/types.hpp>

#include "cpu/isa.hpp"

namespace convgrad::cpu {

/// Rows of elements. Along a row either channels follow each other, or (`planes`) the positions of
/// one channel; values for each channel then have one element.
struct norm_rows {
    data_type type;
    bool planes;
    dim rows, length;
    dim pitch;  // bytes from one row to the next, in all tensors
};

/// For each channel: values are src · scale + shift, clamped to [low, high] if `clamped`.
struct norm_values {
    const float *scale, *shift;
    bool clamped;
    float low, high;
};

// Of rows of channels, pivots and sums have room for whole vectors: a multiple of `norm_lanes`
// floats.
inline constexpr dim norm_lanes = 16;

/// means[channel] = the mean of src, roughly.
struct norm_means_args {
    norm_rows where;
    const char *src;
    float *means;
};

/// About a pivot near each channel's mean: sums = Σ (src − pivot), squares = Σ (src − pivot)².
struct norm_moments_args {
    norm_rows where;
    const char *src;
    const float *pivots;
    float *sums, *squares;
};

struct norm_args {
    norm_rows where;
    norm_values values;
    const char *src;
    char *dst;
    bool stream;  // whole vectors go past the caches: dst and all its rows are on lines
};

/// Of g, which is diff_dst where the value is inside its bounds and zero elsewhere:
/// Σ g and Σ g · (src − mean).
struct norm_gradient_sums_args {
    norm_rows where;
    norm_values values;
    const char *src, *diff_dst;
    const float *mean;
    float *sums, *dots;
};

/// diff_src = g · of_g + (src − mean) · of_src + constant.
struct norm_gradient_args {
    norm_rows where;
    norm_values values;
    const char *src, *diff_dst;
    const float *mean, *of_g, *of_src, *constant;
    char *diff_src;
    bool stream;  // as in norm_args
};

struct norm_kernels {
    isa set;
    void (*means)(const norm_means_args &args);
    void (*moments)(const norm_moments_args &args);
    void (*normalize)(const norm_args &args);
    void (*gradient_sums)(const norm_gradient_sums_args &args);
    void (*gradient)(const norm_gradient_args &args);
};

/// The best that need no more than `may_use`.
const norm_kernels &best_norm(capabilities may_use);

#define CONVGRAD_FMA_KERNELS(set) const norm_kernels &norm_##set();
#include "cpu/kernels/kernels.inc"

}  // namespace convgrad::cpu
