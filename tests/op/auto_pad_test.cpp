// Section 4 of the specification against numbers computed by hand.
#include <gtest/gtest.h>

#include <convgrad/eager.hpp>

#include "op/expect_error.hpp"
#include "op/message.hpp"
#include "op/op_builder.hpp"

namespace convgrad {
namespace {

using test::expect_error;
using test::inferred_shape;
using test::op_with;

using enum op_kind;

struct row {
    op_kind kind;
    dim stride, dilation, kernel, output_padding;
    dim large, small;  // lengths of the two data tensors
    dim total;         // of the padding
};

// T in its own column; half = floor(T / 2) goes to the begin for upper and to the end for lower.
const row rows[] = {
    // Convolution: T = max(0, E - r), r = S or L mod S. Output ceil(L / S).
    {convolution, 1, 1, 3, 0, 5, 5, 2},
    {convolution, 2, 1, 3, 0, 5, 3, 2},
    {convolution, 2, 1, 3, 0, 6, 3, 1},
    {convolution, 3, 1, 2, 0, 7, 3, 1},
    {convolution, 3, 1, 2, 0, 8, 3, 0},
    {convolution, 1, 1, 2, 0, 5, 5, 1},
    {convolution, 2, 2, 3, 0, 7, 4, 4},
    {convolution, 2, 2, 3, 0, 8, 4, 3},
    {convolution, 5, 1, 3, 0, 4, 1, 0},
    {convolution, 1, 1, 4, 0, 1, 1, 3},
    {convolution, 4, 3, 2, 0, 10, 3, 2},
    // ConvTranspose: T = max(0, E - S). Output S*L + q, or S*(L-1) + E + q where E < S.
    {conv_transpose, 2, 1, 3, 0, 6, 3, 1},
    {conv_transpose, 2, 1, 3, 1, 7, 3, 1},
    {conv_transpose, 1, 1, 3, 0, 3, 3, 2},
    {conv_transpose, 3, 1, 2, 0, 11, 4, 0},
    {conv_transpose, 3, 1, 2, 2, 13, 4, 0},
    {conv_transpose, 2, 2, 3, 0, 6, 3, 3},
    {conv_transpose, 4, 1, 4, 0, 4, 1, 0},
    {conv_transpose, 1, 3, 2, 2, 7, 5, 3},
    // ConvolutionBackwardData: T = max(0, S*(L_diff_dst - 1) + E - L_diff_src + q).
    {convolution_backward_data, 2, 1, 3, 0, 6, 3, 1},
    {convolution_backward_data, 2, 1, 3, 0, 5, 3, 2},
    {convolution_backward_data, 2, 1, 3, 1, 6, 3, 2},
    {convolution_backward_data, 2, 1, 3, 1, 7, 3, 1},
    {convolution_backward_data, 2, 2, 3, 0, 8, 4, 3},
    {convolution_backward_data, 2, 2, 3, 0, 7, 4, 4},
    {convolution_backward_data, 3, 1, 2, 0, 8, 3, 0},
    {convolution_backward_data, 3, 1, 2, 0, 9, 3, 0},
    // The convolution's weights gradient: as Convolution, from src.
    {convolution_backward_weights, 2, 1, 3, 0, 5, 3, 2},
    {convolution_backward_weights, 2, 1, 3, 0, 6, 3, 1},
    {convolution_backward_weights, 2, 2, 3, 0, 8, 4, 3},
    {convolution_backward_weights, 3, 1, 2, 0, 8, 3, 0},
    // The transposed gradients: as Convolution, from diff_dst less q.
    {conv_transpose_backward_data, 2, 1, 3, 0, 6, 3, 1},
    {conv_transpose_backward_data, 2, 1, 3, 1, 7, 3, 1},
    {conv_transpose_backward_data, 2, 1, 3, 0, 7, 4, 2},
    {conv_transpose_backward_data, 3, 1, 2, 0, 11, 4, 0},
    {conv_transpose_backward_data, 2, 2, 3, 0, 6, 3, 3},
    {conv_transpose_backward_data, 1, 3, 2, 2, 7, 5, 3},
    {conv_transpose_backward_weights, 2, 1, 3, 0, 6, 3, 1},
    {conv_transpose_backward_weights, 2, 1, 3, 1, 7, 3, 1},
    {conv_transpose_backward_weights, 2, 2, 3, 0, 6, 3, 3},
};

bool takes_output_padding(op_kind kind) {
    return kind != convolution && kind != convolution_backward_weights;
}

attributes attributes_of(const row &r, std::string_view auto_pad) {
    attributes a{.strides = {r.stride}, .dilations = {r.dilation}, .auto_pad = auto_pad};
    if (takes_output_padding(r.kind)) a.output_padding = {r.output_padding};
    return a;
}

std::string describe(const row &r) {
    return ops::cat(to_string(r.kind), " S", r.stride, " D", r.dilation, " K", r.kernel, " q",
        r.output_padding, " ", r.large, "/", r.small);
}

TEST(auto_pad, resolver_gives_the_tables_pads) {
    for (const row &r : rows) {
        SCOPED_TRACE(describe(r));
        const dim half = r.total / 2;
        const dims large{1, r.large, 1}, small{1, r.small, 1};
        const dims &data = r.kind == conv_transpose ? small : large;
        const dims other = r.kind == convolution_backward_data ? small : dims{};
        const auto upper =
            resolve_pads(r.kind, data, other, {r.kernel}, attributes_of(r, "same_upper"));
        EXPECT_EQ(upper.begin, dims{half});
        EXPECT_EQ(upper.end, dims{r.total - half});
        const auto lower =
            resolve_pads(r.kind, data, other, {r.kernel}, attributes_of(r, "same_lower"));
        EXPECT_EQ(lower.begin, dims{r.total - half});
        EXPECT_EQ(lower.end, dims{half});
        const auto valid = resolve_pads(r.kind, data, other, {r.kernel}, attributes_of(r, "valid"));
        EXPECT_EQ(valid.begin, dims{0});
        EXPECT_EQ(valid.end, dims{0});
    }
}

op graph_op(const row &r, std::string_view auto_pad) {
    const dims large{2, r.large, 3}, small{2, r.small, 5}, weights{r.kernel, 3, 5};
    op node(1, r.kind, "layer");
    switch (r.kind) {
    case convolution:
    case conv_transpose_backward_data:
        node = op_with(r.kind, 1, large, weights);
        break;
    case convolution_backward_data:
        node = op_with(r.kind, 1, small, weights, large);
        break;
    case conv_transpose:
        node = op_with(r.kind, 1, small, weights);
        break;
    case convolution_backward_weights:
        node = op_with(r.kind, 1, large, small, weights);
        break;
    case conv_transpose_backward_weights:
        node = op_with(r.kind, 1, small, large, weights);
        break;
    default:
        break;  // none of convolution_op_kinds
    }
    node.set("strides", dims{r.stride}).set("dilations", dims{r.dilation});
    node.set("auto_pad", std::string(auto_pad));
    if (takes_output_padding(r.kind)) node.set("output_padding", dims{r.output_padding});
    return node;
}

TEST(auto_pad, graph_ops_infer_the_tables_lengths_and_lower_to_its_pads) {
    for (const row &r : rows) {
        SCOPED_TRACE(describe(r));
        const dim half = r.total / 2;
        const conv::problem upper = test::lowered(graph_op(r, "SAME_UPPER"));
        EXPECT_EQ(upper.x[2].src, r.large);
        EXPECT_EQ(upper.x[2].dst, r.small);
        EXPECT_EQ(upper.x[2].pad, half);
        const conv::problem lower = test::lowered(graph_op(r, "Same_Lower"));
        EXPECT_EQ(lower.x[2].src, r.large);
        EXPECT_EQ(lower.x[2].dst, r.small);
        EXPECT_EQ(lower.x[2].pad, r.total - half);
    }
}

TEST(auto_pad, explicit_pads_are_ignored) {
    op node = op_with(convolution, 1, {1, 5, 1}, {3, 1, 1});
    node.set("pads_begin", dims{100}).set("pads_end", dims{100}).set("auto_pad", "valid");
    EXPECT_EQ(inferred_shape(node), (dims{1, 3, 1}));
    node.set("auto_pad", "same_upper");
    EXPECT_EQ(inferred_shape(node), (dims{1, 5, 1}));
    node.set("auto_pad", "None");
    EXPECT_EQ(inferred_shape(node), (dims{1, 203, 1}));
    // Judged only where they count.
    for (const dims &pads : {dims{-1}, dims{0, 0}, dims{}}) {
        node.set("auto_pad", "valid").set("pads_begin", pads);
        EXPECT_EQ(inferred_shape(node), (dims{1, 3, 1}));
        node.set("auto_pad", "none");
        const bool negative = pads.size() == 1;
        expect_error(negative ? error_code::invalid_op : error_code::invalid_shape,
            {"pads_begin", negative ? "non-negative" : "1 spatial axes"},
            [&] { inferred_shape(node); });
    }
}

TEST(auto_pad, matches_in_any_case_of_letters) {
    for (const char *text : {"none", "None", "NONE", "valid", "VALID", "same_upper", "SAME_UPPER",
             "Same_Lower", "sAmE_lOwEr"})
        EXPECT_NO_THROW(
            inferred_shape(op_with(convolution, 1, {1, 5, 1}, {3, 1, 1}).set("auto_pad", text)))
            << text;
    for (const char *text : {"", "same", "same-upper", "none ", "auto"})
        expect_error(error_code::invalid_op,
            {"Convolution \"layer\"", "auto_pad", ops::cat(ops::quoted{text}), "same_upper"},
            [&] { ops::check_op(op_with(convolution, 1, {}, {}).set("auto_pad", text)); });
}

// ConvolutionBackwardData without any word on diff_src: the lengths of ConvTranspose.
TEST(auto_pad, backward_data_without_a_shape_uses_the_transposed_length) {
    op node = op_with(convolution_backward_data, 1, {1, 3, 5}, {3, 2, 5});
    node.set("strides", dims{2}).set("auto_pad", "same_upper");
    EXPECT_EQ(inferred_shape(node), (dims{1, 6, 2}));
    EXPECT_EQ(test::lowered(node).x[2].pad, 0);
    node.set("auto_pad", "same_lower");
    EXPECT_EQ(test::lowered(node).x[2].pad, 1);
    node.set("output_padding", dims{1});
    EXPECT_EQ(inferred_shape(node), (dims{1, 7, 2}));
    EXPECT_EQ(test::lowered(node).x[2].pad, 1);
    // q of a whole stride, which D > S allows: E = 5, T = E - S = 4, X = 1*2 + 5 + 1 - 4 = 4.
    node.set("strides", dims{1}).set("dilations", dims{2});
    EXPECT_EQ(inferred_shape(node), (dims{1, 4, 2}));
    EXPECT_EQ(test::lowered(node).x[2].pad, 2);
}

TEST(resolve_pads, explicit_pads_come_back) {
    const auto pads = resolve_pads(
        convolution, {1, 8, 9, 3}, {}, {3, 5}, {.pads_begin = {1, 2}, .pads_end = {3, 4}});
    EXPECT_EQ(pads.begin, (dims{1, 2}));
    EXPECT_EQ(pads.end, (dims{3, 4}));
    const auto none = resolve_pads(convolution, {1, 8, 9, 3}, {}, {3, 5});
    EXPECT_EQ(none.begin, (dims{0, 0}));
    EXPECT_EQ(none.end, (dims{0, 0}));
}

TEST(resolve_pads, honours_the_data_format) {
    const auto pads = resolve_pads(convolution, {1, 7, 5, 6}, {}, {3, 3},
        {.strides = {2, 2}, .auto_pad = "same_upper", .data_format = "NCX"});
    EXPECT_EQ(pads.begin, (dims{1, 0}));
    EXPECT_EQ(pads.end, (dims{1, 1}));
}

TEST(resolve_pads, refuses_what_does_not_fit) {
    expect_error(error_code::invalid_shape, {"Convolution", "[1, 8, 3]", "[3, 3]"}, [] {
        return resolve_pads(convolution, {1, 8, 3}, {}, {3, 3});
    });
    expect_error(error_code::invalid_shape, {"strides", "[1]", "2 spatial axes"}, [] {
        return resolve_pads(convolution, {1, 8, 8, 3}, {}, {3, 3}, {.strides = {1}});
    });
    expect_error(error_code::invalid_shape, {"[0]", "at least one tap"}, [] {
        return resolve_pads(convolution, {1, 8, 3}, {}, {0});
    });
    expect_error(error_code::invalid_shape, {"auto_pad", "not known"},
        [] { return resolve_pads(convolution, {}, {}, {3}, {.auto_pad = "same_upper"}); });
    expect_error(
        error_code::invalid_shape, {"rank"}, [] { return resolve_pads(convolution, {}, {}, {}); });
}

}  // namespace
}  // namespace convgrad
