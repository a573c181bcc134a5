// The training loop: batches, loss, optimiser, evaluation and checkpoints.
#pragma once

#include <functional>
#include <stdexcept>

#include "adam.hpp"
#include "dataset.hpp"
#include "loss.hpp"
#include "models.hpp"

namespace convgrad::train {

struct settings {
    model_kind model = model_kind::classifier;
    data_type type = data_type::f32;
    std::uint64_t seed = 1;
    int epochs = 1;
    int batch = 64;

    friend bool operator==(const settings &, const settings &) = default;
};

/// One pass over a set. For the autoencoder the loss is the mean squared error, accuracy stays 0.
struct score {
    double loss = 0, accuracy = 0;
    long correct = 0, count = 0;
};

struct epoch_record {
    score training, test;
    double seconds = 0;  // of the training steps
    double images_per_second = 0;
    double loss_scale = 1;
    long skipped_steps = 0;  // because gradients overflowed
};

/// What is known within an epoch.
struct progress_report {
    int epoch = 0;
    std::size_t step = 0, steps = 0;  // of this epoch
    score so_far;
    double images_per_second = 0;
};

/// A test image and what the network made of it.
struct sample {
    std::vector<float> image, output;  // output: the reconstruction, or each class's share
    int label = 0, prediction = 0;
};

/// Loss that is not a number, or such: the settings do not work.
struct diverged : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class trainer {
public:
    /// `data` must live as long as the trainer. Throws std::runtime_error for data that the model
    /// cannot take.
    trainer(const settings &chosen, const dataset &data, const place &where);

    /// Trains for one epoch, then evaluates the test images.
    const epoch_record &run_epoch(const std::function<void(const progress_report &)> &report);
    [[nodiscard]] bool finished() const {
        return static_cast<int>(history_.size()) >= settings_.epochs;
    }
    [[nodiscard]] const settings &chosen() const { return settings_; }
    /// All epochs, also those before a resumption.
    [[nodiscard]] const std::vector<epoch_record> &history() const { return history_; }
    /// How many of them this object has trained itself.
    [[nodiscard]] std::size_t trained_epochs() const { return history_.size() - restored_; }
    /// Mean training loss of single steps of all epochs.
    [[nodiscard]] const std::vector<float> &step_losses() const { return step_losses_; }
    [[nodiscard]] std::vector<op_time> op_times() const { return network_.times(); }
    /// What a device cost beside them.
    [[nodiscard]] transfer_time transfers() const { return network_.transfers(); }
    /// Hash of all parameters: equal for equal bits.
    [[nodiscard]] std::uint64_t weights_fingerprint() const;
    /// Predictions for the test images at `indices`.
    std::vector<sample> run_samples(std::span<const std::size_t> indices);
    /// The test error of an autoencoder that always answers with the mean training image.
    [[nodiscard]] double mean_image_error() const;
    /// Test images that the classifier gets wrong.
    std::vector<std::size_t> mistakes();

    /// Everything that the future depends on.
    [[nodiscard]] std::vector<std::uint8_t> save();
    /// Continues where save() was called: later results have the same bits. Throws
    /// std::runtime_error if the state is of another model or other data.
    void restore(std::span<const std::uint8_t> state);
    /// The settings inside such a state.
    static settings saved_settings(std::span<const std::uint8_t> state);

private:
    score evaluate(const images &set);
    loss_result train_step(std::span<const std::size_t> indices, random_numbers &random);
    void adjust_loss_scale(bool stepped);
    [[nodiscard]] float learning_rate() const;
    [[nodiscard]] std::size_t steps_per_epoch() const;
    std::vector<std::vector<float> *> arrays();

    settings settings_;
    const dataset &data_;
    random_numbers initial_;
    network network_;
    adam optimiser_;
    values batch_, diff_;
    std::vector<std::uint8_t> labels_;
    float loss_scale_ = 1;
    long good_steps_ = 0;  // since the loss scale changed
    long skipped_ = 0;     // in this epoch
    long step_ = 0;        // of the whole training
    std::vector<epoch_record> history_;
    std::size_t restored_ = 0;  // epochs that came from a checkpoint
    std::vector<float> step_losses_;
};

}  // namespace convgrad::train
