// class op, and names → kinds.
#include <convgrad/op.hpp>

#include "op/copy.hpp"
#include "op/guard.hpp"
#include "op/message.hpp"
#include "op/schema.hpp"

namespace convgrad {
inline namespace CONVGRAD_ABI {

namespace {

[[noreturn]] void refuse_name(std::string_view name, std::string_view plain) {
    std::vector<std::string_view> known;
    std::string list;
    for (const ops::op_schema &schema : ops::all_schemas()) {
        list += ops::cat(list.empty() ? "" : ", ", schema.name);
        known.push_back(schema.name);
        known.insert(known.end(), schema.aliases.begin(), schema.aliases.end());
    }
    const std::string_view near = ops::nearest(plain, known);
    const std::string hint = near.empty() ? "" : ops::cat("did you mean ", near, "? ");
    throw error(
        error_code::invalid_op, ops::cat("invalid op: there is no operation ", ops::quoted{name},
                                    "; ", hint, "Known are ", list, ", each also with version -1"));
}

}  // namespace

op_kind op_kind_from_name(std::string_view name) {
    constexpr std::string_view version = "-1";
    const std::string_view plain =
        name.ends_with(version) ? name.substr(0, name.size() - version.size()) : name;
    for (const ops::op_schema &schema : ops::all_schemas()) {
        if (plain == schema.name) return schema.kind;
        for (std::string_view alias : schema.aliases)
            if (plain == alias) return schema.kind;
    }
    return guarded("op", [&]() -> op_kind { refuse_name(name, plain); });
}

op::op(std::size_t id, op_kind kind, std::string name)
    : id_(id), kind_(kind), name_(std::move(name)) {}

op::op(std::size_t id, std::string_view kind_name, std::string name)
    : op(id, op_kind_from_name(kind_name), std::move(name)) {}

op::op(const op &other) try
    : id_(other.id_), kind_(other.kind_), name_(other.name_),
      attributes_(ops::copy_of(other.attributes_)), inputs_(other.inputs_),
      outputs_(other.outputs_) {
} catch (const std::bad_alloc &) {
    throw_out_of_memory("op", "an allocation failed");
}

op &op::operator=(const op &other) {
    op copy(other);
    return *this = std::move(copy);
}

op &op::set(std::string_view attribute, attribute_value value) {
    return guarded("op::set", [&]() -> op & {
        attributes_.insert_or_assign(std::string(attribute), std::move(value));
        return *this;
    });
}

op &op::set(std::string_view attribute, const char *value) {
    return guarded("op::set", [&]() -> op & {
        return set(attribute, attribute_value(std::string(value == nullptr ? "" : value)));
    });
}

op &op::set(std::string_view attribute, dims value) {
    return set(attribute, attribute_value(std::move(value)));
}

op &op::set(std::string_view attribute, auto_pad value) {
    return guarded("op::set",
        [&]() -> op & { return set(attribute, attribute_value(std::string(to_string(value)))); });
}

op &op::set(std::string_view attribute, data_format value) {
    return guarded("op::set",
        [&]() -> op & { return set(attribute, attribute_value(std::string(to_string(value)))); });
}

op &op::set(std::string_view attribute, weights_format value) {
    return guarded("op::set",
        [&]() -> op & { return set(attribute, attribute_value(std::string(to_string(value)))); });
}

op &op::add_input(logical_tensor input) {
    return guarded("op::add_input", [&]() -> op & {
        inputs_.push_back(std::move(input));
        return *this;
    });
}

op &op::add_output(logical_tensor output) {
    return guarded("op::add_output", [&]() -> op & {
        outputs_.push_back(std::move(output));
        return *this;
    });
}

}  // namespace CONVGRAD_ABI
}  // namespace convgrad
