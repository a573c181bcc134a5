// BiasAddBackward through every door: eager, compiled, graphs.
#include <vector>

#include <gtest/gtest.h>

#include <convgrad/eager.hpp>
#include <convgrad/graph.hpp>

#include "op/expect_error.hpp"

namespace convgrad {
namespace {

using test::expect_error;

constexpr op_kind kind = op_kind::bias_add_backward;
float *const nothing = nullptr;

/// 2 images of 3x2 points with 5 channels: the value at (n, y, x, c) is 10 c + position.
std::vector<float> numbers() {
    std::vector<float> values;
    for (int position = 0; position < 12; ++position)
        for (int c = 0; c < 5; ++c) values.push_back(static_cast<float>(10 * c + position));
    return values;
}
// Σ position = 66, and 12 positions.
const std::vector<float> sums = {66, 186, 306, 426, 546};
const dims data_shape{2, 3, 2, 5};

TEST(bias_gradient, eager_calls_sum_over_batch_and_space) {
    std::vector<float> data = numbers(), result(5, -1);
    bias_add_backward({data.data(), data_shape}, {result.data(), {5}});
    EXPECT_EQ(result, sums);
    bias_add_backward({data.data(), data_shape}, {result.data(), {5}}, {}, {.accumulate = true});
    for (std::size_t c = 0; c < 5; ++c) EXPECT_EQ(result[c], 2 * sums[c]);
}

TEST(bias_gradient, takes_any_strides_and_both_formats) {
    std::vector<float> data = numbers(), result(10, -1);
    // The same memory, named as NCX, and every other place of the result.
    bias_add_backward({data.data(), data_type::f32, {2, 5, 3, 2}, {30, 1, 10, 5}},
        {result.data(), data_type::f32, {5}, {2}}, {.data_format = "NCX"});
    for (std::size_t c = 0; c < 5; ++c) {
        EXPECT_EQ(result[2 * c], sums[c]);
        EXPECT_EQ(result[2 * c + 1], -1);
    }
    // Rank 2: batch and channels.
    std::vector<float> flat(5, -1);
    bias_add_backward({data.data(), {12, 5}}, {flat.data(), {5}});
    EXPECT_EQ(flat, sums);
}

TEST(bias_gradient, an_empty_batch_gives_zeros_or_leaves_what_was_there) {
    std::vector<float> result(5, 7);
    bias_add_backward({nothing, {0, 3, 2, 5}}, {result.data(), {5}}, {}, {.accumulate = true});
    EXPECT_EQ(result, std::vector<float>(5, 7));
    bias_add_backward({nothing, {0, 3, 2, 5}}, {result.data(), {5}});
    EXPECT_EQ(result, std::vector<float>(5, 0));
}

TEST(bias_gradient, rounds_once_and_may_be_f32) {
    // Summed in bf16, ones would stop at 256.
    std::vector<std::uint16_t> ones(3 * 257, 0x3f80);
    std::vector<std::uint16_t> narrow(1);
    float wide = 0;
    bias_add_backward(
        {ones.data(), data_type::bf16, {3, 257, 1}}, {narrow.data(), data_type::bf16, {1}});
    EXPECT_EQ(narrow[0], 0x4441);  // 771 rounds to 772
    bias_add_backward({ones.data(), data_type::bf16, {3, 257, 1}}, {&wide, {1}});
    EXPECT_EQ(wide, 771);
}

TEST(bias_gradient, compiles_alone_and_in_a_graph) {
    std::vector<float> data = numbers(), result(5, -1);
    const stream queue{default_engine()};
    const tensor in(data.data(), data_shape), out(result.data(), {5});
    const compiled_partition single = compile(kind,
        {{logical_tensor(0, data_type::f32, data_shape)}}, {{logical_tensor(1, data_type::f32)}});
    EXPECT_EQ(single.outputs()[0].shape, (dims{5}));
    EXPECT_NE(single.describe().find("sums.fma"), std::string::npos) << single.describe();
    single.execute(queue, {{in}}, {{out}});
    EXPECT_EQ(result, sums);

    graph g;
    g.add(op(3, kind, "bias")
              .set("accumulate", 1)
              .add_input(logical_tensor(0, data_type::f32, data_shape))
              .add_output(logical_tensor(1, data_type::f32)));
    g.finalize();
    ASSERT_EQ(g.partitions().size(), 1u);
    const partition p = g.partitions()[0];
    EXPECT_EQ(p.outputs()[0].shape, (dims{5}));
    p.compile(default_engine()).execute(queue, {{in}}, {{out}});
    for (std::size_t c = 0; c < 5; ++c) EXPECT_EQ(result[c], 2 * sums[c]);
}

TEST(bias_gradient, errors_write_nothing) {
    std::vector<float> data = numbers(), result(5, -1);
    const tensor in(data.data(), data_shape), out(result.data(), {5});
    const auto call = [&](const tensor &from, const tensor &to, const attributes &attrs = {}) {
        return [=] { bias_add_backward(from, to, attrs); };
    };
    expect_error(error_code::invalid_shape, {"diff_bias has 5 elements", "3 channels"},
        call(in, out, {.data_format = "NCX"}));
    expect_error(
        error_code::invalid_argument, {"diff_dst", "null data"}, call({nothing, data_shape}, out));
    expect_error(
        error_code::invalid_argument, {"diff_bias", "null data"}, call(in, {nothing, {5}}));
    expect_error(error_code::invalid_argument, {"must not overlap"}, call(in, {data.data(), {5}}));
    expect_error(
        error_code::invalid_op, {"no attribute \"strides\""}, call(in, out, {.strides = {2, 2}}));
    EXPECT_EQ(result, std::vector<float>(5, -1));
    EXPECT_EQ(data, numbers());
}

}  // namespace
}  // namespace convgrad
