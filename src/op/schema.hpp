// Ops as data: one table drives validation, help texts, docs/ops and the drop-in.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <convgrad/op.hpp>

#include "conv/problem.hpp"

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
    auto_broadcast,
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

/// One of an op's arguments, or none.
struct argument_ref {
    static constexpr std::uint8_t nowhere = 0xff;

    bool output = false;
    std::uint8_t index = nowhere;

    [[nodiscard]] constexpr bool exists() const { return index != nowhere; }
};

/// Where an op keeps what is canonical (conv/problem.hpp). All convolutions relate two data
/// tensors: the large one, which the kernel slides over (src of a convolution, dst of a transposed
/// one), and the small one, with one point per position of the kernel.
struct op_roles {
    conv::pass what = conv::pass::forward;
    bool transposed = false;
    argument_ref large, small, weights;
    argument_ref bias;  // an input, or an output that is the bias gradient

    /// Convolution and ConvTranspose, which take a bias, a tensor to add and a ReLU.
    [[nodiscard]] constexpr bool is_layer() const { return bias.exists() && !bias.output; }
};

struct op_schema {
    op_kind kind;
    op_roles roles;
    std::string_view name;
    std::span<const std::string_view> aliases;  // without the "-1" version, which every name takes
    std::string_view summary;
    std::string_view formula;
    std::string_view shape_rule;
    std::string_view auto_pad_rule;
    std::span<const argument_schema> inputs, outputs;
    std::span<const attribute_schema> attributes;
    /// Of data tensors; the most is 5.
    std::size_t least_rank = 3;
    /// Computes only as part of a convolution's partition, and has no roles.
    bool epilogue = false;

    /// Null: it has none of this id.
    [[nodiscard]] constexpr const attribute_schema *find(attribute_id id) const {
        for (const attribute_schema &a : attributes)
            if (a.id == id) return &a;
        return nullptr;
    }
    /// The input that gives the shape of output 0.
    [[nodiscard]] constexpr argument_ref shape_input() const {
        for (std::size_t i = 0; i < inputs.size(); ++i)
            if (inputs[i].shape_input) return {false, static_cast<std::uint8_t>(i)};
        return {};
    }
};

inline constexpr std::size_t most_rank = 5;

/// What no op has more of: its own inputs and the tensor of `parsed_attributes::add`; its outputs.
/// (The table is checked against them where it stands.)
inline constexpr std::size_t most_inputs = 4, most_outputs = 2;

/// All, in order of all_op_kinds.
std::span<const op_schema> all_schemas();
/// Null for a value that is not one of all_op_kinds.
const op_schema *find_schema(op_kind kind) noexcept;
/// Throws invalid_op for such a value.
const op_schema &schema_of(op_kind kind);
/// Of a kind that has a schema.
inline const op_roles &roles_of(op_kind kind) {
    return schema_of(kind).roles;
}

/// The nearest of `candidates` to `name` by edit distance ignoring case, for "did you mean"; empty
/// if none is near.
std::string_view nearest(std::string_view name, std::span<const std::string_view> candidates);

/// Whether two strings are equal but for the case of (ASCII) letters.
bool equal_ignoring_case(std::string_view a, std::string_view b);

}  // namespace convgrad::ops
