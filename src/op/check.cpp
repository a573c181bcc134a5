// Attributes by name (graphs) or by struct (eager calls) → parsed_attributes; argument counts and
// types. Names, types and ranges come from the schema table.
#include <algorithm>
#include <optional>

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

/// What was given for an attribute: by name in a graph, by field in an eager call.
struct given_value {
    const dim *number = nullptr;
    const dims *list = nullptr;
    std::optional<std::string_view> text = {};
    std::string_view type_text = {};  // for messages

    given_value(const dim &value) : number(&value), type_text("an s64") {}
    given_value(const dims &value) : list(&value), type_text("an s64 list") {}
    given_value(std::string_view value) : text(value), type_text("a string") {}
    given_value(const attribute_value &value)
        : number(std::get_if<dim>(&value)), list(std::get_if<dims>(&value)) {
        static constexpr std::string_view names[] = {
            "an s64", "an s64 list", "a string", "an f32", "a bool"};
        type_text = value.valueless_by_exception() ? "empty" : names[value.index()];
        if (const auto *string = std::get_if<std::string>(&value)) text = *string;
    }
};

[[noreturn]] void refuse_type(
    const parsed_attributes &to, const attribute_schema &a, const given_value &given) {
    refuse(to, "attribute ", a.name, " is ", given.type_text, "; its type must be ",
        to_string(a.type), " (", a.values_text, ")");
}

dim number_of(const parsed_attributes &to, const attribute_schema &a, const given_value &given) {
    if (given.number == nullptr) refuse_type(to, a, given);
    check_number(to, a, *given.number);
    return *given.number;
}

bool is_pads(const attribute_schema &a) {
    return a.id == attribute_id::pads_begin || a.id == attribute_id::pads_end;
}

const dims &list_of(
    const parsed_attributes &to, const attribute_schema &a, const given_value &given) {
    if (given.list == nullptr) refuse_type(to, a, given);
    if (!is_pads(a)) check_list(to, a, *given.list);  // pads may be ignored: see settle_pads
    return *given.list;
}

/// The value of an enumeration whose words are `names`, of which the op takes those of its schema.
template <typename Enumeration>
Enumeration word_of(const parsed_attributes &to, const attribute_schema &a,
    const given_value &given, std::span<const std::string_view> names) {
    if (!given.text) refuse_type(to, a, given);
    const auto same = [&](std::string_view word) { return equal_ignoring_case(*given.text, word); };
    if (std::none_of(a.choices.begin(), a.choices.end(), same))
        refuse(to, "attribute ", a.name, " is ", quoted{*given.text}, "; it must be one of ",
            a.values_text);
    return static_cast<Enumeration>(std::find_if(names.begin(), names.end(), same) - names.begin());
}

/// Every attribute at its own place: one that has none does not compile.
void store(parsed_attributes &to, const attribute_schema &a, const given_value &given) {
    switch (a.id) {
    case attribute_id::strides:
        to.strides = list_of(to, a, given);
        return;
    case attribute_id::dilations:
        to.dilations = list_of(to, a, given);
        return;
    case attribute_id::pads_begin:
        to.pads_begin = list_of(to, a, given);
        return;
    case attribute_id::pads_end:
        to.pads_end = list_of(to, a, given);
        return;
    case attribute_id::auto_pad:
        to.auto_pad = word_of<ops::auto_pad>(to, a, given, auto_pad_names);
        return;
    case attribute_id::groups:
        to.groups = number_of(to, a, given);
        return;
    case attribute_id::data_format:
        to.data_format = word_of<ops::data_format>(to, a, given, data_format_names);
        to.says_data_format = true;
        return;
    case attribute_id::weights_format:
        to.weights_format = word_of<ops::weights_format>(to, a, given, weights_format_names);
        return;
    case attribute_id::output_padding:
        to.output_padding = list_of(to, a, given);
        return;
    case attribute_id::dst_shape:
    case attribute_id::weights_shape:  // both: the shape of output 0
        to.shape = list_of(to, a, given);
        return;
    case attribute_id::accumulate:
        to.accumulate = number_of(to, a, given) != 0;
        return;
    case attribute_id::auto_broadcast:
        to.auto_broadcast = word_of<ops::auto_broadcast>(to, a, given, auto_broadcast_names);
        return;
    }
    refuse(to, "attribute ", a.name, " has no place to be stored");
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

/// The default is the first word that the op takes.
void set_default_weights_format(parsed_attributes &to, const op_schema &schema) {
    if (const attribute_schema *a = schema.find(attribute_id::weights_format))
        store(to, *a, a->choices.front());
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

void check_options(const parsed_attributes &to, const op_schema &schema, const op_flags &opts) {
    const op_roles &roles = schema.roles;
    const bool weights = roles.what == conv::pass::backward_weights;
    if (opts.accumulate && schema.find(attribute_id::accumulate) == nullptr)
        refuse_option(to, "accumulate", "gradients");
    if (opts.diff_bias && !weights) refuse_option(to, "diff_bias", "weights gradients");
    if (opts.relu && !roles.is_layer()) refuse_option(to, "relu", "Convolution and ConvTranspose");
    if (opts.add && !roles.is_layer()) refuse_option(to, "add", "Convolution and ConvTranspose");
}

/// The field of an eager call's attributes, if it says something: lists that are not empty, words
/// and numbers that are not the default of all ops.
std::optional<given_value> field_of(const attributes &attrs, attribute_id id) {
    const auto list = [](const dims &l) {
        return l.empty() ? std::nullopt : std::optional<given_value>(l);
    };
    const auto text = [](auto value, auto otherwise) {
        return value == otherwise ? std::nullopt : std::optional<given_value>(to_string(value));
    };
    switch (id) {
    case attribute_id::strides:
        return list(attrs.strides);
    case attribute_id::dilations:
        return list(attrs.dilations);
    case attribute_id::pads_begin:
        return list(attrs.pads_begin);
    case attribute_id::pads_end:
        return list(attrs.pads_end);
    case attribute_id::auto_pad:
        return text(auto_pad(attrs.auto_pad), auto_pad::none);
    case attribute_id::groups:
        if (attrs.groups == 1) return std::nullopt;
        return attrs.groups;
    case attribute_id::data_format:
        return text(data_format(attrs.data_format), data_format::nxc);
    case attribute_id::weights_format:
        if (!attrs.weights_format) return std::nullopt;
        return to_string(*attrs.weights_format);
    case attribute_id::output_padding:
        return list(attrs.output_padding);
    case attribute_id::dst_shape:
    case attribute_id::weights_shape:  // output tensors carry their shape
    case attribute_id::accumulate:     // an option
    case attribute_id::auto_broadcast:
        break;
    }
    return std::nullopt;
}

/// A field that says something, but not to this op. The default written out is let pass.
void check_fields(const parsed_attributes &to, const op_schema &schema, const attributes &attrs) {
    const auto is_default = [](const attribute_schema &a, const given_value &given) {
        return (a.required || is_pads(a)) && given.list != nullptr
               && std::all_of(
                   given.list->begin(), given.list->end(), [&](dim d) { return d == a.minimum; });
    };
    for (const op_schema &other : all_schemas())
        for (const attribute_schema &a : other.attributes) {
            const auto given = field_of(attrs, a.id);
            if (given && schema.find(a.id) == nullptr && !is_default(a, *given))
                refuse_unknown(to, schema, a.name);
        }
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
    set_default_weights_format(to, schema);
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
    op_kind kind, const attributes &attrs, std::size_t rank, const op_flags &opts) {
    const op_schema &schema = schema_of(kind);
    parsed_attributes to{.kind = kind, .op_name = {}};
    if (schema.epilogue)
        refuse(to, "it computes in graphs only, as part of a convolution's partition; eager and "
                   "compiled calls of convolutions take a bias and the options add and relu");
    if (rank < schema.least_rank || rank > most_rank)
        fail(error_code::invalid_shape, kind, {},
            cat(schema.inputs[0].name, " has rank ", rank, "; ranks ", schema.least_rank, " to ",
                most_rank, schema.least_rank == 3 ? " (one" : " (none",
                " to three spatial axes) "
                "are possible"));
    const std::size_t axes = rank - 2;
    set_default_weights_format(to, schema);
    for (const attribute_schema &a : schema.attributes) {
        if (const auto given = field_of(attrs, a.id))
            store(to, a, *given);
        else if (a.required || is_pads(a))
            store(to, a, dims(axes, a.minimum));  // lists: the least legal value is the default
    }
    check_fields(to, schema, attrs);
    check_options(to, schema, opts);
    settle_pads(to, schema);
    check_output_padding(to);
    to.accumulate = opts.accumulate;
    to.relu = opts.relu;
    to.add = opts.add;
    return to;
}

}  // namespace convgrad::ops
