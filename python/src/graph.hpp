// What the bindings of graphs and of compiled ops share.
#pragma once

#include <vector>

#include <nanobind/nanobind.h>

#include <convgrad/graph.hpp>

namespace convgrad::python {

namespace nb = nanobind;

/// LogicalTensor objects or arrays, which then stand for their description.
std::vector<logical_tensor> descriptions_from_python(nb::handle list, const char *name);

/// Executes on arrays. `out` is None, one array or a sequence with an entry (or None) per output;
/// what it leaves open is made. Returns the output, or a tuple of several.
nb::object call_compiled(
    const compiled_partition &compiled, nb::handle inputs, nb::handle out, const engine *on);

}  // namespace convgrad::python
