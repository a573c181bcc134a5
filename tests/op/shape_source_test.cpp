// Section 5: which source tells the shape of diff_src and diff_weights, and what contradicts what.
#include <gtest/gtest.h>

#include "op/expect_error.hpp"
#include "op/op_builder.hpp"

namespace convgrad {
namespace {

using test::expect_error;
using test::inferred_shape;
using test::op_with;
using test::tensor_of;
using test::unk;

using enum op_kind;

logical_tensor constant(dims value) {
    return logical_tensor::constant(12, std::move(value));
}
logical_tensor at_execution(dim length = 3) {
    return {12, data_type::s32, {length}};
}

// diff_dst (2, 4, 8), kernel 3, stride 2: diff_src may be 9 or 10 long; 9 by the formula.
op backward_data(const dims &output = {}) {
    return op_with(convolution_backward_data, 1, {2, 4, 8}, {3, 6, 8}, output)
        .set("strides", dims{2});
}

TEST(dst_shape, input_over_attribute_over_output_over_formula) {
    const dims nine{2, 9, 6}, ten{2, 10, 6};
    EXPECT_EQ(inferred_shape(backward_data()), nine);
    EXPECT_EQ(inferred_shape(backward_data(ten)), ten);
    EXPECT_EQ(inferred_shape(backward_data().set("dst_shape", ten)), ten);
    EXPECT_EQ(inferred_shape(backward_data().set("dst_shape", nine).add_input(constant(ten))), ten);
    EXPECT_EQ(inferred_shape(backward_data().add_input(constant(ten))), ten);
    EXPECT_EQ(inferred_shape(backward_data({2, unk, unk}).set("dst_shape", ten)), ten);
    EXPECT_EQ(inferred_shape(backward_data({unk, 10, unk})), ten);
    EXPECT_EQ(inferred_shape(backward_data({unk, unk, 6})), nine);
    EXPECT_EQ(inferred_shape(backward_data(ten).add_input(constant(ten))), ten);
    EXPECT_EQ(test::lowered(backward_data(ten)).x[2].src, 10);
}

TEST(dst_shape, contradictions_print_both) {
    const dims nine{2, 9, 6}, ten{2, 10, 6};
    expect_error(error_code::invalid_shape,
        {"ConvolutionBackwardData \"layer\"", "attribute dst_shape", "[2, 9, 6]", "diff_src",
            "[2, 10, 6]", "must agree"},
        [&] { inferred_shape(backward_data(ten).set("dst_shape", nine)); });
    expect_error(error_code::invalid_shape, {"input dst_shape", "[2, 9, 6]", "[2, ?, 7]"}, [&] {
        inferred_shape(backward_data({2, unk, 7}).add_input(constant(nine)));
    });
    // The attribute is overridden, so it cannot contradict the output.
    EXPECT_EQ(
        inferred_shape(backward_data(ten).set("dst_shape", nine).add_input(constant(ten))), ten);
}

TEST(dst_shape, must_be_consistent_with_diff_dst) {
    for (dim length : {8, 11})
        expect_error(error_code::invalid_shape,
            {"diff_src (by attribute dst_shape)", "length " + std::to_string(length), "stride 2",
                "diff_dst has length 4"},
            [&] {
                inferred_shape(backward_data().set("dst_shape", dims{2, length, 6}));
            });
    expect_error(error_code::invalid_shape, {"diff_src", "batch 3", "diff_dst", "batch 2"}, [] {
        inferred_shape(backward_data().set("dst_shape", dims{3, 9, 6}));
    });
    expect_error(error_code::invalid_shape, {"diff_src", "7 channels", "6 input channels"}, [] {
        inferred_shape(backward_data().set("dst_shape", dims{2, 9, 7}));
    });
    expect_error(error_code::invalid_shape, {"dst_shape", "[2, 9]", "2 entries", "3"}, [] {
        inferred_shape(backward_data().set("dst_shape", dims{2, 9}));
    });
    expect_error(error_code::invalid_shape, {"dst_shape", "[]", "0 entries"},
        [] { inferred_shape(backward_data().set("dst_shape", dims{})); });
    expect_error(error_code::invalid_shape, {"diff_src (by input dst_shape)", "[2, -9, 6]"}, [] {
        inferred_shape(backward_data().add_input(constant({2, -9, 6})));
    });
    expect_error(error_code::invalid_shape, {"diff_src", "too short", "length 2", "kernel 3"}, [] {
        inferred_shape(backward_data({2, 2, 6}));
    });
}

TEST(dst_shape, output_padding_does_not_forbid_a_fitting_shape) {
    op node = backward_data().set("output_padding", dims{1});
    EXPECT_EQ(inferred_shape(node), (dims{2, 10, 6}));
    EXPECT_EQ(
        inferred_shape(backward_data({2, 9, 6}).set("output_padding", dims{1})), (dims{2, 9, 6}));
    expect_error(error_code::invalid_shape, {"length 11"}, [] {
        inferred_shape(backward_data({2, 11, 6}).set("output_padding", dims{1}));
    });
}

TEST(dst_shape, value_at_execution_leaves_only_the_outputs_own_shape) {
    const dims ten{2, 10, 6};
    // Neither the attribute nor the formula may stand in for an input that will override them.
    EXPECT_EQ(inferred_shape(backward_data().add_input(at_execution())), (dims{2, unk, 6}));
    EXPECT_EQ(inferred_shape(backward_data().set("dst_shape", ten).add_input(at_execution())),
        (dims{2, unk, 6}));
    op node = backward_data(ten).set("dst_shape", dims{2, 9, 6}).add_input(at_execution());
    EXPECT_EQ(inferred_shape(node), ten);
    EXPECT_EQ(test::lowered(node).x[2].src, 10);
    expect_error(error_code::invalid_shape,
        {"ConvolutionBackwardData", "diff_src", "[2, ?, 6]", "known only at execution"},
        [] { test::lowered(backward_data().add_input(at_execution())); });
}

TEST(dst_shape, the_input_tensor_itself_must_fit) {
    expect_error(error_code::invalid_shape, {"input dst_shape", "[4]", "1-D with 3 elements"},
        [] { inferred_shape(backward_data().add_input(at_execution(4))); });
    expect_error(error_code::invalid_shape, {"input dst_shape", "[1, 3]", "1-D"}, [] {
        inferred_shape(backward_data().add_input({12, data_type::s32, {1, 3}}));
    });
    EXPECT_EQ(inferred_shape(backward_data().add_input(logical_tensor(12, data_type::s32))),
        (dims{2, unk, 6}));
    EXPECT_EQ(inferred_shape(backward_data().add_input(at_execution(unk))), (dims{2, unk, 6}));
    expect_error(error_code::invalid_op, {"dst_shape", "f32", "s32"}, [] {
        inferred_shape(backward_data().add_input({12, data_type::f32, {3}}));
    });
}

// src (2, 10, 6), diff_dst (2, 4, 8), stride 2: kernels 3 and 4 fit.
op backward_weights(const dims &output = {}) {
    return op_with(convolution_backward_weights, 1, {2, 10, 6}, {2, 4, 8}, output)
        .set("strides", dims{2});
}
// The same geometry transposed: src (2, 4, 8), diff_dst (2, 10, 6).
op transposed_weights(const dims &output = {}) {
    return op_with(conv_transpose_backward_weights, 1, {2, 4, 8}, {2, 10, 6}, output)
        .set("strides", dims{2});
}

TEST(weights_shape, input_over_attribute_over_output) {
    const dims three{3, 6, 8}, four{4, 6, 8};
    for (const auto &make : {backward_weights, transposed_weights}) {
        EXPECT_EQ(inferred_shape(make(three)), three);
        EXPECT_EQ(inferred_shape(make(four)), four);
        EXPECT_EQ(inferred_shape(make({}).set("weights_shape", three)), three);
        EXPECT_EQ(
            inferred_shape(make({}).set("weights_shape", three).add_input(constant(four))), four);
        EXPECT_EQ(inferred_shape(make({}).add_input(constant(three))), three);
        EXPECT_EQ(
            inferred_shape(make(four).set("weights_shape", three).add_input(constant(four))), four);
        EXPECT_EQ(inferred_shape(make({unk, 6, unk}).set("weights_shape", four)), four);
        EXPECT_EQ(inferred_shape(make({4, unk, unk})), four);
    }
}

TEST(weights_shape, without_any_source_it_cannot_be_compiled) {
    EXPECT_EQ(inferred_shape(backward_weights()), (dims{unk, 6, 8}));
    expect_error(error_code::invalid_shape,
        {"ConvolutionBackwardWeights \"layer\"", "diff_weights", "[?, 6, 8]",
            "the input weights_shape, the attribute weights_shape"},
        [] { test::lowered(backward_weights()); });
    expect_error(error_code::invalid_shape, {"ConvTransposeBackwardWeights", "diff_weights"},
        [] { test::lowered(transposed_weights()); });
    expect_error(error_code::invalid_shape, {"diff_weights", "known only at execution"},
        [] { test::lowered(backward_weights().add_input(at_execution())); });
    EXPECT_EQ(inferred_shape(
                  backward_weights().set("weights_shape", dims{3, 6, 8}).add_input(at_execution())),
        (dims{unk, 6, 8}));
    EXPECT_EQ(test::lowered(backward_weights({4, 6, 8}).add_input(at_execution())).x[2].kernel, 4);
}

TEST(weights_shape, contradictions_print_both) {
    expect_error(error_code::invalid_shape,
        {"ConvolutionBackwardWeights \"layer\"", "attribute weights_shape", "[3, 6, 8]",
            "diff_weights", "[4, 6, 8]", "must agree"},
        [] {
            inferred_shape(backward_weights({4, 6, 8}).set("weights_shape", dims{3, 6, 8}));
        });
    expect_error(error_code::invalid_shape, {"input weights_shape", "[3, 6, 8]", "[4, 6, 8]"}, [] {
        inferred_shape(backward_weights({4, 6, 8}).add_input(constant({3, 6, 8})));
    });
}

TEST(weights_shape, must_be_consistent) {
    for (const auto &make : {backward_weights, transposed_weights}) {
        for (dim kernel : {2, 5})
            expect_error(error_code::invalid_shape,
                {"attribute weights_shape", "length " + std::to_string(kernel), "stride 2",
                    "has length 4", "must be equal"},
                [&] {
                    inferred_shape(make({}).set("weights_shape", dims{kernel, 6, 8}));
                });
        expect_error(
            error_code::invalid_shape, {"too short for the kernel", "length 10", "kernel 11"}, [&] {
                inferred_shape(make({}).set("weights_shape", dims{11, 6, 8}));
            });
        expect_error(error_code::invalid_shape, {"6 channels", "diff_weights", "5"}, [&] {
            inferred_shape(make({3, 5, 8}));
        });
        expect_error(error_code::invalid_shape, {"8 channels", "diff_weights", "9"}, [&] {
            inferred_shape(make({3, 6, 9}));
        });
        expect_error(error_code::invalid_shape, {"weights_shape", "[3, 6]", "2 entries"}, [&] {
            inferred_shape(make({}).set("weights_shape", dims{3, 6}));
        });
        expect_error(error_code::invalid_shape, {"weights_shape", "[]"},
            [&] { inferred_shape(make({}).set("weights_shape", dims{})); });
        expect_error(
            error_code::invalid_shape, {"(by input weights_shape", "length 0", "tap"}, [&] {
                inferred_shape(make({}).add_input(constant({0, 6, 8})));
            });
    }
    expect_error(error_code::invalid_shape, {"src", "batch 2", "diff_dst", "batch 3"}, [] {
        inferred_shape(op_with(convolution_backward_weights, 1, {2, 10, 6}, {3, 8, 8}, {3, 6, 8}));
    });
}

}  // namespace
}  // namespace convgrad
