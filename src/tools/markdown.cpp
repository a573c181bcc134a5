// docs/ops/<Name>.md from the schema table.
#include "tools/markdown.hpp"

#include "op/message.hpp"

namespace convgrad::ops {
namespace {

std::string code(std::string_view text) {
    return cat("`", text, "`");
}

std::string_view type_text(const argument_schema &a) {
    if (a.shape_input) return "s32";
    return a.f32_allowed ? "T, or f32" : "T";
}

std::string arguments(std::string_view title, std::span<const argument_schema> list) {
    std::string page = cat("## ", title, "\n\n",
        "| index | name | type | required | description |\n| --- | --- | --- | --- | --- |\n");
    for (std::size_t i = 0; i < list.size(); ++i) {
        const argument_schema &a = list[i];
        page += cat("| ", i, " | ", code(a.name), " | ", type_text(a), " | ",
            a.required    ? "yes"
            : a.extension ? "no (extension)"
                          : "no",
            " | ", a.description, " |\n");
    }
    return page + "\n";
}

std::string attributes_table(const op_schema &schema) {
    if (schema.attributes.empty()) return "## Attributes\n\nNone; any attribute is an error.\n\n";
    std::string page = "## Attributes\n\n"
                       "| name | type | values | default | description |\n"
                       "| --- | --- | --- | --- | --- |\n";
    for (const attribute_schema &a : schema.attributes) {
        const std::string_view fallback = a.required ? "required" : "-";
        page += cat("| ", code(a.name), a.extension ? " (extension)" : "", " | ", to_string(a.type),
            " | ", a.values_text, " | ", a.default_text.empty() ? fallback : a.default_text, " | ",
            a.description, " |\n");
    }
    return page + "\nAny other attribute is an error.\n\n";
}

std::string names(const op_schema &schema) {
    std::string page = cat("Names: ", code(schema.name), ", ", code(cat(schema.name, "-1")));
    for (std::string_view alias : schema.aliases)
        page += cat(", ", code(alias), ", ", code(cat(alias, "-1")));
    return page + cat(". Kind ", static_cast<int>(schema.kind), ".\n\n");
}

/// Separated by empty lines, but for the items of a list.
std::string paragraphs(const std::vector<std::string> &lines) {
    std::string page;
    bool item = false;
    for (const std::string &line : lines) {
        const bool next_item = line.starts_with("- ");
        if (!page.empty() && !(item && next_item)) page += "\n";
        page += line + "\n";
        item = next_item;
    }
    return page;
}

std::string extensions(const op_schema &schema) {
    std::string page;
    for (const attribute_schema &a : schema.attributes)
        if (a.extension) page += cat("- Attribute ", code(a.name), ": ", a.description, "\n");
    for (const argument_schema &a : schema.outputs) {
        if (a.extension) page += cat("- Output ", code(a.name), ": ", a.description, "\n");
        if (a.f32_allowed)
            page +=
                cat("- Output ", code(a.name), " may be f32 where the inputs are bf16 or f16.\n");
    }
    if (page.empty()) return page;
    return cat("\n## Extensions\n\nBeyond the oneDNN Graph operation set:\n\n", page);
}

}  // namespace

std::vector<std::string> shape_text(const op_schema &schema) {
    if (schema.find(attribute_id::dilations) == nullptr) return {std::string(schema.shape_rule)};
    const bool has_output_padding = schema.find(attribute_id::output_padding) != nullptr;
    return {std::string(schema.shape_rule),
        cat("Here E = dilation*(kernel - 1) + 1. A dilated kernel that is larger than the padded "
            "axis is an error (invalid_shape).",
            has_output_padding ? " output_padding may reach up to max(stride, dilation) - 1."
                               : "")};
}

std::vector<std::string> auto_pad_text(const op_schema &schema) {
    if (schema.find(attribute_id::auto_pad) == nullptr) return {};
    return {"- `none`: pads_begin and pads_end.", "- `valid`: no padding.",
        cat("- `same_upper`, `same_lower`: ", schema.auto_pad_rule),
        "The total of `same_upper` is split into begin = floor(total / 2) and the rest at the end; "
        "`same_lower` puts the larger half at the beginning."};
}

std::string markdown_page(const op_schema &schema) {
    const bool convolves = schema.find(attribute_id::groups) != nullptr;
    const std::string pads = paragraphs(auto_pad_text(schema));
    return cat(
        "<!-- Generated from the schema table in src/op/schema.cpp; a test keeps it in step. "
        "-->\n\n# ",
        schema.name, "\n\n", schema.summary, "\n\n", names(schema), "```\n", schema.formula,
        "\n```\n\n",
        convolves ? "Taps outside the tensor contribute nothing. With groups, only channels of the "
                    "same group meet. "
                  : "",
        schema.epilogue ? std::string(
            "It computes in graphs, as part of the partition of a Convolution or ConvTranspose: "
            "behind it come BiasAdd (unless the convolution has a bias), Add and ReLU, in this "
            "order, each once at most, and nothing else reads what lies between. Everything is "
            "added in f32 and rounded once. Alone it is a partition that is not supported.")
                        : cat("Sums are formed in f32 and rounded once. There are ",
                            convolves ? "one" : "none", " to three spatial axes (ranks ",
                            schema.least_rank, " to ", most_rank, ")."),
        "\n\n", arguments("Inputs", schema.inputs), arguments("Outputs", schema.outputs),
        "T is one of f32, bf16 and f16, the same for all tensors of one op. Tensors may have any "
        "positive strides; inputs may overlap themselves, elements of an output must lie apart. An "
        "empty batch and zero channels are legal.\n\n",
        attributes_table(schema), "## Output shape\n\n", paragraphs(shape_text(schema)),
        pads.empty() ? "" : cat("\n## auto_pad\n\n", pads), extensions(schema));
}

}  // namespace convgrad::ops
