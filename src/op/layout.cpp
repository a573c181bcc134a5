#include "op/layout.hpp"

#include <algorithm>

#include "op/apart.hpp"
#include "op/geometry.hpp"
#include "op/message.hpp"

namespace convgrad::ops {
namespace {

bool is_empty(const dims &shape) {
    return std::find(shape.begin(), shape.end(), 0) != shape.end();
}

// Bytes from the first to the last element; false on overflow. An empty tensor counts as if its
// axes had one element at least, so that its packed strides can be formed too.
bool count_bytes(const logical_tensor &t, dim &bytes) {
    const dims &shape = *t.shape;
    const bool packed = t.strides.empty() || is_empty(shape);
    dim elements = 1;
    for (std::size_t i = 0; i < shape.size(); ++i) {
        const dim length = std::max<dim>(shape[i], 1);
        dim step = 0;
        if (packed) {
            if (__builtin_mul_overflow(elements, length, &elements)) return false;
        } else if (length > 1
                   && (__builtin_mul_overflow(length - 1, t.strides[i], &step)
                       || __builtin_add_overflow(elements, step, &elements))) {
            return false;
        }
    }
    return !__builtin_mul_overflow(elements, static_cast<dim>(size_of(t.type)), &bytes);
}

}  // namespace

void check_layout(const parsed_attributes &attrs, std::string_view name, const logical_tensor &t) {
    if (!t.shape) return;
    const dims &shape = *t.shape;
    if (!t.strides.empty() && t.strides.size() != shape.size())
        fail(error_code::invalid_shape, attrs.kind, attrs.op_name,
            cat(name, " has shape ", shape, " but strides ", t.strides,
                "; there must be one stride per dimension"));
    for (std::size_t i = 0; i < t.strides.size() && !is_empty(shape); ++i)
        if (t.strides[i] < 1 && shape[i] > 1)
            fail(error_code::invalid_shape, attrs.kind, attrs.op_name,
                cat(name, " has shape ", shape, " and strides ", t.strides,
                    "; strides must be positive"));
    dim bytes = 0;
    if (t.is_known() && !count_bytes(t, bytes))
        fail(error_code::invalid_shape, attrs.kind, attrs.op_name,
            cat(name, " has shape ", shape,
                t.strides.empty() ? "" : cat(" and strides ", t.strides),
                "; its size in bytes overflows 64 bits"));
}

void check_elements_apart(
    const parsed_attributes &attrs, std::string_view name, const logical_tensor &t) {
    if (t.strides.empty() || !t.is_known() || is_empty(*t.shape)) return;
    const layout_kind kind = judge_layout(*t.shape, t.strides);
    if (kind == layout_kind::apart) return;
    fail(error_code::invalid_shape, attrs.kind, attrs.op_name,
        cat("output ", name, " has shape ", *t.shape, " and strides ", t.strides,
            kind == layout_kind::overlapping ? ", by which some of its elements share memory"
                                             : ", which may make some of its elements share memory",
            "; every element of an output must have memory of its own (inputs may overlap "
            "themselves)"));
}

std::array<dim, 5> canonical_strides(const logical_tensor &t) {
    const dims &shape = *t.shape;
    const bool packed = t.strides.empty() || is_empty(shape);
    std::array<dim, 5> strides{};
    dim next = 1;  // the stride of the next axis outwards if it is packed
    for (std::size_t i = shape.size(); i-- > 0;) {
        strides[i] = packed || shape[i] <= 1 ? next : t.strides[i];
        next = strides[i] * std::max<dim>(shape[i], 1);
    }
    return strides;
}

std::array<dim, 3> three_axes(
    const std::array<dim, 5> &strides, const dims &shape, std::size_t first, int axes) {
    std::array<dim, 3> x{};
    if (axes == 0) return x;
    for (int i = 2, from = axes - 1; i >= 0; --i, --from) {
        if (from >= 0)
            x[i] = strides[first + from];
        else
            x[i] = from == -1 ? strides[first] * std::max<dim>(shape[first], 1) : x[i + 1];
    }
    return x;
}

conv::data_strides data_strides_of(
    const parsed_attributes &attrs, int axes, const logical_tensor &tensor) {
    const std::array<dim, 5> strides = canonical_strides(tensor);
    const data_order order = order_of(attrs.data_format, axes);
    return {strides[order.n], strides[order.c], three_axes(strides, *tensor.shape, order.x, axes)};
}

conv::data_strides repeated_strides_of(
    const parsed_attributes &attrs, int axes, const logical_tensor &tensor, const dims &shape) {
    if (*tensor.shape == shape) return data_strides_of(attrs, axes, tensor);
    const std::array<dim, 5> own = canonical_strides(tensor);
    const std::size_t missing = shape.size() - tensor.shape->size();
    std::array<dim, 5> strides{};
    for (std::size_t i = 0; i < tensor.shape->size(); ++i)
        if ((*tensor.shape)[i] != 1) strides[missing + i] = own[i];
    const data_order order = order_of(attrs.data_format, axes);
    conv::data_strides made{strides[order.n], strides[order.c], {}};
    for (int i = 0; i < axes; ++i)
        made.x[static_cast<std::size_t>(3 - axes + i)] =
            strides[order.x + static_cast<std::size_t>(i)];
    return made;
}

}  // namespace convgrad::ops
