// The example's layers, losses and conversions: gradients against differences of values.
#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "train/adam.hpp"
#include "train/conv_layer.hpp"
#include "train/loss.hpp"
#include "train/simple_layers.hpp"

using namespace convgrad;
using namespace convgrad::train;

namespace {

values random_values(dims shape, std::uint64_t seed) {
    values v(std::move(shape));
    random_numbers random(seed);
    for (float &x : v.data) x = random.uniform(-1, 1);
    return v;
}

double product(const values &a, const values &b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.data.size(); ++i)
        sum += static_cast<double>(a.data[i]) * static_cast<double>(b.data[i]);
    return sum;
}

/// d f / d x by a symmetric difference.
double slope(float &x, const std::function<double()> &f) {
    constexpr float h = 1.0F / 256;
    const float old = x;
    x = old + h;
    const double above = f();
    x = old - h;
    const double below = f();
    x = old;
    return (above - below) / (2 * static_cast<double>(h));
}

/// Compares backward() with slopes of a random linear function of the output, at some places.
void check_gradients(layer &l, values src) {
    const values coefficients = random_values(l.forward(src, phase::training).shape, 99);
    const auto f = [&] { return product(l.forward(src, phase::training), coefficients); };
    f();
    const std::vector<float> diff_src = l.backward(coefficients).data;
    std::vector<std::vector<float>> gradients;
    for (parameter *p : l.parameters()) gradients.push_back(p->gradient);

    const auto compare = [&](std::vector<float> &x, const std::vector<float> &gradient) {
        ASSERT_EQ(x.size(), gradient.size());
        for (std::size_t i = 0; i < x.size(); i += 1 + x.size() / 12)
            EXPECT_NEAR(gradient[i], slope(x[i], f), 0.01 + 0.01 * std::abs(gradient[i])) << i;
    };
    compare(src.data, diff_src);
    for (std::size_t i = 0; i < gradients.size(); ++i)
        compare(l.parameters()[i]->value, gradients[i]);
}

TEST(layers, gradients_of_convolutions) {
    random_numbers random(5);
    const engine on;
    conv_layer plain({.name = "a",
                         .in = 4,
                         .out = 6,
                         .kernel = 3,
                         .stride = 2,
                         .pad = 1,
                         .groups = 2,
                         .bias = true},
        data_type::f32, on, random);
    check_gradients(plain, random_values({3, 7, 6, 4}, 1));
    conv_layer transposed({.name = "b",
                              .in = 4,
                              .out = 6,
                              .kernel = 4,
                              .stride = 2,
                              .pad = 1,
                              .groups = 2,
                              .transposed = true,
                              .bias = true},
        data_type::f32, on, random);
    check_gradients(transposed, random_values({3, 4, 5, 4}, 2));
}

TEST(layers, gradients_of_the_others) {
    batch_norm norm("n", 5);
    check_gradients(norm, random_values({3, 4, 4, 5}, 3));
    sigmoid s;
    check_gradients(s, random_values({2, 3, 3, 2}, 4));
    average_pool pool;
    check_gradients(pool, random_values({2, 3, 4, 5}, 5));
    values away_from_zero = random_values({2, 3, 3, 2}, 6);
    for (float &x : away_from_zero.data) x += x < 0 ? -0.1F : 0.1F;
    relu r;
    check_gradients(r, away_from_zero);
}

TEST(layers, batch_norm_uses_running_statistics_when_evaluating) {
    batch_norm norm("n", 2);
    const values src = random_values({4, 4, 4, 2}, 7);
    for (int i = 0; i < 200; ++i) norm.forward(src, phase::training);
    const std::vector<float> trained = norm.forward(src, phase::training).data;
    const std::vector<float> evaluated = norm.forward(src, phase::evaluation).data;
    for (std::size_t i = 0; i < trained.size(); ++i) EXPECT_NEAR(trained[i], evaluated[i], 1e-3);
}

TEST(layers, times_name_the_problem) {
    random_numbers random(5);
    conv_layer l({.name = "x", .in = 4, .out = 8, .kernel = 3, .stride = 2, .pad = 1},
        data_type::bf16, engine(), random);
    const values src = random_values({2, 8, 8, 4}, 1);
    l.backward(l.forward(src, phase::training));
    l.forward(src, phase::evaluation);
    const auto times = l.times();
    ASSERT_EQ(times.size(), 3U);
    EXPECT_EQ(times[0].problem, "mb2ic4ih8iw8oc8kh3kw3sh2sw2ph1pw1n\"x\"");
    for (const op_time &t : times) EXPECT_EQ(t.calls, 1) << "evaluation does not count";
}

TEST(losses, gradients) {
    values scores = random_values({3, 1, 1, 5}, 8), diff, unused;
    const std::vector<std::uint8_t> labels = {0, 4, 2};
    cross_entropy(scores, labels, 0.1F, 8.0F, diff);
    for (std::size_t i = 0; i < scores.data.size(); ++i) {
        const double expected = slope(
            scores.data[i], [&] { return cross_entropy(scores, labels, 0.1F, 1.0F, unused).loss; });
        EXPECT_NEAR(diff.data[i], expected * 8 / 3, 1e-3);
    }
    values output = random_values({2, 3, 3, 1}, 9);
    const values target = random_values({2, 3, 3, 1}, 10);
    squared_error(output, target, 8.0F, diff);
    for (std::size_t i = 0; i < output.data.size(); ++i) {
        const double expected =
            slope(output.data[i], [&] { return squared_error(output, target, 1.0F, unused).loss; });
        EXPECT_NEAR(diff.data[i], expected * 8 / 2, 1e-3);
    }
}

TEST(adam, skips_a_step_with_gradients_that_are_not_finite) {
    parameter p{"p", {1, 2}, {0.5F, std::numeric_limits<float>::infinity()}};
    adam optimiser({&p}, 0);
    EXPECT_FALSE(optimiser.step(0.1F, 1));
    EXPECT_EQ(p.value, (std::vector<float>{1, 2}));
    p.gradient[1] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(optimiser.step(0.1F, 1));
    p.gradient[1] = -4;
    EXPECT_TRUE(optimiser.step(0.1F, 8));
    EXPECT_NEAR(p.value[0], 0.9, 1e-5) << "Adam's first step has the length of the rate";
    EXPECT_NEAR(p.value[1], 2.1, 1e-5);
}

}  // namespace
