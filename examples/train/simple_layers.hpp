// The layers beside convolutions. All run in f32 on one thread, in a fixed order of additions.
#pragma once

#include "layer.hpp"

namespace convgrad::train {

/// Normalises each channel over batch and space, then scales and shifts it.
class batch_norm final : public layer {
public:
    batch_norm(const std::string &name, dim channels);
    const values &forward(const values &src, phase when) override;
    const values &backward(const values &diff_dst) override;
    std::vector<parameter *> parameters() override { return {&scale_, &shift_}; }
    std::vector<std::vector<float> *> statistics() override {
        return {&running_mean_, &running_variance_};
    }

private:
    void measure(const values &src);

    std::size_t channels_;
    parameter scale_, shift_;
    std::vector<float> running_mean_, running_variance_;
    std::vector<float> mean_, inverse_deviation_;  // of the current batch
    const values *src_ = nullptr;
    values dst_, diff_src_;
};

class relu final : public layer {
public:
    const values &forward(const values &src, phase when) override;
    const values &backward(const values &diff_dst) override;

private:
    values dst_, diff_src_;
};

class sigmoid final : public layer {
public:
    const values &forward(const values &src, phase when) override;
    const values &backward(const values &diff_dst) override;

private:
    values dst_, diff_src_;
};

/// The mean of each channel over height and width: N×H×W×C becomes N×1×1×C.
class average_pool final : public layer {
public:
    const values &forward(const values &src, phase when) override;
    const values &backward(const values &diff_dst) override;

private:
    dims src_shape_;
    values dst_, diff_src_;
};

}  // namespace convgrad::train
