// The training loop: it learns, gives the same bits on any number of threads, and continues.
#include <gtest/gtest.h>

#include "train/trainer.hpp"

using namespace convgrad;
using namespace convgrad::train;

namespace {

/// A part of the digits: enough to learn something within a second.
const dataset &few_digits() {
    static const dataset data = [] {
        dataset d = embedded_digits();
        d.training.labels.resize(320);
        d.training.pixels.resize(320 * 64);
        d.fingerprint = 1;
        return d;
    }();
    return data;
}

engine with_threads(int threads) {
    engine_options options;
    options.threads = threads;
    return engine(options);
}

trainer trained(const settings &chosen, int threads, int epochs) {
    trainer t(chosen, few_digits(), with_threads(threads));
    for (int i = 0; i < epochs; ++i) t.run_epoch({});
    return t;
}

const settings all_settings[] = {
    {model_kind::classifier, data_type::f32, 1, 3, 32},
    {model_kind::classifier, data_type::bf16, 2, 3, 32},
    {model_kind::classifier, data_type::f16, 3, 3, 32},
    {model_kind::autoencoder, data_type::f32, 4, 3, 32},
    {model_kind::autoencoder, data_type::bf16, 5, 3, 32},
    {model_kind::autoencoder, data_type::f16, 6, 3, 32},
};

TEST(trainer, same_bits_on_any_number_of_threads) {
    for (const settings &chosen : all_settings) {
        const trainer one = trained(chosen, 1, 2);
        for (int threads : {2, 3}) {
            const trainer other = trained(chosen, threads, 2);
            EXPECT_EQ(one.weights_fingerprint(), other.weights_fingerprint())
                << to_string(chosen.model) << " " << to_string(chosen.type) << " " << threads;
            EXPECT_EQ(one.step_losses(), other.step_losses());
        }
    }
}

TEST(trainer, another_seed_gives_other_weights) {
    settings chosen = all_settings[0];
    const auto first = trained(chosen, 2, 0).weights_fingerprint();
    chosen.seed = 77;
    EXPECT_NE(trained(chosen, 2, 0).weights_fingerprint(), first);
}

TEST(trainer, learns) {
    for (const settings &chosen : all_settings) {
        const trainer t = trained(chosen, 2, 3);
        EXPECT_TRUE(t.finished());
        EXPECT_EQ(t.history().size(), 3U);
        EXPECT_EQ(t.step_losses().size(), 30U);
        EXPECT_LT(t.history().back().training.loss, 0.8 * t.history().front().training.loss);
        if (chosen.model == model_kind::classifier)
            EXPECT_GT(t.history().back().test.accuracy, 0.5) << to_string(chosen.type);
        else
            EXPECT_LT(t.history().back().test.loss, t.mean_image_error()) << to_string(chosen.type);
    }
}

TEST(trainer, a_restored_state_leads_to_the_same_bits) {
    for (const settings &chosen : all_settings) {
        trainer straight = trained(chosen, 2, 1);
        const std::vector<std::uint8_t> state = straight.save();
        EXPECT_EQ(trainer::saved_settings(state), chosen);
        straight.run_epoch({});

        trainer resumed(chosen, few_digits(), with_threads(1));
        resumed.restore(state);
        EXPECT_EQ(resumed.trained_epochs(), 0U);
        resumed.run_epoch({});
        EXPECT_EQ(resumed.weights_fingerprint(), straight.weights_fingerprint());
        EXPECT_EQ(resumed.step_losses(), straight.step_losses());
        EXPECT_EQ(resumed.history().back().test.loss, straight.history().back().test.loss);
        EXPECT_EQ(resumed.trained_epochs(), 1U);
    }
}

TEST(trainer, refuses_foreign_states) {
    trainer first = trained(all_settings[0], 1, 0);
    const std::vector<std::uint8_t> state = first.save();
    trainer second(all_settings[3], few_digits(), engine());
    EXPECT_THROW(second.restore(state), std::runtime_error);
    const dataset whole = embedded_digits();
    trainer third(all_settings[0], whole, engine());
    EXPECT_THROW(third.restore(state), std::runtime_error);
    for (std::size_t n = 0; n < state.size(); n += 997) {
        trainer fourth(all_settings[0], few_digits(), engine());
        EXPECT_THROW(fourth.restore(std::span(state).first(n)), std::runtime_error);
    }
}

// Model, type, epochs, batch and the counts of steps as no training leaves them, in a file whose
// checksum fits.
TEST(trainer, refuses_impossible_states) {
    const std::vector<std::uint8_t> state = trained(all_settings[0], 1, 0).save();
    const auto changed = [&](std::size_t at, std::size_t bytes, std::uint8_t value) {
        std::vector<std::uint8_t> other = state;
        std::fill_n(other.begin() + static_cast<std::ptrdiff_t>(at), bytes, value);
        return other;
    };
    EXPECT_THROW(trainer::saved_settings(changed(0, 1, 2)), std::runtime_error);
    EXPECT_THROW(trainer::saved_settings(changed(1, 1, 4)), std::runtime_error);
    EXPECT_THROW(trainer::saved_settings(changed(10, 4, 0)), std::runtime_error);
    EXPECT_THROW(trainer::saved_settings(changed(14, 4, 0)), std::runtime_error);
    EXPECT_THROW(trainer::saved_settings(changed(14, 4, 0xff)), std::runtime_error);
    for (const std::size_t at : {26U, 34U, 42U}) {
        trainer t(all_settings[0], few_digits(), engine());
        EXPECT_THROW(t.restore(changed(at, 8, 0x7f)), std::runtime_error) << at;
    }
}

TEST(trainer, all_six_ops_take_part) {
    trainer t = trained(all_settings[3], 2, 1);
    for (op_kind kind : convolution_op_kinds) {
        long calls = 0;
        for (const op_time &time : t.op_times())
            if (time.kind == kind) calls += time.calls;
        EXPECT_GT(calls, 0) << to_string(kind);
    }
}

TEST(trainer, samples_and_mistakes_agree_with_the_score) {
    trainer t = trained(all_settings[0], 2, 2);
    const score &test = t.history().back().test;
    const auto wrong = t.mistakes();
    EXPECT_EQ(static_cast<long>(wrong.size()), test.count - test.correct);
    for (const sample &s : t.run_samples(wrong)) {
        EXPECT_NE(s.label, s.prediction);
        EXPECT_EQ(s.image.size(), 64U);
        EXPECT_EQ(s.output.size(), 10U);
    }
}

}  // namespace
