// What the extension module of the package offers to PyTorch's operators, which are compiled apart
// from it, against whatever PyTorch is installed: plain data and functions, no types of the
// library.
#pragma once

#include <cstddef>
#include <cstdint>

namespace convgrad::native {

/// Goes up with every change of this file.
inline constexpr int api_version = 3;
/// Attribute of convgrad._core, and the name of the capsule in it.
inline constexpr const char *capsule_name = "convgrad._core._native";

/// A tensor where it lies. Types are those of the library: 1 f32, 2 bf16, 3 f16.
struct view {
    void *data;
    int type;
    int rank;
    const std::int64_t *shape, *strides;
};

/// One value for each spatial axis; output_padding counts where it is transposed only.
struct geometry {
    const std::int64_t *stride, *pads_begin, *pads_end, *dilation, *output_padding;
    int axes;
    std::int64_t groups;
    bool transposed;
};

/// Batch normalisation of dense tensors (batch, channels, positions), or with channels last.
struct norm {
    int type;
    bool channels_last;
    std::int64_t batch, channels, positions;
    const float *weight, *bias;  // null: ones and zeros
    const float *bounds;         // null, or the lowest and the highest value
};

/// Where CUDA work goes: a stream of a device, and who has scratch for what is queued there next.
struct queue {
    int device;
    void *stream;  // cudaStream_t; null is the default stream
    void *context;
    /// Null: there is none.
    void *(*take)(void *context, std::size_t bytes);
};

/// Where refusals go: the name of an exception class of convgrad and the message.
struct complaint {
    void *context;
    void (*tell)(void *context, const char *class_name, const char *message);
};

struct functions {
    int version;
    /// Each returns false after a complaint, and then has written nothing. Null: no such tensor.
    /// With a queue it returns when the work is queued there; without, all is memory of the host.
    bool (*forward)(const view &input, const view &weight, const view *bias, const view &output,
        const geometry &where, const queue *on, const complaint &report);
    /// At least one of grad_input and grad_weight; grad_bias only with grad_weight.
    bool (*backward)(const view &grad, const view &input, const view &weight,
        const view *grad_input, const view *grad_weight, const view *grad_bias,
        const geometry &where, const queue *on, const complaint &report);
    /// Whether shapes and geometry fit together; the data of the views is not looked at.
    bool (*check)(
        const view &input, const view &weight, const geometry &where, const complaint &report);
    /// See cpu/batch_norm.hpp.
    bool (*norm_forward)(const norm &what, const void *input, double epsilon, void *output,
        float *mean, float *factor, float *variance, const complaint &report);
    bool (*norm_backward)(const norm &what, const void *grad, const void *input, const float *mean,
        const float *factor, void *grad_input, float *grad_weight, float *grad_bias,
        const complaint &report);
    /// Whether a CUDA device can be used: the engine, the driver and the device are there.
    bool (*has_device)(int device);
};

}  // namespace convgrad::native
