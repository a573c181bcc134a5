// Section 8, invalid_op: every way in which an op can break its schema, and the message for it.
#include <gtest/gtest.h>

#include <convgrad/eager.hpp>

#include "op/expect_error.hpp"
#include "op/op_builder.hpp"

namespace convgrad {
namespace {

using test::expect_error;
using test::op_with;
using test::plain_op;
using test::tensor_of;

using enum op_kind;

constexpr error_code bad = error_code::invalid_op;

op any_op(op_kind kind) {
    return op_with(kind, 2, {}, {});
}
std::string head(op_kind kind) {
    return std::string(to_string(kind)) + " \"layer\": invalid op: ";
}

TEST(check_op, takes_the_plain_op_of_every_kind) {
    for (op_kind kind : convolution_op_kinds) {
        const ops::parsed_attributes a = ops::check_op(any_op(kind));
        EXPECT_EQ(a.kind, kind);
        EXPECT_EQ(a.groups, 1);
        EXPECT_EQ(a.auto_pad, ops::auto_pad::none);
        EXPECT_EQ(a.data_format, ops::data_format::nxc);
        EXPECT_EQ(a.weights_format,
            kind < conv_transpose ? ops::weights_format::xio : ops::weights_format::xoi);
        EXPECT_FALSE(a.accumulate);
        EXPECT_FALSE(a.output_padding);
        EXPECT_FALSE(a.shape);
    }
}

TEST(check_op, required_attributes) {
    for (op_kind kind : convolution_op_kinds)
        for (std::string_view missing : {"strides", "dilations", "pads_begin", "pads_end"}) {
            op node(1, kind, "layer");
            for (const char *name : {"strides", "dilations", "pads_begin", "pads_end"})
                if (name != missing) node.set(name, dims{1});
            node.add_input(tensor_of(1, {}))
                .add_input(tensor_of(2, {}))
                .add_output(tensor_of(3, {}));
            expect_error(bad, {head(kind), missing, "missing", "required", "one per spatial axis"},
                [&] { ops::check_op(node); });
        }
}

// Whatever list they are, or none at all; but a list.
TEST(check_op, pads_that_are_ignored_are_not_judged) {
    for (op_kind kind : convolution_op_kinds)
        for (const char *pad : {"valid", "same_upper", "same_lower"}) {
            op node(1, kind, "layer");
            node.set("strides", dims{1, 2}).set("dilations", dims{1, 1}).set("auto_pad", pad);
            node.add_input(tensor_of(1, {}))
                .add_input(tensor_of(2, {}))
                .add_output(tensor_of(3, {}));
            EXPECT_EQ(ops::check_op(node).pads_begin, (dims{0, 0}));
            node.set("pads_begin", dims{-7}).set("pads_end", dims{1, 2, 3, 4});
            const ops::parsed_attributes a = ops::check_op(node);
            EXPECT_EQ(a.pads_begin, (dims{0, 0}));
            EXPECT_EQ(a.pads_end, (dims{0, 0}));
            node.set("pads_end", 3);
            expect_error(bad, {head(kind), "pads_end", "s64 list"}, [&] { ops::check_op(node); });
            const ops::parsed_attributes eager = ops::parse(
                kind, {.strides = {1, 2}, .pads_begin = {-1, 1, 1}, .auto_pad = pad}, 4, {});
            EXPECT_EQ(eager.pads_begin, (dims{0, 0}));
        }
}

TEST(check_op, unknown_attributes_name_the_op_and_what_it_accepts) {
    for (op_kind kind : convolution_op_kinds) {
        expect_error(bad,
            {head(kind), "\"stride\"", "did you mean strides?",
                std::string(to_string(kind)) + " accepts strides, pads_begin"},
            [&] {
                ops::check_op(any_op(kind).set("stride", dims{1, 1}));
            });
        expect_error(bad, {head(kind), "\"momentum\"", "accepts strides"},
            [&] { ops::check_op(any_op(kind).set("momentum", 1)); });
        expect_error(
            bad, {head(kind), "\"\"", "accepts"}, [&] { ops::check_op(any_op(kind).set("", 1)); });
    }
    expect_error(bad, {head(convolution), "output_padding"}, [] {
        ops::check_op(any_op(convolution).set("output_padding", dims{0, 0}));
    });
    expect_error(bad, {head(convolution_backward_weights), "output_padding"}, [] {
        ops::check_op(any_op(convolution_backward_weights).set("output_padding", dims{0, 0}));
    });
    expect_error(bad, {head(convolution_backward_data), "weights_shape"}, [] {
        ops::check_op(any_op(convolution_backward_data).set("weights_shape", dims{1, 1, 1, 1}));
    });
    expect_error(bad, {head(conv_transpose_backward_data), "dst_shape"}, [] {
        ops::check_op(any_op(conv_transpose_backward_data).set("dst_shape", dims{1, 1, 1, 1}));
    });
    expect_error(bad, {head(convolution), "accumulate"},
        [] { ops::check_op(any_op(convolution).set("accumulate", 1)); });
}

TEST(check_op, mistyped_attributes) {
    const attribute_value values[] = {std::int64_t{1}, dims{1, 1}, std::string("none"), 1.0F, true};
    const std::string_view names[] = {"an s64", "an s64 list", "a string", "an f32", "a bool"};
    for (op_kind kind : convolution_op_kinds)
        for (const ops::attribute_schema &a : ops::schema_of(kind).attributes)
            for (std::size_t i = 0; i < std::size(values); ++i) {
                if (i == static_cast<std::size_t>(a.type)) continue;
                expect_error(bad,
                    {head(kind), a.name, std::string("is ") + std::string(names[i]),
                        "its type must be ", to_string(a.type)},
                    [&] { ops::check_op(any_op(kind).set(a.name, values[i])); });
            }
}

TEST(check_op, set_keeps_the_type_that_was_written) {
    op node(1, convolution);
    node.set("a", 1).set("b", std::int64_t{1} << 40).set("c", true).set("d", 1.5F).set("e", "text");
    node.set("f", {1, 2}).set("g", std::size_t{3});
    EXPECT_EQ(node.attributes().at("a"), attribute_value(std::int64_t{1}));
    EXPECT_EQ(node.attributes().at("b"), attribute_value(std::int64_t{1} << 40));
    EXPECT_EQ(node.attributes().at("c"), attribute_value(true));
    EXPECT_EQ(node.attributes().at("d"), attribute_value(1.5F));
    EXPECT_EQ(node.attributes().at("e"), attribute_value(std::string("text")));
    EXPECT_EQ(node.attributes().at("f"), attribute_value(dims{1, 2}));
    EXPECT_EQ(node.attributes().at("g"), attribute_value(std::int64_t{3}));
    node.set("a", 2);
    EXPECT_EQ(node.attributes().at("a"), attribute_value(std::int64_t{2}));
}

TEST(check_op, values_out_of_range) {
    for (op_kind kind : convolution_op_kinds) {
        for (const char *name : {"strides", "dilations"})
            for (dim value : {dim{0}, dim{-1}, std::numeric_limits<dim>::min()})
                expect_error(bad,
                    {head(kind), name, value < -1 ? "?" : std::to_string(value), "positive"}, [&] {
                        ops::check_op(any_op(kind).set(name, dims{1, value}));
                    });
        for (const char *name : {"pads_begin", "pads_end"})
            expect_error(bad, {head(kind), name, "[-2, 0]", "non-negative"}, [&] {
                ops::check_op(any_op(kind).set(name, dims{-2, 0}));
            });
        for (int value : {0, -3})
            expect_error(bad, {head(kind), "groups", std::to_string(value), "positive"},
                [&] { ops::check_op(any_op(kind).set("groups", value)); });
        expect_error(bad, {head(kind), "data_format", "\"NHWC\"", "NXC, NCX"},
            [&] { ops::check_op(any_op(kind).set("data_format", "NHWC")); });
        expect_error(bad, {head(kind), "auto_pad", "\"SAME\"", "same_upper"},
            [&] { ops::check_op(any_op(kind).set("auto_pad", "SAME")); });
        const bool transposed = kind >= conv_transpose;
        expect_error(bad,
            {head(kind), "weights_format", transposed ? "\"OIX\"" : "\"IOX\"",
                transposed ? "XOI, IOX" : "XIO, OIX"},
            [&] { ops::check_op(any_op(kind).set("weights_format", transposed ? "OIX" : "IOX")); });
    }
    for (int value : {-1, 2})
        expect_error(bad, {"accumulate", std::to_string(value), "0, 1"},
            [&] { ops::check_op(any_op(convolution_backward_data).set("accumulate", value)); });
    for (dim value : {0, -1}) {
        expect_error(bad, {"dst_shape", "positive", std::to_string(value)}, [&] {
            ops::check_op(any_op(convolution_backward_data).set("dst_shape", dims{2, value, 3, 3}));
        });
        for (op_kind kind : {convolution_backward_weights, conv_transpose_backward_weights})
            expect_error(bad, {"weights_shape", "positive", std::to_string(value)}, [&] {
                ops::check_op(any_op(kind).set("weights_shape", dims{2, value, 3, 3}));
            });
    }
}

TEST(check_op, output_padding_is_below_stride_or_dilation) {
    for (op_kind kind : {convolution_backward_data, conv_transpose, conv_transpose_backward_data,
             conv_transpose_backward_weights}) {
        const auto with = [&](dims q, dims strides, dims dilations) {
            op node = any_op(kind);
            node.set("output_padding", std::move(q)).set("strides", std::move(strides));
            ops::check_op(node.set("dilations", std::move(dilations)));
        };
        EXPECT_NO_THROW(with({1, 0}, {2, 1}, {1, 1}));
        EXPECT_NO_THROW(with({2, 2}, {1, 3}, {3, 1}));
        expect_error(
            bad, {head(kind), "output_padding", "[0, 1]", "entry 1", "stride 1", "less"}, [&] {
                with({0, 1}, {2, 1}, {1, 1});
            });
        expect_error(bad, {head(kind), "output_padding", "[3, 0]", "entry 0", "dilation 3"}, [&] {
            with({3, 0}, {1, 1}, {3, 1});
        });
        expect_error(bad, {head(kind), "output_padding", "[-1, 0]", "non-negative"}, [&] {
            with({-1, 0}, {2, 2}, {1, 1});
        });
    }
}

TEST(check_op, argument_counts) {
    for (op_kind kind : convolution_op_kinds) {
        const ops::op_schema &schema = ops::schema_of(kind);
        for (std::size_t inputs = 0; inputs < 5; ++inputs) {
            for (std::size_t outputs = 0; outputs < 4; ++outputs) {
                op node = plain_op(kind, 1);
                for (std::size_t i = 0; i < inputs; ++i)
                    node.add_input(
                        {i, i == 2 && schema.inputs.size() > 2 && schema.inputs[2].shape_input
                                ? data_type::s32
                                : data_type::f32});
                for (std::size_t i = 0; i < outputs; ++i) node.add_output({9 + i, data_type::f32});
                const bool inputs_fit = inputs >= 2 && inputs <= schema.inputs.size();
                const bool outputs_fit = outputs >= 1 && outputs <= schema.outputs.size();
                if (inputs_fit && outputs_fit)
                    EXPECT_NO_THROW(ops::check_op(node));
                else
                    expect_error(bad,
                        {head(kind), inputs_fit ? "outputs" : "inputs",
                            "it has " + std::to_string(inputs_fit ? outputs : inputs), "it needs",
                            inputs_fit ? schema.outputs[0].name : schema.inputs[0].name},
                        [&] { ops::check_op(node); });
            }
        }
    }
}

op typed(op_kind kind, data_type first, data_type second, data_type output) {
    op node = plain_op(kind, 1);
    return node.add_input({1, first}).add_input({2, second}).add_output({3, output});
}

TEST(check_op, data_types) {
    using enum data_type;
    for (op_kind kind : convolution_op_kinds) {
        const std::string_view first = ops::schema_of(kind).inputs[0].name;
        const std::string_view second = ops::schema_of(kind).inputs[1].name;
        const bool weights =
            kind == convolution_backward_weights || kind == conv_transpose_backward_weights;
        for (data_type t : {f32, bf16, f16}) EXPECT_NO_THROW(ops::check_op(typed(kind, t, t, t)));
        for (data_type t : {undef, s32})
            expect_error(bad, {head(kind), first, to_string(t), "f32, bf16 or f16"},
                [&] { ops::check_op(typed(kind, t, t, t)); });
        expect_error(bad, {head(kind), second, "f16", first, "bf16", "share one type"},
            [&] { ops::check_op(typed(kind, bf16, f16, bf16)); });
        expect_error(bad, {head(kind), "bf16", "f32", "share one type"},
            [&] { ops::check_op(typed(kind, f32, f32, bf16)); });
        if (weights)
            EXPECT_NO_THROW(ops::check_op(typed(kind, bf16, bf16, f32)));
        else
            expect_error(bad, {head(kind), "bf16", "f32"},
                [&] { ops::check_op(typed(kind, bf16, bf16, f32)); });
    }
    for (op_kind kind : {convolution, conv_transpose}) {
        EXPECT_NO_THROW(ops::check_op(typed(kind, f16, f16, f16).add_input({4, f16})));
        expect_error(bad, {head(kind), "bias", "f32", "f16"}, [&] {
            ops::check_op(typed(kind, f16, f16, f16).add_input({4, f32}));
        });
        expect_error(bad, {head(kind), "bias", "undef"}, [&] {
            ops::check_op(typed(kind, f16, f16, f16).add_input({4, undef}));
        });
    }
    for (op_kind kind : {convolution_backward_weights, conv_transpose_backward_weights}) {
        for (data_type t : {f32, bf16})
            EXPECT_NO_THROW(ops::check_op(typed(kind, bf16, bf16, bf16).add_output({4, t})));
        expect_error(bad, {head(kind), "diff_bias", "f16", "bf16", "may be f32"}, [&] {
            ops::check_op(typed(kind, bf16, bf16, bf16).add_output({4, f16}));
        });
        expect_error(bad, {head(kind), "weights_shape", "f32", "must be s32"}, [&] {
            ops::check_op(typed(kind, f32, f32, f32).add_input({4, f32}));
        });
    }
}

TEST(check_op, a_kind_that_does_not_exist) {
    expect_error(bad, {"op kind 99"}, [] { ops::check_op(op(1, static_cast<op_kind>(99))); });
}

TEST(check_op, messages_survive_strange_names) {
    expect_error(
        bad, {"Convolution: invalid op: ", "strides"}, [] { ops::check_op(op(1, convolution)); });
    expect_error(bad, {"Convolution \"a?b\": invalid op: "},
        [] { ops::check_op(op(1, convolution, "a\nb")); });
    expect_error(bad, {"zzz...\""},
        [] { ops::check_op(any_op(convolution).set(std::string(1 << 20, 'z'), 1)); });
    expect_error(bad, {"[0, 0, 0", ", ...]"},
        [] { ops::check_op(any_op(convolution).set("strides", dims(1 << 20, 0))); });
}

TEST(parse, fills_in_defaults_by_rank) {
    for (std::size_t rank : {3u, 4u, 5u}) {
        const ops::parsed_attributes a = ops::parse(conv_transpose, {}, rank, {});
        EXPECT_EQ(a.strides, dims(rank - 2, 1));
        EXPECT_EQ(a.dilations, dims(rank - 2, 1));
        EXPECT_EQ(a.pads_begin, dims(rank - 2, 0));
        EXPECT_EQ(a.pads_end, dims(rank - 2, 0));
        EXPECT_FALSE(a.output_padding);
        EXPECT_EQ(a.weights_format, ops::weights_format::xoi);
    }
    for (std::size_t rank : {0u, 2u, 6u})
        expect_error(error_code::invalid_shape,
            {"Convolution: invalid shape", "src has rank " + std::to_string(rank), "3 to 5"},
            [&] { ops::parse(convolution, {}, rank, {}); });
}

TEST(parse, agrees_with_check_op) {
    op node = op_with(convolution_backward_data, 2, {}, {});
    node.set("strides", dims{2, 3}).set("dilations", dims{1, 2}).set("pads_begin", dims{4, 5});
    node.set("pads_end", dims{6, 7}).set("output_padding", dims{1, 2}).set("groups", 8);
    node.set("auto_pad", "same_lower").set("data_format", "NCX").set("weights_format", "OIX");
    node.set("accumulate", 1);
    const ops::parsed_attributes a = ops::check_op(node);
    const ops::parsed_attributes b = ops::parse(convolution_backward_data,
        {.strides = {2, 3},
            .pads_begin = {4, 5},
            .pads_end = {6, 7},
            .dilations = {1, 2},
            .auto_pad = "same_lower",
            .groups = 8,
            .data_format = "NCX",
            .weights_format = "OIX",
            .output_padding = {1, 2}},
        4, {.accumulate = true});
    EXPECT_EQ(a.strides, b.strides);
    EXPECT_EQ(a.dilations, b.dilations);
    EXPECT_EQ(a.pads_begin, b.pads_begin);
    EXPECT_EQ(a.pads_end, b.pads_end);
    EXPECT_EQ(a.output_padding, b.output_padding);
    EXPECT_EQ(a.groups, b.groups);
    EXPECT_EQ(a.auto_pad, b.auto_pad);
    EXPECT_EQ(a.data_format, b.data_format);
    EXPECT_EQ(a.weights_format, b.weights_format);
    EXPECT_EQ(a.accumulate, b.accumulate);
}

TEST(parse, refuses_what_the_op_does_not_take) {
    expect_error(bad, {"Convolution: invalid op", "output_padding", "accepts"},
        [] { ops::parse(convolution, {.output_padding = {0}}, 3, {}); });
    expect_error(bad, {"strides", "[0]", "positive"},
        [] { ops::parse(convolution, {.strides = {0}}, 3, {}); });
    expect_error(bad, {"groups", "0"}, [] { ops::parse(convolution, {.groups = 0}, 3, {}); });
    expect_error(bad, {"weights_format", "\"IOX\""},
        [] { ops::parse(convolution, {.weights_format = "IOX"}, 3, {}); });
    expect_error(bad, {"output_padding", "[1]", "less than"},
        [] { ops::parse(conv_transpose, {.output_padding = {1}}, 3, {}); });
    expect_error(bad, {"Convolution", "accumulate", "gradients"},
        [] { ops::parse(convolution, {}, 3, {.accumulate = true}); });
    expect_error(bad, {"ConvolutionBackwardData", "diff_bias", "weights gradients"},
        [] { ops::parse(convolution_backward_data, {}, 3, {.diff_bias = true}); });
    expect_error(bad, {"ConvolutionBackwardData", "relu"},
        [] { ops::parse(convolution_backward_data, {}, 3, {.relu = true}); });
    expect_error(bad, {"ConvTransposeBackwardWeights", "add"},
        [] { ops::parse(conv_transpose_backward_weights, {}, 3, {.add = true}); });
}

}  // namespace
}  // namespace convgrad
