// Batch normalisation of a training step, with what bounds its values behind it (ReLU, ReLU6): what
// stands between the convolutions of most networks. Not an op of the library's interface: the
// Python package computes the modules around its convolutions with it (docs/python.md).
//
// Memory decides how long it takes, so the driver goes through it as few times as it can: channels
// that are planes stay in the cache between their sums and their values.
#pragma once

#include <convgrad/engine.hpp>

#include "cpu/kernels/norm.hpp"
#include "cpu/parallel.hpp"

namespace convgrad::cpu {

/// Dense tensors (batch, channels, positions), or with channels last.
struct batch_norm {
    data_type type = data_type::f32;
    bool channels_last = false;
    dim batch = 0, channels = 0, positions = 0;
    /// Values are bounded from below and above; gradients go where they are inside.
    bool clamped = false;
    float low = 0, high = 0;

    [[nodiscard]] dim count() const { return batch * positions; }  // per channel
};

/// Arrays of one f32 per channel. Gamma and beta: null stands for ones and zeros.
struct norm_parameters {
    const float *gamma, *beta;
};

/// dst = (src − mean) / √(variance + epsilon) · gamma + beta. Also tells each channel's mean, what
/// it was divided by (as a factor), and the variance about the mean, of count() values.
struct norm_forward {
    const void *src;
    norm_parameters parameters;
    double epsilon;
    void *dst;
    float *mean, *factor, *variance;
};

/// `mean` and `factor` as the forward pass told them. Any of the outputs may be null.
struct norm_backward {
    const void *src, *diff_dst;
    norm_parameters parameters;
    const float *mean, *factor;
    void *diff_src;
    float *diff_gamma, *diff_beta;
};

/// The same bits for any number of threads. count() is at least 1 (or there are no channels).
void run(const batch_norm &p, const norm_forward &what, const norm_kernels &kernels,
    const executor &threads);
void run(const batch_norm &p, const norm_backward &what, const norm_kernels &kernels,
    const executor &threads);

/// On the engine's threads, with what it may use.
void run(const batch_norm &p, const norm_forward &what, const engine &on);
void run(const batch_norm &p, const norm_backward &what, const engine &on);

}  // namespace convgrad::cpu
