// The one table of ops. To add an op or an attribute, start here; see CONTRIBUTING.
#include "op/schema.hpp"

#include <algorithm>
#include <limits>

#include "op/formats.hpp"
#include "op/message.hpp"

namespace convgrad::ops {
namespace {

using enum attribute_type;
using id = attribute_id;
using conv::pass;

constexpr dim any_dim = std::numeric_limits<dim>::max();

constexpr std::span<const std::string_view> convolution_weights_choices(weights_format_names, 2);
constexpr std::span<const std::string_view> transposed_weights_choices(weights_format_names + 2, 2);

constexpr argument_ref in(std::uint8_t index) {
    return {false, index};
}
constexpr argument_ref out(std::uint8_t index) {
    return {true, index};
}
constexpr argument_ref none;

constexpr attribute_schema strides = {id::strides, "strides", s64_list, true, 1, any_dim, {}, "",
    "positive, one per spatial axis",
    "Steps of the kernel over the larger data tensor (src of a convolution, dst of a transposed "
    "one).",
    false};
constexpr attribute_schema dilations = {id::dilations, "dilations", s64_list, true, 1, any_dim, {},
    "", "positive, one per spatial axis", "Distance between kernel taps; 1 is a dense kernel.",
    false};
constexpr std::string_view pads_default = "required if auto_pad is none";
constexpr attribute_schema pads_begin = {id::pads_begin, "pads_begin", s64_list, false, 0, any_dim,
    {}, pads_default, "non-negative, one per spatial axis",
    "Zeros in front of each spatial axis. Unless auto_pad is none they are ignored, whatever list "
    "they are, and may be left out.",
    false};
constexpr attribute_schema pads_end = {id::pads_end, "pads_end", s64_list, false, 0, any_dim, {},
    pads_default, "non-negative, one per spatial axis",
    "Zeros behind each spatial axis; otherwise as pads_begin.", false};
constexpr attribute_schema auto_pad = {id::auto_pad, "auto_pad", string, false, 0, 0,
    auto_pad_names, "none", "none, same_upper, same_lower, valid (case does not matter)",
    "How padding is found; see below.", false};
constexpr attribute_schema groups = {id::groups, "groups", s64, false, 1, any_dim, {}, "1",
    "positive, divides the input and the output channels",
    "Channel c belongs to group floor(c / (C / groups)).", false};
constexpr attribute_schema data_format = {id::data_format, "data_format", string, false, 0, 0,
    data_format_names, "NXC", "NXC, NCX",
    "Order of the dimensions of data tensors: batch, spatial axes, channels; or batch, channels, "
    "spatial axes.",
    false};
constexpr attribute_schema convolution_weights_format = {id::weights_format, "weights_format",
    string, false, 0, 0, convolution_weights_choices, "XIO", "XIO, OIX",
    "Order of the dimensions of weights: XIO is (K..., IC/groups, OC), OIX is (OC, IC/groups, "
    "K...).",
    false};
constexpr attribute_schema transposed_weights_format = {id::weights_format, "weights_format",
    string, false, 0, 0, transposed_weights_choices, "XOI", "XOI, IOX",
    "Order of the dimensions of weights: XOI is (K..., OC/groups, IC) or (K..., OC, IC/groups), "
    "IOX is (IC, OC/groups, K...) or (IC/groups, OC, K...); the sizes tell which.",
    false};
constexpr attribute_schema output_padding = {id::output_padding, "output_padding", s64_list, false,
    0, any_dim, {}, "zeros", "non-negative, less than max(stride, dilation), one per spatial axis",
    "Extra length at the end of each spatial axis of the larger data tensor. From max(stride, "
    "dilation) on it would be whole steps that the smaller tensor has no points for, so that the "
    "convolution of the result would be longer; the documents set no limit.",
    false};
constexpr attribute_schema dst_shape = {id::dst_shape, "dst_shape", s64_list, false, 1, any_dim, {},
    "", "positive, one per dimension", "The shape of diff_src. The input dst_shape overrides it.",
    false};
constexpr attribute_schema weights_shape = {id::weights_shape, "weights_shape", s64_list, false, 1,
    any_dim, {}, "", "positive, one per dimension",
    "The shape of diff_weights. The input weights_shape overrides it.", false};
constexpr attribute_schema accumulate = {id::accumulate, "accumulate", s64, false, 0, 1, {}, "0",
    "0, 1", "1: add to the previous contents of the outputs instead of overwriting them.", true};

constexpr attribute_schema auto_broadcast = {id::auto_broadcast, "auto_broadcast", string, false, 0,
    0, auto_broadcast_names, "numpy", "numpy, none (case does not matter)",
    "Whether shapes may differ, by NumPy's rules.", false};

constexpr attribute_schema convolution_attributes[] = {strides, pads_begin, pads_end, dilations,
    auto_pad, groups, data_format, convolution_weights_format};
constexpr attribute_schema convolution_backward_data_attributes[] = {strides, pads_begin, pads_end,
    dilations, auto_pad, output_padding, groups, data_format, convolution_weights_format, dst_shape,
    accumulate};
constexpr attribute_schema convolution_backward_weights_attributes[] = {strides, pads_begin,
    pads_end, dilations, auto_pad, groups, data_format, convolution_weights_format, weights_shape,
    accumulate};
constexpr attribute_schema bias_add_backward_attributes[] = {data_format, accumulate};
constexpr attribute_schema bias_add_attributes[] = {data_format};
constexpr attribute_schema add_attributes[] = {auto_broadcast};
constexpr attribute_schema conv_transpose_attributes[] = {strides, pads_begin, pads_end, dilations,
    auto_pad, output_padding, groups, data_format, transposed_weights_format};
constexpr attribute_schema conv_transpose_backward_data_attributes[] = {strides, pads_begin,
    pads_end, dilations, auto_pad, output_padding, groups, data_format, transposed_weights_format,
    accumulate};
constexpr attribute_schema conv_transpose_backward_weights_attributes[] = {strides, pads_begin,
    pads_end, dilations, auto_pad, output_padding, groups, data_format, transposed_weights_format,
    weights_shape, accumulate};

constexpr argument_schema src = {"src", true, false, false, false, "The layer's input."};
constexpr argument_schema weights = {"weights", true, false, false, false, "The kernel."};
constexpr argument_schema bias = {
    "bias", false, false, false, false, "1-D, one value per output channel."};
constexpr argument_schema dst = {"dst", true, false, false, false, "The layer's output."};
constexpr argument_schema diff_dst = {
    "diff_dst", true, false, false, false, "The gradient with respect to the layer's output."};
constexpr argument_schema diff_src = {
    "diff_src", true, false, false, false, "The gradient with respect to the layer's input."};
constexpr argument_schema diff_weights = {
    "diff_weights", true, false, false, true, "The gradient with respect to the weights."};
constexpr argument_schema diff_bias = {"diff_bias", false, false, true, true,
    "1-D, one value per output channel: the sum of diff_dst over batch and space."};
constexpr argument_schema whole_diff_bias = {"diff_bias", true, false, false, true,
    "The gradient with respect to the bias: 1-D, one value per channel."};
constexpr argument_schema dst_shape_input = {"dst_shape", false, true, false, false,
    "The shape of diff_src, a 1-D s32 tensor; overrides the attribute."};
constexpr argument_schema weights_shape_input = {"weights_shape", false, true, false, false,
    "The shape of diff_weights, a 1-D s32 tensor; overrides the attribute."};

constexpr argument_schema any_src = {
    "src", true, false, false, false, "The result of a convolution."};
constexpr argument_schema whole_bias = {
    "bias", true, false, false, false, "1-D, one value per channel."};
constexpr argument_schema src_0 = {
    "src_0", true, false, false, false, "The result of a convolution, or what is added to it."};
constexpr argument_schema src_1 = {"src_1", true, false, false, false, "The other one of the two."};
constexpr argument_schema any_dst = {"dst", true, false, false, false, "The result."};

constexpr argument_schema layer_inputs[] = {src, weights, bias};
constexpr argument_schema layer_outputs[] = {dst};
constexpr argument_schema convolution_backward_data_inputs[] = {diff_dst, weights, dst_shape_input};
constexpr argument_schema conv_transpose_backward_data_inputs[] = {diff_dst, weights};
constexpr argument_schema backward_data_outputs[] = {diff_src};
constexpr argument_schema backward_weights_inputs[] = {src, diff_dst, weights_shape_input};
constexpr argument_schema backward_weights_outputs[] = {diff_weights, diff_bias};
constexpr argument_schema bias_add_backward_inputs[] = {diff_dst};
constexpr argument_schema bias_add_backward_outputs[] = {whole_diff_bias};
constexpr argument_schema bias_add_inputs[] = {any_src, whole_bias};
constexpr argument_schema add_inputs[] = {src_0, src_1};
constexpr argument_schema relu_inputs[] = {any_src};
constexpr argument_schema epilogue_outputs[] = {any_dst};

constexpr std::string_view convolution_backward_data_aliases[] = {"ConvolutionBackpropData"};
constexpr std::string_view convolution_backward_weights_aliases[] = {"ConvolutionBackpropWeights"};
constexpr std::string_view conv_transpose_backward_data_aliases[] = {"ConvTransposeBackpropData"};
constexpr std::string_view conv_transpose_backward_weights_aliases[] = {
    "ConvTransposeBackpropWeights"};
constexpr std::string_view bias_add_backward_aliases[] = {"BiasAddBackprop"};

constexpr std::string_view weights_shape_rule =
    "The `weights_shape` input if connected, else the attribute, else the output tensor's own "
    "known shape; with none of them an error. Channels and spatial sizes must be consistent.";

constexpr op_schema schemas[] = {
    {op_kind::convolution, {pass::forward, false, in(0), out(0), in(1), in(2)}, "Convolution", {},
        "Convolution of src with weights, plus bias.",
        "dst[n, o, y] = bias[o] + sum over i, k of\n"
        "    src[n, i, y*stride + k*dilation - pads_begin] * weights[o, i, k]",
        "(N, OC) and per spatial axis floor((L + pads_begin + pads_end - E) / stride) + 1, where L "
        "is the length of src.",
        "total = max(0, E - r), where r = stride if stride divides L, else L mod stride; L is the "
        "length of src. So the output has length ceil(L / stride).",
        layer_inputs, layer_outputs, convolution_attributes},
    {op_kind::convolution_backward_data, {pass::backward_data, false, out(0), in(0), in(1), none},
        "ConvolutionBackwardData", convolution_backward_data_aliases,
        "Gradient of Convolution with respect to src: the exact adjoint of the map src -> dst.",
        "diff_src[n, i, x] = sum over o, k, y with y*stride + k*dilation - pads_begin = x of\n"
        "    diff_dst[n, o, y] * weights[o, i, k]",
        "The `dst_shape` input if connected, else the attribute, else the output tensor's own "
        "known "
        "shape, else per spatial axis stride*(L - 1) + E + output_padding - pads_begin - pads_end, "
        "where L is the length of diff_dst. Convolution applied to this shape must give "
        "diff_dst's.",
        "total = max(0, stride*(L_diff_dst - 1) + E - L_diff_src + output_padding). Where nothing "
        "tells the shape of diff_src, its length is the one of ConvTranspose.",
        convolution_backward_data_inputs, backward_data_outputs,
        convolution_backward_data_attributes},
    {op_kind::convolution_backward_weights,
        {pass::backward_weights, false, in(0), in(1), out(0), out(1)}, "ConvolutionBackwardWeights",
        convolution_backward_weights_aliases, "Gradient of Convolution with respect to weights.",
        "diff_weights[o, i, k] = sum over n, y of\n"
        "    src[n, i, y*stride + k*dilation - pads_begin] * diff_dst[n, o, y]",
        weights_shape_rule,
        "total = max(0, E - r), where r = stride if stride divides L, else L mod stride; L is the "
        "length of src.",
        backward_weights_inputs, backward_weights_outputs, convolution_backward_weights_attributes},
    {op_kind::conv_transpose, {pass::backward_data, true, out(0), in(0), in(1), in(2)},
        "ConvTranspose", {},
        "Transposed convolution of src with weights, plus bias: ConvolutionBackwardData with src "
        "in "
        "the role of diff_dst.",
        "dst[n, o, x] = bias[o] + sum over i, k, y with y*stride + k*dilation - pads_begin = x of\n"
        "    src[n, i, y] * weights[i, o, k]",
        "(N, OC) and per spatial axis stride*(L - 1) + E + output_padding - pads_begin - pads_end, "
        "where L is the length of src.",
        "total = max(0, E - stride). So the output has length stride*L + output_padding, or "
        "stride*(L - 1) + E + output_padding where E < stride.",
        layer_inputs, layer_outputs, conv_transpose_attributes},
    {op_kind::conv_transpose_backward_data, {pass::forward, true, in(0), out(0), in(1), none},
        "ConvTransposeBackwardData", conv_transpose_backward_data_aliases,
        "Gradient of ConvTranspose with respect to src: Convolution of diff_dst.",
        "diff_src[n, i, y] = sum over o, k of\n"
        "    diff_dst[n, o, y*stride + k*dilation - pads_begin] * weights[i, o, k]",
        "(N, IC) and per spatial axis floor((L - output_padding + pads_begin + pads_end - E) / "
        "stride) + 1, where L is the length of diff_dst.",
        "total = max(0, E - r), where r = stride if stride divides L, else L mod stride; L is the "
        "length of diff_dst less output_padding.",
        conv_transpose_backward_data_inputs, backward_data_outputs,
        conv_transpose_backward_data_attributes},
    {op_kind::conv_transpose_backward_weights,
        {pass::backward_weights, true, in(1), in(0), out(0), out(1)},
        "ConvTransposeBackwardWeights", conv_transpose_backward_weights_aliases,
        "Gradient of ConvTranspose with respect to weights.",
        "diff_weights[i, o, k] = sum over n, y of\n"
        "    src[n, i, y] * diff_dst[n, o, y*stride + k*dilation - pads_begin]",
        weights_shape_rule,
        "total = max(0, E - r), where r = stride if stride divides L, else L mod stride; L is the "
        "length of diff_dst less output_padding.",
        backward_weights_inputs, backward_weights_outputs,
        conv_transpose_backward_weights_attributes},
    {op_kind::bias_add_backward, {pass::backward_bias, false, none, in(0), none, out(0)},
        "BiasAddBackward", bias_add_backward_aliases,
        "Gradient with respect to a bias that was added along the channels.",
        "diff_bias[c] = sum over n, x of diff_dst[n, c, x]",
        "(C), the number of channels of diff_dst.", "", bias_add_backward_inputs,
        bias_add_backward_outputs, bias_add_backward_attributes, 2},
    {op_kind::bias_add, {}, "BiasAdd", {}, "Adds a bias along the channels.",
        "dst[n, c, x] = src[n, c, x] + bias[c]", "That of src.", "", bias_add_inputs,
        epilogue_outputs, bias_add_attributes, 3, true},
    {op_kind::add, {}, "Add", {}, "Adds two tensors.", "dst = src_0 + src_1",
        "That of the convolution's result, to which the other tensor is broadcast by NumPy's "
        "rules, unless auto_broadcast is none.",
        "", add_inputs, epilogue_outputs, add_attributes, 3, true},
    {op_kind::relu, {}, "ReLU", {}, "Replaces what is negative by zero; NaN stays NaN.",
        "dst = max(0, src)", "That of src.", "", relu_inputs, epilogue_outputs, {}, 3, true},
};

static_assert(std::ranges::equal(schemas, all_op_kinds, {}, &op_schema::kind));
static_assert(std::ranges::all_of(schemas, [](const op_schema &s) {
    return s.inputs.size() + (s.roles.is_layer() ? 1 : 0) <= most_inputs
           && s.outputs.size() <= most_outputs;
}));

}  // namespace

std::string_view to_string(attribute_type type) {
    switch (type) {
    case s64:
        return "s64";
    case s64_list:
        return "s64 list";
    case string:
        return "string";
    }
    return "unknown type";
}

std::span<const op_schema> all_schemas() {
    return schemas;
}

const op_schema *find_schema(op_kind kind) noexcept {
    for (const op_schema &s : schemas)
        if (s.kind == kind) return &s;
    return nullptr;
}

const op_schema &schema_of(op_kind kind) {
    if (const op_schema *found = find_schema(kind)) return *found;
    std::string known;
    for (const op_schema &s : schemas)
        known += cat(known.empty() ? "" : ", ", static_cast<int>(s.kind), " (", s.name, ")");
    throw error(error_code::invalid_op,
        cat("invalid op: there is no op kind ", static_cast<int>(kind), "; kinds are ", known));
}

}  // namespace convgrad::ops

namespace convgrad {
inline namespace CONVGRAD_ABI {

std::string_view to_string(op_kind kind) noexcept {
    const ops::op_schema *found = ops::find_schema(kind);
    return found == nullptr ? "unknown op" : found->name;
}

}  // namespace CONVGRAD_ABI
}  // namespace convgrad
