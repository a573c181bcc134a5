// Attributes and options as the Python functions pass them.
#pragma once

#include <string>
#include <string_view>

#include <nanobind/nanobind.h>

#include <convgrad/eager.hpp>
#include <convgrad/error.hpp>

namespace convgrad::python {

namespace nb = nanobind;

/// An integer (a float is none, a NumPy integer is one) that 64 bits hold. `name` is for messages.
dim integer_from_python(nb::handle value, std::string_view name);

/// Characters of a string. They belong to it.
std::string_view string_from_python(nb::handle value, std::string_view name);

/// A sequence of integers, or a one-dimensional integer array.
dims dims_from_python(nb::handle list, std::string_view name);

/// The same, where one integer stands for `axes` equal ones and None for none.
dims axes_from_python(nb::handle list, std::size_t axes, std::string_view name);

/// "[1, 2, 3]".
std::string text_of(const dims &list);

/// "Convolution" or "convolution"; any name of the specification or of the Python functions.
op_kind kind_from_python(std::string_view name);

/// The order in which the Python functions pass attributes.
inline constexpr const char *attribute_order[] = {"strides", "pads_begin", "pads_end", "dilations",
    "auto_pad", "groups", "data_format", "weights_format", "output_padding"};

/// A tuple in that order for data tensors of this rank. The strings belong to the tuple.
attributes attributes_from_python(const nb::tuple &given, std::size_t rank);

}  // namespace convgrad::python
