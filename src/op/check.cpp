// Attributes by name (graphs) or by struct (eager calls) → parsed_attributes; argument counts and
// types. Names, types and ranges come from the schema table.
#include <algorithm>
#include <utility>

#include <convgrad/eager.hpp>

#include "op/lower.hpp"
#include "op/message.hpp"
#include "op/schema.hpp"

namespace convgrad::ops {
namespace {

template <typename... Parts>
[[noreturn]] void refuse(const parsed_attributes &to, const Parts &...parts) {
    fail(error_code::invalid_op, to.kind, to.op_name, cat(parts...));
}

const attribute_schema *find_attribute(const op_schema &schema, std::string_view name) {
    for (const attribute_schema &a : schema.attributes)
        if (a.name == name) return &a;
    return nullptr;
}

std::string accepted_names(const op_schema &schema) {
    std::string names;
    for (const attribute_schema &a : schema.attributes)
        names += cat(names.empty() ? "" : ", ", a.name);
    return names;
}

[[noreturn]] void refuse_unknown(
    const parsed_attributes &to, const op_schema &schema, std::string_view name) {
    std::vector<std::string_view> names;
    for (const attribute_schema &a : schema.attributes) names.push_back(a.name);
    const std::string_view near = nearest(name, names);
    refuse(to, "there is no attribute ", quoted{name}, "; ",
        near.empty() ? "" : cat("did you mean ", near, "? "), schema.name, " accepts ",
        accepted_names(schema));
}

void check_number(const parsed_attributes &to, const attribute_schema &a, dim value) {
    if (value < a.minimum || value > a.maximum)
        refuse(to, "attribute ", a.name, " is ", value, "; it must be ", a.values_text);
}

void check_list(const parsed_attributes &to, const attribute_schema &a, const dims &list) {
    for (dim value : list)
        if (value < a.minimum || value > a.maximum)
            refuse(to, "attribute ", a.name, " is ", list, "; each entry must be ", a.values_text);
}

std::size_t choice(const parsed_attributes &to, const attribute_schema &a, std::string_view text) {
    for (std::size_t i = 0; i < a.choices.size(); ++i)
        if (equal_ignoring_case(text, a.choices[i])) return i;
    refuse(to, "attribute ", a.name, " is ", quoted{text}, "; it must be one of ", a.values_text);
}

bool is_transposed(op_kind kind) {
    return kind >= op_kind::conv_transpose;
}

void store(parsed_attributes &to, const attribute_schema &a, std::string_view text) {
    const std::size_t index = choice(to, a, text);
    switch (a.id) {
    case attribute_id::auto_pad:
        to.auto_pad = static_cast<ops::auto_pad>(index);
        break;
    case attribute_id::data_format:
        to.data_format = static_cast<ops::data_format>(index);
        break;
    default:  // weights_format: the transposed ops' choices follow the others' in the enumeration
        to.weights_format =
            static_cast<ops::weights_format>(index + (is_transposed(to.kind) ? 2 : 0));
    }
}

void store(parsed_attributes &to, const attribute_schema &a, dim value) {
    check_number(to, a, value);
    if (a.id == attribute_id::groups)
        to.groups = value;
    else
        to.accumulate = value != 0;
}

bool is_pads(const attribute_schema &a) {
    return a.id == attribute_id::pads_begin || a.id == attribute_id::pads_end;
}

void store(parsed_attributes &to, const attribute_schema &a, dims list) {
    if (!is_pads(a)) check_list(to, a, list);  // pads may be ignored: see settle_pads
    switch (a.id) {
    case attribute_id::strides:
        to.strides = std::move(list);
        break;
    case attribute_id::dilations:
        to.dilations = std::move(list);
        break;
    case attribute_id::pads_begin:
        to.pads_begin = std::move(list);
        break;
    case attribute_id::pads_end:
        to.pads_end = std::move(list);
        break;
    case attribute_id::output_padding:
        to.output_padding = std::move(list);
        break;
    default:
        to.shape = std::move(list);  // dst_shape, weights_shape
    }
}

void store(parsed_attributes &to, const attribute_schema &a, const attribute_value &value) {
    static constexpr std::string_view type_names[] = {
        "an s64", "an s64 list", "a string", "an f32", "a bool"};
    const auto *number = std::get_if<std::int64_t>(&value);
    const auto *list = std::get_if<dims>(&value);
    const auto *text = std::get_if<std::string>(&value);
    if (a.type == attribute_type::s64 && number != nullptr)
        store(to, a, *number);
    else if (a.type == attribute_type::s64_list && list != nullptr)
        store(to, a, *list);
    else if (a.type == attribute_type::string && text != nullptr)
        store(to, a, std::string_view(*text));
    else
        refuse(to, "attribute ", a.name, " is ",
            value.valueless_by_exception() ? "empty" : type_names[value.index()],
            "; its type must be ", to_string(a.type), " (", a.values_text, ")");
}

/// Explicit pads count only where auto_pad is none; otherwise they are not even judged.
void settle_pads(parsed_attributes &to, const op_schema &schema) {
    if (to.auto_pad != auto_pad::none) {
        to.pads_begin.assign(to.strides.size(), 0);
        to.pads_end.assign(to.strides.size(), 0);
        return;
    }
    for (const attribute_schema &a : schema.attributes)
        if (is_pads(a))
            check_list(to, a, a.id == attribute_id::pads_begin ? to.pads_begin : to.pads_end);
}

// The one range that spans attributes. Entries without a partner are left to the check of lengths.
void check_output_padding(const parsed_attributes &to) {
    if (!to.output_padding) return;
    const dims &q = *to.output_padding;
    for (std::size_t i = 0; i < std::min({q.size(), to.strides.size(), to.dilations.size()}); ++i)
        if (q[i] >= std::max(to.strides[i], to.dilations[i]))
            refuse(to, "attribute output_padding is ", q, ": entry ", i, " is ", q[i],
                "; it must be less than max(stride ", to.strides[i], ", dilation ", to.dilations[i],
                ")");
}

void set_default_weights_format(parsed_attributes &to) {
    to.weights_format = is_transposed(to.kind) ? weights_format::xoi : weights_format::xio;
}

void check_count(const parsed_attributes &attrs, std::span<const argument_schema> expected,
    std::size_t seen, std::string_view what) {
    std::size_t required = 0;
    std::string needed, optional;
    for (const argument_schema &a : expected) required += a.required ? 1 : 0;
    if (seen >= required && seen <= expected.size()) return;
    for (const argument_schema &a : expected) {
        std::string &names = a.required ? needed : optional;
        names += cat(names.empty() ? "" : ", ", a.name);
    }
    refuse(attrs, "it has ", seen, " ", what, "; it needs ", required, " (", needed, ")",
        optional.empty() ? "" : cat(" and takes ", optional, " as well"));
}

void check_type(const parsed_attributes &attrs, const argument_schema &a, data_type seen,
    std::string_view first_name, data_type first) {
    if (a.shape_input) {
        if (seen != data_type::s32)
            refuse(attrs, "input ", a.name, " has type ", seen, "; a shape input must be s32");
    } else if (seen != first && !(a.f32_allowed && seen == data_type::f32)) {
        refuse(attrs, a.name, " has type ", seen, " but ", first_name, " has type ", first,
            "; all floating-point tensors of one op must share one type",
            a.f32_allowed ? cat(", except that ", a.name, " may be f32") : "");
    }
}

void refuse_option(const parsed_attributes &to, std::string_view option, std::string_view takers) {
    refuse(to, "option ", option, " is set; only ", takers, " take it");
}

void check_options(const parsed_attributes &to, const options &opts) {
    const bool forward = to.kind == op_kind::convolution || to.kind == op_kind::conv_transpose;
    const bool weights = to.kind == op_kind::convolution_backward_weights
                         || to.kind == op_kind::conv_transpose_backward_weights;
    if (opts.accumulate && forward) refuse_option(to, "accumulate", "gradients");
    if (opts.diff_bias != nullptr && !weights) refuse_option(to, "diff_bias", "weights gradients");
    if (opts.relu && !forward) refuse_option(to, "relu", "Convolution and ConvTranspose");
    if (opts.add != nullptr && !forward) refuse_option(to, "add", "Convolution and ConvTranspose");
}

void store_list_or_default(
    parsed_attributes &to, const attribute_schema &a, const dims &list, std::size_t axes) {
    if (list.empty())
        store(to, a, dims(axes, a.minimum));  // the least legal value is the default of all of them
    else
        store(to, a, list);
}

}  // namespace

void check_arguments(const parsed_attributes &attrs, std::span<const logical_tensor> inputs,
    std::span<const logical_tensor> outputs) {
    const op_schema &schema = schema_of(attrs.kind);
    check_count(attrs, schema.inputs, inputs.size() - (attrs.add ? 1 : 0), "inputs");
    check_count(attrs, schema.outputs, outputs.size(), "outputs");
    const data_type first = inputs[0].type;
    const std::string_view first_name = schema.inputs[0].name;
    if (first != data_type::f32 && first != data_type::bf16 && first != data_type::f16)
        refuse(attrs, first_name, " has type ", first, "; it must be f32, bf16 or f16");
    for (std::size_t i = 1; i < inputs.size(); ++i) {
        const bool absent_bias = attrs.add && i == 2 && inputs[i].type == data_type::undef;
        if (absent_bias) continue;
        if (i < schema.inputs.size())
            check_type(attrs, schema.inputs[i], inputs[i].type, first_name, first);
        else if (inputs[i].type != first)
            refuse(attrs, "add has type ", inputs[i].type, " but ", first_name, " has type ", first,
                "; all floating-point tensors of one op must share one type");
    }
    for (std::size_t i = 0; i < outputs.size(); ++i)
        check_type(attrs, schema.outputs[i], outputs[i].type, first_name, first);
}

parsed_attributes check_op(const op &node) {
    const op_schema &schema = schema_of(node.kind());
    parsed_attributes to{.kind = node.kind(), .op_name = node.name()};
    set_default_weights_format(to);
    for (const auto &[name, value] : node.attributes()) {
        const attribute_schema *a = find_attribute(schema, name);
        if (a == nullptr) refuse_unknown(to, schema, name);
        store(to, *a, value);
    }
    for (const attribute_schema &a : schema.attributes) {
        const bool pads = is_pads(a) && to.auto_pad == auto_pad::none;
        if ((a.required || pads) && !node.attributes().contains(a.name))
            refuse(to, "attribute ", a.name, " is missing; it is ",
                pads ? a.default_text : "required", " (", to_string(a.type), ", ", a.values_text,
                ")");
    }
    settle_pads(to, schema);
    check_output_padding(to);
    check_arguments(to, node.inputs(), node.outputs());
    return to;
}

parsed_attributes parse(
    op_kind kind, const attributes &attrs, std::size_t rank, const options &opts) {
    const op_schema &schema = schema_of(kind);
    parsed_attributes to{.kind = kind, .op_name = {}};
    if (rank < 3 || rank > 5)
        fail(error_code::invalid_shape, kind, {},
            cat(schema.inputs[0].name, " has rank ", rank,
                "; ranks 3 to 5 (one to three spatial axes) are possible"));
    const std::size_t axes = rank - 2;
    set_default_weights_format(to);
    for (const attribute_schema &a : schema.attributes) {
        switch (a.id) {
        case attribute_id::strides:
            store_list_or_default(to, a, attrs.strides, axes);
            break;
        case attribute_id::dilations:
            store_list_or_default(to, a, attrs.dilations, axes);
            break;
        case attribute_id::pads_begin:
            store_list_or_default(to, a, attrs.pads_begin, axes);
            break;
        case attribute_id::pads_end:
            store_list_or_default(to, a, attrs.pads_end, axes);
            break;
        case attribute_id::auto_pad:
            store(to, a, attrs.auto_pad);
            break;
        case attribute_id::groups:
            store(to, a, attrs.groups);
            break;
        case attribute_id::data_format:
            store(to, a, attrs.data_format);
            break;
        case attribute_id::weights_format:
            if (!attrs.weights_format.empty()) store(to, a, attrs.weights_format);
            break;
        case attribute_id::output_padding:
            if (!attrs.output_padding.empty()) store(to, a, attrs.output_padding);
            break;
        case attribute_id::dst_shape:
        case attribute_id::weights_shape:
            break;  // output tensors carry their shape
        case attribute_id::accumulate:
            to.accumulate = opts.accumulate;
            break;
        }
    }
    if (!attrs.output_padding.empty() && !to.output_padding)
        refuse_unknown(to, schema, "output_padding");
    check_options(to, opts);
    settle_pads(to, schema);
    check_output_padding(to);
    to.relu = opts.relu;
    to.add = opts.add != nullptr;
    return to;
}

}  // namespace convgrad::ops
