// Ops as data: one table drives validation, help texts, docs/ops and the drop-in.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <convgrad/op.hpp>

namespace convgrad::ops {

enum class attribute_type : std::uint8_t { s64, s64_list, string };

/// "s64", "s64 list" or "string".
std::string_view to_string(attribute_type type);

/// Which attribute a schema entry describes, so that code need not compare names.
enum class attribute_id : std::uint8_t {
    strides,
    dilations,
    pads_begin,
    pads_end,
    auto_pad,
    groups,
    data_format,
    weights_format,
    output_padding,
    dst_shape,
    weights_shape,
    accumulate,
};

/// One attribute of one op.
struct attribute_schema {
    attribute_id id;
    std::string_view name;
    attribute_type type;
    bool required;
    /// Smallest and largest value of a number or of each list entry.
    dim minimum, maximum;
    /// Allowed strings, as documented (matched without regard to case); empty for numbers.
    std::span<const std::string_view> choices;
    /// As text, for help; empty: none.
    std::string_view default_text;
    /// The range in words, for help and messages: "one positive value per spatial axis".
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
    /// May be f32 when the inputs are bf16 or f16 (ours, beyond the documents).
    bool f32_allowed;
    std::string_view description;
};

struct op_schema {
    op_kind kind;
    std::string_view name;
    std::span<const std::string_view> aliases;  // without the "-1" version, which every name takes
    std::string_view summary;
    std::string_view formula;
    std::string_view shape_rule;
    std::string_view auto_pad_rule;
    std::span<const argument_schema> inputs, outputs;
    std::span<const attribute_schema> attributes;
};

/// All six, in order of op_kind.
std::span<const op_schema> all_schemas();
/// Throws invalid_op for a value that is not one of all_op_kinds.
const op_schema &schema_of(op_kind kind);

/// The nearest of `candidates` to `name` by edit distance ignoring case, for "did you mean"; empty
/// if none is near.
std::string_view nearest(std::string_view name, std::span<const std::string_view> candidates);

/// Whether two strings are equal but for the case of (ASCII) letters.
bool equal_ignoring_case(std::string_view a, std::string_view b);

}  // namespace convgrad::ops
