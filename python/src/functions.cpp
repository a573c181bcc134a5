// The ops and both gradients at once, on the caller's arrays.
#include <optional>
#include <string>
#include <string_view>

#include <nanobind/nanobind.h>

#include <convgrad/eager.hpp>

#include "arguments.hpp"
#include "arrays.hpp"
#include "bindings.hpp"

namespace convgrad::python {
namespace {

using eager_forward = void (*)(const const_tensor &, const const_tensor &, const const_tensor &,
    const tensor &, const attributes &, const options &);
using eager_gradient = void (*)(const const_tensor &, const const_tensor &, const tensor &,
    const attributes &, const options &);

/// What is known of an op before its arguments are looked at.
struct op_traits {
    op_kind kind;
    const char *names[2];    // inputs 0 and 1; null: there is one input
    const char *shape_name;  // of the argument that gives the output's shape
    eager_forward forward;   // one of these two, or none with one input
    eager_gradient gradient;
};

const op_traits &traits_of(op_kind kind) {
    static constexpr op_traits all[] = {
        {op_kind::convolution, {"src", "weights"}, "", convolution, nullptr},
        {op_kind::convolution_backward_data, {"diff_dst", "weights"}, "dst_shape", nullptr,
            convolution_backward_data},
        {op_kind::convolution_backward_weights, {"src", "diff_dst"}, "weights_shape", nullptr,
            convolution_backward_weights},
        {op_kind::conv_transpose, {"src", "weights"}, "", conv_transpose, nullptr},
        {op_kind::conv_transpose_backward_data, {"diff_dst", "weights"}, "", nullptr,
            conv_transpose_backward_data},
        {op_kind::conv_transpose_backward_weights, {"src", "diff_dst"}, "weights_shape", nullptr,
            conv_transpose_backward_weights},
        {op_kind::bias_add_backward, {"diff_dst", nullptr}, "", nullptr, nullptr},
    };
    for (const op_traits &op : all)
        if (op.kind == kind) return op;
    throw error(error_code::invalid_op,
        "invalid op: op kind " + std::to_string(static_cast<int>(kind)) + " has no function");
}

/// The caller's array (not None and not True), or a new one.
class output {
public:
    output(nb::handle given, std::string_view name) {
        if (!given.is_none() && !PyBool_Check(given.ptr()))
            given_.emplace(given, name, access::write);
    }
    [[nodiscard]] bool is_given() const { return given_.has_value(); }
    [[nodiscard]] const tensor &get() const { return given_ ? given_->get() : made_->get(); }
    void make(nb::handle like, dims shape, data_type type) {
        made_.emplace(like, std::move(shape), type);
    }
    nb::object finish() { return given_ ? nb::borrow(given_->object()) : made_->finish(); }

private:
    std::optional<array> given_;
    std::optional<result> made_;
};

[[noreturn]] void refuse(op_kind kind, error_code code, const std::string &text) {
    throw error(
        code, std::string(code == error_code::invalid_shape ? "invalid shape" : "invalid argument")
                  + ": " + std::string(to_string(kind)) + ": " + text);
}

void require_output_to_accumulate(op_kind kind, bool accumulate, const output &out) {
    if (accumulate && !out.is_given())
        refuse(kind, error_code::invalid_argument, "accumulate adds into out, which is not given");
}

/// The shape of output 0: as given, or what out has, or what follows from the inputs.
dims output_shape(const op_traits &op, nb::handle given, const output &out, const tensor &first,
    const tensor &second, const attributes &attrs) {
    if (!given.is_none()) {
        dims shape = dims_from_python(given, op.shape_name);
        if (out.is_given() && out.get().shape != shape)
            refuse(op.kind, error_code::invalid_shape,
                std::string(op.shape_name) + " is " + text_of(shape) + " but out has shape "
                    + text_of(out.get().shape));
        return shape;
    }
    if (out.is_given()) return out.get().shape;
    return infer_shape(op.kind, first.shape, second.shape, attrs);
}

void read_optional(std::optional<array> &to, nb::handle object, std::string_view name) {
    if (!object.is_none()) to.emplace(object, name, access::read);
}

/// Number of channels of diff_dst: the length of the bias gradient.
dim channels_of(const tensor &t, const attributes &attrs) {
    if (t.shape.empty()) return 0;
    return attrs.data_format == data_format::ncx && t.shape.size() > 1 ? t.shape[1]
                                                                       : t.shape.back();
}

bool wanted(nb::handle diff_bias) {
    return !diff_bias.is_none() && diff_bias.ptr() != Py_False;
}

/// (kind, (input 0, input 1, bias, add), attributes, shape, out, diff_bias, accumulate, relu,
/// dtype, engine) → output 0, or (output 0, diff_bias) where the latter is wanted.
nb::object run(int kind_number, const nb::tuple &inputs, const nb::tuple &attribute_values,
    nb::handle shape, nb::handle out_object, nb::handle diff_bias_object, bool accumulate,
    bool relu, nb::handle dtype, const engine *on) {
    const op_traits &op = traits_of(static_cast<op_kind>(kind_number));
    const array first(inputs[0], op.names[0], access::read);
    std::optional<array> given_second, bias, add;
    if (op.names[1] != nullptr) given_second.emplace(inputs[1], op.names[1], access::read);
    const tensor nothing, &second = given_second ? given_second->get() : nothing;
    read_optional(bias, inputs[2], "bias");
    read_optional(add, inputs[3], "add");
    const attributes attrs = attributes_from_python(attribute_values, first.get().shape.size());

    output out(out_object, "out");
    require_output_to_accumulate(op.kind, accumulate, out);
    dims out_shape = output_shape(op, shape, out, first.get(), second, attrs);
    const data_type wanted_type = type_from_python(dtype);
    const data_type type = wanted_type == data_type::undef ? first.get().type : wanted_type;
    if (!out.is_given()) out.make(first.object(), std::move(out_shape), type);

    output diff_bias(diff_bias_object, "diff_bias");
    const bool with_bias = wanted(diff_bias_object);
    if (with_bias) require_output_to_accumulate(op.kind, accumulate, diff_bias);
    if (with_bias && !diff_bias.is_given())
        diff_bias.make(first.object(), {channels_of(second, attrs)}, type);
    const options opts{.accumulate = accumulate,
        .diff_bias = with_bias ? &diff_bias.get() : nullptr,
        .relu = relu,
        .add = add ? &add->get() : nullptr,
        .on = on};
    {
        const nb::gil_scoped_release released;
        if (op.forward != nullptr)
            op.forward(first.get(), second, bias ? bias->get() : tensor{}, out.get(), attrs, opts);
        else if (op.gradient != nullptr)
            op.gradient(first.get(), second, out.get(), attrs, opts);
        else
            bias_add_backward(first.get(), out.get(), attrs, opts);
    }
    if (with_bias) return nb::make_tuple(out.finish(), diff_bias.finish());
    return out.finish();
}

/// (kind of the layer, (src, diff_dst, weights), attributes, (diff_src, diff_weights, diff_bias),
/// accumulate, dtype, engine) → (diff_src, diff_weights, diff_bias or None).
nb::object run_both(int kind_number, const nb::tuple &inputs, const nb::tuple &attribute_values,
    const nb::tuple &outs, bool accumulate, nb::handle dtype, const engine *on) {
    const auto kind = static_cast<op_kind>(kind_number);
    const array src(inputs[0], "src", access::read);
    const array diff_dst(inputs[1], "diff_dst", access::read);
    const array weights(inputs[2], "weights", access::read);
    const attributes attrs = attributes_from_python(attribute_values, src.get().shape.size());

    output diff_src(outs[0], "diff_src"), diff_weights(outs[1], "diff_weights");
    output diff_bias(outs[2], "diff_bias");
    const bool with_bias = wanted(outs[2]);
    const data_type wanted_type = type_from_python(dtype);
    const data_type type = wanted_type == data_type::undef ? src.get().type : wanted_type;
    const auto complete = [&](output &o, const dims &shape, data_type t) {
        require_output_to_accumulate(kind, accumulate, o);
        if (!o.is_given()) o.make(src.object(), shape, t);
    };
    complete(diff_src, src.get().shape, src.get().type);
    complete(diff_weights, weights.get().shape, type);
    if (with_bias) complete(diff_bias, {channels_of(diff_dst.get(), attrs)}, type);
    const options opts{
        .accumulate = accumulate, .diff_bias = with_bias ? &diff_bias.get() : nullptr, .on = on};
    {
        const nb::gil_scoped_release released;
        const auto both =
            kind == op_kind::convolution ? convolution_backward : conv_transpose_backward;
        both(src.get(), diff_dst.get(), weights.get(), diff_src.get(), diff_weights.get(), attrs,
            opts);
    }
    return nb::make_tuple(
        diff_src.finish(), diff_weights.finish(), with_bias ? diff_bias.finish() : nb::none());
}

nb::object tuple_of(const dims &list) {
    nb::list made;
    for (dim d : list) made.append(d);
    return nb::tuple(made);
}

nb::object shape_of(const char *op, nb::handle first, nb::handle second, const nb::tuple &values) {
    const dims a = dims_from_python(first, "first"), b = dims_from_python(second, "second");
    return tuple_of(
        infer_shape(kind_from_python(op), a, b, attributes_from_python(values, a.size())));
}

nb::object pads_of(
    const char *op, nb::handle data, nb::handle other, nb::handle kernel, const nb::tuple &values) {
    const dims lengths = dims_from_python(kernel, "kernel");
    const auto shape_or_empty = [](nb::handle shape, const char *name) {
        return shape.is_none() ? dims{} : dims_from_python(shape, name);
    };
    const resolved_pads pads = resolve_pads(kind_from_python(op), shape_or_empty(data, "data"),
        shape_or_empty(other, "other"), lengths,
        attributes_from_python(values, lengths.size() + 2));
    return nb::make_tuple(tuple_of(pads.begin), tuple_of(pads.end));
}

}  // namespace

void bind_functions(nb::module_ &m) {
    const auto any = nb::arg().none();
    m.def("run", &run, nb::arg(), nb::arg(), nb::arg(), any, any, any, nb::arg(), nb::arg(), any,
        any);
    m.def("run_both", &run_both, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), any, any);
    m.def("infer_shape", &shape_of);
    m.def("resolve_pads", &pads_of, nb::arg(), any, any, nb::arg(), nb::arg());
}

}  // namespace convgrad::python
