// What the library would do with an op, and why.
#include <string>
#include <vector>

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <convgrad/explain.hpp>

#include "arguments.hpp"
#include "bindings.hpp"
#include "graph.hpp"

namespace convgrad::python {
namespace {

explanation explain_op(std::string_view name, nb::handle inputs, nb::handle outputs,
    const nb::tuple &attribute_values, bool accumulate, bool relu, bool add, bool diff_bias,
    const engine *on) {
    const op_kind kind = kind_from_python(name);
    const std::vector<logical_tensor> ins = descriptions_from_python(inputs, "inputs");
    const std::vector<logical_tensor> outs = descriptions_from_python(outputs, "outputs");
    const std::size_t rank = ins.empty() || !ins[0].shape ? 0 : ins[0].shape->size();
    const attributes attrs = attributes_from_python(attribute_values, rank);
    const compile_options opts{
        .accumulate = accumulate, .diff_bias = diff_bias, .relu = relu, .add = add, .on = on};
    return convgrad::explain(kind, ins, outs, attrs, opts);
}

}  // namespace

void bind_explain(nb::module_ &m) {
    using candidate = explanation::candidate;
    nb::class_<candidate>(m, "Refusal")
        .def_ro("algorithm", &candidate::algorithm)
        .def_ro("instruction_set", &candidate::uses)
        .def_ro("seconds", &candidate::seconds)
        .def_ro("reason", &candidate::reason)
        .def("__repr__",
            [](const candidate &c) { return c.algorithm + ", " + c.uses + ": " + c.reason; });
    nb::class_<explanation>(m, "Explanation")
        .def_prop_ro("op", [](const explanation &e) { return std::string(to_string(e.kind)); })
        .def_ro("algorithm", &explanation::algorithm)
        .def_ro("instruction_set", &explanation::uses)
        .def_ro("blocks", &explanation::blocks)
        .def_prop_ro("output_shape",
            [](const explanation &e) { return nb::tuple(nb::cast(*e.outputs.at(0).shape)); })
        .def_ro("threads", &explanation::threads)
        .def_ro("workspace", &explanation::workspace)
        .def_ro("seconds", &explanation::seconds)
        .def_ro("flops", &explanation::flops)
        .def_ro("refusals", &explanation::others)
        .def("__str__", [](const explanation &e) { return to_string(e); })
        .def("__repr__", [](const explanation &e) { return to_string(e); });
    m.def("explain", &explain_op, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
        nb::arg(), nb::arg(), nb::arg().none());
}

}  // namespace convgrad::python
