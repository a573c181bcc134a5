// Which strides keep the elements of an output apart: against all pairs of elements.
#include <set>

#include <gtest/gtest.h>

#include <convgrad/eager.hpp>

#include "op/apart.hpp"
#include "op/expect_error.hpp"
#include "op/op_builder.hpp"
#include "support/random.hpp"

namespace convgrad {
namespace {

using ops::judge_layout;
using ops::layout_kind;
using test::expect_error;

bool overlaps(const dims &shape, const dims &strides) {
    std::set<dim> seen;
    dims at(shape.size(), 0);
    for (;;) {
        dim offset = 0;
        for (std::size_t i = 0; i < shape.size(); ++i) offset += at[i] * strides[i];
        if (!seen.insert(offset).second) return true;
        std::size_t i = 0;
        while (i < shape.size() && ++at[i] == shape[i]) at[i++] = 0;
        if (i == shape.size()) return false;
    }
}

TEST(apart, agrees_with_all_pairs_of_elements) {
    int overlapping = 0, interleaved = 0;
    for (std::uint64_t seed = 1; seed <= 60000; ++seed) {
        test::rng random(seed);
        const auto rank = static_cast<std::size_t>(random.between(1, 5));
        const dim longest = random.pick<dim>({2, 3, 4, 6}),
                  furthest = random.pick<dim>({6, 20, 60});
        dims shape, strides;
        for (std::size_t i = 0; i < rank; ++i) {
            shape.push_back(random.between(1, longest));
            strides.push_back(random.between(1, furthest));
        }
        const bool expected = overlaps(shape, strides);
        ASSERT_EQ(
            judge_layout(shape, strides), expected ? layout_kind::overlapping : layout_kind::apart)
            << testing::PrintToString(shape) << " by " << testing::PrintToString(strides);
        overlapping += expected;
        interleaved += !expected && rank > 1;
    }
    EXPECT_GT(overlapping, 10000);
    EXPECT_GT(interleaved, 3000);
}

// What views lead to: slices, transposed and reversed orders, channels of a wider tensor, phases of
// a strided one, and two axes that interleave.
TEST(apart, views_are_legal) {
    const struct {
        dims shape, strides;
    } views[] = {{{64, 3, 3, 3}, {27, 9, 3, 1}}, {{3, 3, 3, 64}, {1, 3, 9, 27}},
        {{8, 56, 56, 64}, {56 * 56 * 256, 56 * 256, 256, 1}},
        {{8, 28, 28, 64}, {56 * 56 * 64, 2 * 56 * 64, 2 * 64, 1}}, {{3, 2}, {2, 3}},
        {{1, 4, 1, 9}, {1, 9, 1, 1}}, {{4, 5, 6}, {30, 1, 5}}, {{7, 7}, {8, 9}},
        {{dim{1} << 20, dim{1} << 20}, {(dim{1} << 20) + 1, dim{1} << 20}},
        {{1000, 1000, 1000}, {1, dim{1} << 40, 1000}}};
    for (const auto &v : views)
        EXPECT_EQ(judge_layout(v.shape, v.strides), layout_kind::apart)
            << testing::PrintToString(v.shape) << " by " << testing::PrintToString(v.strides);
    EXPECT_EQ(judge_layout({64, 3, 3, 3}, {1, 1, 64, 1}), layout_kind::overlapping);
    EXPECT_EQ(judge_layout({dim{1} << 21, dim{1} << 21}, {(dim{1} << 20) + 1, dim{1} << 20}),
        layout_kind::overlapping);
}

TEST(apart, outputs_that_overlap_themselves_are_refused_everywhere) {
    op node = test::plain_op(op_kind::convolution_backward_weights, 1);
    node.add_input(test::tensor_of(1, {2, 9, 3})).add_input(test::tensor_of(2, {2, 7, 4}));
    node.add_output(test::tensor_of(3, {3, 3, 4}, data_type::f32, {1, 1, 9}));
    const auto parts = {std::string_view("ConvolutionBackwardWeights"),
        std::string_view("output diff_weights"), std::string_view("[3, 3, 4]"),
        std::string_view("strides [1, 1, 9]"), std::string_view("share memory"),
        std::string_view("memory of its own")};
    expect_error(error_code::invalid_shape, parts, [&] { test::inferred(node); });
    std::vector<float> src(54), dst(56), weights(64, 7);
    const tensor in(src.data(), {2, 9, 3}), diff_dst(dst.data(), {2, 7, 4});
    const tensor out(weights.data(), data_type::f32, {3, 3, 4}, {1, 1, 9});
    expect_error(
        error_code::invalid_shape, parts, [&] { convolution_backward_weights(in, diff_dst, out); });
    const logical_tensor inputs[] = {
        {1, data_type::f32, {2, 9, 3}}, {2, data_type::f32, {2, 7, 4}}};
    logical_tensor output(3, data_type::f32, {3, 3, 4});
    output.strides = {1, 1, 9};
    expect_error(error_code::invalid_shape, parts, [&] {
        return compile(op_kind::convolution_backward_weights, inputs, {&output, 1}, {}, {});
    });
    EXPECT_EQ(weights, std::vector<float>(64, 7));
    // Inputs may: a signal in windows of three.
    const tensor windows(src.data(), data_type::f32, {2, 9, 3}, {9, 1, 1});
    const tensor packed(weights.data(), {3, 3, 4});
    convolution_backward_weights(windows, diff_dst, packed);
}

}  // namespace
}  // namespace convgrad
