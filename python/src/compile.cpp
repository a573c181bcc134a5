// Single ops, and both gradients of a layer, compiled for many calls.
#include <string_view>

#include <nanobind/stl/string_view.h>

#include <convgrad/eager.hpp>

#include "arguments.hpp"
#include "bindings.hpp"
#include "graph.hpp"

namespace convgrad::python {
namespace {

/// The rank of the data tensors; 0 where it is not known.
std::size_t rank_of(const std::vector<logical_tensor> &inputs) {
    return inputs.empty() || !inputs[0].shape ? 0 : inputs[0].shape->size();
}

/// (op, inputs, outputs, attributes, accumulate, relu, add, diff_bias, engine): outputs complete.
compiled_partition compile_op(std::string_view name, nb::handle inputs, nb::handle outputs,
    const nb::tuple &attribute_values, bool accumulate, bool relu, bool add, bool diff_bias,
    const engine *on) {
    const std::vector<logical_tensor> ins = descriptions_from_python(inputs, "inputs");
    const std::vector<logical_tensor> outs = descriptions_from_python(outputs, "outputs");
    const attributes attrs = attributes_from_python(attribute_values, rank_of(ins));
    const compile_options opts{
        .accumulate = accumulate, .diff_bias = diff_bias, .relu = relu, .add = add, .on = on};
    const nb::gil_scoped_release released;
    if (name == "convolution_backward")
        return compile_backward(op_kind::convolution, ins, outs, attrs, opts);
    if (name == "conv_transpose_backward")
        return compile_backward(op_kind::conv_transpose, ins, outs, attrs, opts);
    return convgrad::compile(kind_from_python(name), ins, outs, attrs, opts);
}

}  // namespace

void bind_compile(nb::module_ &m) {
    m.def("compile", &compile_op, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
        nb::arg(), nb::arg(), nb::arg().none());
}

}  // namespace convgrad::python
