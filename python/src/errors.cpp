// convgrad::error as Python exceptions: one class per code, all below convgrad.Error.
#include <array>
#include <string>

#include <convgrad/error.hpp>

#include "bindings.hpp"

namespace convgrad::python {
namespace {

struct entry {
    error_code code;
    const char *name, *doc;
    PyObject **builtin;
};

constexpr entry entries[] = {
    {error_code::invalid_op, "InvalidOp",
        "Unknown op or attribute, a value out of range, a wrong data type.", &PyExc_ValueError},
    {error_code::invalid_graph, "InvalidGraph",
        "One tensor described in two ways, a cycle, two producers, a late change.",
        &PyExc_ValueError},
    {error_code::invalid_shape, "InvalidShape",
        "Ranks, channels, groups or sizes that do not fit together.", &PyExc_ValueError},
    {error_code::invalid_argument, "InvalidArgument",
        "A wrong number of tensors, or one that does not match what was compiled.",
        &PyExc_ValueError},
    {error_code::unsupported, "Unsupported", "Legal, but not available here.", &PyExc_ValueError},
    {error_code::out_of_memory, "OutOfMemory",
        "An allocation, or the engine's workspace limit, failed.", &PyExc_MemoryError},
    {error_code::device_failure, "DeviceFailure",
        "A device failed at or after work that was queued on it.", &PyExc_RuntimeError},
};

/// By error_code; live as long as the process.
std::array<PyObject *, 7> classes{};

PyObject *make_class(const std::string &name, const char *doc, nb::handle bases) {
    return PyErr_NewExceptionWithDoc(("convgrad." + name).c_str(), doc, bases.ptr(), nullptr);
}

void translate(const std::exception_ptr &thrown, void *) {
    try {
        std::rethrow_exception(thrown);
    } catch (const error &e) {
        PyErr_SetString(classes.at(static_cast<std::size_t>(e.code())), e.what());
    }
}

}  // namespace

const char *class_name_of(error_code code) {
    for (const entry &e : entries)
        if (e.code == code) return e.name;
    return "Error";
}

void bind_errors(nb::module_ &m) {
    const nb::object base =
        nb::steal(make_class("Error", "Every failure of the library.", PyExc_Exception));
    m.attr("Error") = base;
    for (const entry &e : entries) {
        PyObject *made = make_class(e.name, e.doc, nb::make_tuple(base, nb::handle(*e.builtin)));
        classes.at(static_cast<std::size_t>(e.code)) = made;
        m.attr(e.name) = nb::handle(made);
    }
    nb::register_exception_translator(translate);
}

}  // namespace convgrad::python
