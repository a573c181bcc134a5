// Offsets beyond 2^32 elements by strides, and sizes that overflow.
#include <limits>

#include "client.hpp"
#include "support/memory.hpp"

namespace convgrad::test {
namespace {

using list = std::vector<int64_t>;
constexpr int64_t most = std::numeric_limits<int64_t>::max();
constexpr int64_t two32 = int64_t{1} << 32;

dg::logical_tensor strided(std::size_t id, const list &shape, const list &strides) {
    return {id, lt_type::f32, shape, strides};
}
dg::logical_tensor packed(std::size_t id, const list &shape) {
    return {id, lt_type::f32, shape, lt_layout::strided};
}

attributes plain_attributes() {
    return {.strides = {1},
        .pads_begin = {1},
        .pads_end = {1},
        .dilations = {1},
        .data_format = "NXC",
        .weights_format = "XIO"};
}

/// The status of everything up to compiling a 1-D convolution.
dnnl_status_t compile(const attributes &attrs, const dg::logical_tensor &src,
    const dg::logical_tensor &weights, const dg::logical_tensor &dst) {
    return status_of([&] {
        dg::op op = make_op(0, op_kind::convolution, attrs);
        op.add_inputs({src, weights});
        op.add_output(dst);
        dg::graph graph(dnnl::engine::kind::cpu);
        graph.add_op(op);
        graph.finalize();
        return graph.get_partitions().at(0).compile({src, weights}, {dst}, cpu_engine());
    });
}

TEST(LargeClient, SizesThatOverflowAreRefused) {
    const attributes attrs = plain_attributes();
    const auto weights = packed(1, {3, 1, 1}), dst = packed(2, {1, 8, 1});
    EXPECT_EQ(compile(attrs, packed(0, {1, 8, 1}), weights, dst), dnnl_success);
    EXPECT_NE(compile(attrs, packed(0, {two32, two32, 1}), weights, packed(2, {two32, two32, 1})),
        dnnl_success);
    EXPECT_NE(compile(attrs, strided(0, {2, 8, 1}, {most, 1, 1}), weights, packed(2, {2, 8, 1})),
        dnnl_success);
    EXPECT_NE(
        compile(attrs, packed(0, {1, 8, 1}), packed(1, {two32, 1, two32}), dst), dnnl_success);
    attributes padded = attrs;
    padded.pads_begin = {most};
    padded.pads_end = {most};
    EXPECT_NE(compile(padded, packed(0, {1, 8, 1}), weights, dst), dnnl_success);
    padded.dilations = {most};
    EXPECT_NE(compile(padded, packed(0, {1, 8, 1}), weights, dst), dnnl_success);
}

TEST(LargeClient, ViewsBeyond32Bits) {
    const int64_t far = two32 + 9;
    guarded_memory memory(static_cast<std::size_t>(far + 8) * sizeof(float));
    std::byte *place = memory.place(static_cast<std::size_t>(far + 8) * sizeof(float));
    auto *images = std::launder(reinterpret_cast<float *>(place));
    std::vector<float> weights = {1, 2, 3}, dst(16, -1);
    for (int64_t i = 0; i < 8; ++i) images[i] = images[far + i] = static_cast<float>(i + 1);
    images[far] = 5;
    const auto src_lt = strided(0, {2, 8, 1}, {far, 1, 1});
    const auto weights_lt = packed(1, {3, 1, 1}), dst_lt = packed(2, {2, 8, 1});
    dg::op op = make_op(0, op_kind::convolution, plain_attributes());
    op.add_inputs({src_lt, weights_lt});
    op.add_output(dst_lt);
    dg::graph graph(dnnl::engine::kind::cpu);
    graph.add_op(op);
    graph.finalize();
    const dnnl::engine engine = cpu_engine();
    dnnl::stream stream(engine);
    const auto compiled =
        graph.get_partitions().at(0).compile({src_lt, weights_lt}, {dst_lt}, engine);
    compiled.execute(stream, {{src_lt, engine, images}, {weights_lt, engine, weights.data()}},
        {{dst_lt, engine, dst.data()}});
    stream.wait();
    EXPECT_EQ(dst[0], 2 * 1 + 3 * 2);
    EXPECT_EQ(dst[8], 2 * 5 + 3 * 2);
    EXPECT_EQ(dst[15], 1 * 7 + 2 * 8);
}

}  // namespace
}  // namespace convgrad::test
