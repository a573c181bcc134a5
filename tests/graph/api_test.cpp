// What must not compile does not.
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
