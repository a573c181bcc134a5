#include "trainer.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>

#include "checkpoint.hpp"
#include "fingerprint.hpp"

namespace convgrad::train {
namespace {

using clock = std::chrono::steady_clock;

constexpr float weight_decay = 0.02F, label_smoothing = 0.05F;
constexpr float peak_rate = 4e-3F, warm_up = 0.1F;
constexpr float first_loss_scale = 1024, largest_loss_scale = 65536;
constexpr long steps_before_growth = 200;
constexpr long largest_count = 1L << 48;  // of steps, in a checkpoint

network make_network(const settings &chosen, dim classes, const place &where, random_numbers &r) {
    return chosen.model == model_kind::classifier ? make_classifier(classes, chosen.type, where, r)
                                                  : make_autoencoder(chosen.type, where, r);
}

void check_data(const settings &chosen, const dataset &data) {
    if (data.training.size() < static_cast<std::size_t>(chosen.batch))
        throw std::runtime_error(data.name + ": has " + std::to_string(data.training.size())
                                 + " training images, less than one batch of "
                                 + std::to_string(chosen.batch));
    if (chosen.model == model_kind::autoencoder
        && (data.training.height % 4 != 0 || data.training.width % 4 != 0))
        throw std::runtime_error(data.name + ": images of " + std::to_string(data.training.height)
                                 + "×" + std::to_string(data.training.width)
                                 + " pixels; the autoencoder needs multiples of 4");
}

/// [first, first + count) cut off at the end of a set of `size`.
std::vector<std::size_t> range(std::size_t first, std::size_t count, std::size_t size) {
    std::vector<std::size_t> list;
    for (std::size_t i = first; i < std::min(first + count, size); ++i) list.push_back(i);
    return list;
}

score score_of(const loss_result &sum, long count) {
    const auto n = static_cast<double>(std::max(1L, count));
    return {sum.loss / n, static_cast<double>(sum.correct) / n, sum.correct, count};
}

settings read_settings(byte_reader &in) {
    settings s;
    s.model = in.get<model_kind>();
    s.type = in.get<data_type>();
    s.seed = in.get<std::uint64_t>();
    s.epochs = in.get<int>();
    s.batch = in.get<int>();
    const bool computes =
        s.type == data_type::f32 || s.type == data_type::bf16 || s.type == data_type::f16;
    if (s.model > model_kind::autoencoder || !computes || s.epochs < 1 || s.batch < 1)
        throw std::runtime_error("the checkpoint holds settings that no training has");
    return s;
}

/// A count of steps.
long read_count(byte_reader &in) {
    const long count = in.get<long>();
    if (count < 0 || count > largest_count)
        throw std::runtime_error("the checkpoint holds a count that no training reaches");
    return count;
}

}  // namespace

trainer::trainer(const settings &chosen, const dataset &data, const place &where)
    : settings_((check_data(chosen, data), chosen)), data_(data), initial_(chosen.seed),
      network_(make_network(chosen, data.classes, where, initial_)),
      optimiser_(network_.parameters(), weight_decay),
      loss_scale_(chosen.type == data_type::f16 ? first_loss_scale : 1.0F) {}

std::size_t trainer::steps_per_epoch() const {
    // Only whole batches; who is left out changes with the order of each epoch.
    return data_.training.size() / static_cast<std::size_t>(settings_.batch);
}

float trainer::learning_rate() const {
    const float share = static_cast<float>(step_) / static_cast<float>(steps_per_epoch())
                        / static_cast<float>(settings_.epochs);
    if (share < warm_up) return peak_rate * (share + 0.002F) / warm_up;
    constexpr float pi = 3.14159265F;
    return peak_rate * 0.5F * (1.0F + std::cos(pi * (share - warm_up) / (1.0F - warm_up)));
}

loss_result trainer::train_step(std::span<const std::size_t> indices, random_numbers &random) {
    gather(data_.training, indices, batch_);
    labels_.clear();
    for (std::size_t i : indices) labels_.push_back(data_.training.labels[i]);
    if (settings_.model == model_kind::classifier) augment(batch_, random);

    const values &output = network_.forward(batch_, phase::training);
    // All gradients are `loss_scale_` times too large, so that f16 does not lose the small ones;
    // the optimiser divides.
    const loss_result sum =
        settings_.model == model_kind::classifier
            ? cross_entropy(output, labels_, label_smoothing, loss_scale_, diff_)
            : squared_error(output, batch_, loss_scale_, diff_);
    network_.backward(diff_);
    adjust_loss_scale(optimiser_.step(learning_rate(), loss_scale_));
    ++step_;
    if (!std::isfinite(sum.loss))
        throw diverged("training diverged: the loss of step " + std::to_string(step_)
                       + " is not a finite number");
    return sum;
}

void trainer::adjust_loss_scale(bool stepped) {
    ++good_steps_;
    if (!stepped) {
        ++skipped_;
        loss_scale_ = std::max(1.0F, loss_scale_ / 2);
        good_steps_ = 0;
    } else if (settings_.type == data_type::f16 && good_steps_ >= steps_before_growth) {
        loss_scale_ = std::min(largest_loss_scale, loss_scale_ * 2);
        good_steps_ = 0;
    }
}

const epoch_record &trainer::run_epoch(const std::function<void(const progress_report &)> &report) {
    random_numbers random(settings_.seed, history_.size() + 1);
    const std::vector<std::size_t> order = shuffled(data_.training.size(), random);
    const auto batch = static_cast<std::size_t>(settings_.batch);
    const std::size_t steps = steps_per_epoch();
    const clock::time_point start = clock::now();
    loss_result sum;
    progress_report now;
    now.epoch = static_cast<int>(history_.size()) + 1;
    now.steps = steps;
    skipped_ = 0;
    for (std::size_t i = 0; i < steps; ++i) {
        const loss_result step = train_step(std::span(order).subspan(i * batch, batch), random);
        step_losses_.push_back(static_cast<float>(step.loss / static_cast<double>(batch)));
        sum.loss += step.loss;
        sum.correct += step.correct;
        now.step = i + 1;
        now.so_far = score_of(sum, static_cast<long>((i + 1) * batch));
        now.images_per_second = static_cast<double>(now.so_far.count)
                                / std::chrono::duration<double>(clock::now() - start).count();
        if (report) report(now);
    }
    epoch_record record;
    record.seconds = std::chrono::duration<double>(clock::now() - start).count();
    record.images_per_second = now.images_per_second;
    record.training = now.so_far;
    record.loss_scale = static_cast<double>(loss_scale_);
    record.skipped_steps = skipped_;
    record.test = evaluate(data_.test);
    history_.push_back(record);
    return history_.back();
}

score trainer::evaluate(const images &set) {
    loss_result sum;
    for (std::size_t first = 0; first < set.size(); first += 256) {
        const auto indices = range(first, 256, set.size());
        gather(set, indices, batch_);
        const values &output = network_.forward(batch_, phase::evaluation);
        const loss_result part =
            settings_.model == model_kind::classifier ? cross_entropy(
                output, std::span(set.labels).subspan(first, indices.size()), 0, 1, diff_)
                                                      : squared_error(output, batch_, 1, diff_);
        sum.loss += part.loss;
        sum.correct += part.correct;
    }
    return score_of(sum, static_cast<long>(set.size()));
}

std::vector<sample> trainer::run_samples(std::span<const std::size_t> indices) {
    std::vector<sample> samples;
    if (indices.empty()) return samples;
    gather(data_.test, indices, batch_);
    const values &output = network_.forward(batch_, phase::evaluation);
    const std::size_t area = data_.test.area(), each = output.data.size() / indices.size();
    for (std::size_t n = 0; n < indices.size(); ++n) {
        sample s;
        s.image.assign(batch_.data.data() + n * area, batch_.data.data() + (n + 1) * area);
        s.output.assign(output.data.data() + n * each, output.data.data() + (n + 1) * each);
        s.label = data_.test.labels[indices[n]];
        s.prediction =
            static_cast<int>(std::max_element(s.output.begin(), s.output.end()) - s.output.begin());
        samples.push_back(std::move(s));
    }
    return samples;
}

double trainer::mean_image_error() const {
    const std::size_t area = data_.training.area();
    std::vector<double> mean(area, 0.0);
    for (std::size_t i = 0; i < data_.training.pixels.size(); ++i)
        mean[i % area] += static_cast<double>(data_.training.pixels[i]);
    for (double &m : mean) m /= static_cast<double>(data_.training.size());
    double sum = 0;
    for (std::size_t i = 0; i < data_.test.pixels.size(); ++i) {
        const double error = static_cast<double>(data_.test.pixels[i]) - mean[i % area];
        sum += error * error;
    }
    return sum / static_cast<double>(data_.test.pixels.size());
}

std::vector<std::size_t> trainer::mistakes() {
    std::vector<std::size_t> wrong;
    for (std::size_t first = 0; first < data_.test.size(); first += 256) {
        const auto indices = range(first, 256, data_.test.size());
        const std::vector<sample> samples = run_samples(indices);
        for (std::size_t n = 0; n < samples.size(); ++n)
            if (samples[n].prediction != samples[n].label) wrong.push_back(indices[n]);
    }
    return wrong;
}

std::uint64_t trainer::weights_fingerprint() const {
    std::uint64_t hash = 0;
    for (const parameter *p : network_.parameters())
        hash = fingerprint(p->value.data(), p->value.size() * sizeof(float), hash);
    return hash;
}

std::vector<std::vector<float> *> trainer::arrays() {
    std::vector<std::vector<float> *> list;
    for (parameter *p : network_.parameters()) list.push_back(&p->value);
    for (auto *s : network_.statistics()) list.push_back(s);
    for (auto *m : optimiser_.moments()) list.push_back(m);
    return list;
}

std::vector<std::uint8_t> trainer::save() {
    byte_writer out;
    out.put(settings_.model);
    out.put(settings_.type);
    out.put(settings_.seed);
    out.put(settings_.epochs);
    out.put(settings_.batch);
    out.put(data_.fingerprint);
    out.put(optimiser_.steps);
    out.put(step_);
    out.put(good_steps_);
    out.put(loss_scale_);
    out.put_list(history_);
    out.put_list(step_losses_);
    for (const auto *values : arrays()) out.put_list(*values);
    return out.bytes();
}

settings trainer::saved_settings(std::span<const std::uint8_t> state) {
    byte_reader in(state);
    return read_settings(in);
}

void trainer::restore(std::span<const std::uint8_t> state) {
    byte_reader in(state);
    const settings saved = read_settings(in);
    if (saved.model != settings_.model || saved.type != settings_.type
        || saved.seed != settings_.seed || saved.batch != settings_.batch)
        throw std::runtime_error("the checkpoint was made with other settings");
    if (in.get<std::uint64_t>() != data_.fingerprint)
        throw std::runtime_error("the checkpoint was made with other data than " + data_.name);
    optimiser_.steps = read_count(in);
    step_ = read_count(in);
    good_steps_ = read_count(in);
    loss_scale_ = in.get<float>();
    history_ = in.get_list<epoch_record>();
    restored_ = history_.size();
    step_losses_ = in.get_list<float>();
    for (auto *values : arrays()) {
        std::vector<float> read = in.get_list<float>();
        if (read.size() != values->size())
            throw std::runtime_error("the checkpoint is of a network of another shape");
        *values = std::move(read);
    }
}

}  // namespace convgrad::train
