// What the extension module of the package offers to PyTorch's operators, which are compiled apart
// from it, against whatever PyTorch is installed: plain data and functions, no types of the
// library.
#pragma once

#include <cstdint>

namespace convgrad::native {

/// Goes up with every change of this file.
inline constexpr int api_version = 1;
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

/// Where refusals go: the name of an exception class of convgrad and the message.
struct complaint {
    void *context;
    void (*tell)(void *context, const char *class_name, const char *message);
};

struct functions {
    int version;
    /// Each returns false after a complaint, and then has written nothing. Null: no such tensor.
    bool (*forward)(const view &input, const view &weight, const view *bias, const view &output,
        const geometry &where, const complaint &report);
    /// At least one of grad_input and grad_weight; grad_bias only with grad_weight.
    bool (*backward)(const view &grad, const view &input, const view &weight,
        const view *grad_input, const view *grad_weight, const view *grad_bias,
        const geometry &where, const complaint &report);
    /// Whether shapes and geometry fit together; the data of the views is not looked at.
    bool (*check)(
        const view &input, const view &weight, const geometry &where, const complaint &report);
};

}  // namespace convgrad::native
