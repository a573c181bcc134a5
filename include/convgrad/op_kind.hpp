// Operation kinds.
#pragma once

#include <cstdint>
#include <string_view>

#include <convgrad/export.hpp>

namespace convgrad {
inline namespace CONVGRAD_ABI {

/// The convolution family and what goes with it. The values are those of oneDNN Graph's op kinds.
/// BiasAdd, Add and ReLU compute in graphs, as part of a convolution's partition.
enum class op_kind : std::uint8_t {
    add = 2,
    bias_add = 8,
    bias_add_backward = 9,
    convolution = 13,
    convolution_backward_data = 14,
    convolution_backward_weights = 15,
    conv_transpose = 16,
    conv_transpose_backward_data = 17,
    conv_transpose_backward_weights = 18,
    relu = 58,
};

/// All op kinds, the convolution family first.
inline constexpr op_kind all_op_kinds[] = {
    op_kind::convolution,
    op_kind::convolution_backward_data,
    op_kind::convolution_backward_weights,
    op_kind::conv_transpose,
    op_kind::conv_transpose_backward_data,
    op_kind::conv_transpose_backward_weights,
    op_kind::bias_add_backward,
    op_kind::bias_add,
    op_kind::add,
    op_kind::relu,
};

/// Convolution, ConvTranspose and their gradients, in order of their values.
inline constexpr op_kind convolution_op_kinds[] = {
    op_kind::convolution,
    op_kind::convolution_backward_data,
    op_kind::convolution_backward_weights,
    op_kind::conv_transpose,
    op_kind::conv_transpose_backward_data,
    op_kind::conv_transpose_backward_weights,
};

/// The specification's name, e.g. "ConvolutionBackwardWeights".
CONVGRAD_API std::string_view to_string(op_kind kind) noexcept;

}  // namespace CONVGRAD_ABI
}  // namespace convgrad
