#include "arguments.hpp"

#include <array>
#include <utility>

#include <nanobind/stl/string_view.h>

namespace convgrad::python {
namespace {

[[noreturn]] void refuse_type(std::string_view name, nb::handle value, std::string_view rule) {
    throw error(error_code::invalid_op, "invalid op: " + std::string(name) + " is "
                                            + nb::repr(value).c_str() + "; it must be "
                                            + std::string(rule));
}

/// False for what is no integer (a float is none, a NumPy integer is one).
bool read_integer(nb::handle value, dim &to) {
    if (!PyIndex_Check(value.ptr())) return false;
    const nb::object number = nb::steal(PyNumber_Index(value.ptr()));
    if (number.is_valid()) to = PyLong_AsLongLong(number.ptr());
    if (PyErr_Occurred() == nullptr) return true;
    PyErr_Clear();
    return false;
}

}  // namespace

dim integer_from_python(nb::handle value, std::string_view name) {
    dim number = 0;
    if (!read_integer(value, number)) refuse_type(name, value, "an integer");
    return number;
}

std::string_view string_from_python(nb::handle value, std::string_view name) {
    Py_ssize_t length = 0;
    const char *text =
        PyUnicode_Check(value.ptr()) ? PyUnicode_AsUTF8AndSize(value.ptr(), &length) : nullptr;
    if (text == nullptr) {
        PyErr_Clear();
        refuse_type(name, value, "a string");
    }
    return {text, static_cast<std::size_t>(length)};
}

dims dims_from_python(nb::handle list, std::string_view name) {
    const nb::object items = nb::steal(PySequence_Fast(list.ptr(), ""));
    if (!items.is_valid()) {
        PyErr_Clear();
        refuse_type(name, list, "a sequence of integers");
    }
    dims values(static_cast<std::size_t>(PySequence_Fast_GET_SIZE(items.ptr())));
    PyObject **item = PySequence_Fast_ITEMS(items.ptr());
    for (dim &value : values)
        if (!read_integer(*item++, value)) refuse_type(name, list, "a sequence of integers");
    return values;
}

dims axes_from_python(nb::handle list, std::size_t axes, std::string_view name) {
    if (list.is_none()) return {};
    dim value = 0;
    if (PyLong_Check(list.ptr()) && read_integer(list, value)) return dims(axes, value);
    return dims_from_python(list, name);
}

std::string text_of(const dims &list) {
    std::string text = "[";
    for (dim d : list) text += (text.size() > 1 ? ", " : "") + std::to_string(d);
    return text + "]";
}

op_kind kind_from_python(std::string_view name) {
    static constexpr std::pair<std::string_view, op_kind> functions[] = {
        {"convolution", op_kind::convolution},
        {"convolution_backward_data", op_kind::convolution_backward_data},
        {"convolution_backward_weights", op_kind::convolution_backward_weights},
        {"conv_transpose", op_kind::conv_transpose},
        {"conv_transpose_backward_data", op_kind::conv_transpose_backward_data},
        {"conv_transpose_backward_weights", op_kind::conv_transpose_backward_weights},
        {"bias_add_backward", op_kind::bias_add_backward},
    };
    for (const auto &[function, kind] : functions)
        if (name == function) return kind;
    return op_kind_from_name(name);
}

attributes attributes_from_python(const nb::tuple &given, std::size_t rank) {
    const std::size_t axes = rank > 2 ? rank - 2 : 0;
    attributes made;
    made.strides = axes_from_python(given[0], axes, "strides");
    made.pads_begin = axes_from_python(given[1], axes, "pads_begin");
    made.pads_end = axes_from_python(given[2], axes, "pads_end");
    made.dilations = axes_from_python(given[3], axes, "dilations");
    // None: the op has no such attribute.
    if (!nb::handle(given[4]).is_none()) made.auto_pad = string_from_python(given[4], "auto_pad");
    if (!nb::handle(given[5]).is_none()) made.groups = integer_from_python(given[5], "groups");
    made.data_format = string_from_python(given[6], "data_format");
    if (!nb::handle(given[7]).is_none())
        made.weights_format = string_from_python(given[7], "weights_format");
    made.output_padding = axes_from_python(given[8], axes, "output_padding");
    return made;
}

}  // namespace convgrad::python
