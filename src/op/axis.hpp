// The arithmetic of one spatial axis, without wraparound: sums and products of 64-bit sizes are
// formed in 128 bits, and a result that does not fit 64 bits is invalid_shape.
#pragma once

#include "op/geometry.hpp"

namespace convgrad::ops {

__extension__ typedef __int128 wide;

/// The attributes and the kernel of one axis.
struct axis_terms {
    std::size_t axis;
    dim stride, dilation, output_padding, kernel;

    /// Length that the dilated kernel covers.
    [[nodiscard]] wide extent() const { return wide{dilation} * (kernel - 1) + 1; }
};
axis_terms terms_of(const parsed_attributes &attrs, std::size_t axis, dim kernel);

/// floor((length - less + pads - extent) / stride) + 1; a kernel that is larger than the padded
/// length is invalid_shape. `name` is that of the large tensor.
dim convolved_length(const parsed_attributes &attrs, std::string_view name, const axis_terms &t,
    dim length, dim less, const pad_pair &pads);

/// The same formula in words, for messages about its result.
std::string convolved_text(const axis_terms &t, dim length, dim less, const pad_pair &pads);

/// stride * (length - 1) + extent + output_padding - pads; negative results are invalid_shape.
/// `name` is that of the large tensor, the result.
dim transposed_length(const parsed_attributes &attrs, std::string_view name, const axis_terms &t,
    dim length, const pad_pair &pads);

/// The same without judging it.
wide transposed_value(const axis_terms &t, dim length, const pad_pair &pads);

std::string transposed_text(const axis_terms &t, dim length, const pad_pair &pads);

}  // namespace convgrad::ops
