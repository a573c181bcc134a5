// Logical tensors, ops, graphs, partitions and compiled partitions.
#include "graph.hpp"

#include <deque>
#include <string>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "arguments.hpp"
#include "arrays.hpp"
#include "bindings.hpp"

namespace convgrad::python {
namespace {

using namespace nb::literals;

std::optional<dims> optional_dims(nb::handle list, const char *name) {
    if (list.is_none()) return std::nullopt;
    return dims_from_python(list, name);
}

/// A shape in which None stands for an unknown dimension.
std::optional<dims> shape_from_python(nb::handle list) {
    if (list.is_none()) return std::nullopt;
    dims shape;
    for (nb::handle d : list)
        shape.push_back(d.is_none() ? unknown_dim : integer_from_python(d, "a dimension"));
    return shape;
}

nb::object shape_to_python(const std::optional<dims> &shape) {
    if (!shape) return nb::none();
    nb::list made;
    for (dim d : *shape) made.append(d == unknown_dim ? nb::none() : nb::cast(d));
    return nb::tuple(made);
}

void make_logical_tensor(logical_tensor *self, std::size_t id, nb::handle dtype, nb::handle shape,
    nb::handle strides, nb::handle value) {
    logical_tensor made(id, type_from_python(dtype));
    made.shape = shape_from_python(shape);
    if (!strides.is_none()) made.strides = dims_from_python(strides, "strides");
    made.value = optional_dims(value, "value");
    if (made.value && !made.shape) made.shape = dims{static_cast<dim>(made.value->size())};
    new (self) logical_tensor(std::move(made));
}

std::string text_of(const logical_tensor &t) {
    std::string text = "LogicalTensor(" + std::to_string(t.id) + ", '"
                       + std::string(to_string(t.type)) + "', "
                       + nb::repr(shape_to_python(t.shape)).c_str();
    if (!t.strides.empty()) text += ", strides=" + python::text_of(t.strides);
    if (t.value) text += ", value=" + python::text_of(*t.value);
    return text + ")";
}

attribute_value attribute_from_python(nb::handle value, const char *name) {
    if (PyBool_Check(value.ptr())) return value.ptr() == Py_True;
    if (PyUnicode_Check(value.ptr())) return std::string(string_from_python(value, name));
    if (PyFloat_Check(value.ptr())) return nb::cast<float>(value);
    if (PyLong_Check(value.ptr())) return integer_from_python(value, name);
    return dims_from_python(value, name);
}

const logical_tensor &tensor_from_python(nb::handle object, const std::string &name) {
    const logical_tensor *given = nullptr;
    if (nb::try_cast(object, given) && given != nullptr) return *given;
    throw error(error_code::invalid_argument, "invalid argument: " + name + " of an op is "
                                                  + nb::repr(object).c_str()
                                                  + "; it must be a LogicalTensor");
}

void make_op(op *self, std::size_t id, std::string_view kind, nb::handle inputs, nb::handle outputs,
    const std::string &name, const nb::kwargs &attrs) {
    op made(id, kind_from_python(kind), name);
    for (nb::handle t : inputs) made.add_input(tensor_from_python(t, "an input"));
    for (nb::handle t : outputs) made.add_output(tensor_from_python(t, "an output"));
    for (auto [key, value] : attrs) {
        const std::string attribute(string_from_python(key, "the name of an attribute"));
        made.set(attribute, attribute_from_python(value, attribute.c_str()));
    }
    new (self) op(std::move(made));
}

compiled_partition compile_partition(
    const partition &p, nb::handle inputs, nb::handle outputs, const engine *on) {
    const engine &where = on != nullptr ? *on : default_engine();
    if (inputs.is_none() && outputs.is_none()) return p.compile(where);
    return p.compile(descriptions_from_python(inputs, "inputs"),
        descriptions_from_python(outputs, "outputs"), where);
}

/// The entry of `out` for output i, or None.
nb::object entry_of(nb::handle out, std::size_t i, std::size_t count) {
    if (out.is_none()) return nb::none();
    if (!PyTuple_Check(out.ptr()) && !PyList_Check(out.ptr())) {
        if (count == 1) return nb::borrow(out);
        throw error(error_code::invalid_argument,
            "invalid argument: out is one array; there are " + std::to_string(count) + " outputs");
    }
    if (nb::len(out) != count)
        throw error(error_code::invalid_argument,
            "invalid argument: out has " + std::to_string(nb::len(out)) + " entries; there are "
                + std::to_string(count) + " outputs");
    return out[i];
}

bool is_packed(const logical_tensor &t) {
    dim next = 1;
    for (std::size_t i = t.strides.size(); i-- > 0;) {
        if ((*t.shape)[i] > 1 && t.strides[i] != next) return false;
        next *= (*t.shape)[i];
    }
    return true;
}

void bind_tensors_and_ops(nb::module_ &m) {
    nb::class_<logical_tensor>(m, "LogicalTensor")
        .def("__init__", &make_logical_tensor, "id"_a, "dtype"_a.none(),
            "shape"_a.none() = nb::none(), "strides"_a.none() = nb::none(),
            "value"_a.none() = nb::none())
        .def_ro("id", &logical_tensor::id)
        .def_prop_ro("dtype", [](const logical_tensor &t) { return to_string(t.type); })
        .def_prop_ro("shape", [](const logical_tensor &t) { return shape_to_python(t.shape); })
        .def_prop_ro("strides", [](const logical_tensor &t) { return shape_to_python(t.strides); })
        .def_prop_ro("value", [](const logical_tensor &t) { return shape_to_python(t.value); })
        .def("__eq__",
            [](const logical_tensor &a, nb::handle b) {
                const logical_tensor *other = nullptr;
                return nb::try_cast(b, other) && other != nullptr && a == *other;
            })
        .def("__repr__", [](const logical_tensor &t) { return text_of(t); });
    nb::class_<op>(m, "Op")
        .def("__init__", &make_op, "id"_a, "kind"_a, "inputs"_a, "outputs"_a, "name"_a = "",
            "attributes"_a)
        .def_prop_ro("id", &op::id)
        .def_prop_ro("kind", [](const op &o) { return to_string(o.kind()); })
        .def_prop_ro("name", &op::name)
        .def_prop_ro("inputs", &op::inputs)
        .def_prop_ro("outputs", &op::outputs);
}

}  // namespace

std::vector<logical_tensor> descriptions_from_python(nb::handle list, const char *name) {
    std::vector<logical_tensor> made;
    if (list.is_none()) return made;
    for (nb::handle item : list) {
        const logical_tensor *given = nullptr;
        if (nb::try_cast(item, given) && given != nullptr)
            made.push_back(*given);
        else
            made.push_back(
                describe_array(item, std::string(name) + "[" + std::to_string(made.size()) + "]"));
    }
    return made;
}

nb::object call_compiled(
    const compiled_partition &compiled, nb::handle inputs, nb::handle out, const engine *on) {
    // Deques, because arrays do not move.
    std::deque<array> read, written;
    std::deque<result> made;
    std::vector<tensor> ins, outs;
    for (nb::handle object : inputs)
        ins.push_back(
            read.emplace_back(object, "input " + std::to_string(read.size()), access::read).get());
    const std::size_t count = compiled.outputs().size();
    nb::list objects;
    std::vector<result *> finished(count, nullptr);
    for (std::size_t i = 0; i < count; ++i) {
        const nb::object given = entry_of(out, i, count);
        const logical_tensor &described = compiled.outputs()[i];
        if (!given.is_none()) {
            outs.push_back(written.emplace_back(given, "out", access::write).get());
            objects.append(given);
            continue;
        }
        if (!described.is_known() || !is_packed(described) || read.empty())
            throw error(error_code::invalid_argument,
                "invalid argument: output " + std::to_string(i) + " is " + text_of(described)
                    + "; one whose shape is known only now, or which is not packed, must be given "
                      "as out");
        finished[i] = &made.emplace_back(read[0].object(), *described.shape, described.type);
        outs.push_back(finished[i]->get());
        objects.append(nb::none());
    }
    {
        const nb::gil_scoped_release released;
        compiled.execute(stream(on != nullptr ? *on : default_engine()), ins, outs);
    }
    for (std::size_t i = 0; i < count; ++i)
        if (finished[i] != nullptr) objects[i] = finished[i]->finish();
    return count == 1 ? nb::object(objects[0]) : nb::object(nb::tuple(objects));
}

void bind_graph(nb::module_ &m) {
    bind_tensors_and_ops(m);
    nb::class_<compiled_partition>(m, "CompiledPartition")
        .def_prop_ro("inputs", &compiled_partition::inputs)
        .def_prop_ro("outputs", &compiled_partition::outputs)
        .def_prop_ro("workspace_size", &compiled_partition::workspace_size)
        .def("query", &compiled_partition::query, "id"_a)
        .def("describe", &compiled_partition::describe)
        .def("__repr__", &compiled_partition::describe)
        .def(
            "__call__",
            [](const compiled_partition &self, const nb::args &inputs, nb::handle out,
                const engine *on) { return call_compiled(self, inputs, out, on); },
            "inputs"_a, nb::kw_only(), "out"_a.none() = nb::none(), "engine"_a.none() = nb::none());
    nb::class_<partition>(m, "Partition")
        .def_prop_ro("id", &partition::id)
        .def_prop_ro("ops", &partition::ops)
        .def_prop_ro("inputs", &partition::inputs)
        .def_prop_ro("outputs", &partition::outputs)
        .def_prop_ro("is_supported", &partition::is_supported)
        .def("compile", &compile_partition, "inputs"_a.none() = nb::none(),
            "outputs"_a.none() = nb::none(), nb::kw_only(), "engine"_a.none() = nb::none());
    nb::class_<graph>(m, "Graph")
        .def(nb::init<>())
        .def("add", &graph::add, "op"_a, nb::rv_policy::reference_internal)
        .def("remove", &graph::remove, "op_id"_a, nb::rv_policy::reference_internal)
        .def("finalize", &graph::finalize)
        .def_prop_ro("is_finalized", &graph::is_finalized)
        .def("partitions", &graph::partitions);
}

}  // namespace convgrad::python
