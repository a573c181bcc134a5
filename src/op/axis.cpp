#include "op/axis.hpp"

#include <algorithm>
#include <limits>

#include "op/message.hpp"

namespace convgrad::ops {
namespace {

template <typename... Parts>
[[noreturn]] void misfit(const parsed_attributes &attrs, const Parts &...parts) {
    fail(error_code::invalid_shape, attrs.kind, attrs.op_name, cat(parts...));
}

// A number for a message; those beyond 64 bits as a bound.
std::string number(wide value) {
    if (value > std::numeric_limits<dim>::max()) return "more than 2^63";
    if (value <= std::numeric_limits<dim>::min()) return "less than -2^63";
    return std::to_string(static_cast<dim>(value));
}

bool fits(wide value) {
    return value <= std::numeric_limits<dim>::max();
}

[[noreturn]] void overflow(
    const parsed_attributes &attrs, const axis_terms &t, std::string_view what) {
    misfit(
        attrs, what, " on spatial axis ", t.axis, " overflows 64 bits; sizes and offsets must fit");
}

std::string extent_text(const axis_terms &t) {
    return cat("dilation ", t.dilation, " * (kernel ", t.kernel, " - 1) + 1");
}

std::string padded_text(dim length, dim less, const pad_pair &pads) {
    return cat("length ", length, less == 0 ? "" : cat(" - output_padding ", less),
        " + pads_begin ", pads.begin, " + pads_end ", pads.end);
}

// The total that auto_pad same_* distributes over both ends.
wide same_total(const parsed_attributes &attrs, const axis_terms &t, dim large, dim small) {
    const wide extent = t.extent();
    switch (attrs.kind) {
    case op_kind::conv_transpose:
        return extent - t.stride;
    case op_kind::convolution_backward_data:
        if (large == unknown_dim) return extent - t.stride;
        return wide{t.stride} * (wide{small} - 1) + extent - large + t.output_padding;
    default:
        break;
    }
    const bool transposed = roles_of(attrs.kind).transposed;
    const wide length = wide{large} - (transposed ? t.output_padding : 0);
    // How much of the last stride the length fills. (Towards minus infinity: output_padding may
    // exceed the length, which is then found too short for the kernel.)
    const wide remainder = (length % t.stride + t.stride) % t.stride;
    return extent - (remainder == 0 ? wide{t.stride} : remainder);
}

}  // namespace

axis_terms terms_of(const parsed_attributes &attrs, std::size_t axis, dim kernel) {
    return {axis, attrs.strides[axis], attrs.dilations[axis],
        attrs.output_padding ? (*attrs.output_padding)[axis] : 0, kernel};
}

pad_pair axis_pads(
    const parsed_attributes &attrs, std::size_t axis, dim kernel, dim large, dim small) {
    if (attrs.auto_pad == auto_pad::none) return {attrs.pads_begin[axis], attrs.pads_end[axis]};
    if (attrs.auto_pad == auto_pad::valid) return {0, 0};
    const bool by_formula =
        attrs.kind == op_kind::conv_transpose
        || (attrs.kind == op_kind::convolution_backward_data && large == unknown_dim);
    const bool needs_small = attrs.kind == op_kind::convolution_backward_data;
    if (kernel == unknown_dim) return {};
    if (!by_formula && (large == unknown_dim || (needs_small && small == unknown_dim))) return {};

    const axis_terms t = terms_of(attrs, axis, kernel);
    const wide wanted = std::max(wide{0}, same_total(attrs, t, large, small));
    if (!fits(wanted)) overflow(attrs, t, "the padding that auto_pad asks for");
    const dim total = static_cast<dim>(wanted);
    const dim half = total / 2;
    return attrs.auto_pad == auto_pad::same_upper ? pad_pair{half, total - half}
                                                  : pad_pair{total - half, half};
}

dim convolved_length(const parsed_attributes &attrs, std::string_view name, const axis_terms &t,
    dim length, dim less, const pad_pair &pads) {
    const wide padded = wide{length} - less + pads.begin + pads.end;
    if (padded < t.extent())
        misfit(attrs, name, " is too short for the kernel on spatial axis ", t.axis, ": ",
            padded_text(length, less, pads), " = ", number(padded),
            " must be at least the dilated kernel's extent ", extent_text(t), " = ",
            number(t.extent()));
    const wide result = (padded - t.extent()) / t.stride + 1;
    if (!fits(result)) overflow(attrs, t, convolved_text(t, length, less, pads));
    return static_cast<dim>(result);
}

std::string convolved_text(const axis_terms &t, dim length, dim less, const pad_pair &pads) {
    return cat("floor((", padded_text(length, less, pads), " - extent (", extent_text(t),
        ")) / stride ", t.stride, ") + 1");
}

wide transposed_value(const axis_terms &t, dim length, const pad_pair &pads) {
    return wide{t.stride} * (wide{length} - 1) + t.extent() + t.output_padding - pads.begin
           - pads.end;
}

dim transposed_length(const parsed_attributes &attrs, std::string_view name, const axis_terms &t,
    dim length, const pad_pair &pads) {
    const wide result = transposed_value(t, length, pads);
    if (result < 0)
        misfit(attrs, name, " would have length ", number(result), " = ",
            transposed_text(t, length, pads), " on spatial axis ", t.axis,
            "; it must not be negative");
    if (!fits(result)) overflow(attrs, t, transposed_text(t, length, pads));
    return static_cast<dim>(result);
}

std::string transposed_text(const axis_terms &t, dim length, const pad_pair &pads) {
    return cat("stride ", t.stride, " * (length ", length, " - 1) + extent (", extent_text(t),
        ") + output_padding ", t.output_padding, " - pads_begin ", pads.begin, " - pads_end ",
        pads.end);
}

}  // namespace convgrad::ops
