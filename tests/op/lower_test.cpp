// From ops to canonical problems: roles, layouts as strides, both grouped forms, bias, buffers.
#include <gtest/gtest.h>

#include <convgrad/eager.hpp>

#include "op/expect_error.hpp"
#include "op/op_builder.hpp"

namespace convgrad {
namespace {

using conv::pass;
using test::lowered;
using test::op_with;
using test::plain_op;
using test::tensor_of;

using enum op_kind;

// One geometry in all six ops: large (2, 10, 6 channels), small (2, 4, 8 channels), kernel 4,
// stride 2, pads 1 and 0, dilation 1: floor((10 + 1 - 4) / 2) + 1 = 4 and 2*3 + 4 + 1 - 1 = 10 with
// an output padding of 1.
op same_geometry(op_kind kind) {
    const dims large{2, 10, 6}, small{2, 4, 8}, weights{4, 6, 8};
    op node(1, kind);
    switch (kind) {
    case convolution:
        node = op_with(kind, 1, large, weights);
        break;
    case convolution_backward_data:
        node = op_with(kind, 1, small, weights, large);
        break;
    case convolution_backward_weights:
        node = op_with(kind, 1, large, small, weights);
        break;
    case conv_transpose:
        node = op_with(kind, 1, small, weights);
        break;
    case conv_transpose_backward_data:
        node = op_with(kind, 1, large, weights);
        break;
    case conv_transpose_backward_weights:
        node = op_with(kind, 1, small, large, weights);
        break;
    default:
        break;  // none of convolution_op_kinds
    }
    node.set("strides", dims{2}).set("pads_begin", dims{1});
    if (kind >= conv_transpose) node.set("output_padding", dims{1});
    return node;
}

TEST(lower, six_ops_become_three_passes_on_one_problem) {
    const pass passes[] = {pass::forward, pass::backward_data, pass::backward_weights,
        pass::backward_data, pass::forward, pass::backward_weights};
    for (std::size_t i = 0; i < std::size(convolution_op_kinds); ++i) {
        SCOPED_TRACE(to_string(convolution_op_kinds[i]));
        const conv::problem p = lowered(same_geometry(convolution_op_kinds[i]));
        EXPECT_EQ(p.what, passes[i]);
        EXPECT_EQ(p.type, data_type::f32);
        EXPECT_EQ(p.out_type, data_type::f32);
        EXPECT_EQ(p.mb, 2);
        EXPECT_EQ(p.groups, 1);
        EXPECT_EQ(p.ic, 6);
        EXPECT_EQ(p.oc, 8);
        EXPECT_EQ(p.x[0], conv::axis{});
        EXPECT_EQ(p.x[1], conv::axis{});
        EXPECT_EQ(p.x[2], (conv::axis{10, 4, 4, 2, 1, 1}));
        EXPECT_EQ(p.src, (conv::data_strides{60, 1, {60, 60, 6}}));
        EXPECT_EQ(p.dst, (conv::data_strides{32, 1, {32, 32, 8}}));
        EXPECT_EQ(p.weights, (conv::weights_strides{8, 1, 8, {192, 192, 48}}));
        EXPECT_FALSE(p.bias || p.add || p.relu || p.accumulate);
        EXPECT_EQ(p.diff_bias, conv::bias_gradient::none);
    }
}

TEST(lower, layouts_are_strides) {
    struct layout_row {
        const char *data, *weights;
        dims src, kernel;
        conv::data_strides src_strides;
        conv::weights_strides weights_strides;
    };
    // N 2, IC 6, OC 4, groups 2, src 5x7, kernel 3x2.
    const layout_row rows[] = {
        {"NXC", "XIO", {2, 5, 7, 6}, {3, 2, 3, 4}, {210, 1, {210, 42, 6}}, {2, 1, 4, {72, 24, 12}}},
        {"NCX", "OIX", {2, 6, 5, 7}, {4, 3, 3, 2}, {210, 35, {35, 7, 1}}, {36, 18, 6, {6, 2, 1}}},
        {"NXC", "OIX", {2, 5, 7, 6}, {4, 3, 3, 2}, {210, 1, {210, 42, 6}}, {36, 18, 6, {6, 2, 1}}},
    };
    for (const layout_row &r : rows) {
        op node = op_with(convolution, 2, r.src, r.kernel);
        node.set("groups", 2).set("data_format", r.data).set("weights_format", r.weights);
        const conv::problem p = lowered(node);
        EXPECT_EQ(p.src, r.src_strides) << r.data;
        EXPECT_EQ(p.weights, r.weights_strides) << r.weights;
        EXPECT_EQ(p.ic, 3);
        EXPECT_EQ(p.oc, 2);
        EXPECT_EQ(p.x[1], (conv::axis{5, 3, 3, 1, 1, 0}));
        EXPECT_EQ(p.x[2], (conv::axis{7, 6, 2, 1, 1, 0}));
    }
}

TEST(lower, both_grouped_forms_of_transposed_weights_are_strides) {
    struct form_row {
        const char *format;
        dims weights;
        conv::weights_strides strides;
    };
    // ConvTranspose IC 6, OC 8, groups 2, kernel 3: canonical oc (of src) 3, ic (of dst) 4.
    const form_row rows[] = {
        {"IOX", {6, 4, 3}, {3 * 12, 12, 3, {3, 3, 1}}},  // group = 3 of the I
        {"IOX", {3, 8, 3}, {4 * 3, 24, 3, {3, 3, 1}}},   // group = 4 of the O
        {"XOI", {3, 4, 6}, {3 * 1, 1, 6, {72, 72, 24}}},
        {"XOI", {3, 8, 3}, {4 * 3, 1, 3, {72, 72, 24}}},
    };
    for (const form_row &r : rows) {
        SCOPED_TRACE(r.format);
        for (op_kind kind : {conv_transpose, conv_transpose_backward_data}) {
            op node = kind == conv_transpose ? op_with(kind, 1, {2, 5, 6}, r.weights)
                                             : op_with(kind, 1, {2, 7, 8}, r.weights);
            const conv::problem p = lowered(node.set("groups", 2).set("weights_format", r.format));
            EXPECT_EQ(p.oc, 3);
            EXPECT_EQ(p.ic, 4);
            EXPECT_EQ(p.weights, r.strides);
        }
        op gradient = op_with(conv_transpose_backward_weights, 1, {2, 5, 6}, {2, 7, 8}, r.weights);
        EXPECT_EQ(
            lowered(gradient.set("groups", 2).set("weights_format", r.format)).weights, r.strides);
    }
}

// The first grouped form is convolution's OIX or XIO with the names I and O swapped.
TEST(lower, the_first_form_is_that_of_convolution) {
    const struct {
        const char *convolution, *transposed;
        dims shape;
    } rows[] = {{"OIX", "IOX", {6, 4, 3}}, {"XIO", "XOI", {3, 4, 6}}};
    for (const auto &r : rows) {
        op a = op_with(convolution_backward_data, 1, {2, 5, 6}, r.shape).set("groups", 2);
        op b = op_with(conv_transpose, 1, {2, 5, 6}, r.shape).set("groups", 2);
        EXPECT_EQ(lowered(a.set("weights_format", r.convolution)),
            lowered(b.set("weights_format", r.transposed)));
    }
}

TEST(lower, strides_are_taken_as_given_and_unit_axes_made_canonical) {
    op node = plain_op(convolution, 2).set("data_format", "NCX");
    node.add_input(tensor_of(1, {3, 5, 1, 4}, data_type::f32, {1, 100, -77, 7}));
    node.add_input(tensor_of(2, {1, 1, 5, 2}, data_type::f32, {0, 9, 2, 1}));
    node.add_output(tensor_of(3, {}, data_type::f32, {1000, 10, 5, 1}));
    const conv::problem p = lowered(node);
    // H has one row: its stride becomes that of a packed axis, 7 * 4.
    EXPECT_EQ(p.src, (conv::data_strides{1, 100, {28, 28, 7}}));
    EXPECT_EQ(p.weights, (conv::weights_strides{2, 1, 2, {10, 10, 10}}));
    // dst is (3, 2, 1, 4).
    EXPECT_EQ(p.dst, (conv::data_strides{1000, 10, {4, 4, 1}}));
}

TEST(lower, strides_of_unit_axes_do_not_change_the_problem) {
    const auto with = [](dims strides) {
        op node = plain_op(convolution, 2);
        node.add_input(tensor_of(1, {1, 6, 1, 3}, data_type::bf16, std::move(strides)));
        node.add_input(tensor_of(2, {1, 1, 3, 4}, data_type::bf16));
        return lowered(node.add_output(tensor_of(3, {}, data_type::bf16)));
    };
    EXPECT_EQ(with({18, 3, 3, 1}), with({}));
    EXPECT_EQ(with({-1, 3, 0, 1}), with({}));
    EXPECT_EQ(with({1, 3, 999, 1}), with({}));
    EXPECT_NE(with({1, 4, 3, 1}), with({}));
}

TEST(lower, empty_tensors_get_packed_strides) {
    op node = plain_op(convolution, 1);
    node.add_input(tensor_of(1, {0, 5, 3}, data_type::f32, {0, 0, 0}));
    node.add_input(tensor_of(2, {1, 3, 4})).add_output(tensor_of(3, {}));
    const conv::problem p = lowered(node);
    EXPECT_EQ(p.mb, 0);
    EXPECT_EQ(p.src, (conv::data_strides{15, 1, {15, 15, 3}}));
}

TEST(lower, strides_of_single_points_and_dilations_of_single_taps_mean_nothing) {
    op node = op_with(convolution, 2, {1, 3, 9, 1}, {3, 1, 1, 1});
    node.set("strides", dims{5, 2}).set("dilations", dims{1, 7});
    const conv::problem p = lowered(node);
    EXPECT_EQ(p.x[1], (conv::axis{3, 1, 3, 1, 1, 0}));
    EXPECT_EQ(p.x[2], (conv::axis{9, 5, 1, 2, 1, 0}));
    const dim huge = std::numeric_limits<dim>::max();
    node.set("strides", dims{huge, 2}).set("dilations", dims{1, huge});
    EXPECT_EQ(lowered(node), p);
}

TEST(lower, bias_by_op) {
    op forward = same_geometry(convolution).add_input(tensor_of(12, {8}, data_type::f32, {3}));
    conv::problem p = lowered(forward);
    EXPECT_TRUE(p.bias);
    EXPECT_EQ(p.bias_stride, 3);
    op transposed = same_geometry(conv_transpose).add_input(tensor_of(12, {6}));
    p = lowered(transposed);
    EXPECT_EQ(p.what, pass::backward_data);
    EXPECT_TRUE(p.bias);
    EXPECT_EQ(p.bias_stride, 1);
    // A shape input is not a bias.
    op data = same_geometry(convolution_backward_data)
                  .add_input(logical_tensor::constant(12, {2, 10, 6}));
    EXPECT_FALSE(lowered(data).bias);
}

TEST(lower, bias_gradient_by_op) {
    op node = same_geometry(convolution_backward_weights);
    node.add_output(tensor_of(21, {}, data_type::f32, {2}));
    conv::problem p = lowered(node);
    EXPECT_EQ(p.diff_bias, conv::bias_gradient::from_dst);
    EXPECT_EQ(p.bias_stride, 2);
    EXPECT_FALSE(p.bias);
    op transposed = same_geometry(conv_transpose_backward_weights).add_output(tensor_of(21, {}));
    EXPECT_EQ(lowered(transposed).diff_bias, conv::bias_gradient::from_src);
}

TEST(lower, types_of_master_gradients) {
    op node = plain_op(convolution_backward_weights, 1);
    node.add_input(tensor_of(1, {2, 10, 6}, data_type::bf16));
    node.add_input(tensor_of(2, {2, 8, 8}, data_type::bf16));
    node.add_output(tensor_of(3, {3, 6, 8}, data_type::f32));
    node.add_output(tensor_of(4, {}, data_type::bf16));
    const conv::problem p = lowered(node.set("accumulate", 1));
    EXPECT_EQ(p.type, data_type::bf16);
    EXPECT_EQ(p.out_type, data_type::f32);
    EXPECT_EQ(p.diff_bias_type, data_type::bf16);
    EXPECT_TRUE(p.accumulate);
}

TEST(lower, add_and_relu_of_eager_calls) {
    const ops::parsed_attributes attrs =
        ops::parse(convolution, {}, 3, {.relu = true, .add = true});
    std::vector<logical_tensor> inputs{tensor_of(0, {2, 10, 6}), tensor_of(1, {3, 6, 8}),
        logical_tensor{}, tensor_of(3, {2, 8, 8}, data_type::f32, {64, 1, 8})};
    std::vector<logical_tensor> outputs{tensor_of(4, {2, 8, 8})};
    ops::check_arguments(attrs, inputs, outputs);
    ops::infer_shapes(attrs, inputs, outputs);
    const conv::problem p = ops::lower(attrs, inputs, outputs);
    EXPECT_TRUE(p.add);
    EXPECT_TRUE(p.relu);
    EXPECT_FALSE(p.bias);
    EXPECT_EQ(p.add_strides, (conv::data_strides{64, 8, {8, 8, 1}}));
    inputs[2] = tensor_of(2, {8});
    EXPECT_TRUE(ops::lower(attrs, inputs, outputs).bias);
    inputs[3] = tensor_of(3, {2, 8, 7});
    test::expect_error(error_code::invalid_shape, {"add", "[2, 8, 7]", "[2, 8, 8]"},
        [&] { ops::infer_shapes(attrs, inputs, outputs); });
    inputs[3] = tensor_of(3, {2, 8, 8}, data_type::f16);
    test::expect_error(error_code::invalid_op, {"add", "f16", "f32"},
        [&] { ops::check_arguments(attrs, inputs, outputs); });
}

TEST(lower, rank_five) {
    op node = op_with(convolution, 3, {1, 4, 5, 6, 2}, {2, 3, 4, 2, 7});
    node.set("strides", dims{1, 2, 1}).set("pads_begin", dims{0, 1, 2});
    const conv::problem p = lowered(node);
    EXPECT_EQ(p.x[0], (conv::axis{4, 3, 2, 1, 1, 0}));
    EXPECT_EQ(p.x[1], (conv::axis{5, 2, 3, 2, 1, 1}));
    EXPECT_EQ(p.x[2], (conv::axis{6, 5, 4, 1, 1, 2}));
    EXPECT_EQ(p.src, (conv::data_strides{240, 1, {60, 12, 2}}));
    EXPECT_EQ(p.weights, (conv::weights_strides{7, 1, 7, {168, 56, 14}}));
}

TEST(bind, gives_pointers_their_canonical_roles) {
    int memory[6];
    void *const a = &memory[0], *const b = &memory[1], *const c = &memory[2], *const d = &memory[3];
    void *const out = &memory[4], *const out1 = &memory[5];
    void *const inputs[] = {a, b, c, d};
    void *const outputs[] = {out, out1};
    const auto expect = [&](op_kind kind, void *src, void *weights, void *dst, void *bias,
                            void *add) {
        SCOPED_TRACE(to_string(kind));
        const conv::buffers data = ops::bind(kind, inputs, outputs);
        EXPECT_EQ(data.src, src);
        EXPECT_EQ(data.weights, weights);
        EXPECT_EQ(data.dst, dst);
        EXPECT_EQ(data.bias, bias);
        EXPECT_EQ(data.add, add);
    };
    expect(convolution, a, b, out, c, d);
    expect(convolution_backward_data, out, b, a, nullptr, nullptr);
    expect(convolution_backward_weights, a, out, b, out1, nullptr);
    expect(conv_transpose, out, b, a, c, d);
    expect(conv_transpose_backward_data, a, b, out, nullptr, nullptr);
    expect(conv_transpose_backward_weights, b, out, a, out1, nullptr);

    const conv::buffers shorter =
        ops::bind(convolution, std::span(inputs, 2), std::span(outputs, 1));
    EXPECT_EQ(shorter.dst, out);
    EXPECT_EQ(shorter.bias, nullptr);
    EXPECT_EQ(shorter.add, nullptr);
}

}  // namespace
}  // namespace convgrad
