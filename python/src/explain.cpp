// What the library would do with an op, and why.
#include <string>
#include <vector>

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <convgrad/eager.hpp>

#include "arguments.hpp"
#include "bindings.hpp"
#include "engine/engine.hpp"
#include "graph.hpp"
#include "op/lower.hpp"

namespace convgrad::python {
namespace {

struct refused {
    std::string algorithm, instruction_set, reason;
};

struct explanation {
    std::string op, algorithm, instruction_set, blocks;
    std::vector<dim> output_shape;
    int threads = 0;
    std::size_t workspace = 0;
    double flops = 0;
    std::vector<refused> refusals;
};

explanation explain(std::string_view name, nb::handle inputs, nb::handle outputs,
    const nb::tuple &attribute_values, bool accumulate, bool relu, bool add, bool diff_bias,
    const engine *on) {
    const op_kind kind = kind_from_python(name);
    const std::vector<logical_tensor> ins = descriptions_from_python(inputs, "inputs");
    std::vector<logical_tensor> outs = descriptions_from_python(outputs, "outputs");
    if (ins.empty() || !ins[0].is_known())
        throw error(error_code::invalid_shape,
            "invalid shape: explain needs the whole shape of every input");
    const attributes attrs = attributes_from_python(attribute_values, ins[0].shape->size());
    const engine::impl &where = (on != nullptr ? *on : default_engine()).get();

    const tensor present;
    ops::parsed_attributes parsed = ops::parse(kind, attrs, ins[0].shape->size(),
        {.accumulate = accumulate,
            .diff_bias = diff_bias ? &present : nullptr,
            .relu = relu,
            .add = add ? &present : nullptr});
    ops::check_arguments(parsed, ins, outs);
    ops::infer_shapes(parsed, ins, outs);
    conv::problem problem = ops::lower(parsed, ins, outs);
    problem.math = where.math;
    std::vector<engines::verdict> refusals;
    const auto plan = where.backend->make_plan(problem, where.limits(), &refusals);

    explanation made{.op = std::string(to_string(kind)),
        .algorithm = std::string(plan->algorithm()),
        .instruction_set = std::string(plan->facts().uses),
        .blocks = plan->describe(),
        .output_shape = *outs.at(0).shape,
        .threads = where.backend->threads(),
        .workspace = plan->workspace(),
        .flops = 2 * conv::macs(problem),
        .refusals = {}};
    for (const engines::verdict &r : refusals)
        made.refusals.push_back({std::string(r.algorithm), std::string(r.uses), r.reason});
    return made;
}

std::string text_of(const explanation &e) {
    std::string text = e.op + " -> " + python::text_of(e.output_shape) + "\n  algorithm  "
                       + e.algorithm + ", " + e.instruction_set + ", " + std::to_string(e.threads)
                       + " threads\n  blocks     " + e.blocks + "\n  workspace  "
                       + std::to_string(e.workspace) + " bytes\n  work       "
                       + std::to_string(e.flops * 1e-9) + " GFLOP";
    for (const refused &r : e.refusals)
        text += "\n  not " + r.algorithm + ", " + r.instruction_set + ": " + r.reason;
    return text;
}

}  // namespace

void bind_explain(nb::module_ &m) {
    nb::class_<refused>(m, "Refusal")
        .def_ro("algorithm", &refused::algorithm)
        .def_ro("instruction_set", &refused::instruction_set)
        .def_ro("reason", &refused::reason)
        .def("__repr__", [](const refused &r) {
            return r.algorithm + ", " + r.instruction_set + ": " + r.reason;
        });
    nb::class_<explanation>(m, "Explanation")
        .def_ro("op", &explanation::op)
        .def_ro("algorithm", &explanation::algorithm)
        .def_ro("instruction_set", &explanation::instruction_set)
        .def_ro("blocks", &explanation::blocks)
        .def_prop_ro("output_shape",
            [](const explanation &e) { return nb::tuple(nb::cast(e.output_shape)); })
        .def_ro("threads", &explanation::threads)
        .def_ro("workspace", &explanation::workspace)
        .def_ro("flops", &explanation::flops)
        .def_ro("refusals", &explanation::refusals)
        .def("__str__", [](const explanation &e) { return text_of(e); })
        .def("__repr__", [](const explanation &e) { return text_of(e); });
    m.def("explain", &explain, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
        nb::arg(), nb::arg(), nb::arg().none());
}

}  // namespace convgrad::python
