// The custom calls of XLA, in a runtime that behaves as XLA may.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>

#include <gtest/gtest.h>

#include <convgrad/eager.hpp>

#include "cpu/machine/machine.hpp"
#include "fake_runtime.hpp"
#include "xla_pool.hpp"

namespace convgrad::xla::test {
namespace {

constexpr scheduling all_ways[] = {scheduling::none, scheduling::refused, scheduling::at_once,
    scheduling::on_threads, scheduling::late};

void count_calls(void *counts, int i) {
    ++(*static_cast<std::vector<std::atomic<int>> *>(counts))[static_cast<std::size_t>(i)];
}

TEST(xla_pool, runs_each_body_once_however_tasks_run) {
    for (scheduling how : all_ways)
        for (int threads : {1, 2, 7})
            for (int count : {0, 1, 2, 5, 20}) {
                fake_runtime runtime(threads, how);
                const call_frame frame = runtime.frame();
                pool p(frame);
                std::vector<std::atomic<int>> counts(20);
                p.run(count, count_calls, &counts);
                for (int i = 0; i < 20; ++i)
                    EXPECT_EQ(counts[static_cast<std::size_t>(i)], i < count ? 1 : 0);
                runtime.finish();  // tasks that come late find nothing to do
                for (int i = 0; i < 20; ++i)
                    EXPECT_EQ(counts[static_cast<std::size_t>(i)], i < count ? 1 : 0);
                EXPECT_LT(runtime.scheduled(), std::max(threads, 1));
                EXPECT_EQ(runtime.errors_alive(), 0);
            }
}

TEST(xla_pool, offers_what_xla_has) {
    EXPECT_EQ(pool(fake_runtime(5, scheduling::at_once).frame()).concurrency(), 5);
    EXPECT_EQ(pool(fake_runtime(5, scheduling::none).frame()).concurrency(), 1);
    EXPECT_EQ(pool(fake_runtime(0, scheduling::at_once).frame()).concurrency(), 1);
    fake_runtime old(5, scheduling::at_once);
    old.forget_thread_count();
    EXPECT_EQ(pool(old.frame()).concurrency(), 1);
}

TEST(xla_pool, nests) {
    fake_runtime runtime(3, scheduling::at_once);
    const call_frame frame = runtime.frame();
    struct nest {
        pool *p;
        std::vector<std::atomic<int>> *counts;
    };
    std::vector<std::atomic<int>> counts(4);
    pool p(frame);
    nest outer{&p, &counts};
    p.run(
        3,
        [](void *n, int) {
            static_cast<nest *>(n)->p->run(4, count_calls, static_cast<nest *>(n)->counts);
        },
        &outer);
    for (const auto &c : counts) EXPECT_EQ(c, 3);
}

TEST(xla_pool, many_callers_at_once) {
    fake_runtime runtimes[] = {
        {4, scheduling::on_threads}, {4, scheduling::on_threads}, {4, scheduling::late}};
    std::vector<std::thread> callers;
    for (fake_runtime &r : runtimes)
        callers.emplace_back([&r] {
            for (int i = 0; i < 50; ++i) {
                std::vector<std::atomic<int>> counts(8);
                const call_frame frame = r.frame();
                pool(frame).run(8, count_calls, &counts);
                for (const auto &c : counts) EXPECT_EQ(c, 1);
                r.finish();
            }
        });
    for (std::thread &c : callers) c.join();
}

std::vector<float> numbers(std::size_t count, int seed) {
    std::vector<float> made(count);
    for (std::size_t i = 0; i < count; ++i)
        made[i] = static_cast<float>((static_cast<int>(i) * 37 + seed * 11) % 19 - 9);
    return made;
}

dim size_of(const dims &shape) {
    return std::accumulate(shape.begin(), shape.end(), dim{1}, std::multiplies<>());
}

/// A small layer: 2 images of 6x5 with 4 channels, 3x3 kernels, 6 outputs, 2 groups.
struct layer {
    dims src{2, 6, 5, 4}, weights{3, 3, 2, 6}, dst{2, 6, 5, 6}, bias{6};
    attributes attrs{.strides = {1, 1},
        .pads_begin = {1, 1},
        .pads_end = {1, 1},
        .dilations = {1, 1},
        .groups = 2};

    static void describe(custom_call &call) {
        call.set("groups", dim{2});
        call.set("pads_begin", dims{1, 1});
        call.set("pads_end", dims{1, 1});
        call.set("rank", dim{4});
        call.set("strides", dims{1, 1});
    }
};

dims mapped(dims leading, const dims &shape) {
    leading.insert(leading.end(), shape.begin(), shape.end());
    return leading;
}

TEST(xla_call, maps_over_leading_dimensions) {
    const layer l;
    // Which inputs are mapped, over two dimensions of which each may have one or both.
    const dims choices[] = {{1, 1}, {3, 1}, {1, 2}, {3, 2}};
    const auto per_src = static_cast<std::size_t>(size_of(l.src));
    const auto per_weights = static_cast<std::size_t>(size_of(l.weights));
    const auto per_dst = static_cast<std::size_t>(size_of(l.dst));
    for (const dims &of_src : choices)
        for (const dims &of_weights : choices)
            for (const dims &of_bias : choices) {
                dims out(2);
                for (std::size_t d = 0; d < 2; ++d)
                    out[d] = std::max({of_src[d], of_weights[d], of_bias[d]});
                const auto src = numbers(per_src * static_cast<std::size_t>(size_of(of_src)), 1);
                const auto weights =
                    numbers(per_weights * static_cast<std::size_t>(size_of(of_weights)), 2);
                const auto bias = numbers(6 * static_cast<std::size_t>(size_of(of_bias)), 3);
                std::vector<float> dst(per_dst * static_cast<std::size_t>(size_of(out)), -1);
                custom_call call;
                call.input(element_type::f32, src.data(), mapped(of_src, l.src));
                call.input(element_type::f32, weights.data(), mapped(of_weights, l.weights));
                call.input(element_type::f32, bias.data(), mapped(of_bias, l.bias));
                call.output(element_type::f32, dst.data(), mapped(out, l.dst));
                layer::describe(call);
                fake_runtime runtime(3, scheduling::on_threads);
                const auto failed = call.run(runtime, "convgrad.convolution");
                ASSERT_FALSE(failed.has_value()) << failed->message;
                for (dim a = 0; a < out[0]; ++a)
                    for (dim b = 0; b < out[1]; ++b) {
                        const auto at = [&](const dims &of) {
                            return static_cast<std::size_t>(
                                (of[0] == 1 ? 0 : a) * of[1] + (of[1] == 1 ? 0 : b));
                        };
                        std::vector<float> expected(per_dst);
                        convolution({src.data() + at(of_src) * per_src, l.src},
                            {weights.data() + at(of_weights) * per_weights, l.weights},
                            {bias.data() + at(of_bias) * 6, l.bias}, {expected.data(), l.dst},
                            l.attrs);
                        const float *got = dst.data() + at(out) * per_dst;
                        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), got));
                    }
            }
}

TEST(xla_call, gradients_with_and_without_the_bias) {
    const layer l;
    const auto src = numbers(static_cast<std::size_t>(size_of(l.src)), 4);
    const auto weights = numbers(static_cast<std::size_t>(size_of(l.weights)), 5);
    const auto diff_dst = numbers(static_cast<std::size_t>(size_of(l.dst)), 6);
    std::vector<float> diff_src(src.size()), diff_weights(weights.size()), diff_bias(6);
    const tensor bias_out(diff_bias.data(), l.bias);
    convolution_backward({src.data(), l.src}, {diff_dst.data(), l.dst}, {weights.data(), l.weights},
        {diff_src.data(), l.src}, {diff_weights.data(), l.weights}, l.attrs,
        {.diff_bias = &bias_out});
    for (bool with_bias : {false, true}) {
        std::vector<float> a(src.size()), b(weights.size()), c(6), d(weights.size()), e(6),
            f(src.size());
        fake_runtime runtime(2, scheduling::at_once);
        custom_call both, alone, data;
        both.input(element_type::f32, src.data(), l.src);
        both.input(element_type::f32, diff_dst.data(), l.dst);
        both.input(element_type::f32, weights.data(), l.weights);
        both.output(element_type::f32, a.data(), l.src);
        both.output(element_type::f32, b.data(), l.weights);
        if (with_bias) both.output(element_type::f32, c.data(), l.bias);
        layer::describe(both);
        EXPECT_FALSE(both.run(runtime, "convgrad.convolution_backward"));
        alone.input(element_type::f32, src.data(), l.src);
        alone.input(element_type::f32, diff_dst.data(), l.dst);
        alone.output(element_type::f32, d.data(), l.weights);
        if (with_bias) alone.output(element_type::f32, e.data(), l.bias);
        layer::describe(alone);
        EXPECT_FALSE(alone.run(runtime, "convgrad.convolution_backward_weights"));
        data.input(element_type::f32, diff_dst.data(), l.dst);
        data.input(element_type::f32, weights.data(), l.weights);
        data.output(element_type::f32, f.data(), l.src);
        layer::describe(data);
        EXPECT_FALSE(data.run(runtime, "convgrad.convolution_backward_data"));
        EXPECT_EQ(a, diff_src);
        EXPECT_EQ(b, diff_weights);
        EXPECT_EQ(d, diff_weights);
        EXPECT_EQ(f, diff_src);
        EXPECT_EQ(c, with_bias ? diff_bias : std::vector<float>(6));
        EXPECT_EQ(e, with_bias ? diff_bias : std::vector<float>(6));
    }
}

TEST(xla_call, keeps_subnormals_whoever_calls) {
    const dims shape{1, 1, 1}, kernel{1, 1, 1};
    const float tiny = std::ldexp(1.0F, -140), one = 1;
    const cpu::float_modes before = cpu::read_float_modes();
    const cpu::float_modes both = cpu::flush_subnormal_results | cpu::subnormals_are_zero;
    for (const cpu::float_modes flush : {cpu::float_modes{0}, both}) {
        float dst = -1;
        custom_call call;
        call.input(element_type::f32, &tiny, shape);
        call.input(element_type::f32, &one, kernel);
        call.output(element_type::f32, &dst, shape);
        call.set("rank", dim{3});
        fake_runtime runtime(1, scheduling::none);
        cpu::set_float_modes(before | flush);
        const auto failed = call.run(runtime, "convgrad.convolution");
        EXPECT_EQ(cpu::read_float_modes() & both, flush);
        cpu::set_float_modes(before);
        EXPECT_FALSE(failed);
        EXPECT_EQ(std::memcmp(&dst, &tiny, sizeof dst), 0);
    }
}

TEST(xla_call, empty_tensors_may_share_an_address_or_have_none) {
    const float weights[6] = {};
    float place = 0, diff_weights[6] = {1, 1, 1, 1, 1, 1};
    for (float *nowhere : {static_cast<float *>(nullptr), &place}) {
        custom_call forward, backward;
        forward.input(element_type::f32, nowhere, {0, 5, 2});
        forward.input(element_type::f32, weights, {1, 2, 3});
        forward.output(element_type::f32, nowhere, {0, 5, 3});
        forward.set("rank", dim{3});
        backward.input(element_type::f32, nowhere, {0, 5, 2});
        backward.input(element_type::f32, nowhere, {0, 5, 3});
        backward.input(element_type::f32, weights, {1, 2, 3});
        backward.output(element_type::f32, nowhere, {0, 5, 2});
        backward.output(element_type::f32, diff_weights, {1, 2, 3});
        backward.set("rank", dim{3});
        fake_runtime runtime(2, scheduling::at_once);
        EXPECT_FALSE(forward.run(runtime, "convgrad.convolution"));
        EXPECT_FALSE(backward.run(runtime, "convgrad.convolution_backward"));
        EXPECT_TRUE(std::ranges::all_of(diff_weights, [](float d) { return d == 0; }));
    }
}

/// The message of a call of "convgrad.convolution" that `change` has spoilt.
template <typename Change>
error refusal(const Change &change) {
    static const float src[8] = {}, weights[4] = {};
    static float dst[8];
    std::fill(std::begin(dst), std::end(dst), 7.0F);
    custom_call call;
    change(call, src, weights, dst);
    fake_runtime runtime(2, scheduling::at_once);
    const auto failed = call.run(runtime, "convgrad.convolution");
    EXPECT_TRUE(failed.has_value());
    EXPECT_EQ(runtime.errors_alive(), 0);
    for (float d : dst) EXPECT_EQ(d, 7);
    return failed.value_or(error{error_kind::internal, ""});
}

TEST(xla_call, refuses_with_a_message) {
    const auto with = [](dims src, dims weights, dims dst, const auto &more) {
        return refusal([&](custom_call &call, const float *a, const float *b, float *c) {
            call.input(element_type::f32, a, src);
            call.input(element_type::f32, b, weights);
            call.output(element_type::f32, c, dst);
            more(call);
        });
    };
    const auto rank = [](custom_call &call) { call.set("rank", dim{3}); };
    const auto says = [](const error &e, const char *text) {
        EXPECT_EQ(e.kind, error_kind::invalid_argument);
        EXPECT_NE(e.message.find(text), std::string::npos) << e.message;
    };
    says(with({1, 4, 2}, {1, 3, 1}, {1, 4, 1}, rank), "channels");
    says(with({1, 4, 2}, {1, 2, 1}, {1, 4, 1}, [](custom_call &) {}), "rank is missing");
    says(with({1, 4, 2}, {1, 2, 1}, {1, 4}, rank), "fewer dimensions");
    says(with({4, 2}, {1, 2, 1}, {1, 4, 1}, rank), "must have 3");
    says(with({2, 1, 2, 2}, {1, 1, 2, 1}, {3, 1, 2, 1}, rank), "leading dimension is 2");
    says(with({1, 4, 2}, {1, 2, 1}, {1, 4, 1},
             [](custom_call &call) { call.set("stride", dims{1}); }),
        "no attribute stride");
    says(with({1, 4, 2}, {1, 2, 1}, {1, 4, 1},
             [](custom_call &call) { call.set("strides", dim{1}); }),
        "strides must be a list");
    says(with({1, 4, 2}, {1, 2, 1}, {1, 4, 1},
             [](custom_call &call) { call.set("groups", std::string("1")); }),
        "groups must be a 64-bit integer");
    says(with({1, 4, 2}, {1, 2, 1}, {1, 4, 1},
             [&](custom_call &call) {
                 rank(call);
                 call.input(element_type::f32, nullptr, {1});
                 call.input(element_type::f32, nullptr, {1});
             }),
        "4 inputs were given");
    says(refusal([&](custom_call &call, const float *a, const float *b, float *c) {
        call.input(static_cast<element_type>(12), a, {1, 4, 1});
        call.input(element_type::f32, b, {1, 1, 1});
        call.output(element_type::f32, c, {1, 4, 1});
        rank(call);
    }),
        "type 12 of XLA");
}

TEST(xla_call, says_for_which_version_it_was_made) {
    fake_runtime runtime(1, scheduling::none);
    for (const target &t : all_targets())
        for (bool old : {false, true}) {
            handler_metadata asked{};
            metadata_extension question{
                {sizeof(metadata_extension), extension::metadata, nullptr}, &asked};
            call_frame frame = runtime.frame();
            frame.extensions = &question.base;
            if (old) frame.api = nullptr;
            EXPECT_EQ(t.call(&frame), nullptr);
            EXPECT_EQ(asked.api_version.major, major_version);
            EXPECT_EQ(asked.api_version.minor, old ? 1 : newest_minor_version);
        }
}

}  // namespace
}  // namespace convgrad::xla::test
