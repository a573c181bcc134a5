// Eager calls and single compiled ops: options, pairs of gradients, errors.
#include "graph/helpers.hpp"

namespace convgrad::test {
namespace {

using enum error_code;

TEST(eager, forward_with_bias_add_and_relu) {
    const layer l;
    const buffer bias({4}, 5), add({2, 5, 5, 4}, 6);
    buffer plain({2, 5, 5, 4}), all({2, 5, 5, 4});
    convolution(l.src.view(), l.weights.view(), {}, plain.view(), l.attrs);
    const tensor added = add.view();
    convolution(l.src.view(), l.weights.view(), bias.view(), all.view(), l.attrs,
        {.relu = true, .add = &added});
    for (std::size_t i = 0; i < plain.values().size(); ++i)
        EXPECT_EQ(all.values()[i],
            std::max(0.0F, plain.values()[i] + bias.values()[i % 4] + add.values()[i]));
    convolution(l.src.view(), l.weights.view(), {}, all.view(), l.attrs, {.add = &added});
    for (std::size_t i = 0; i < plain.values().size(); ++i)
        EXPECT_EQ(all.values()[i], plain.values()[i] + add.values()[i]);
}

TEST(eager, accumulates) {
    const layer l;
    buffer out = buffer::filled(l.weights.shape(), 1.0F);
    for (int i = 0; i < 2; ++i)
        convolution_backward_weights(
            l.src.view(), l.diff_dst.view(), out.view(), l.attrs, {.accumulate = true});
    const std::vector<float> once = l.diff_weights();
    for (std::size_t i = 0; i < once.size(); ++i) EXPECT_EQ(out.values()[i], 1.0F + 2 * once[i]);
}

TEST(eager, computes_both_gradients) {
    const layer l;
    buffer diff_src(l.src.shape()), diff_weights(l.weights.shape()), diff_bias({4});
    const tensor db = diff_bias.view();
    convolution_backward(l.src.view(), l.diff_dst.view(), l.weights.view(), diff_src.view(),
        diff_weights.view(), l.attrs, {.diff_bias = &db});
    EXPECT_EQ(diff_src.values(), l.diff_src());
    EXPECT_EQ(diff_weights.values(), l.diff_weights());
    for (std::size_t o = 0; o < 4; ++o) {
        float sum = 0;
        for (std::size_t i = 0; i < 50; ++i) sum += l.diff_dst.values()[i * 4 + o];
        EXPECT_EQ(diff_bias.values()[o], sum);
    }
}

TEST(eager, computes_both_gradients_of_a_transposed_layer) {
    const buffer src({2, 3, 3, 4}, 1), weights({3, 3, 2, 4}, 2), diff_dst({2, 7, 7, 2}, 3);
    const attributes attrs{.strides = {2, 2}};
    EXPECT_EQ(infer_shape(op_kind::conv_transpose, src.shape(), weights.shape(), attrs),
        diff_dst.shape());
    buffer one(src.shape()), two(weights.shape()), bias({2});
    conv_transpose_backward_data(diff_dst.view(), weights.view(), one.view(), attrs);
    const tensor db = bias.view();
    conv_transpose_backward_weights(
        src.view(), diff_dst.view(), two.view(), attrs, {.diff_bias = &db});
    buffer diff_src(src.shape()), diff_weights(weights.shape());
    conv_transpose_backward(
        src.view(), diff_dst.view(), weights.view(), diff_src.view(), diff_weights.view(), attrs);
    EXPECT_EQ(diff_src.values(), one.values());
    EXPECT_EQ(diff_weights.values(), two.values());
    float sum = 0;
    for (std::size_t i = 0; i < 98; ++i) sum += diff_dst.values()[i * 2 + 1];
    EXPECT_EQ(bias.values()[1], sum);
    // The layer itself is the adjoint of its data gradient: <T x, y> = <x, T' y>.
    buffer dst(diff_dst.shape());
    conv_transpose(src.view(), weights.view(), {}, dst.view(), attrs);
    double left = 0, right = 0;
    for (std::size_t i = 0; i < dst.values().size(); ++i)
        left += static_cast<double>(dst.values()[i] * diff_dst.values()[i]);
    for (std::size_t i = 0; i < one.values().size(); ++i)
        right += static_cast<double>(src.values()[i] * one.values()[i]);
    EXPECT_EQ(left, right);
}

TEST(eager, refuses_overlapping_gradients) {
    const layer l;
    buffer diff_src({2, 5, 5, 3}), diff_weights(l.weights.shape());
    const auto both = [&](const tensor &first, const tensor &second) {
        convolution_backward(
            l.src.view(), l.diff_dst.view(), l.weights.view(), first, second, l.attrs);
    };
    expect_error(invalid_argument, {"src", "same data pointer"},
        [&] { both(l.src.view(), diff_weights.view()); });
    expect_error(invalid_argument, {"weights", "same data pointer"},
        [&] { both(diff_src.view(), l.weights.view()); });
    expect_error(invalid_argument, {"diff_src", "same data pointer"}, [&] {
        both(diff_src.view(), {diff_src.values().data(), l.weights.shape()});
    });
}

TEST(eager, refuses_options_of_other_ops) {
    const layer l;
    buffer dst({2, 5, 5, 4}), diff_weights(l.weights.shape());
    expect_error(invalid_op, {"Convolution", "accumulate"}, [&] {
        convolution(l.src.view(), l.weights.view(), {}, dst.view(), l.attrs, {.accumulate = true});
    });
    expect_error(invalid_op, {"ConvolutionBackwardWeights", "relu"}, [&] {
        convolution_backward_weights(
            l.src.view(), l.diff_dst.view(), diff_weights.view(), l.attrs, {.relu = true});
    });
}

TEST(eager, refuses_bad_arguments) {
    const layer l;
    buffer out(l.weights.shape());
    const auto gradient = [&](const const_tensor &src, const const_tensor &diff_dst,
                              const attributes &attrs) {
        convolution_backward_weights(src, diff_dst, out.view(), attrs);
    };
    expect_error(invalid_op, {"ConvolutionBackwardWeights", "strides", "0"}, [&] {
        gradient(l.src.view(), l.diff_dst.view(), {.strides = {0, 1}});
    });
    expect_error(invalid_op, {"auto_pad", "\"sideways\"", "same_upper"},
        [&] { gradient(l.src.view(), l.diff_dst.view(), {.auto_pad = "sideways"}); });
    expect_error(invalid_shape, {"rank"}, [&] { gradient({}, l.diff_dst.view(), {}); });
    expect_error(invalid_op, {"diff_dst", "undef"}, [&] { gradient(l.src.view(), {}, l.attrs); });
    expect_error(invalid_shape, {"ConvolutionBackwardWeights"},
        [&] { gradient(l.src.view(), l.diff_dst.view(), {}); });
    expect_error(invalid_argument, {"src", "null"}, [&] {
        gradient({static_cast<const float *>(nullptr), l.src.shape()}, l.diff_dst.view(), l.attrs);
    });
}

TEST(single, compiled_op_equals_eager_call) {
    const layer l;
    const buffer bias({4}, 5), add({2, 5, 5, 4}, 6);
    buffer eager({2, 5, 5, 4}), compiled({2, 5, 5, 4});
    const tensor added = add.view();
    convolution(l.src.view(), l.weights.view(), bias.view(), eager.view(), l.attrs,
        {.relu = true, .add = &added});
    const logical_tensor dst = add.described(3);
    compile(op_kind::convolution,
        {l.src.described(0), l.weights.described(1), bias.described(2), dst}, {dst}, l.attrs,
        {.relu = true, .add = true})
        .execute(
            stream(), {l.src.view(), l.weights.view(), bias.view(), add.view()}, {compiled.view()});
    EXPECT_EQ(compiled.values(), eager.values());
}

TEST(single, infers_outputs) {
    const layer l;
    const compiled_partition c = compile(
        op_kind::convolution, {l.src.described(0), l.weights.described(1)}, {f32(2)}, l.attrs);
    EXPECT_EQ(c.outputs()[0].shape, (dims{2, 5, 5, 4}));
}

TEST(single, compiled_pair_equals_eager_pair) {
    const layer l;
    const compiled_partition c = compile_backward(op_kind::convolution,
        {l.src.described(0), l.diff_dst.described(1), l.weights.described(2)},
        {l.src.described(3), l.weights.described(4), f32(5)}, l.attrs);
    EXPECT_EQ(c.query(5).shape, dims{4});
    buffer diff_src(l.src.shape()), diff_weights(l.weights.shape()), diff_bias({4});
    c.execute(stream(), {l.src.view(), l.diff_dst.view(), l.weights.view()},
        {diff_src.view(), diff_weights.view(), diff_bias.view()});
    EXPECT_EQ(diff_src.values(), l.diff_src());
    EXPECT_EQ(diff_weights.values(), l.diff_weights());
}

TEST(single, refuses_wrong_lists) {
    const layer l;
    const logical_tensor src = l.src.described(0), weights = l.weights.described(1);
    expect_error(invalid_argument, {"Convolution", "input 0"},
        [&] { return compile(op_kind::convolution, {}, {}, l.attrs); });
    expect_error(invalid_op, {"Convolution", "1 inputs"},
        [&] { return compile(op_kind::convolution, {src}, {f32(2)}, l.attrs); });
    expect_error(invalid_op, {"Convolution", "0 outputs"}, [&] {
        return compile(op_kind::convolution, {src, weights}, {}, l.attrs);
    });
    expect_error(invalid_argument, {"add", "2 inputs"}, [&] {
        return compile(op_kind::convolution, {src, weights}, {f32(2)}, l.attrs, {.add = true});
    });
    expect_error(invalid_argument, {"diff_bias", "1 outputs"}, [&] {
        return compile(op_kind::convolution_backward_weights, {src, l.diff_dst.described(2)},
            {weights}, l.attrs, {.diff_bias = true});
    });
    expect_error(invalid_argument, {"compile_backward", "2 inputs"}, [&] {
        return compile_backward(op_kind::convolution, {src, weights}, {src, weights});
    });
    expect_error(invalid_argument, {"Convolution or ConvTranspose"}, [&] {
        return compile_backward(
            op_kind::convolution_backward_data, {src, src, weights}, {src, weights});
    });
}

}  // namespace
}  // namespace convgrad::test
