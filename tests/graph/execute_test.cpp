// Executing: what is refused before anything is written; threads, pools, workspaces.
#include <atomic>
#include <cstdint>
#include <thread>

#include "graph/helpers.hpp"
#include "support/pools.hpp"

namespace convgrad::test {
namespace {

using enum error_code;

compiled_partition weights_gradient(const layer &l, const compile_options &opts = {}) {
    return compile(op_kind::convolution_backward_weights,
        {l.src.described(0), l.diff_dst.described(1)}, {l.weights.described(2)}, l.attrs, opts);
}

/// Expects the error, and that the output still holds what it held.
void expect_refused(const compiled_partition &c, std::vector<const_tensor> inputs,
    const tensor &output, buffer &memory, std::initializer_list<std::string_view> parts) {
    memory.values().assign(memory.values().size(), 77.0F);
    expect_error(
        invalid_argument, parts, [&] { c.execute(stream(), inputs, std::vector{output}); });
    for (float v : memory.values()) ASSERT_EQ(v, 77.0F);
}

TEST(execute, refuses_wrong_counts) {
    const layer l;
    const compiled_partition c = weights_gradient(l);
    buffer out(l.weights.shape());
    const std::string_view name = "ConvolutionBackwardWeights";
    expect_refused(c, {l.src.view()}, out.view(), out, {name, "1 inputs", "has 2"});
    expect_refused(c, {l.src.view(), l.diff_dst.view(), l.src.view()}, out.view(), out,
        {name, "3 inputs", "has 2"});
    expect_error(invalid_argument, {"0 outputs", "has 1"}, [&] {
        c.execute(stream(), {l.src.view(), l.diff_dst.view()}, {});
    });
}

TEST(execute, refuses_null_data) {
    const layer l;
    const compiled_partition c = weights_gradient(l);
    buffer out(l.weights.shape());
    const tensor none(static_cast<float *>(nullptr), l.diff_dst.shape());
    expect_refused(c, {l.src.view(), none}, out.view(), out,
        {"input 1 (diff_dst)", "null data", "[2, 5, 5, 4]"});
    const tensor no_output(static_cast<float *>(nullptr), l.weights.shape());
    expect_refused(c, {l.src.view(), l.diff_dst.view()}, no_output, out,
        {"output 0 (diff_weights)", "null data"});
}

TEST(execute, refuses_tensors_that_differ_from_what_was_compiled) {
    const layer l;
    const compiled_partition c = weights_gradient(l);
    buffer out(l.weights.shape());
    const float *data = l.src.values().data();
    expect_refused(c, {{data, {2, 5, 5, 2}}, l.diff_dst.view()}, out.view(), out,
        {"input 0 (src)", "[2, 5, 5, 2]", "[2, 5, 5, 3]"});
    expect_refused(c, {{data, {1, 5, 5, 3}}, l.diff_dst.view()}, out.view(), out, {"[1, 5, 5, 3]"});
    expect_refused(c, {{data, {150}}, l.diff_dst.view()}, out.view(), out, {"[150]"});
    expect_refused(c,
        {{static_cast<const void *>(data), data_type::bf16, {2, 5, 5, 3}}, l.diff_dst.view()},
        out.view(), out, {"input 0 (src)", "bf16", "f32"});
    expect_refused(c, {{data, {2, 5, 5, 3}, {75, 3, 15, 1}}, l.diff_dst.view()}, out.view(), out,
        {"strides [75, 3, 15, 1]"});
    expect_refused(c, {{data, {2, 5, 5, 3}, {75, 15, 3}}, l.diff_dst.view()}, out.view(), out,
        {"[75, 15, 3]"});
    expect_refused(c, {l.src.view(), l.diff_dst.view()}, {out.values().data(), {3, 3, 4, 3}}, out,
        {"output 0 (diff_weights)", "[3, 3, 4, 3]"});
}

TEST(execute, takes_packed_strides_in_any_words) {
    const layer l;
    const compiled_partition c = weights_gradient(l);
    buffer out(l.weights.shape());
    c.execute(stream(), {{l.src.values().data(), {2, 5, 5, 3}, {75, 15, 3, 1}}, l.diff_dst.view()},
        {out.view()});
    EXPECT_EQ(out.values(), l.diff_weights());
}

TEST(execute, refuses_outputs_in_the_place_of_inputs) {
    const layer l;
    buffer memory({2, 5, 5, 4}), bias({4});
    const logical_tensor t = f32(0, {2, 5, 5, 4}), w = f32(1, {1, 1, 4, 4});
    const compiled_partition c = compile(op_kind::convolution, {t, w}, {t});
    const buffer weights({1, 1, 4, 4});
    expect_refused(c, {memory.view(), weights.view()}, memory.view(), memory,
        {"output 0 (dst)", "input 0 (src)", "same data pointer"});

    const compiled_partition with_bias = compile(op_kind::convolution_backward_weights,
        {l.src.described(0), l.diff_dst.described(1)}, {l.weights.described(2), f32(3, {4})},
        l.attrs);
    buffer out(l.weights.shape());
    expect_error(invalid_argument, {"both outputs", "same data pointer"}, [&] {
        with_bias.execute(
            stream(), {l.src.view(), l.diff_dst.view()}, {out.view(), {out.values().data(), {4}}});
    });
}

TEST(execute, adds_in_place) {
    const buffer src({1, 2, 2, 3}), weights({1, 1, 3, 3});
    buffer plain({1, 2, 2, 3}), sum = buffer::filled({1, 2, 2, 3}, 10.0F);
    convolution(src.view(), weights.view(), {}, plain.view());
    const logical_tensor t = src.described(0);
    const compiled_partition c =
        compile(op_kind::convolution, {t, weights.described(1), t}, {t}, {}, {.add = true});
    c.execute(stream(), {src.view(), weights.view(), sum.view()}, {sum.view()});
    for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(sum.values()[i], plain.values()[i] + 10.0F);
}

TEST(execute, handles_empty_tensors) {
    // No images: a gradient of zeros. No output: nothing to do. Null pointers are fine where
    // nothing is.
    const logical_tensor src = f32(0, {0, 5, 5, 3}), diff_dst = f32(1, {0, 5, 5, 4});
    const attributes attrs = layer().attrs;
    buffer out({3, 3, 3, 4});
    const compiled_partition w = compile(
        op_kind::convolution_backward_weights, {src, diff_dst}, {f32(2, {3, 3, 3, 4})}, attrs);
    const tensor no_src(static_cast<float *>(nullptr), {0, 5, 5, 3});
    const tensor no_diff_dst(static_cast<float *>(nullptr), {0, 5, 5, 4});
    w.execute(stream(), {no_src, no_diff_dst}, {out.view()});
    for (float v : out.values()) EXPECT_EQ(v, 0.0F);
    const compiled_partition d =
        compile(op_kind::convolution_backward_data, {diff_dst, f32(1, {3, 3, 3, 4})}, {src}, attrs);
    d.execute(stream(), {no_diff_dst, out.view()}, {no_src});
}

TEST(execute, uses_the_callers_workspace) {
    const layer l;
    const compiled_partition c = weights_gradient(l);
    std::vector<std::byte> memory(c.workspace_size() + 128);
    void *start = memory.data();
    std::size_t room = memory.size();
    ASSERT_EQ(c.workspace_alignment(), 64U);
    ASSERT_NE(std::align(64, c.workspace_size() + 64, start, room), nullptr);
    buffer out(l.weights.shape());
    c.execute(stream(), {l.src.view(), l.diff_dst.view()}, {out.view()}, start);
    EXPECT_EQ(out.values(), l.diff_weights());
    expect_error(invalid_argument, {"aligned", "64", "cpu"}, [&] {
        c.execute(stream(), {l.src.view(), l.diff_dst.view()}, {out.view()},
            static_cast<std::byte *>(start) + 8);
    });
    release_scratch();
    c.execute(stream(), {l.src.view(), l.diff_dst.view()}, {out.view()});
    EXPECT_EQ(out.values(), l.diff_weights());
}

TEST(execute, from_many_threads_at_once) {
    const layer l;
    const engine two(engine_options{.threads = 2});
    const compiled_partition c = weights_gradient(l, {.on = &two});
    const std::vector<float> expected = l.diff_weights();
    std::atomic<int> wrong{0};
    {
        std::vector<std::jthread> threads;
        for (int t = 0; t < 16; ++t)
            threads.emplace_back([&] {
                const stream s(two);
                for (int i = 0; i < 50; ++i) {
                    buffer out(l.weights.shape(), i);
                    c.execute(s, {l.src.view(), l.diff_dst.view()}, {out.view()});
                    if (out.values() != expected) ++wrong;
                }
            });
    }
    EXPECT_EQ(wrong, 0);
}

TEST(execute, compiles_in_many_threads_at_once) {
    const layer l;
    const std::vector<float> expected = l.diff_weights();
    graph g;
    op node = padded(1, op_kind::convolution_backward_weights);
    node.add_input(l.src.described(0)).add_input(l.diff_dst.described(1));
    node.add_output(l.weights.described(2));
    g.add(node).finalize();
    const partition p = g.partitions()[0];
    std::atomic<int> wrong{0};
    {
        std::vector<std::jthread> threads;
        for (int t = 0; t < 8; ++t)
            threads.emplace_back([&] {
                for (int i = 0; i < 20; ++i) {
                    buffer out(l.weights.shape(), i);
                    p.compile().execute(stream(), {l.src.view(), l.diff_dst.view()}, {out.view()});
                    if (out.values() != expected) ++wrong;
                }
            });
    }
    EXPECT_EQ(wrong, 0);
}

TEST(execute, outlives_graph_and_engine) {
    const layer l;
    const compiled_partition c = [&] {
        graph g;
        op node = padded(1, op_kind::convolution_backward_weights, "kept");
        node.add_input(l.src.described(0)).add_input(l.diff_dst.described(1));
        node.add_output(l.weights.described(2));
        g.add(node).finalize();
        const engine gone(engine_options{.threads = 3});
        return g.partitions()[0].compile(gone);
    }();
    buffer out(l.weights.shape());
    c.execute(stream(), {l.src.view(), l.diff_dst.view()}, {out.view()});
    EXPECT_EQ(out.values(), l.diff_weights());
    EXPECT_NE(c.describe().find("\"kept\""), std::string::npos);
    expect_error(invalid_argument, {"\"kept\""}, [&] { c.execute(stream(), {}, {}); });
}

TEST(execute, stream_engine_outlives_its_variable) {
    const layer l;
    const compiled_partition c = weights_gradient(l);
    const stream s = [] {
        const engine local(engine_options{.threads = 2});
        return stream(local);
    }();
    buffer out(l.weights.shape());
    c.execute(s, {l.src.view(), l.diff_dst.view()}, {out.view()});
    s.wait();
    EXPECT_EQ(out.values(), l.diff_weights());
}

TEST(execute, on_engines_with_fewer_or_more_threads_than_compiled_for) {
    const layer l;
    for (int compiled_for : {1, 2, 5})
        for (int executed_on : {1, 2, 5}) {
            const engine a(engine_options{.threads = compiled_for});
            const engine b(engine_options{.threads = executed_on});
            buffer out(l.weights.shape());
            weights_gradient(l, {.on = &a})
                .execute(stream(b), {l.src.view(), l.diff_dst.view()}, {out.view()});
            EXPECT_EQ(out.values(), l.diff_weights());
        }
}

TEST(execute, on_the_callers_pool) {
    const layer l;
    reversing_pool reversing;
    spawning_pool spawning;
    for (thread_pool *pool :
        {static_cast<thread_pool *>(&reversing), static_cast<thread_pool *>(&spawning)}) {
        const engine on(engine_options{.threads = 4, .pool = pool});
        EXPECT_EQ(on.threads(), 4);
        buffer out(l.weights.shape());
        convolution_backward_weights(
            l.src.view(), l.diff_dst.view(), out.view(), l.attrs, {.on = &on});
        EXPECT_EQ(out.values(), l.diff_weights());
    }
}

TEST(execute, inside_a_body_of_the_pool) {
    // A caller's pool whose bodies call the library again, as frameworks do.
    const layer l;
    const std::vector<float> expected = l.diff_weights();
    struct context {
        const layer &l;
        const std::vector<float> &expected;
        std::atomic<int> right{0};
    } shared{l, expected};
    spawning_pool pool;
    pool.run(
        6,
        [](void *opaque, int) {
            auto &mine = *static_cast<context *>(opaque);
            buffer out(mine.l.weights.shape());
            convolution_backward_weights(
                mine.l.src.view(), mine.l.diff_dst.view(), out.view(), mine.l.attrs);
            if (out.values() == mine.expected) ++mine.right;
        },
        &shared);
    EXPECT_EQ(shared.right, 6);
}

TEST(execute, respects_the_workspace_limit) {
    const layer l;
    const engine tight(engine_options{.threads = 1, .workspace_limit = 0});
    try {
        const compiled_partition c = weights_gradient(l, {.on = &tight});
        EXPECT_EQ(c.workspace_size(), 0U);
    } catch (const error &e) {
        EXPECT_EQ(e.code(), out_of_memory) << e.what();
    }
}

// An empty tensor has no memory: where it points means nothing, in whatever way an op is called.
TEST(empty_tensors, may_share_addresses_in_every_way_to_call) {
    const buffer weights({3, 3, 3, 4});
    const attributes attrs{.pads_begin = {1, 1}, .pads_end = {1, 1}};
    float place = 7;
    const tensor src(&place, {0, 5, 5, 3}), diff_dst(&place, {0, 5, 5, 4});
    const logical_tensor ls = f32(0, src.shape), ld = f32(1, diff_dst.shape),
                         lw = weights.described(2);
    buffer eager = buffer::filled({3, 3, 3, 4}, 9.0F), compiled = eager;
    convolution_backward(src, diff_dst, weights.view(), src, eager.view(), attrs);
    compile_backward(op_kind::convolution, {ls, ld, lw}, {ls, lw}, attrs)
        .execute(stream(), {src, diff_dst, weights.view()}, {src, compiled.view()});
    EXPECT_EQ(eager.values(), std::vector<float>(eager.values().size(), 0.0F));
    EXPECT_EQ(compiled.values(), eager.values());
    convolution(src, weights.view(), {}, diff_dst, attrs, {.add = &diff_dst});
    compile(op_kind::convolution, {ls, lw, ld}, {ld}, attrs, {.add = true})
        .execute(stream(), {src, weights.view(), diff_dst}, {diff_dst});
    EXPECT_EQ(place, 7);
}

// The same with elements is refused, in whatever way.
TEST(empty_tensors, others_must_not_share_addresses) {
    const layer l;
    buffer both(l.src.shape());
    buffer diff_weights(l.weights.shape());
    const std::initializer_list<std::string_view> parts = {"same data pointer", "overlap"};
    expect_error(error_code::invalid_argument, parts, [&] {
        convolution_backward(both.view(), l.diff_dst.view(), l.weights.view(), both.view(),
            diff_weights.view(), l.attrs);
    });
    const compiled_partition c = compile_backward(op_kind::convolution,
        {l.src.described(0), l.diff_dst.described(1), l.weights.described(2)},
        {l.src.described(3), l.weights.described(4)}, l.attrs);
    expect_error(error_code::invalid_argument, parts, [&] {
        c.execute(stream(), {both.view(), l.diff_dst.view(), l.weights.view()},
            {both.view(), diff_weights.view()});
    });
}

}  // namespace
}  // namespace convgrad::test
