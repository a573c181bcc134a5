// Weights that the caller says are constant: their other form is kept, for one address, until it is
// told otherwise; never where nobody promised anything.
#include <atomic>
#include <thread>

#include <convgrad/explain.hpp>

#include "graph/helpers.hpp"

namespace convgrad::test {
namespace {

/// A layer that runs by Winograd's algorithm, which keeps transformed filters.
struct small_layer {
    buffer src{{1, 7, 9, 48}, 1}, weights{{3, 3, 48, 64}, 2}, other{{3, 3, 48, 64}, 4};
    buffer dst{{1, 7, 9, 64}, 3};
    attributes attrs{.pads_begin = {1, 1}, .pads_end = {1, 1}};
    stream on{default_engine()};

    [[nodiscard]] compiled_partition compile(bool constant, bool back = false) const {
        logical_tensor w = weights.described(1);
        w.is_constant = constant;
        if (back)
            return convgrad::compile(op_kind::convolution_backward_data, {dst.described(0), w},
                {src.described(2)}, attrs);
        return convgrad::compile(
            op_kind::convolution, {src.described(0), w}, {dst.described(2)}, attrs);
    }
    [[nodiscard]] std::vector<float> run(
        const compiled_partition &c, const buffer &w, bool back = false) const {
        buffer out = buffer::filled(back ? src.shape() : dst.shape(), 99.0F);
        c.execute(on, {(back ? dst : src).view(), w.view()}, {out.view()});
        return out.values();
    }
};

TEST(constants, kept_by_the_first_execution) {
    const small_layer l;
    for (const bool back : {false, true}) {
        const compiled_partition plain = l.compile(false, back), kept = l.compile(true, back);
        ASSERT_EQ(plain.describe().substr(0, 60), kept.describe().substr(0, 60));
        EXPECT_NE(kept.describe().find("kept"), std::string::npos) << kept.describe();
        EXPECT_EQ(plain.describe().find("kept"), std::string::npos) << plain.describe();
        const std::vector<float> right = l.run(plain, l.weights, back);
        EXPECT_EQ(kept.constants_size(), 0U);
        for (int i = 0; i < 3; ++i) {
            EXPECT_EQ(l.run(kept, l.weights, back), right);
            EXPECT_GE(kept.constants_size(), 4 * 16 * l.weights.values().size() / 9);
        }
        EXPECT_EQ(plain.constants_size(), 0U);
    }
}

TEST(constants, dropped_when_told) {
    small_layer l;
    const compiled_partition plain = l.compile(false), kept = l.compile(true);
    const std::vector<float> before = l.run(kept, l.weights);
    l.weights.values() = l.other.values();
    EXPECT_EQ(l.run(kept, l.weights), before);  // a broken promise
    const compiled_partition copy = kept;       // shares what is kept
    copy.forget_constants();
    EXPECT_EQ(kept.constants_size(), 0U);
    const std::vector<float> after = l.run(plain, l.weights);
    EXPECT_NE(after, before);
    EXPECT_EQ(l.run(kept, l.weights), after);
    EXPECT_EQ(l.run(kept, l.weights), after);
    EXPECT_NE(copy.constants_size(), 0U);
}

TEST(constants, nothing_is_kept_without_the_promise) {
    small_layer l;
    const compiled_partition plain = l.compile(false);
    const std::vector<float> before = l.run(plain, l.weights);
    l.weights.values() = l.other.values();
    EXPECT_NE(l.run(plain, l.weights), before);
    EXPECT_EQ(plain.constants_size(), 0U);
    plain.forget_constants();
}

TEST(constants, weights_elsewhere_are_other_weights) {
    const small_layer l;
    const compiled_partition plain = l.compile(false), kept = l.compile(true);
    const std::vector<float> one = l.run(plain, l.weights), two = l.run(plain, l.other);
    std::size_t size = 0;
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(l.run(kept, l.weights), one);
        size = kept.constants_size();
        EXPECT_EQ(l.run(kept, l.other), two);
        EXPECT_EQ(l.run(kept, l.other), two);
        EXPECT_EQ(kept.constants_size(), size);  // of one address at a time
    }
}

// No execution waits for another, or sees half of what it makes; what is being made when all is
// forgotten is not kept.
TEST(constants, many_threads) {
    const small_layer l;
    const compiled_partition plain = l.compile(false), kept = l.compile(true);
    const std::vector<float> one = l.run(plain, l.weights), two = l.run(plain, l.other);
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            const stream own(engine(engine_options{.threads = 1 + t % 2}));
            for (int i = 0; i < 50; ++i) {
                const bool first = (i / 5 + t) % 2 == 0;
                buffer out = buffer::filled(l.dst.shape(), 99.0F);
                kept.execute(
                    own, {l.src.view(), (first ? l.weights : l.other).view()}, {out.view()});
                if (out.values() != (first ? one : two)) ++wrong;
                if (i % 7 == t) kept.forget_constants();
            }
        });
    for (std::thread &t : threads) t.join();
    EXPECT_EQ(wrong, 0);
    kept.forget_constants();
    EXPECT_EQ(kept.constants_size(), 0U);
}

TEST(constants, both_gradients) {
    const small_layer l;
    logical_tensor w = l.weights.described(2);
    const auto compiled = [&] {
        return compile_backward(op_kind::convolution, {l.src.described(0), l.dst.described(1), w},
            {l.src.described(3), l.weights.described(4)}, l.attrs);
    };
    const auto run = [&](const compiled_partition &c) {
        buffer diff_src = buffer::filled(l.src.shape(), 99.0F),
               diff_weights = buffer::filled(l.weights.shape(), 99.0F);
        c.execute(l.on, {l.src.view(), l.dst.view(), l.weights.view()},
            {diff_src.view(), diff_weights.view()});
        return std::pair(diff_src.values(), diff_weights.values());
    };
    const compiled_partition plain = compiled();
    w.is_constant = true;
    const compiled_partition kept = compiled();
    const auto right = run(plain);
    EXPECT_EQ(run(kept), right);
    EXPECT_NE(kept.constants_size(), 0U);
    EXPECT_EQ(run(kept), right);
}

TEST(constants, said_in_a_graph) {
    const small_layer l;
    logical_tensor w = l.weights.described(1);
    w.is_constant = true;
    graph g;
    op node = padded(0, op_kind::convolution);
    node.add_input(l.src.described(0)).add_input(w).add_output(f32(2));
    g.add(node);
    g.finalize();
    const std::vector<float> right = l.run(l.compile(false), l.weights);
    for (const compiled_partition &c : {g.partitions()[0].compile(),
             g.partitions()[0].compile({l.src.described(0), l.weights.described(1)}, {f32(2)})}) {
        EXPECT_TRUE(c.query(1).is_constant);
        EXPECT_EQ(l.run(c, l.weights), right);
        EXPECT_NE(c.constants_size(), 0U);
    }
}

// A plan that is made anew at each execution keeps nothing.
TEST(constants, shapes_that_come_late) {
    const small_layer l;
    op node = padded(0, op_kind::convolution_backward_data);
    logical_tensor w = l.weights.described(1);
    w.is_constant = true;
    node.add_input(l.dst.described(0)).add_input(w);
    node.add_input(logical_tensor(2, data_type::s32, {4})).add_output(f32(3));
    graph g;
    g.add(node);
    g.finalize();
    const compiled_partition c = g.partitions()[0].compile();
    const std::int32_t shape[] = {1, 7, 9, 48};
    for (int i = 0; i < 2; ++i) {
        buffer out = buffer::filled(l.src.shape(), 99.0F);
        c.execute(l.on, {l.dst.view(), l.weights.view(), const_tensor(shape, {4})}, {out.view()});
        EXPECT_EQ(out.values(), l.run(l.compile(false, true), l.weights, true));
        EXPECT_EQ(c.constants_size(), 0U);
    }
}

TEST(constants, explain_says_what_is_kept) {
    const small_layer l;
    logical_tensor w = l.weights.described(1);
    const auto bytes = [&] {
        return explain(op_kind::convolution, {l.src.described(0), w}, {l.dst.described(2)}, l.attrs)
            .constants;
    };
    EXPECT_EQ(bytes(), 0U);
    w.is_constant = true;
    const compiled_partition kept = l.compile(true);
    (void)l.run(kept, l.weights);
    EXPECT_EQ(bytes(), kept.constants_size());
}

TEST(constants, outputs_are_none) {
    const small_layer l;
    logical_tensor out = l.dst.described(2);
    out.is_constant = true;
    expect_error(
        error_code::invalid_argument, {"output 0 (dst, id 2) is said to be constant"}, [&] {
            (void)compile(
                op_kind::convolution, {l.src.described(0), l.weights.described(1)}, {out}, l.attrs);
        });
}

}  // namespace
}  // namespace convgrad::test
