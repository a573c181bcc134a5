// The library for PyTorch's operators in C++: the table of convgrad/torch/_native/api.hpp.
#include "../convgrad/torch/_native/api.hpp"

#include <new>

#include <convgrad/eager.hpp>
#include <convgrad/error.hpp>

#include "bindings.hpp"

namespace convgrad::python {
namespace {

tensor tensor_of(const native::view &v) {
    return {v.data, static_cast<data_type>(v.type), dims(v.shape, v.shape + v.rank),
        dims(v.strides, v.strides + v.rank)};
}

tensor optional_tensor(const native::view *v) {
    return v == nullptr ? tensor{} : tensor_of(*v);
}

attributes attributes_of(const native::geometry &g) {
    const auto list = [&](const std::int64_t *values) { return dims(values, values + g.axes); };
    attributes made;
    made.strides = list(g.stride);
    made.pads_begin = list(g.pads_begin);
    made.pads_end = list(g.pads_end);
    made.dilations = list(g.dilation);
    made.groups = g.groups;
    made.data_format = "NCX";
    made.weights_format = g.transposed ? "IOX" : "OIX";
    if (g.transposed) made.output_padding = list(g.output_padding);
    return made;
}

/// Runs `work`; what it throws becomes a complaint.
template <typename Work>
bool reported(const native::complaint &report, Work &&work) noexcept {
    try {
        work();
        return true;
    } catch (const error &e) {
        report.tell(report.context, class_name_of(e.code()), e.what());
    } catch (const std::bad_alloc &) {
        report.tell(report.context, "OutOfMemory", "out of memory");
    }
    return false;
}

bool forward(const native::view &input, const native::view &weight, const native::view *bias,
    const native::view &output, const native::geometry &where, const native::complaint &report) {
    return reported(report, [&] {
        const auto run = where.transposed ? conv_transpose : convolution;
        run(tensor_of(input), tensor_of(weight), optional_tensor(bias), tensor_of(output),
            attributes_of(where), {});
    });
}

bool backward(const native::view &grad, const native::view &input, const native::view &weight,
    const native::view *grad_input, const native::view *grad_weight, const native::view *grad_bias,
    const native::geometry &where, const native::complaint &report) {
    return reported(report, [&] {
        const attributes attrs = attributes_of(where);
        const tensor diff_dst = tensor_of(grad), diff_bias = optional_tensor(grad_bias);
        const options opts{.diff_bias = grad_bias != nullptr ? &diff_bias : nullptr};
        if (grad_input != nullptr && grad_weight != nullptr) {
            const auto both = where.transposed ? conv_transpose_backward : convolution_backward;
            both(tensor_of(input), diff_dst, tensor_of(weight), tensor_of(*grad_input),
                tensor_of(*grad_weight), attrs, opts);
        } else if (grad_input != nullptr) {
            const auto data =
                where.transposed ? conv_transpose_backward_data : convolution_backward_data;
            data(diff_dst, tensor_of(weight), tensor_of(*grad_input), attrs, {});
        } else if (grad_weight != nullptr) {
            const auto weights =
                where.transposed ? conv_transpose_backward_weights : convolution_backward_weights;
            weights(tensor_of(input), diff_dst, tensor_of(*grad_weight), attrs, opts);
        }
    });
}

bool check(const native::view &input, const native::view &weight, const native::geometry &where,
    const native::complaint &report) {
    return reported(report, [&] {
        infer_shape(where.transposed ? op_kind::conv_transpose : op_kind::convolution,
            tensor_of(input).shape, tensor_of(weight).shape, attributes_of(where));
    });
}

constexpr native::functions table{native::api_version, forward, backward, check};

}  // namespace

void bind_native(nb::module_ &m) {
    m.attr("_native") = nb::capsule(&table, native::capsule_name);
}

}  // namespace convgrad::python
