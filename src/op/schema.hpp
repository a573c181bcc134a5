// Ops as data: one table drives validation, help texts, docs/ops and the drop-in.
#pragma once

#include <span>
#include <string>

#include <convgrad/op.hpp>

namespace convgrad::ops {

enum class attribute_type : std::uint8_t { s64, s64_list, string };

/// One attribute of one op.
struct attribute_schema {
    std::string_view name;
    attribute_type type;
    bool required;
    /// Smallest value of a number or of each list entry.
    dim minimum;
    /// Allowed strings, lower or upper case as documented; empty for numbers.
    std::span<const std::string_view> choices;
    /// As text, for help; empty: none.
    std::string_view default_text;
    /// The range in words, for help and messages: "positive", "none, same_upper, …".
    std::string_view values_text;
    std::string_view description;
    /// Ours, beyond the documents (accumulate).
    bool extension;
};

/// One input or output.
struct argument_schema {
    std::string_view name;
    bool required;
    bool shape_input;  // a 1-D s32 tensor
    bool extension;    // ours, beyond the documents (diff_bias)
    std::string_view description;
};

struct op_schema {
    op_kind kind;
    std::string_view name;
    std::span<const std::string_view> aliases;  // without the "-1" version, which every name takes
    std::string_view summary;
    std::string_view formula;
    std::span<const argument_schema> inputs, outputs;
    std::span<const attribute_schema> attributes;
};

/// All six, in order of op_kind. (Shared with the command, the drop-in and the tests.)
CONVGRAD_API std::span<const op_schema> all_schemas();
CONVGRAD_API const op_schema &schema_of(op_kind kind);

/// The nearest of `candidates` to `name` by edit distance ignoring case, for "did you mean"; empty
/// if none is near.
CONVGRAD_API std::string_view nearest(std::string_view name, std::span<const std::string_view> candidates);

/// The page docs/ops/<Name>.md, whole.
CONVGRAD_API std::string markdown_page(const op_schema &schema);

}  // namespace convgrad::ops
