// The parts of the extension module.
#pragma once

#include <nanobind/nanobind.h>

#include <convgrad/error.hpp>

namespace convgrad::python {

namespace nb = nanobind;

void bind_errors(nb::module_ &m);
void bind_arrays(nb::module_ &m);
void bind_engine(nb::module_ &m);
void bind_functions(nb::module_ &m);
void bind_graph(nb::module_ &m);
void bind_compile(nb::module_ &m);
void bind_explain(nb::module_ &m);
void bind_schema(nb::module_ &m);
void bind_xla(nb::module_ &m);
void bind_native(nb::module_ &m);

/// The exception class of a code, e.g. "InvalidShape".
const char *class_name_of(error_code code);

}  // namespace convgrad::python
