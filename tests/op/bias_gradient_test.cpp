// BiasAddBackward, an op of another shape than convolutions: checks, inference, lowering.
#include <gtest/gtest.h>

#include <convgrad/eager.hpp>

#include "op/expect_error.hpp"
#include "op/op_builder.hpp"

namespace convgrad {
namespace {

using test::expect_error;
using test::inferred_shape;
using test::lowered;
using test::tensor_of;
using test::unk;

constexpr op_kind kind = op_kind::bias_add_backward;

op bias_op(const dims &diff_dst, const dims &diff_bias = {}, const char *format = nullptr,
    data_type type = data_type::f32) {
    op node(1, kind, "layer");
    if (format != nullptr) node.set("data_format", format);
    node.add_input(tensor_of(10, diff_dst, type)).add_output(tensor_of(20, diff_bias, type));
    return node;
}

TEST(bias_gradient_op, has_the_schema_of_the_operation_set) {
    EXPECT_EQ(static_cast<int>(kind), 9);
    const ops::op_schema &schema = ops::schema_of(kind);
    ASSERT_EQ(schema.inputs.size(), 1u);
    EXPECT_EQ(schema.inputs[0].name, "diff_dst");
    ASSERT_EQ(schema.outputs.size(), 1u);
    EXPECT_EQ(schema.outputs[0].name, "diff_bias");
    EXPECT_TRUE(schema.outputs[0].required);
    ASSERT_EQ(schema.attributes.size(), 2u);
    EXPECT_EQ(schema.attributes[0].name, "data_format");
    EXPECT_EQ(schema.attributes[1].name, "accumulate");
    EXPECT_TRUE(schema.attributes[1].extension);
    EXPECT_EQ(op_kind_from_name("BiasAddBackward-1"), kind);
    EXPECT_EQ(op_kind_from_name("BiasAddBackprop"), kind);
}

TEST(bias_gradient_op, infers_one_value_per_channel) {
    EXPECT_EQ(inferred_shape(bias_op({2, 5, 7, 3})), (dims{3}));
    EXPECT_EQ(inferred_shape(bias_op({2, 5, 7, 3}, {}, "NCX")), (dims{5}));
    EXPECT_EQ(inferred_shape(bias_op({2, 4}, {unk}, "ncx")), (dims{4}));
    EXPECT_EQ(inferred_shape(bias_op({2, 4, 6, 8, 9}, {9})), (dims{9}));
    EXPECT_EQ(inferred_shape(bias_op({0, 4, 0}, {0}, "NXC")), (dims{0}));
    EXPECT_EQ(inferred_shape(bias_op({2, unk, unk})), (dims{unk}));
    EXPECT_EQ(inferred_shape(bias_op({2, unk, unk}, {6})), (dims{6}));
    EXPECT_EQ(inferred_shape(bias_op({})), (dims{unk}));
    EXPECT_EQ(inferred_shape(bias_op({}, {6})), (dims{6}));
    EXPECT_EQ(infer_shape(kind, {2, 5, 3}, {}), (dims{3}));
    EXPECT_EQ(infer_shape(kind, {2, 5, 3}, {}, {.data_format = "NCX"}), (dims{5}));
}

TEST(bias_gradient_op, refuses_shapes_that_do_not_fit) {
    constexpr auto bad = error_code::invalid_shape;
    expect_error(bad, {"BiasAddBackward \"layer\"", "diff_bias has 4 elements", "3 channels"}, [] {
        inferred_shape(bias_op({2, 5, 3}, {4}));
    });
    expect_error(bad, {"diff_bias has shape [3, 1]", "1-D"}, [] {
        inferred_shape(bias_op({2, 5, 3}, {3, 1}));
    });
    expect_error(
        bad, {"diff_dst has rank 1", "ranks 2 to 5"}, [] { inferred_shape(bias_op({3})); });
    expect_error(bad, {"diff_dst has rank 6"}, [] { inferred_shape(bias_op({1, 2, 3, 4, 5, 6})); });
    expect_error(bad, {"diff_dst", "must not be negative"}, [] {
        inferred_shape(bias_op({2, -3, 3}));
    });
    expect_error(
        bad, {"diff_bias", "must not be negative"}, [] { inferred_shape(bias_op({}, {-3})); });
    expect_error(
        bad, {"diff_dst has rank 1", "ranks 2 to 5"}, [] { return infer_shape(kind, {3}, {}); });
    expect_error(error_code::invalid_argument, {"second is [1]"}, [] {
        return infer_shape(kind, {3, 3}, {1});
    });
    expect_error(error_code::invalid_argument, {"no padding"}, [] {
        return resolve_pads(kind, {1, 3, 1}, {}, {1});
    });
    op strided = bias_op({2, 5, 3});
    strided = op(1, kind).add_input(tensor_of(10, {2, 5, 3}, data_type::f32, {15, 3}));
    strided.add_output(tensor_of(20, {3}));
    expect_error(bad, {"one stride per dimension"}, [&] { inferred_shape(strided); });
    expect_error(bad, {"diff_dst has shape [2, ?, 3]", "compiling needs"}, [] {
        lowered(bias_op({2, unk, 3}));
    });
}

TEST(bias_gradient_op, refuses_what_is_no_part_of_it) {
    constexpr auto bad = error_code::invalid_op;
    op node = bias_op({2, 5, 3});
    node.set("strides", dims{1});
    expect_error(bad,
        {"no attribute \"strides\"", "BiasAddBackward accepts data_format, accumulate"},
        [&] { ops::check_op(node); });
    expect_error(bad, {"data_format is \"NHWC\"", "NXC, NCX"}, [] {
        ops::check_op(bias_op({2, 5, 3}, {}, "NHWC"));
    });
    op two = bias_op({2, 5, 3});
    two.add_input(tensor_of(11, {3}));
    expect_error(bad, {"it has 2 inputs", "diff_dst"}, [&] { ops::check_op(two); });
    expect_error(bad, {"it has 0 outputs"}, [] {
        ops::check_op(op(1, kind).add_input(tensor_of(1, {2, 3})));
    });
    expect_error(bad, {"diff_dst has type s32"}, [] {
        ops::check_op(bias_op({2, 3}, {}, nullptr, data_type::s32));
    });
    op mixed(1, kind);
    mixed.add_input(tensor_of(1, {2, 3}, data_type::f16));
    mixed.add_output(tensor_of(2, {3}, data_type::bf16));
    expect_error(bad, {"diff_bias has type bf16", "may be f32"}, [&] { ops::check_op(mixed); });

    // Eager calls have fields for attributes of all ops.
    const auto parse = [](const attributes &attrs, const ops::op_flags &opts = {}) {
        return ops::parse(kind, attrs, 4, opts);
    };
    expect_error(bad, {"no attribute \"pads_begin\""}, [&] { parse({.pads_begin = {1, 1}}); });
    expect_error(bad, {"no attribute \"groups\""}, [&] { parse({.groups = 2}); });
    expect_error(bad, {"no attribute \"auto_pad\""}, [&] { parse({.auto_pad = "valid"}); });
    expect_error(
        bad, {"no attribute \"weights_format\""}, [&] { parse({.weights_format = "XIO"}); });
    EXPECT_NO_THROW(parse({.strides = {1, 1}, .pads_begin = {0, 0}}));
    expect_error(bad, {"option relu"}, [&] { parse({}, {.relu = true}); });
    expect_error(bad, {"option add"}, [&] { parse({}, {.add = true}); });
    expect_error(bad, {"option diff_bias"}, [&] { parse({}, {.diff_bias = true}); });
    EXPECT_TRUE(parse({}, {.accumulate = true}).accumulate);
}

TEST(bias_gradient_op, lowers_to_a_sum_over_dst) {
    op node = bias_op({2, 5, 7, 3}, {}, "NCX", data_type::bf16);
    node.set("accumulate", 1);
    const conv::problem p = lowered(node);
    EXPECT_EQ(p.what, conv::pass::backward_bias);
    EXPECT_EQ(p.type, data_type::bf16);
    EXPECT_EQ(p.out_type, data_type::bf16);
    EXPECT_EQ(p.diff_bias, conv::bias_gradient::from_dst);
    EXPECT_EQ(p.diff_bias_type, data_type::bf16);
    EXPECT_EQ(p.mb, 2);
    EXPECT_EQ(p.groups, 1);
    EXPECT_EQ(p.ic, 0);
    EXPECT_EQ(p.oc, 5);
    EXPECT_EQ(p.x[0], conv::axis{});
    EXPECT_EQ(p.x[1].dst, 7);
    EXPECT_EQ(p.x[2].dst, 3);
    EXPECT_EQ(p.dst, (conv::data_strides{105, 21, {21, 3, 1}}));
    EXPECT_TRUE(p.accumulate);
    const conv::problem flat = lowered(bias_op({4, 6}));
    EXPECT_EQ(flat.mb, 4);
    EXPECT_EQ(flat.oc, 6);
    EXPECT_EQ(flat.dst.n, 6);
    EXPECT_EQ(flat.dst.c, 1);
}

}  // namespace
}  // namespace convgrad
