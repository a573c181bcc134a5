// What must not compile does not, what cannot fail says so, and words are enumerations.
#include <type_traits>

#include <convgrad/convgrad.hpp>

#include "graph/helpers.hpp"

namespace convgrad::test {
namespace {

// Memory that is const makes an input, never an output.
static_assert(std::is_constructible_v<const_tensor, const float *, dims>);
static_assert(std::is_constructible_v<tensor, float *, dims>);
static_assert(!std::is_constructible_v<tensor, const float *, dims>);
static_assert(!std::is_constructible_v<tensor, const bf16 *, dims>);
static_assert(!std::is_constructible_v<tensor, const f16 *, dims>);
static_assert(!std::is_constructible_v<tensor, const void *, data_type, dims>);
static_assert(std::is_convertible_v<tensor, const_tensor>);
static_assert(!std::is_constructible_v<tensor, const_tensor>);
static_assert(!std::is_assignable_v<tensor &, const_tensor>);

template <typename Output>
concept can_be_written = requires(const_tensor in, Output out) {
    convolution_backward_data(in, in, out);
};
static_assert(can_be_written<tensor> && !can_be_written<const_tensor>);

template <typename Inputs, typename Outputs>
concept can_be_executed = requires(compiled_partition p, stream s, Inputs in, Outputs out) {
    p.execute(s, in, out);
};
static_assert(can_be_executed<std::vector<const_tensor>, std::vector<tensor>>);
static_assert(can_be_executed<std::vector<tensor>, std::vector<tensor>>);
static_assert(!can_be_executed<std::vector<tensor>, std::vector<const_tensor>>);

// Names are where the binary interface is, and read as if they were not.
static_assert(std::is_same_v<convgrad::tensor, convgrad::CONVGRAD_ABI::tensor>);
static_assert(std::is_same_v<convgrad::error, convgrad::CONVGRAD_ABI::error>);

static_assert(noexcept(to_string(data_type::f32)) &&noexcept(to_string(isa::best)));
static_assert(noexcept(to_string(math_mode::strict)) &&noexcept(to_string(engine_kind::cpu)));
static_assert(noexcept(to_string(error_code::invalid_op)));
static_assert(noexcept(to_string(op_kind::convolution)) &&noexcept(to_string(auto_pad::none)));
static_assert(noexcept(size_of(data_type::f32)) &&noexcept(detected_isa()));

static_assert(!std::is_convertible_v<int, word<auto_pad>>);
static_assert(!std::is_convertible_v<data_format, word<auto_pad>>);

TEST(words, are_values_or_text) {
    const attributes by_value{.auto_pad = auto_pad::same_upper,
        .data_format = data_format::ncx,
        .weights_format = weights_format::oix};
    const attributes by_text{
        .auto_pad = "Same_Upper", .data_format = "ncx", .weights_format = std::string("OIX")};
    EXPECT_EQ(by_value.auto_pad, by_text.auto_pad);
    EXPECT_EQ(by_value.data_format, by_text.data_format);
    EXPECT_EQ(by_value.weights_format, by_text.weights_format);
    EXPECT_TRUE(by_text.auto_pad == auto_pad::same_upper);
    EXPECT_EQ(to_string(by_text.auto_pad), "same_upper");
    EXPECT_EQ(to_string(by_text.data_format), "NCX");
    EXPECT_EQ(to_string(*by_text.weights_format), "OIX");
    EXPECT_FALSE(attributes{}.weights_format);
    EXPECT_EQ(to_string(static_cast<auto_pad>(9)), "unknown");
}

TEST(words, that_do_not_exist_are_refused_where_they_are_written) {
    expect_error(error_code::invalid_op,
        {"auto_pad", "\"same\"", "none, same_upper, same_lower, valid"},
        [] { return attributes{.auto_pad = "same"}; });
    expect_error(error_code::invalid_op, {"data_format", "\"NHWC\"", "NXC, NCX"},
        [] { return attributes{.data_format = "NHWC"}; });
    expect_error(error_code::invalid_op, {"weights_format", "\"\"", "XIO, OIX, XOI, IOX"},
        [] { return attributes{.weights_format = ""}; });
    // A number that is no value, and a value that is none of this op's.
    const attributes strange{.auto_pad = static_cast<auto_pad>(9)};
    expect_error(error_code::invalid_op, {"Convolution", "auto_pad", "unknown"}, [&] {
        return infer_shape(op_kind::convolution, {1, 5, 3}, {3, 3, 4}, strange);
    });
    expect_error(error_code::invalid_op, {"Convolution", "weights_format", "IOX", "XIO, OIX"}, [] {
        return infer_shape(
            op_kind::convolution, {1, 5, 3}, {3, 3, 4}, {.weights_format = weights_format::iox});
    });
}

TEST(words, graphs_take_values_too) {
    op by_value(1, op_kind::convolution), by_text(1, op_kind::convolution);
    by_value.set("auto_pad", auto_pad::valid).set("data_format", data_format::ncx);
    by_value.set("weights_format", weights_format::oix);
    by_text.set("auto_pad", "valid").set("data_format", "NCX").set("weights_format", "OIX");
    EXPECT_EQ(by_value.attributes(), by_text.attributes());
}

TEST(inputs, may_be_const_memory) {
    const layer l;
    const std::vector<float> &src = l.src.values(), &weights = l.weights.values();
    buffer eager({2, 5, 5, 4}), compiled({2, 5, 5, 4});
    convolution({src.data(), l.src.shape()}, {weights.data(), l.weights.shape()}, {}, eager.view(),
        l.attrs);
    compile(op_kind::convolution, {l.src.described(0), l.weights.described(1)},
        {compiled.described(2)}, l.attrs)
        .execute(stream(), {{src.data(), l.src.shape()}, {weights.data(), l.weights.shape()}},
            {compiled.view()});
    EXPECT_EQ(eager.values(), compiled.values());
}

}  // namespace
}  // namespace convgrad::test
