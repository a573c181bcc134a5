// Batch normalisation against sums in f64, on every instruction set by name.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "conv/convert.hpp"
#include "cpu/batch_norm.hpp"
#include "cpu/element.hpp"
#include "cpu/streaming.hpp"
#include "support/pools.hpp"
#include "support/random.hpp"

namespace convgrad::test {
namespace {

using cpu::batch_norm;
using cpu::norm_kernels;

/// All that this machine can run.
std::vector<const norm_kernels *> all_kernels() {
    std::vector<const norm_kernels *> found;
#define CONVGRAD_FMA_KERNELS(set)                                                                  \
    if (cpu::detected().include(isa::set)) found.push_back(&cpu::norm_##set());
#include "cpu/kernels/kernels.inc"
    return found;
}

/// A tensor of a type, seen as f32; what lies behind its end is watched.
class elements {
public:
    elements(data_type type, dim count)
        : type_(type), size_(static_cast<std::size_t>(count) * size_of(type)),
          lines_((size_ + guard) / sizeof(line) + 1) {
        std::memset(lines_.data(), 0x5a, lines_.size() * sizeof(line));
    }
    void set(dim i, double v) { cpu::store_rounded(data(), type_, i, v, false); }
    [[nodiscard]] double at(dim i) const {
        return static_cast<double>(cpu::load_float(lines_.data(), type_, i));
    }
    [[nodiscard]] bool is_intact() const {
        const auto *bytes = reinterpret_cast<const unsigned char *>(lines_.data());
        for (std::size_t i = size_; i < lines_.size() * sizeof(line); ++i)
            if (bytes[i] != 0x5a) return false;
        return true;
    }
    void *data() { return lines_.data(); }
    [[nodiscard]] bool operator==(const elements &other) const {
        return size_ == other.size_ && std::memcmp(lines_.data(), other.lines_.data(), size_) == 0;
    }

private:
    struct alignas(64) line {
        unsigned char bytes[64];
    };
    static constexpr std::size_t guard = 64;
    data_type type_;
    std::size_t size_;
    std::vector<line> lines_;
};

/// One problem with its data and what comes out.
struct layer {
    layer(const batch_norm &problem, bool has_parameters, unsigned seed)
        : p(problem), affine(has_parameters), src(p.type, all()), diff_dst(p.type, all()),
          dst(p.type, all()), diff_src(p.type, all()), gamma(channels()), beta(channels()),
          mean(channels()), factor(channels()), variance(channels()), diff_gamma(channels()),
          diff_beta(channels()) {
        rng draw(seed);
        const auto normal = [&] { return 2 * (draw.unit() + draw.unit() + draw.unit() - 1.5); };
        for (std::size_t c = 0; c < channels(); ++c) {
            gamma[c] = static_cast<float>(normal());
            beta[c] = static_cast<float>(normal());
        }
        for (dim i = 0; i < all(); ++i) {
            src.set(i, 3 + static_cast<double>(channel_of(i) % 5) + 2 * normal());
            diff_dst.set(i, normal());
        }
    }
    [[nodiscard]] dim all() const { return p.count() * p.channels; }
    [[nodiscard]] std::size_t channels() const { return static_cast<std::size_t>(p.channels); }
    [[nodiscard]] dim channel_of(dim i) const {
        return p.channels_last ? i % p.channels : i / p.positions % p.channels;
    }
    /// Element k of a channel.
    [[nodiscard]] dim index(dim c, dim k) const {
        if (p.channels_last) return k * p.channels + c;
        return (k / p.positions * p.channels + c) * p.positions + k % p.positions;
    }
    [[nodiscard]] cpu::norm_parameters parameters() const {
        return affine ? cpu::norm_parameters{gamma.data(), beta.data()}
                      : cpu::norm_parameters{nullptr, nullptr};
    }
    void run(const norm_kernels &kernels, const cpu::executor &threads) {
        cpu::run(p,
            cpu::norm_forward{src.data(), parameters(), 1e-5, dst.data(), mean.data(),
                factor.data(), variance.data()},
            kernels, threads);
        cpu::run(p,
            cpu::norm_backward{src.data(), diff_dst.data(), parameters(), mean.data(),
                factor.data(), diff_src.data(), diff_gamma.data(), diff_beta.data()},
            kernels, threads);
    }

    batch_norm p;
    bool affine;
    elements src, diff_dst, dst, diff_src;
    std::vector<float> gamma, beta, mean, factor, variance, diff_gamma, diff_beta;
};

/// Rounding of results of a type, with some for f32 arithmetic before it.
double error_of(data_type type, double scale) {
    const double unit = type == data_type::f32 ? 0 : type == data_type::bf16 ? 0x1p-8 : 0x1p-10;
    return scale * (unit + 0x1p-19);
}

void check_channel(layer &l, dim c) {
    const auto at = static_cast<std::size_t>(c);
    const double n = static_cast<double>(l.p.count());
    const double gamma = l.affine ? static_cast<double>(l.gamma[at]) : 1;
    const double beta = l.affine ? static_cast<double>(l.beta[at]) : 0;
    double mean = 0, square = 0;
    for (dim k = 0; k < l.p.count(); ++k) mean += l.src.at(l.index(c, k)) / n;
    for (dim k = 0; k < l.p.count(); ++k) square += std::pow(l.src.at(l.index(c, k)) - mean, 2);
    ASSERT_NEAR(static_cast<double>(l.mean[at]), mean, 0x1p-21 * 10);
    ASSERT_NEAR(static_cast<double>(l.variance[at]), square / n, 0x1p-20 * (square / n + 0x1p-10));
    const double factor = 1 / std::sqrt(square / n + 1e-5);
    ASSERT_NEAR(static_cast<double>(l.factor[at]), factor, 0x1p-19 * factor);
    // Which values are inside their bounds is decided by the f32 factors that were told.
    const float scale = (l.affine ? l.gamma[at] : 1.0F) * l.factor[at];
    const double shift = beta - static_cast<double>(l.mean[at]) * static_cast<double>(scale);
    double sum = 0, dot = 0, size = 0;
    const auto gradient = [&](dim i, double v) {
        const bool inside =
            !l.p.clamped || (v > static_cast<double>(l.p.low) && v < static_cast<double>(l.p.high));
        return inside ? l.diff_dst.at(i) : 0;
    };
    const auto value = [&](dim i) { return l.src.at(i) * static_cast<double>(scale) + shift; };
    for (dim k = 0; k < l.p.count(); ++k) {
        const dim i = l.index(c, k);
        const double g = gradient(i, value(i));
        sum += g;
        dot += g * (l.src.at(i) - mean) * factor;
        size += std::abs(g) * (1 + std::abs(l.src.at(i) - mean) * factor);
    }
    ASSERT_NEAR(static_cast<double>(l.diff_beta[at]), sum, 0x1p-19 * (size + 1));
    ASSERT_NEAR(static_cast<double>(l.diff_gamma[at]), dot, 0x1p-19 * (size + 1));
    for (dim k = 0; k < l.p.count(); ++k) {
        const dim i = l.index(c, k);
        const double normal = (l.src.at(i) - mean) * factor;
        double v = normal * gamma + beta;
        if (l.p.clamped)
            v = std::clamp(v, static_cast<double>(l.p.low), static_cast<double>(l.p.high));
        ASSERT_NEAR(l.dst.at(i), v, error_of(l.p.type, 8 * std::abs(gamma * factor) + 8)) << i;
        const double g = gradient(i, value(i));
        const double d = gamma * factor * (g - sum / n - normal * dot / n);
        const double terms =
            std::abs(gamma * factor) * (std::abs(g) + std::abs(normal) * size / n + size / n + 1);
        ASSERT_NEAR(l.diff_src.at(i), d, error_of(l.p.type, terms)) << i;
    }
}

struct shape {
    dim batch, channels, positions;
};
// One value, odd tails, more rows than are summed at once, planes in pieces, few and many channels.
constexpr shape shapes[] = {{1, 1, 2}, {2, 1, 1}, {3, 5, 7}, {2, 17, 25}, {2, 33, 49}, {8, 64, 25},
    {1, 3, 2500}, {3, 100, 70}, {2, 130, 9}, {70, 2, 1}, {5, 40, 1025}};

class batch_norm_types : public testing::TestWithParam<data_type> {};

TEST_P(batch_norm_types, is_that_of_f64) {
    for (const norm_kernels *kernels : all_kernels())
        for (const shape &s : shapes)
            for (const bool last : {false, true})
                for (const int kind : {0, 1, 2}) {
                    SCOPED_TRACE(std::string(to_string(kernels->set)) + " "
                                 + std::to_string(s.batch) + "x" + std::to_string(s.channels) + "x"
                                 + std::to_string(s.positions) + (last ? " last " : " planes ")
                                 + std::to_string(kind));
                    const float high = kind == 1 ? std::numeric_limits<float>::infinity() : 1.5F;
                    const batch_norm p{
                        GetParam(), last, s.batch, s.channels, s.positions, kind > 0, 0, high};
                    layer l(p, kind != 1, 7);
                    l.run(*kernels, cpu::executor(nullptr, 1));
                    for (dim c = 0; c < s.channels; ++c)
                        ASSERT_NO_FATAL_FAILURE(check_channel(l, c)) << "channel " << c;
                    EXPECT_TRUE(l.dst.is_intact() && l.diff_src.is_intact());
                }
}

TEST_P(batch_norm_types, has_the_same_bits_on_any_threads) {
    reversing_pool pool;
    for (const norm_kernels *kernels : all_kernels())
        for (const shape &s : shapes)
            for (const bool last : {false, true}) {
                const batch_norm p{GetParam(), last, s.batch, s.channels, s.positions, true, 0, 6};
                layer alone(p, true, 3), together(p, true, 3);
                alone.run(*kernels, cpu::executor(nullptr, 1));
                together.run(*kernels, cpu::executor(&pool, 7));
                EXPECT_TRUE(alone.dst == together.dst);
                EXPECT_TRUE(alone.diff_src == together.diff_src);
                EXPECT_EQ(alone.mean, together.mean);
                EXPECT_EQ(alone.variance, together.variance);
                EXPECT_EQ(alone.diff_gamma, together.diff_gamma);
                EXPECT_EQ(alone.diff_beta, together.diff_beta);
            }
}

TEST_P(batch_norm_types, has_the_same_bits_past_the_caches) {
    constexpr shape on_lines[] = {{2, 64, 64}, {1, 128, 33}, {3, 4, 2112}, {2, 40, 128}};
    for (const norm_kernels *kernels : all_kernels())
        for (const shape &s : on_lines)
            for (const bool last : {false, true}) {
                const batch_norm p{GetParam(), last, s.batch, s.channels, s.positions, true, 0, 6};
                layer near(p, true, 3), past(p, true, 3);
                near.run(*kernels, cpu::executor(nullptr, 1));
                cpu::stream_above() = 0;
                past.run(*kernels, cpu::executor(nullptr, 1));
                cpu::stream_above() = cpu::cache_sizes().l3;
                EXPECT_TRUE(near.dst == past.dst && near.diff_src == past.diff_src);
                EXPECT_TRUE(past.dst.is_intact() && past.diff_src.is_intact());
            }
}

INSTANTIATE_TEST_SUITE_P(all, batch_norm_types,
    testing::Values(data_type::f32, data_type::bf16, data_type::f16),
    [](const auto &made) { return std::string(to_string(made.param)); });

// Whole numbers whose mean and deviation are powers of two: nothing is rounded.
TEST(batch_norm, is_exact_on_whole_numbers) {
    for (const norm_kernels *kernels : all_kernels())
        for (const bool last : {false, true}) {
            const batch_norm p{data_type::f32, last, 4, 20, 32};
            layer l(p, false, 1);
            for (dim i = 0; i < l.all(); ++i) {
                const dim place = last ? i / p.channels : i % p.positions;
                l.src.set(i, static_cast<double>(8 * l.channel_of(i) + (place % 2 == 0 ? 4 : -4)));
                l.diff_dst.set(i, place % 4 < 2 ? 1 : 3);
            }
            cpu::run(p,
                cpu::norm_forward{l.src.data(), l.parameters(), 0, l.dst.data(), l.mean.data(),
                    l.factor.data(), l.variance.data()},
                *kernels, cpu::executor(nullptr, 1));
            cpu::run(p,
                cpu::norm_backward{l.src.data(), l.diff_dst.data(), l.parameters(), l.mean.data(),
                    l.factor.data(), l.diff_src.data(), l.diff_gamma.data(), l.diff_beta.data()},
                *kernels, cpu::executor(nullptr, 1));
            for (dim i = 0; i < l.all(); ++i) {
                const dim place = last ? i / p.channels : i % p.positions;
                ASSERT_EQ(l.dst.at(i), place % 2 == 0 ? 1 : -1);
                ASSERT_EQ(l.diff_src.at(i), place % 4 < 2 ? -0.25 : 0.25);
            }
            for (std::size_t c = 0; c < l.channels(); ++c) {
                ASSERT_EQ(l.mean[c], 8 * static_cast<float>(c));
                ASSERT_EQ(l.variance[c], 16);
                ASSERT_EQ(l.diff_beta[c], 256);
                ASSERT_EQ(l.diff_gamma[c], 0);
            }
        }
}

// A mean far from zero costs no digits of the variance.
TEST(batch_norm, keeps_small_deviations_about_a_large_mean) {
    for (const norm_kernels *kernels : all_kernels())
        for (const bool last : {false, true}) {
            const batch_norm p{data_type::f32, last, 8, 3, 500};
            layer l(p, false, 1);
            for (dim i = 0; i < l.all(); ++i) l.src.set(i, 1e6 + static_cast<double>(i * 7 % 3));
            l.run(*kernels, cpu::executor(nullptr, 1));
            double mean = 0, square = 0;
            for (dim i = 0; i < l.all(); ++i)
                if (l.channel_of(i) == 0) mean += l.src.at(i) / 4000;
            for (dim i = 0; i < l.all(); ++i)
                if (l.channel_of(i) == 0) square += std::pow(l.src.at(i) - mean, 2) / 4000;
            EXPECT_NEAR(static_cast<double>(l.variance[0]), square, 1e-5);
        }
}

TEST(batch_norm, tells_of_what_is_not_finite) {
    for (const norm_kernels *kernels : all_kernels())
        for (const bool last : {false, true})
            for (const double bad : {std::numeric_limits<double>::infinity(),
                     std::numeric_limits<double>::quiet_NaN()}) {
                const batch_norm p{data_type::f32, last, 2, 18, 5, true, 0,
                    std::numeric_limits<float>::infinity()};
                layer l(p, true, 1);
                l.src.set(0, bad);  // of channel 0
                l.run(*kernels, cpu::executor(nullptr, 1));
                for (dim i = 0; i < l.all(); ++i)
                    EXPECT_EQ(std::isnan(l.dst.at(i)), l.channel_of(i) == 0);
                EXPECT_TRUE(std::isnan(l.variance[0]) && !std::isnan(l.variance[1]));
            }
}

TEST(batch_norm, no_channels_are_no_work) {
    const batch_norm p{data_type::f32, true, 2, 0, 5};
    layer l(p, true, 1);
    l.run(cpu::norm_portable(), cpu::executor(nullptr, 1));
    EXPECT_TRUE(l.dst.is_intact());
}

}  // namespace
}  // namespace convgrad::test
