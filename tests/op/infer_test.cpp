// Sections 3 and 5 of the specification: output shapes, layouts, groups, unknown dimensions.
#include <gtest/gtest.h>

#include <convgrad/eager.hpp>

#include "op/expect_error.hpp"
#include "op/op_builder.hpp"

namespace convgrad {
namespace {

using test::expect_error;
using test::inferred;
using test::inferred_shape;
using test::op_with;
using test::tensor_of;
using test::unk;

using enum op_kind;

struct length_row {
    dim length, kernel, stride, dilation, begin, end, output_padding, result;
};

TEST(infer, convolution_lengths) {
    // floor((L + pb + pe - E) / S) + 1
    const length_row rows[] = {
        {5, 3, 1, 1, 0, 0, 0, 3},
        {5, 3, 1, 1, 1, 1, 0, 5},
        {5, 3, 2, 1, 1, 1, 0, 3},
        {6, 3, 2, 1, 1, 1, 0, 3},
        {7, 3, 3, 2, 0, 0, 0, 1},
        {7, 3, 3, 2, 0, 1, 0, 2},
        {32, 5, 3, 1, 1, 1, 0, 10},
        {1, 1, 7, 9, 0, 0, 0, 1},
        {1, 1, 1, 1, 3, 4, 0, 8},  // pads beyond the kernel
        {9, 2, 5, 1, 0, 0, 0, 2},  // stride beyond the kernel
        {0, 2, 1, 1, 1, 2, 0, 2},  // nothing but padding
        {3, 3, 1, 1, 0, 0, 0, 1},
    };
    for (const length_row &r : rows) {
        op node = op_with(convolution, 1, {2, r.length, 3}, {r.kernel, 3, 4});
        node.set("strides", dims{r.stride}).set("dilations", dims{r.dilation});
        node.set("pads_begin", dims{r.begin}).set("pads_end", dims{r.end});
        EXPECT_EQ(inferred_shape(node), (dims{2, r.result, 4})) << r.length << " " << r.kernel;
        // ConvTransposeBackwardData: the same, applied to diff_dst.
        op back = op_with(conv_transpose_backward_data, 1, {2, r.length, 3}, {r.kernel, 3, 4});
        back.set("strides", dims{r.stride}).set("dilations", dims{r.dilation});
        back.set("pads_begin", dims{r.begin}).set("pads_end", dims{r.end});
        EXPECT_EQ(inferred_shape(back), (dims{2, r.result, 4})) << r.length << " " << r.kernel;
    }
}

TEST(infer, transposed_lengths) {
    // S*(L - 1) + E + q - pb - pe
    const length_row rows[] = {
        {3, 3, 1, 1, 0, 0, 0, 5},
        {3, 3, 2, 1, 1, 1, 0, 5},
        {3, 3, 2, 1, 1, 1, 1, 6},
        {4, 2, 3, 1, 0, 0, 2, 13},
        {3, 3, 1, 2, 0, 0, 1, 8},   // q of a whole stride, below the dilation
        {3, 3, 2, 5, 0, 0, 4, 19},  // q beyond the stride
        {1, 1, 1, 1, 0, 1, 0, 0},   // everything padded away
        {1, 4, 4, 1, 1, 2, 0, 1},
    };
    for (const length_row &r : rows) {
        op node = op_with(conv_transpose, 1, {2, r.length, 3}, {r.kernel, 4, 3});
        const auto set = [&](op &o) {
            o.set("strides", dims{r.stride}).set("dilations", dims{r.dilation});
            o.set("pads_begin", dims{r.begin}).set("pads_end", dims{r.end});
            o.set("output_padding", dims{r.output_padding});
        };
        set(node);
        EXPECT_EQ(inferred_shape(node), (dims{2, r.result, 4})) << r.length << " " << r.kernel;
        // Without any other source, ConvolutionBackwardData takes the same length.
        op back = op_with(convolution_backward_data, 1, {2, r.length, 3}, {r.kernel, 4, 3});
        set(back);
        EXPECT_EQ(inferred_shape(back), (dims{2, r.result, 4})) << r.length << " " << r.kernel;
        // And the transposed data gradient leads back, less q.
        op there = op_with(conv_transpose_backward_data, 1, {2, r.result, 4}, {r.kernel, 4, 3});
        set(there);
        EXPECT_EQ(inferred_shape(there), (dims{2, r.length, 3})) << r.length << " " << r.kernel;
    }
}

TEST(infer, layouts_and_ranks) {
    const auto formats = [](op node, const char *data, const char *weights) {
        return inferred_shape(node.set("data_format", data).set("weights_format", weights));
    };
    // Two images, 6 -> 8 channels, kernel 3x2 on 10x9.
    EXPECT_EQ(formats(op_with(convolution, 2, {2, 10, 9, 6}, {3, 2, 6, 8}), "NXC", "XIO"),
        (dims{2, 8, 8, 8}));
    EXPECT_EQ(formats(op_with(convolution, 2, {2, 10, 9, 6}, {8, 6, 3, 2}), "NXC", "OIX"),
        (dims{2, 8, 8, 8}));
    EXPECT_EQ(formats(op_with(convolution, 2, {2, 6, 10, 9}, {3, 2, 6, 8}), "NCX", "XIO"),
        (dims{2, 8, 8, 8}));
    EXPECT_EQ(formats(op_with(convolution, 2, {2, 6, 10, 9}, {8, 6, 3, 2}), "ncx", "oix"),
        (dims{2, 8, 8, 8}));
    EXPECT_EQ(formats(op_with(convolution, 3, {2, 4, 10, 9, 6}, {1, 3, 2, 6, 8}), "NXC", "XIO"),
        (dims{2, 4, 8, 8, 8}));
    EXPECT_EQ(
        formats(op_with(convolution, 1, {2, 6, 10}, {8, 6, 3}), "NCX", "OIX"), (dims{2, 8, 8}));
    EXPECT_EQ(formats(op_with(conv_transpose, 2, {2, 5, 4, 6}, {3, 2, 8, 6}), "NXC", "XOI"),
        (dims{2, 7, 5, 8}));
    EXPECT_EQ(formats(op_with(conv_transpose, 2, {2, 6, 5, 4}, {6, 8, 3, 2}), "NCX", "IOX"),
        (dims{2, 8, 7, 5}));
    EXPECT_EQ(formats(op_with(conv_transpose_backward_data, 3, {2, 8, 7, 5, 4}, {6, 8, 3, 2, 1}),
                  "NCX", "IOX"),
        (dims{2, 6, 5, 4, 4}));
    EXPECT_EQ(
        formats(op_with(convolution_backward_data, 2, {2, 8, 5, 4}, {8, 6, 3, 2}), "NCX", "OIX"),
        (dims{2, 6, 7, 5}));
}

TEST(infer, defaults_are_nxc_and_xio_or_xoi) {
    EXPECT_EQ(inferred_shape(op_with(convolution, 1, {2, 10, 6}, {3, 6, 8})), (dims{2, 8, 8}));
    EXPECT_EQ(inferred_shape(op_with(conv_transpose, 1, {2, 10, 6}, {3, 8, 6})), (dims{2, 12, 8}));
}

TEST(infer, groups_of_convolutions) {
    // 6 -> 8 channels in 2 groups: (OC, IC/G) = (8, 3).
    op forward = op_with(convolution, 1, {2, 10, 6}, {3, 3, 8});
    EXPECT_EQ(inferred_shape(forward.set("groups", 2)), (dims{2, 8, 8}));
    op data = op_with(convolution_backward_data, 1, {2, 8, 8}, {3, 3, 8});
    EXPECT_EQ(inferred_shape(data.set("groups", 2)), (dims{2, 10, 6}));
    op weights = op_with(convolution_backward_weights, 1, {2, 10, 6}, {2, 8, 8});
    weights.set("groups", 2).set("weights_shape", dims{3, 3, 8});
    EXPECT_EQ(inferred_shape(weights), (dims{3, 3, 8}));
    // Depthwise with a multiplier.
    op depthwise = op_with(convolution, 1, {2, 10, 6}, {3, 1, 12});
    EXPECT_EQ(inferred_shape(depthwise.set("groups", 6)), (dims{2, 8, 12}));
}

TEST(infer, both_grouped_forms_of_transposed_weights) {
    struct form_row {
        const char *format;
        dims weights;
    };
    // IC = 6, OC = 8, G = 2, K = 3.
    const form_row rows[] = {
        {"IOX", {6, 4, 3}}, {"IOX", {3, 8, 3}}, {"XOI", {3, 4, 6}}, {"XOI", {3, 8, 3}}};
    for (const form_row &r : rows) {
        SCOPED_TRACE(r.format);
        const auto set = [&](op node) {
            return node.set("groups", 2).set("weights_format", r.format);
        };
        EXPECT_EQ(
            inferred_shape(set(op_with(conv_transpose, 1, {2, 5, 6}, r.weights))), (dims{2, 7, 8}));
        EXPECT_EQ(
            inferred_shape(set(op_with(conv_transpose_backward_data, 1, {2, 7, 8}, r.weights))),
            (dims{2, 5, 6}));
        op gradient = op_with(conv_transpose_backward_weights, 1, {2, 5, 6}, {2, 7, 8});
        EXPECT_EQ(inferred_shape(set(gradient).set("weights_shape", r.weights)), r.weights);
        // Only one data tensor's channels are needed to tell the forms apart.
        EXPECT_EQ(
            inferred_shape(set(op_with(conv_transpose, 1, {2, 5, 6}, r.weights, {unk, unk, 8}))),
            (dims{2, 7, 8}));
        expect_error(error_code::invalid_shape, {"ConvTranspose \"layer\"", "dst", "7"}, [&] {
            inferred(set(op_with(conv_transpose, 1, {2, 5, 6}, r.weights, {2, 7, 7})));
        });
    }
}

TEST(infer, unknown_dimensions_of_forward_ops) {
    struct unknown_row {
        op_kind kind;
        dims first, second, result;
    };
    const unknown_row rows[] = {
        {convolution, {}, {}, {unk, unk, unk}},
        {convolution, {2, unk, 6}, {3, 6, 8}, {2, unk, 8}},
        {convolution, {unk, 10, unk}, {3, 6, 8}, {unk, 8, 8}},
        {convolution, {2, 10, 6}, {}, {2, unk, unk}},
        {convolution, {}, {3, 6, 8}, {unk, unk, 8}},
        {convolution, {2, 10, 6}, {unk, 6, 8}, {2, unk, 8}},
        {convolution, {2, 10, 6}, {3, unk, unk}, {2, 8, unk}},
        {conv_transpose, {2, unk, 6}, {3, 8, 6}, {2, unk, 8}},
        {conv_transpose, {2, 10, unk}, {3, 8, unk}, {2, 12, 8}},
        {conv_transpose, {}, {3, 8, 6}, {unk, unk, 8}},
        {conv_transpose_backward_data, {unk, 12, unk}, {3, 8, 6}, {unk, 10, 6}},
        {convolution_backward_data, {2, unk, 8}, {3, 6, 8}, {2, unk, 6}},
        {convolution_backward_data, {2, 10, 8}, {}, {2, unk, unk}},
        {convolution_backward_weights, {2, 10, 6}, {2, 8, 8}, {unk, 6, 8}},
        {convolution_backward_weights, {}, {2, 8, 8}, {unk, unk, 8}},
        {convolution_backward_weights, {}, {}, {unk, unk, unk}},
        {conv_transpose_backward_weights, {2, 8, 8}, {2, 10, 6}, {unk, 6, 8}},
    };
    for (const unknown_row &r : rows)
        EXPECT_EQ(inferred_shape(op_with(r.kind, 1, r.first, r.second)), r.result)
            << to_string(r.kind) << &r - rows;
}

TEST(infer, open_form_of_grouped_transposed_weights_stays_unknown) {
    op node = op_with(conv_transpose, 1, {2, 5, unk}, {3, 4, 6});
    EXPECT_EQ(inferred_shape(node.set("groups", 2)), (dims{2, 7, unk}));
    op back = op_with(conv_transpose_backward_weights, 1, {2, 5, 6}, {2, 7, 8});
    EXPECT_EQ(inferred_shape(back.set("groups", 2)), (dims{unk, unk, unk}));
}

TEST(infer, the_bias_tells_channels_too) {
    op node = op_with(convolution, 1, {2, 10, 6}, {3, 6, unk});
    node.add_input(tensor_of(12, {8}));
    EXPECT_EQ(inferred_shape(node), (dims{2, 8, 8}));
}

TEST(infer, bias_gradient_has_the_output_channels) {
    op node = op_with(convolution_backward_weights, 1, {2, 10, 6}, {2, 8, 8}, {3, 6, 8});
    node.add_output(tensor_of(21, {}));
    EXPECT_EQ(inferred(node)[1].shape, dims{8});
    op transposed = op_with(conv_transpose_backward_weights, 1, {2, 8, 6}, {2, 10, 8}, {3, 8, 6});
    transposed.add_output(tensor_of(21, {unk}));
    EXPECT_EQ(inferred(transposed)[1].shape, dims{8});
    op wrong = op_with(convolution_backward_weights, 1, {2, 10, 6}, {2, 8, 8}, {3, 6, 8});
    wrong.add_output(tensor_of(21, {6}));
    expect_error(error_code::invalid_shape, {"ConvolutionBackwardWeights", "diff_bias", "6", "8"},
        [&] { inferred(wrong); });
}

TEST(infer, known_outputs_must_agree) {
    EXPECT_EQ(inferred_shape(op_with(convolution, 1, {2, 10, 6}, {3, 6, 8}, {2, unk, 8})),
        (dims{2, 8, 8}));
    expect_error(error_code::invalid_shape,
        {"Convolution \"layer\"", "dst", "length 9", "= 8", "must be equal"}, [] {
            inferred(op_with(convolution, 1, {2, 10, 6}, {3, 6, 8}, {2, 9, 8}));
        });
    expect_error(
        error_code::invalid_shape, {"ConvTranspose \"layer\"", "dst", "length 11", "= 12"}, [] {
            inferred(op_with(conv_transpose, 1, {2, 10, 6}, {3, 8, 6}, {2, 11, 8}));
        });
    expect_error(error_code::invalid_shape, {"batch 2", "batch 3", "must be equal"}, [] {
        inferred(op_with(convolution, 1, {2, 10, 6}, {3, 6, 8}, {3, 8, 8}));
    });
    expect_error(error_code::invalid_shape, {"dst has 7 channels", "8 output channels"}, [] {
        inferred(op_with(convolution, 1, {2, 10, 6}, {3, 6, 8}, {2, 8, 7}));
    });
    expect_error(error_code::invalid_shape, {"dst", "rank 4", "rank 3"}, [] {
        inferred(op_with(convolution, 1, {2, 10, 6}, {3, 6, 8}, {2, 8, 8, 8}));
    });
}

TEST(infer, empty_batches_and_channels_are_legal) {
    EXPECT_EQ(inferred_shape(op_with(convolution, 1, {0, 10, 6}, {3, 6, 8})), (dims{0, 8, 8}));
    EXPECT_EQ(inferred_shape(op_with(convolution, 1, {2, 10, 0}, {3, 0, 8})), (dims{2, 8, 8}));
    EXPECT_EQ(inferred_shape(op_with(convolution, 1, {2, 10, 6}, {3, 6, 0})), (dims{2, 8, 0}));
    EXPECT_EQ(inferred_shape(op_with(convolution_backward_data, 1, {0, 8, 8}, {3, 6, 8})),
        (dims{0, 10, 6}));
    EXPECT_EQ(
        inferred_shape(op_with(convolution_backward_weights, 1, {0, 10, 6}, {0, 8, 8}, {3, 6, 8})),
        (dims{3, 6, 8}));
    // Groups divide zero channels; an I dimension of 0 is the first form.
    op grouped = op_with(conv_transpose, 1, {2, 5, 0}, {3, 4, 0});
    EXPECT_EQ(inferred_shape(grouped.set("groups", 2)), (dims{2, 7, 8}));
    op second = op_with(conv_transpose, 1, {2, 5, 0}, {3, 4, 0}, {2, 7, 4});
    EXPECT_EQ(inferred_shape(second.set("groups", 2)), (dims{2, 7, 4}));
    // Where groups divide the channels of one form only, that form is meant.
    EXPECT_EQ(infer_shape(conv_transpose_backward_data, {2, 7, 0}, {3, 0, 9}, {.groups = 2}),
        (dims{2, 5, 18}));
    EXPECT_EQ(infer_shape(conv_transpose_backward_data, {2, 7, 0}, {3, 0, 8}, {.groups = 2}),
        (dims{2, 5, 8}));
    EXPECT_EQ(infer_shape(conv_transpose, {2, 5, 0}, {3, 3, 0}, {.groups = 2}), (dims{2, 7, 6}));
}

// The length of diff_src does not follow where the formula is negative, but may still be given.
TEST(infer, a_negative_length_of_diff_src_is_left_open) {
    op node = op_with(convolution_backward_data, 1, {3, 1, 4}, {2, 5, 4});
    node.set("strides", dims{5}).set("pads_begin", dims{2}).set("pads_end", dims{2});
    EXPECT_EQ(inferred_shape(node), (dims{3, unk, 5}));
    expect_error(error_code::invalid_shape,
        {"diff_src", "compiling needs its shape", "spatial axis 0", "stride 5 * (length 1 - 1)",
            "negative", "diff_dst"},
        [&] { test::lowered(node); });
    expect_error(
        error_code::invalid_shape, {"diff_src must be given", "spatial axis 0", "negative"}, [] {
            return infer_shape(convolution_backward_data, {3, 1, 4}, {2, 5, 4},
                {.strides = {5}, .pads_begin = {2}, .pads_end = {2}});
        });
    op given = op_with(convolution_backward_data, 1, {3, 1, 4}, {2, 5, 4}, {3, 1, 5});
    given.set("strides", dims{5}).set("pads_begin", dims{2}).set("pads_end", dims{2});
    EXPECT_EQ(test::lowered(given).x[2].src, 1);
}

// 0 = 0 does not tell which of the two grouped forms the weights have.
TEST(infer, no_channels_leave_the_form_of_weights_open) {
    const auto grouped = [](op node) { return node.set("groups", 2); };
    // dst may still come: 8 channels in the first form, 4 in the second.
    EXPECT_EQ(inferred_shape(grouped(op_with(conv_transpose, 1, {2, unk, 0}, {3, 4, 0}))),
        (dims{2, unk, unk}));
    EXPECT_EQ(
        inferred_shape(grouped(op_with(conv_transpose, 1, {2, unk, 0}, {3, 4, 0}, {unk, unk, 4}))),
        (dims{2, unk, 4}));
    EXPECT_EQ(
        inferred_shape(grouped(op_with(conv_transpose, 1, {2, unk, 0}, {3, 4, 0}, {unk, unk, 8}))),
        (dims{2, unk, 8}));
    EXPECT_EQ(inferred_shape(grouped(op_with(conv_transpose, 1, {2, 5, 0}, {unk, 4, 0}))),
        (dims{2, unk, unk}));
    // Gradients: the larger tensor has no channels.
    EXPECT_EQ(inferred_shape(grouped(
                  op_with(conv_transpose_backward_data, 1, {2, unk, 0}, {3, 0, 4}, {2, unk, 8}))),
        (dims{2, unk, 8}));
    EXPECT_EQ(inferred_shape(grouped(
                  op_with(conv_transpose_backward_data, 1, {2, unk, 0}, {3, 0, 4}, {2, unk, 4}))),
        (dims{2, unk, 4}));
    EXPECT_EQ(inferred_shape(grouped(op_with(
                  conv_transpose_backward_weights, 1, {2, unk, 0}, {2, unk, 4}, {3, 4, 0}))),
        (dims{3, 4, 0}));
    // A bias tells as well.
    op biased = op_with(conv_transpose, 1, {2, 5, 0}, {3, 4, 0});
    biased.add_input(tensor_of(12, {4}));
    EXPECT_EQ(inferred_shape(grouped(biased)), (dims{2, 7, 4}));
}

TEST(infer_shape, answers_eager_callers) {
    EXPECT_EQ(infer_shape(convolution, {8, 56, 56, 64}, {3, 3, 64, 128}), (dims{8, 54, 54, 128}));
    EXPECT_EQ(infer_shape(convolution, {8, 64, 56, 56}, {128, 64, 3, 3},
                  {.strides = {2, 2},
                      .auto_pad = "same_upper",
                      .data_format = "NCX",
                      .weights_format = "OIX"}),
        (dims{8, 128, 28, 28}));
    EXPECT_EQ(
        infer_shape(conv_transpose, {1, 4, 3}, {2, 5, 3}, {.strides = {2}, .output_padding = {1}}),
        (dims{1, 9, 5}));
    EXPECT_EQ(infer_shape(convolution_backward_data, {1, 4, 5}, {2, 3, 5}), (dims{1, 5, 3}));
    EXPECT_EQ(infer_shape(conv_transpose_backward_data, {1, 5, 5}, {2, 5, 3}), (dims{1, 4, 3}));
    expect_error(
        error_code::invalid_shape, {"ConvolutionBackwardWeights", "diff_weights", "kernel"}, [] {
            return infer_shape(convolution_backward_weights, {1, 5, 3}, {1, 4, 5});
        });
    expect_error(error_code::invalid_shape, {"Convolution", "src has rank 2"}, [] {
        return infer_shape(convolution, {1, 5}, {1, 4, 5});
    });
}

}  // namespace
}  // namespace convgrad
