// What explain() tells is what compile() does.
#include <convgrad/explain.hpp>

#include "graph/helpers.hpp"

namespace convgrad::test {
namespace {

TEST(explain, tells_what_compile_does) {
    const layer l;
    const logical_tensor src = l.src.described(0), weights = l.weights.described(1);
    const engine on(engine_options{.threads = 2});
    const explanation e =
        explain(op_kind::convolution, {src, weights}, {f32(2)}, l.attrs, {.on = &on});
    const compiled_partition c =
        compile(op_kind::convolution, {src, weights}, {f32(2)}, l.attrs, {.on = &on});
    EXPECT_EQ(e.kind, op_kind::convolution);
    EXPECT_NE(c.describe().find(e.algorithm + ", " + e.uses), std::string::npos) << c.describe();
    EXPECT_EQ(e.outputs.at(0).shape, (dims{2, 5, 5, 4}));
    EXPECT_EQ(e.workspace, c.workspace_size());
    EXPECT_EQ(e.threads, on.threads());
    EXPECT_EQ(e.flops, 2.0 * 2 * 25 * 9 * 3 * 4);
    ASSERT_FALSE(e.others.empty());
    for (const explanation::candidate &other : e.others) {
        EXPECT_FALSE(other.algorithm.empty());
        EXPECT_FALSE(other.uses.empty());
        EXPECT_FALSE(other.reason.empty());
    }
    const std::string text = to_string(e);
    for (const std::string &part : {std::string("Convolution"), std::string("[2, 5, 5, 4]"),
             e.algorithm, e.blocks, e.others[0].reason, std::string("GFLOP")})
        EXPECT_NE(text.find(part), std::string::npos) << part << " is not in " << text;
}

TEST(explain, takes_all_options) {
    const layer l;
    const logical_tensor src = l.src.described(0), weights = l.weights.described(1),
                         dst = f32(2, {2, 5, 5, 4});
    EXPECT_EQ(explain(op_kind::convolution, {src, weights, dst}, {dst}, l.attrs,
                  {.relu = true, .add = true})
                  .outputs.size(),
        1U);
    const explanation gradient = explain(op_kind::convolution_backward_weights, {src, dst},
        {weights, f32(4)}, l.attrs, {.accumulate = true, .diff_bias = true});
    EXPECT_EQ(gradient.outputs.at(1).shape, dims{4});
    const engine portable(engine_options{.max_isa = isa::portable});
    EXPECT_EQ(explain(op_kind::bias_add_backward, {dst}, {f32(3)}, {}, {.on = &portable}).uses,
        "portable");
}

TEST(explain, refuses_what_compile_refuses) {
    const layer l;
    const logical_tensor src = l.src.described(0), weights = l.weights.described(1);
    expect_error(error_code::invalid_shape, {"Convolution", "explain", "input 0"},
        [&] { return explain(op_kind::convolution, {}, {f32(2)}); });
    expect_error(error_code::invalid_shape, {"Convolution", "explain", "input 0"}, [&] {
        return explain(op_kind::convolution, {f32(0), weights}, {f32(2)});
    });
    expect_error(error_code::invalid_op, {"Convolution", "0 outputs"}, [&] {
        return explain(op_kind::convolution, {src, weights}, {}, l.attrs);
    });
    expect_error(error_code::invalid_op, {"accumulate"}, [&] {
        return explain(
            op_kind::convolution, {src, weights}, {f32(2)}, l.attrs, {.accumulate = true});
    });
}

}  // namespace
}  // namespace convgrad::test
