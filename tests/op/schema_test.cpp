// The table itself, the names, and the pages that are generated from it.
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include <convgrad/op.hpp>

#include "op/expect_error.hpp"
#include "tools/markdown.hpp"

namespace convgrad {
namespace {

using test::expect_error;

TEST(op_names, every_name_alias_and_version_gives_its_kind) {
    for (const ops::op_schema &schema : ops::all_schemas()) {
        EXPECT_EQ(op_kind_from_name(schema.name), schema.kind);
        EXPECT_EQ(op_kind_from_name(std::string(schema.name) + "-1"), schema.kind);
        EXPECT_EQ(to_string(schema.kind), schema.name);
        for (std::string_view alias : schema.aliases) {
            EXPECT_EQ(op_kind_from_name(alias), schema.kind);
            EXPECT_EQ(op_kind_from_name(std::string(alias) + "-1"), schema.kind);
        }
    }
    EXPECT_EQ(
        op_kind_from_name("ConvolutionBackpropWeights-1"), op_kind::convolution_backward_weights);
    EXPECT_EQ(op_kind_from_name("ConvolutionBackpropData-1"), op_kind::convolution_backward_data);
}

TEST(op_names, unknown_names_are_refused_with_a_proposal) {
    expect_error(error_code::invalid_op,
        {"ConvolutionBackpropWeigths", "did you mean ConvolutionBackpropWeights?"},
        [] { return op_kind_from_name("ConvolutionBackpropWeigths"); });
    expect_error(error_code::invalid_op, {"\"convtranspose\"", "did you mean ConvTranspose?"},
        [] { return op_kind_from_name("convtranspose"); });
    expect_error(error_code::invalid_op, {"MatMul", "Known are Convolution, ConvolutionBackward"},
        [] { return op_kind_from_name("MatMul"); });
    expect_error(error_code::invalid_op, {"Convolution-2"},
        [] { return op_kind_from_name("Convolution-2"); });
    expect_error(error_code::invalid_op, {"\"\""}, [] { return op_kind_from_name(""); });
    expect_error(error_code::invalid_op, {"xxx..."},
        [] { return op_kind_from_name(std::string(100000, 'x')); });
    expect_error(error_code::invalid_op, {"Convolutoin"}, [] { op(1, "Convolutoin"); });
}

TEST(schema, has_all_ops_in_order_and_finds_them_by_kind) {
    ASSERT_EQ(ops::all_schemas().size(), std::size(all_op_kinds));
    for (std::size_t i = 0; i < std::size(all_op_kinds); ++i) {
        EXPECT_EQ(ops::all_schemas()[i].kind, all_op_kinds[i]);
        EXPECT_EQ(&ops::schema_of(all_op_kinds[i]), &ops::all_schemas()[i]);
    }
    for (int kind : {0, 10, 12, 19, 255})
        expect_error(error_code::invalid_op, {"op kind", std::to_string(kind)},
            [&] { ops::schema_of(static_cast<op_kind>(kind)); });
}

// Section 2 of the specification, as sets of names.
TEST(schema, lists_the_attributes_of_the_specification) {
    const std::set<std::string_view> common{"strides", "dilations", "pads_begin", "pads_end",
        "auto_pad", "groups", "data_format", "weights_format"};
    const std::set<std::string_view> extra[] = {{}, {"output_padding", "dst_shape", "accumulate"},
        {"weights_shape", "accumulate"}, {"output_padding"}, {"output_padding", "accumulate"},
        {"output_padding", "weights_shape", "accumulate"}};
    for (std::size_t i = 0; i < std::size(extra); ++i) {
        std::set<std::string_view> expected = common, seen;
        expected.insert(extra[i].begin(), extra[i].end());
        for (const ops::attribute_schema &a : ops::schema_of(convolution_op_kinds[i]).attributes) {
            EXPECT_TRUE(seen.insert(a.name).second) << a.name;
            EXPECT_EQ(a.required, a.name == "strides" || a.name == "dilations") << a.name;
            const bool pads = a.name == "pads_begin" || a.name == "pads_end";
            EXPECT_EQ(a.default_text == "required if auto_pad is none", pads) << a.name;
            EXPECT_EQ(a.extension, a.name == "accumulate");
            EXPECT_FALSE(a.description.empty());
        }
        EXPECT_EQ(seen, expected) << to_string(convolution_op_kinds[i]);
    }
}

TEST(schema, lists_inputs_and_outputs_in_order) {
    const std::vector<std::string_view> inputs[] = {{"src", "weights", "bias"},
        {"diff_dst", "weights", "dst_shape"}, {"src", "diff_dst", "weights_shape"},
        {"src", "weights", "bias"}, {"diff_dst", "weights"}, {"src", "diff_dst", "weights_shape"}};
    const std::vector<std::string_view> outputs[] = {{"dst"}, {"diff_src"},
        {"diff_weights", "diff_bias"}, {"dst"}, {"diff_src"}, {"diff_weights", "diff_bias"}};
    for (std::size_t i = 0; i < std::size(inputs); ++i) {
        std::vector<std::string_view> in, out;
        for (const ops::argument_schema &a : ops::schema_of(convolution_op_kinds[i]).inputs) {
            EXPECT_EQ(a.required, in.size() < 2);
            in.push_back(a.name);
        }
        for (const ops::argument_schema &a : ops::schema_of(convolution_op_kinds[i]).outputs) {
            EXPECT_EQ(a.required, out.empty());
            out.push_back(a.name);
        }
        EXPECT_EQ(in, inputs[i]);
        EXPECT_EQ(out, outputs[i]);
    }
}

TEST(nearest, ignores_case_and_gives_up_on_strangers) {
    const std::string_view names[] = {"strides", "pads_begin", "pads_end"};
    EXPECT_EQ(ops::nearest("stride", names), "strides");
    EXPECT_EQ(ops::nearest("PADS_END", names), "pads_end");
    EXPECT_EQ(ops::nearest("pad_begin", names), "pads_begin");
    EXPECT_EQ(ops::nearest("momentum", names), "");
    EXPECT_EQ(ops::nearest("", names), "");
    EXPECT_EQ(ops::nearest("stride", {}), "");
}

TEST(to_string, covers_every_enumerator) {
    EXPECT_EQ(to_string(data_type::undef), "undef");
    EXPECT_EQ(to_string(data_type::f32), "f32");
    EXPECT_EQ(to_string(data_type::bf16), "bf16");
    EXPECT_EQ(to_string(data_type::f16), "f16");
    EXPECT_EQ(to_string(data_type::s32), "s32");
    EXPECT_EQ(size_of(data_type::undef), 0u);
    EXPECT_EQ(size_of(data_type::f32), 4u);
    EXPECT_EQ(size_of(data_type::bf16), 2u);
    EXPECT_EQ(size_of(data_type::f16), 2u);
    EXPECT_EQ(size_of(data_type::s32), 4u);
    EXPECT_EQ(to_string(isa::portable), "portable");
    EXPECT_EQ(to_string(isa::amx_bf16), "amx_bf16");
    EXPECT_EQ(to_string(math_mode::strict), "strict");
    EXPECT_EQ(to_string(math_mode::accurate), "accurate");
    EXPECT_EQ(to_string(math_mode::fast), "fast");
    EXPECT_EQ(to_string(error_code::invalid_op), "invalid_op");
    EXPECT_EQ(to_string(error_code::invalid_graph), "invalid_graph");
    EXPECT_EQ(to_string(error_code::invalid_shape), "invalid_shape");
    EXPECT_EQ(to_string(error_code::invalid_argument), "invalid_argument");
    EXPECT_EQ(to_string(error_code::unsupported), "unsupported");
    EXPECT_EQ(to_string(error_code::out_of_memory), "out_of_memory");
}

// The tests run in the project's root. CONVGRAD_UPDATE_DOCS=1 rewrites the pages.
TEST(docs, pages_are_in_step_with_the_table) {
    const char *update = std::getenv("CONVGRAD_UPDATE_DOCS");
    for (const ops::op_schema &schema : ops::all_schemas()) {
        const std::string path = "docs/ops/" + std::string(schema.name) + ".md";
        const std::string page = ops::markdown_page(schema);
        if (update != nullptr && std::string_view(update) == "1") std::ofstream(path) << page;
        std::ifstream file(path);
        ASSERT_TRUE(file) << path << " is missing (run in the project's root)";
        std::stringstream text;
        text << file.rdbuf();
        EXPECT_EQ(text.str(), page) << path << ": run this test with CONVGRAD_UPDATE_DOCS=1";
    }
}

}  // namespace
}  // namespace convgrad
