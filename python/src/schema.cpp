// The op table, from which the signatures of the Python functions are written.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string_view.h>

#include "arguments.hpp"
#include "bindings.hpp"
#include "op/schema.hpp"

namespace convgrad::python {
namespace {

nb::dict argument(const ops::argument_schema &a) {
    nb::dict made;
    made["name"] = a.name;
    made["required"] = a.required;
    made["shape_input"] = a.shape_input;
    made["f32_allowed"] = a.f32_allowed;
    return made;
}

nb::dict attribute(const ops::attribute_schema &a) {
    nb::dict made;
    made["name"] = a.name;
    made["type"] = ops::to_string(a.type);
    made["required"] = a.required;
    made["minimum"] = a.minimum;
    made["maximum"] = a.maximum;
    nb::list choices;
    for (std::string_view c : a.choices) choices.append(c);
    made["choices"] = nb::tuple(choices);
    made["default"] = a.default_text;
    return made;
}

nb::dict op(const ops::op_schema &s) {
    nb::list inputs, outputs, attributes;
    for (const ops::argument_schema &a : s.inputs) inputs.append(argument(a));
    for (const ops::argument_schema &a : s.outputs) outputs.append(argument(a));
    for (const ops::attribute_schema &a : s.attributes) attributes.append(attribute(a));
    nb::dict made;
    made["kind"] = static_cast<int>(s.kind);
    made["name"] = s.name;
    made["inputs"] = inputs;
    made["outputs"] = outputs;
    made["attributes"] = attributes;
    made["epilogue"] = s.epilogue;
    return made;
}

}  // namespace

void bind_schema(nb::module_ &m) {
    m.def("schemas", [] {
        nb::list made;
        for (const ops::op_schema &s : ops::all_schemas()) made.append(op(s));
        return made;
    });
    nb::list names;
    for (const char *name : attribute_order) names.append(name);
    m.attr("ATTRIBUTES") = nb::tuple(names);
}

}  // namespace convgrad::python
