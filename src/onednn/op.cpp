#include "onednn/op.hpp"

#include <algorithm>
#include <limits>

#include <convgrad/error.hpp>

#include "onednn/behind.hpp"
#include "onednn/description.hpp"
#include "onednn/guard.hpp"
#include "op/message.hpp"
#include "op/schema.hpp"

namespace convgrad::onednn {
namespace {

std::string name_of(graph_attribute attribute) {
    switch (attribute) {
#define CONVGRAD_ONEDNN_NAME(name, value)                                                          \
    case graph_attribute::name:                                                                    \
        return #name;
        CONVGRAD_ONEDNN_ATTRIBUTES(CONVGRAD_ONEDNN_NAME)
#undef CONVGRAD_ONEDNN_NAME
    }
    return ops::cat("attribute ", static_cast<int>(attribute));
}

/// In the library's own form. It has no lists of floats, and no op of the family takes any: one
/// float is refused just the same.
attribute_value to_library(const graph_attribute_value &value) {
    return std::visit(
        [](const auto &v) -> attribute_value {
            if constexpr (std::is_same_v<decltype(v), const std::vector<float> &>)
                return 0.0F;
            else
                return v;
        },
        value);
}

dims list_of(const client_op &given, graph_attribute attribute) {
    const auto found = given.attributes.find(attribute);
    if (found == given.attributes.end()) return {};
    const auto *list = std::get_if<dims>(&found->second);
    return list == nullptr ? dims{} : *list;
}

/// output_padding in oneDNN's reading. It looks at one entry for each axis only, and its clients
/// leave a dozen zeros in the attribute. Of ConvolutionBackwardData it looks at none, and its
/// clients set values out of range there: nothing is left of those.
dims output_padding_of(const client_op &given) {
    dims padding = list_of(given, graph_attribute::output_padding);
    const dims strides = list_of(given, graph_attribute::strides);
    const dims dilations = list_of(given, graph_attribute::dilations);
    if (padding.size() > strides.size()) padding.resize(strides.size());
    if (given.kind != graph_op_kind::convolution_backward_data) return padding;
    for (std::size_t i = 0; i < padding.size(); ++i) {
        const dim most = std::max(strides[i], i < dilations.size() ? dilations[i] : 1);
        if (padding[i] < 0 || padding[i] >= most) return dims(strides.size(), 0);
    }
    return padding;
}

const ops::op_schema *schema_of(graph_op_kind kind) {
    const auto value = static_cast<int>(kind);
    if (value < 0 || value > std::numeric_limits<std::underlying_type_t<op_kind>>::max())
        return nullptr;
    return ops::find_schema(static_cast<op_kind>(kind));
}

/// The op with its attributes and tensors in the library's own form.
std::shared_ptr<op> to_library(const client_op &given) {
    auto node = std::make_shared<op>(given.id, static_cast<op_kind>(given.kind), given.name);
    for (const auto &[attribute, value] : given.attributes) {
        const bool padding =
            attribute == graph_attribute::output_padding && std::holds_alternative<dims>(value);
        node->set(name_of(attribute), padding ? output_padding_of(given) : to_library(value));
    }
    for (const tensor_description &lt : given.inputs) node->add_input(port_of(lt));
    for (const tensor_description &lt : given.outputs) node->add_output(port_of(lt));
    return node;
}

/// Whether the library could have a place for this BiasAdd, Add or ReLU.
bool may_fuse(const client_op &given, const op &node) {
    for (const tensor_description &lt : given.inputs)
        if (lt.property == property_type::host_scalar) return false;
    try {
        ops::check_op(node);
        return true;
    } catch (const error &e) {
        if (e.code() != error_code::invalid_op) throw;
        return false;
    }
}

}  // namespace

std::string name_of(graph_op_kind kind) {
    if (const ops::op_schema *schema = schema_of(kind)) return std::string(schema->name);
    switch (kind) {
#define CONVGRAD_ONEDNN_NAME(name)                                                                 \
    case graph_op_kind::name:                                                                      \
        return #name;
        CONVGRAD_ONEDNN_OP_KINDS(CONVGRAD_ONEDNN_NAME)
#undef CONVGRAD_ONEDNN_NAME
    }
    return ops::cat("op ", static_cast<int>(kind));
}

bool is_family(graph_op_kind kind) {
    const ops::op_schema *schema = schema_of(kind);
    return schema != nullptr && !schema->epilogue;
}

graph_op make_foreign_op(const client_op &given) {
    return {std::make_shared<client_op>(given), {.node = to_library(given), .attrs = {}}};
}

graph_op make_graph_op(const client_op &given) {
    graph_op made{std::make_shared<client_op>(given), {}};
    const ops::op_schema *schema = schema_of(given.kind);
    std::shared_ptr<op> node = to_library(given);
    // The library's own second output, the bias gradient, is no part of this interface.
    if (schema != nullptr && !schema->epilogue && given.outputs.size() != 1)
        ops::fail(error_code::invalid_op, schema->kind, given.name,
            ops::cat("it has ", given.outputs.size(), " outputs; it needs 1"));
    if (schema != nullptr && (!schema->epilogue || may_fuse(given, *node)))
        made.node.attrs = ops::check_op(*node);
    made.node.node = std::move(node);
    return made;
}

}  // namespace convgrad::onednn

using namespace convgrad::onednn;

namespace {

bool is_scalar_f32(graph_attribute name) {
    return name >= graph_attribute::alpha && name < graph_attribute::scales;
}

bool is_scalar_s64(graph_attribute name) {
    return name >= graph_attribute::axis && name < graph_attribute::axes;
}

/// Tells oneDNN, where it is behind this library, and notes what it accepted; alone, the handle is
/// the op itself.
status tell_and_note(const char *what, client_op *op, auto tell, auto note) {
    const auto noted = [&](client_op &known) {
        return guarded(what, [&] {
            note(known);
            return status::success;
        });
    };
    const library *next = behind();
    if (next == nullptr) return noted(*op);
    const status said = tell(*next);
    if (said != status::success) return said;
    // oneDNN has it, for good: an op of which not all is known is left to it.
    const auto known = notes<client_op>::get().find(op);
    if (known != nullptr && noted(*known) != status::success) notes<client_op>::get().drop(op);
    return said;
}

}  // namespace

CONVGRAD_ONEDNN_API status dnnl_graph_op_create(
    client_op **made, std::size_t id, graph_op_kind kind, const char *name) {
    if (any_null(made, name)) return status::invalid_arguments;
    const auto described = [&] {
        auto op = std::make_shared<client_op>();
        op->id = id;
        op->kind = kind;
        op->name = name;
        return op;
    };
    if (const library *next = behind())
        return create_and_note(
            "op_create", made,
            [&](client_op **theirs) { return next->op_create(theirs, id, kind, name); },
            next->op_destroy, described);
    return guarded("op_create", [&] {
        *made = new client_op(*described());
        return status::success;
    });
}

CONVGRAD_ONEDNN_API status dnnl_graph_op_destroy(client_op *op) {
    if (const library *next = behind()) {
        notes<client_op>::get().drop(op);
        return next->op_destroy(op);
    }
    delete op;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_op_add_input(client_op *op, const tensor_description *input) {
    if (any_null(op, input)) return status::invalid_arguments;
    return tell_and_note(
        "op_add_input", op, [&](const library &next) { return next.op_add_input(op, input); },
        [&](client_op &known) { known.inputs.push_back(*input); });
}

CONVGRAD_ONEDNN_API status dnnl_graph_op_add_output(
    client_op *op, const tensor_description *output) {
    if (any_null(op, output)) return status::invalid_arguments;
    return tell_and_note(
        "op_add_output", op, [&](const library &next) { return next.op_add_output(op, output); },
        [&](client_op &known) { known.outputs.push_back(*output); });
}

CONVGRAD_ONEDNN_API status dnnl_graph_op_set_attr_f32(
    client_op *op, graph_attribute name, const float *value, std::size_t length) {
    if (any_null(op, value)) return status::invalid_arguments;
    return tell_and_note(
        "op_set_attr", op,
        [&](const library &next) { return next.op_set_attr_f32(op, name, value, length); },
        [&](client_op &known) {
            if (is_scalar_f32(name))
                known.attributes.insert_or_assign(name, *value);
            else
                known.attributes.insert_or_assign(name, std::vector<float>(value, value + length));
        });
}

CONVGRAD_ONEDNN_API status dnnl_graph_op_set_attr_bool(
    client_op *op, graph_attribute name, const std::uint8_t *value, std::size_t length) {
    if (any_null(op, value) || length != 1) return status::invalid_arguments;
    return tell_and_note(
        "op_set_attr", op,
        [&](const library &next) { return next.op_set_attr_bool(op, name, value, length); },
        [&](client_op &known) { known.attributes.insert_or_assign(name, *value != 0); });
}

CONVGRAD_ONEDNN_API status dnnl_graph_op_set_attr_s64(
    client_op *op, graph_attribute name, const std::int64_t *value, std::size_t length) {
    if (any_null(op, value)) return status::invalid_arguments;
    return tell_and_note(
        "op_set_attr", op,
        [&](const library &next) { return next.op_set_attr_s64(op, name, value, length); },
        [&](client_op &known) {
            if (is_scalar_s64(name))  // whatever the length: clients pass 0 or 1
                known.attributes.insert_or_assign(name, *value);
            else
                known.attributes.insert_or_assign(name, convgrad::dims(value, value + length));
        });
}

CONVGRAD_ONEDNN_API status dnnl_graph_op_set_attr_str(
    client_op *op, graph_attribute name, const char *value, std::size_t length) {
    if (any_null(op, value) || length == 0) return status::invalid_arguments;
    // The string ends with its NUL: clients pass any length.
    return tell_and_note(
        "op_set_attr", op,
        [&](const library &next) { return next.op_set_attr_str(op, name, value, length); },
        [&](client_op &known) { known.attributes.insert_or_assign(name, std::string(value)); });
}

CONVGRAD_ONEDNN_API status dnnl_graph_op_get_id(const client_op *op, std::size_t *id) {
    if (any_null(op, id)) return status::invalid_arguments;
    if (const library *next = behind()) return next->op_get_id(op, id);
    *id = op->id;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_op_get_kind(const client_op *op, graph_op_kind *kind) {
    if (any_null(op, kind)) return status::invalid_arguments;
    if (const library *next = behind()) return next->op_get_kind(op, kind);
    *kind = op->kind;
    return status::success;
}
