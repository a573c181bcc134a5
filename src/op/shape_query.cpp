// The eager API's questions about shapes and pads, answered by the same functions that compile.
#include <algorithm>

#include <convgrad/eager.hpp>

#include "op/axis.hpp"
#include "op/geometry.hpp"
#include "op/guard.hpp"
#include "op/lower.hpp"
#include "op/message.hpp"

namespace convgrad {
inline namespace CONVGRAD_ABI {
namespace {

dims find_shape(op_kind kind, const dims &first, const dims &second, const attributes &attrs) {
    const ops::parsed_attributes parsed = ops::parse(kind, attrs, first.size(), {});
    if (ops::roles_of(kind).what == conv::pass::backward_weights)
        ops::fail(error_code::invalid_shape, kind, {},
            ops::cat("the shape of diff_weights does not follow from src ", first, " and diff_dst ",
                second, "; the kernel size must be given"));
    const logical_tensor inputs[] = {{0, data_type::f32, first}, {1, data_type::f32, second}};
    const std::size_t count = std::min(std::size(inputs), ops::schema_of(kind).inputs.size());
    if (count == 1 && !second.empty())
        ops::fail(error_code::invalid_argument, kind, {},
            ops::cat("second is ", second, "; the op has one input, so it must be empty"));
    logical_tensor output(2, data_type::f32);
    ops::infer_shapes(parsed, {inputs, count}, {&output, 1});
    if (!output.is_known() && count > 1) {
        const std::string why = ops::derive(parsed, inputs, {&output, 1}).open_length;
        ops::fail(error_code::invalid_shape, kind, {},
            ops::cat("the shape of diff_src must be given: ", why));
    }
    return *output.shape;
}

resolved_pads find_pads(op_kind kind, const dims &data, const dims &other, const dims &kernel,
    const attributes &attrs) {
    const std::size_t axes = kernel.size();
    if (ops::schema_of(kind).find(ops::attribute_id::auto_pad) == nullptr)
        ops::fail(error_code::invalid_argument, kind, {}, "the op has no padding");
    const ops::parsed_attributes parsed = ops::parse(kind, attrs, axes + 2, {});
    for (const dims *list : {&data, &other})
        if (!list->empty() && list->size() != axes + 2)
            ops::fail(error_code::invalid_shape, kind, {},
                ops::cat("a data tensor has shape ", *list, " but the kernel has ", axes,
                    " spatial axes ", kernel, "; the rank must be that plus 2"));
    ops::check_list_lengths(parsed, axes);

    const ops::data_order order = ops::order_of(parsed.data_format, static_cast<int>(axes));
    resolved_pads pads;
    for (std::size_t i = 0; i < axes; ++i) {
        if (kernel[i] < 1)
            ops::fail(error_code::invalid_shape, kind, {},
                ops::cat("the kernel is ", kernel, "; every axis must have at least one tap"));
        const dim large = data.empty() ? unknown_dim : data[order.x + i];
        const dim small = other.empty() ? unknown_dim : other[order.x + i];
        const ops::pad_pair found = ops::axis_pads(parsed, i, kernel[i], large, small);
        if (found.begin == unknown_dim)
            ops::fail(error_code::invalid_shape, kind, {},
                ops::cat("auto_pad needs lengths that are not known: data is ", data, ", other is ",
                    other));
        pads.begin.push_back(found.begin);
        pads.end.push_back(found.end);
    }
    return pads;
}

}  // namespace

dims infer_shape(op_kind kind, const dims &first, const dims &second, const attributes &attrs) {
    return guarded("infer_shape", [&] { return find_shape(kind, first, second, attrs); });
}

resolved_pads resolve_pads(op_kind kind, const dims &data, const dims &other, const dims &kernel,
    const attributes &attrs) {
    return guarded("resolve_pads", [&] { return find_pads(kind, data, other, kernel, attrs); });
}

}  // namespace CONVGRAD_ABI
}  // namespace convgrad
