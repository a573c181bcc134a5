// Sections 7 and 8, invalid_shape: what does not fit together, and the message for it.
#include <limits>

#include <gtest/gtest.h>

#include "op/expect_error.hpp"
#include "op/op_builder.hpp"

namespace convgrad {
namespace {

using test::expect_error;
using test::inferred;
using test::lowered;
using test::op_with;
using test::plain_op;
using test::tensor_of;
using test::unk;

using enum op_kind;

constexpr error_code bad = error_code::invalid_shape;
constexpr dim huge = std::numeric_limits<dim>::max();

TEST(shape_error, ranks) {
    for (op_kind kind : convolution_op_kinds) {
        const std::string_view first = ops::schema_of(kind).inputs[0].name;
        const std::string_view second = ops::schema_of(kind).inputs[1].name;
        expect_error(
            bad, {to_string(kind), "\"layer\": invalid shape: ", first, "rank 2", "3 to 5"}, [&] {
                inferred(op_with(kind, 1, {2, 3}, {}));
            });
        expect_error(bad, {to_string(kind), first, "rank 6", "3 to 5"}, [&] {
            inferred(op_with(kind, 4, {1, 1, 1, 1, 1, 1}, {}));
        });
        expect_error(
            bad, {to_string(kind), second, "rank 4", first, "rank 3", "must be equal"}, [&] {
                inferred(op_with(kind, 1, {2, 5, 3}, {3, 3, 3, 3}));
            });
        expect_error(bad, {to_string(kind), "strides", "[]", "0 entries", "1 to 3"},
            [&] { inferred(op_with(kind, 0, {}, {})); });
        logical_tensor scalar = tensor_of(1, {});
        scalar.shape = dims{};
        op node = plain_op(kind, 1).add_input(scalar).add_input(tensor_of(2, {}));
        expect_error(bad, {to_string(kind), first, "rank 0"},
            [&] { inferred(node.add_output(tensor_of(3, {}))); });
    }
}

TEST(shape_error, list_lengths) {
    for (op_kind kind : convolution_op_kinds)
        for (const char *name : {"strides", "dilations", "pads_begin", "pads_end"})
            for (std::size_t length : {0u, 1u, 3u, 7u})
                expect_error(bad,
                    {to_string(kind), name, std::to_string(length) + " entries", "2 spatial axes"},
                    [&] {
                        inferred(op_with(kind, 2, {1, 8, 8, 4}, {}).set(name, dims(length, 1)));
                    });
    for (std::size_t length : {0u, 1u, 3u})
        expect_error(
            bad, {"ConvTranspose", "output_padding", std::to_string(length) + " entries"}, [&] {
                inferred(op_with(conv_transpose, 2, {1, 8, 8, 4}, {})
                             .set("output_padding", dims(length, 0)));
            });
}

TEST(shape_error, negative_dimensions) {
    expect_error(bad, {"src", "[2, -3, 3]", "negative"}, [] {
        inferred(op_with(convolution, 1, {2, -3, 3}, {3, 3, 4}));
    });
    expect_error(bad, {"weights", "[-1, 3, 4]", "negative"}, [] {
        inferred(op_with(convolution, 1, {2, 5, 3}, {-1, 3, 4}));
    });
    expect_error(bad, {"dst", "[2, -1, 4]", "negative"}, [] {
        inferred(op_with(convolution, 1, {2, 5, 3}, {3, 3, 4}, {2, -1, 4}));
    });
}

TEST(shape_error, channels) {
    expect_error(bad,
        {"ConvolutionBackwardData \"layer\": invalid shape: diff_dst has 64 channels but weights "
         "(OIX) has 32 output channels; they must be equal"},
        [] {
            inferred(op_with(convolution_backward_data, 1, {2, 5, 64}, {32, 16, 3})
                         .set("weights_format", "OIX"));
        });
    expect_error(
        bad, {"Convolution", "src has 6 channels", "weights (XIO) has 5 input channels"}, [] {
            inferred(op_with(convolution, 1, {2, 5, 6}, {3, 5, 8}));
        });
    expect_error(bad, {"src has 6 channels", "2 input channels per group", "6 / 2 = 3"}, [] {
        inferred(op_with(convolution, 1, {2, 5, 6}, {3, 2, 8}).set("groups", 2));
    });
    expect_error(
        bad, {"ConvTranspose", "src has 6 channels", "weights (XOI) has 5 input channels"}, [] {
            inferred(op_with(conv_transpose, 1, {2, 5, 6}, {3, 8, 5}));
        });
    expect_error(bad,
        {"ConvTranspose", "src has 6 channels", "groups is 2", "I 5", "O 4", "(IC, OC/groups)",
            "(IC/groups, OC)"},
        [] {
            inferred(op_with(conv_transpose, 1, {2, 5, 6}, {3, 4, 5}).set("groups", 2));
        });
    expect_error(bad, {"ConvTransposeBackwardWeights", "weights (by attribute weights_shape"}, [] {
        inferred(op_with(conv_transpose_backward_weights, 1, {2, 5, 6}, {2, 7, 8})
                     .set("groups", 2)
                     .set("weights_shape", dims{3, 5, 6}));
    });
}

TEST(shape_error, groups_must_divide) {
    expect_error(bad,
        {"Convolution \"layer\": invalid shape: src has 6 channels, which groups = 4 does not "
         "divide; groups must divide the input and the output channels"},
        [] {
            inferred(op_with(convolution, 1, {2, 5, 6}, {3, 2, 8}).set("groups", 4));
        });
    expect_error(bad, {"src has 1 channel, which groups = 2 does not divide"}, [] {
        inferred(op_with(convolution, 1, {2, 5, 1}, {3, 1, 8}).set("groups", 2));
    });
    expect_error(bad, {"Convolution", "src has 6 channels", "groups", "4", "divide"}, [] {
        inferred(op_with(convolution, 1, {2, 5, 6}, {3, 1, 8}).set("groups", 4));
    });
    expect_error(bad, {"Convolution", "weights (XIO) has 8 channels", "groups", "3", "divide"}, [] {
        inferred(op_with(convolution, 1, {2, 5, 6}, {3, 2, 8}).set("groups", 3));
    });
    expect_error(bad, {"ConvTranspose", "groups", "4", "divide"}, [] {
        inferred(op_with(conv_transpose, 1, {2, 5, 6}, {3, 1, 6}).set("groups", 4));
    });
    expect_error(bad, {"ConvTransposeBackwardData", "divide"}, [] {
        inferred(op_with(conv_transpose_backward_data, 1, {2, 5, 6}, {3, 2, 8}).set("groups", 3));
    });
}

TEST(shape_error, bias) {
    for (op_kind kind : {convolution, conv_transpose}) {
        const auto with = [&](const dims &bias) {
            return op_with(kind, 1, {2, 5, 6}, {3, 6, 6}).add_input(tensor_of(12, bias));
        };
        EXPECT_NO_THROW(inferred(with({6})));
        expect_error(bad, {to_string(kind), "bias has 5 elements", "6 output channels"},
            [&] { inferred(with({5})); });
        expect_error(bad, {to_string(kind), "bias", "[1, 6]", "1-D"}, [&] {
            inferred(with({1, 6}));
        });
        expect_error(bad, {to_string(kind), "bias", "[-6]"}, [&] { inferred(with({-6})); });
    }
}

TEST(shape_error, kernel_larger_than_the_padded_input_prints_every_term) {
    for (op_kind kind : {convolution, conv_transpose_backward_data}) {
        op node = op_with(kind, 1, {2, 3, 6}, {3, 6, 6});
        node.set("dilations", dims{3}).set("pads_begin", dims{1}).set("pads_end", dims{2});
        node.set("strides", dims{4});  // too large by less than a stride counts as well
        expect_error(bad,
            {to_string(kind), ops::schema_of(kind).inputs[0].name, "spatial axis 0", "length 3",
                "pads_begin 1", "pads_end 2", "= 6", "dilation 3", "kernel 3", "= 7"},
            [&] { inferred(node); });
        node.set("pads_end", dims{3});
        EXPECT_EQ(inferred(node)[0].shape, (dims{2, 1, 6}));
    }
    op less = op_with(conv_transpose_backward_data, 1, {2, 3, 6}, {3, 6, 6});
    less.set("strides", dims{2}).set("output_padding", dims{1});
    expect_error(
        bad, {"length 3", "output_padding 1", "= 2", "extent", "= 3"}, [&] { inferred(less); });
    // Empty lengths, with auto_pad as well.
    for (const char *pad : {"none", "valid", "same_upper", "same_lower"})
        for (op_kind kind : {convolution, conv_transpose_backward_data})
            expect_error(bad, {to_string(kind), "length 0", "too short"}, [&] {
                inferred(op_with(kind, 1, {2, 0, 6}, {3, 6, 6}).set("auto_pad", pad));
            });
}

TEST(shape_error, output_padding_beyond_the_length_is_too_short) {
    for (const char *pad : {"same_upper", "same_lower"}) {
        op node = op_with(conv_transpose_backward_data, 1, {2, 1, 6}, {3, 6, 6});
        node.set("strides", dims{5}).set("output_padding", dims{4}).set("auto_pad", pad);
        expect_error(bad, {"diff_dst", "too short", "output_padding 4"}, [&] { inferred(node); });
    }
}

TEST(shape_error, transposed_results_must_not_be_negative) {
    op node = op_with(conv_transpose, 1, {2, 1, 6}, {1, 6, 6});
    node.set("pads_begin", dims{1}).set("pads_end", dims{1});
    expect_error(bad,
        {"ConvTranspose", "dst", "length -1", "stride 1", "length 1", "kernel 1",
            "output_padding 0", "pads_begin 1", "pads_end 1", "negative"},
        [&] { inferred(node); });
    for (op_kind kind : {conv_transpose, convolution_backward_data})
        expect_error(bad, {to_string(kind), "length 0", "at least 1"}, [&] {
            inferred(op_with(kind, 1, {2, 0, 6}, {3, 6, 6}));
        });
}

TEST(shape_error, kernels_without_taps) {
    for (op_kind kind :
        {convolution, convolution_backward_data, conv_transpose, conv_transpose_backward_data})
        expect_error(bad, {to_string(kind), "weights", "length 0 on spatial axis 0", "tap"}, [&] {
            inferred(op_with(kind, 1, {2, 5, 6}, {0, 6, 6}));
        });
}

TEST(shape_error, products_that_overflow) {
    // S*(L-1), D*(K-1), the sum of pads, G*(channels per group), elements, bytes, strided extents.
    expect_error(bad, {"ConvTranspose", "overflows 64 bits"}, [] {
        inferred(op_with(conv_transpose, 1, {1, huge, 1}, {1, 1, 1}).set("strides", dims{huge}));
    });
    expect_error(bad, {"Convolution", "kernel 9", "more than 2^63"}, [] {
        inferred(op_with(convolution, 1, {1, 5, 1}, {9, 1, 1}).set("dilations", dims{huge}));
    });
    expect_error(bad, {"Convolution", "overflows 64 bits"}, [] {
        inferred(op_with(convolution, 1, {1, huge, 1}, {1, 1, 1})
                     .set("pads_begin", dims{huge})
                     .set("pads_end", dims{huge}));
    });
    expect_error(bad, {"Convolution", "auto_pad", "overflows"}, [] {
        inferred(op_with(convolution, 1, {1, 5, 1}, {9, 1, 1})
                     .set("dilations", dims{huge})
                     .set("auto_pad", "same_upper"));
    });
    expect_error(bad, {"ConvolutionBackwardData", "weights (XIO)", "groups", "overflows"}, [] {
        inferred(op_with(convolution_backward_data, 1, {}, {1, 4, unk})
                     .set("groups", attribute_value(huge)));
    });
    const dim big = dim{1} << 32;
    expect_error(
        bad, {"Convolution", "src", "[4294967296, 4294967296, 1]", "overflows 64 bits"}, [&] {
            inferred(op_with(convolution, 1, {big, big, 1}, {1, 1, 1}));
        });
    expect_error(bad, {"Convolution", "src", "bytes"}, [] {
        inferred(op_with(convolution, 1, {1, huge / 3, 1}, {1, 1, 1}));
    });
    expect_error(bad, {"Convolution", "dst", "overflows"}, [&] {
        inferred(op_with(convolution, 1, {1, big, 1}, {1, 1, big}));
    });
    op strided = plain_op(convolution, 1);
    strided.add_input(tensor_of(1, {3, 5, 1}, data_type::f32, {huge / 2, 1, 1}));
    strided.add_input(tensor_of(2, {1, 1, 1})).add_output(tensor_of(3, {}));
    expect_error(
        bad, {"src", "strides", "4611686018427387903", "overflows"}, [&] { inferred(strided); });
    // An empty tensor's packed strides cannot be formed either.
    expect_error(bad, {"src", "overflows"}, [&] {
        inferred(op_with(convolution, 1, {0, big, big}, {1, big, 1}));
    });
}

TEST(shape_error, offsets_that_overflow_are_found_when_lowering) {
    const op node = op_with(convolution, 1, {1, 1, 1}, {1, 1, 1})
                        .set("pads_begin", dims{huge / 2})
                        .set("strides", dims{huge / 2});
    expect_error(
        bad, {"Convolution", "spatial axis 0", "begin pad", "overflows"}, [&] { lowered(node); });
}

TEST(shape_error, strides_of_tensors) {
    const auto with = [](const dims &shape, const dims &strides) {
        op node = plain_op(convolution, 1);
        node.add_input(tensor_of(1, shape, data_type::f32, strides));
        return node.add_input(tensor_of(2, {1, 3, 4})).add_output(tensor_of(3, {}));
    };
    EXPECT_NO_THROW(inferred(with({2, 5, 3}, {15, 3, 1})));
    EXPECT_NO_THROW(inferred(with({2, 5, 3}, {1, 1, 1})));   // overlapping inputs are readable
    EXPECT_NO_THROW(inferred(with({1, 5, 3}, {-7, 3, 1})));  // means nothing
    EXPECT_NO_THROW(inferred(with({0, 5, 3}, {0, 0, -1})));  // nothing there to address
    expect_error(bad, {"src", "[2, 5, 3]", "[15, 3]", "one stride per dimension"}, [&] {
        inferred(with({2, 5, 3}, {15, 3}));
    });
    for (dim stride : {0, -1})
        expect_error(
            bad, {"src", "strides", "[15, " + std::to_string(stride) + ", 1]", "positive"}, [&] {
                inferred(with({2, 5, 3}, {15, stride, 1}));
            });
}

TEST(shape_error, compiling_needs_the_inputs) {
    for (op_kind kind : convolution_op_kinds) {
        const std::string_view first = ops::schema_of(kind).inputs[0].name;
        expect_error(bad, {to_string(kind), first, "[2, ?, 6]", "compiling needs"}, [&] {
            lowered(op_with(kind, 1, {2, unk, 6}, {2, 6, 6}, {2, unk, 6}));
        });
        expect_error(bad, {to_string(kind), first, "unknown rank", "compiling needs"}, [&] {
            lowered(op_with(kind, 1, {}, {2, 6, 6}, {2, unk, 6}));
        });
    }
}

}  // namespace
}  // namespace convgrad
