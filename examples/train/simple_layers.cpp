#include "simple_layers.hpp"

#include <algorithm>
#include <cmath>

namespace convgrad::train {
namespace {

constexpr float epsilon = 1e-5F;        // keeps constant channels finite
constexpr float new_statistics = 0.1F;  // share of each batch in the running mean and variance

/// Calls body(i, c) for all elements of all pixels: i counts elements, c channels.
template <typename Body>
void for_each_element(const values &of, std::size_t channels, Body &&body) {
    for (std::size_t i = 0; i < of.data.size(); i += channels)
        for (std::size_t c = 0; c < channels; ++c) body(i + c, c);
}

}  // namespace

batch_norm::batch_norm(const std::string &name, dim channels)
    : channels_(static_cast<std::size_t>(channels)) {
    scale_.name = name + ".scale";
    scale_.value.assign(channels_, 1.0F);
    shift_.name = name + ".shift";
    shift_.value.assign(channels_, 0.0F);
    running_mean_.assign(channels_, 0.0F);
    running_variance_.assign(channels_, 1.0F);
}

void batch_norm::measure(const values &src) {
    const auto count = static_cast<float>(src.pixels());
    std::vector<float> variance(channels_, 0.0F);
    mean_.assign(channels_, 0.0F);
    inverse_deviation_.resize(channels_);
    for_each_element(
        src, channels_, [&](std::size_t i, std::size_t c) { mean_[c] += src.data[i]; });
    for (float &m : mean_) m /= count;
    for_each_element(src, channels_, [&](std::size_t i, std::size_t c) {
        const float d = src.data[i] - mean_[c];
        variance[c] += d * d;
    });
    for (std::size_t c = 0; c < channels_; ++c) {
        variance[c] /= count;
        inverse_deviation_[c] = 1.0F / std::sqrt(variance[c] + epsilon);
        running_mean_[c] += new_statistics * (mean_[c] - running_mean_[c]);
        running_variance_[c] += new_statistics * (variance[c] - running_variance_[c]);
    }
}

const values &batch_norm::forward(const values &src, phase when) {
    src_ = &src;
    if (when == phase::training) {
        measure(src);
    } else {
        mean_ = running_mean_;
        inverse_deviation_.resize(channels_);
        for (std::size_t c = 0; c < channels_; ++c)
            inverse_deviation_[c] = 1.0F / std::sqrt(running_variance_[c] + epsilon);
    }
    dst_.reshape(src.shape);
    std::vector<float> factor(channels_), offset(channels_);
    for (std::size_t c = 0; c < channels_; ++c) {
        factor[c] = scale_.value[c] * inverse_deviation_[c];
        offset[c] = shift_.value[c] - mean_[c] * factor[c];
    }
    for_each_element(src, channels_,
        [&](std::size_t i, std::size_t c) { dst_.data[i] = src.data[i] * factor[c] + offset[c]; });
    return dst_;
}

const values &batch_norm::backward(const values &diff_dst) {
    const values &src = *src_;
    const auto count = static_cast<float>(src.pixels());
    // With x̂ = (src - mean) / deviation: the shift's gradient is Σ dy, the scale's is Σ dy·x̂, and
    // dx = scale / deviation · (dy - Σ dy / count - x̂ · Σ dy·x̂ / count).
    scale_.gradient.assign(channels_, 0.0F);
    shift_.gradient.assign(channels_, 0.0F);
    for_each_element(src, channels_, [&](std::size_t i, std::size_t c) {
        const float dy = diff_dst.data[i];
        shift_.gradient[c] += dy;
        scale_.gradient[c] += dy * (src.data[i] - mean_[c]) * inverse_deviation_[c];
    });
    diff_src_.reshape(src.shape);
    for_each_element(src, channels_, [&](std::size_t i, std::size_t c) {
        const float normalised = (src.data[i] - mean_[c]) * inverse_deviation_[c];
        const float centred =
            diff_dst.data[i] - (shift_.gradient[c] + normalised * scale_.gradient[c]) / count;
        diff_src_.data[i] = scale_.value[c] * inverse_deviation_[c] * centred;
    });
    return diff_src_;
}

const values &relu::forward(const values &src, phase) {
    dst_.reshape(src.shape);
    for (std::size_t i = 0; i < src.data.size(); ++i) dst_.data[i] = std::max(0.0F, src.data[i]);
    return dst_;
}

const values &relu::backward(const values &diff_dst) {
    diff_src_.reshape(diff_dst.shape);
    for (std::size_t i = 0; i < diff_dst.data.size(); ++i)
        diff_src_.data[i] = dst_.data[i] > 0.0F ? diff_dst.data[i] : 0.0F;
    return diff_src_;
}

const values &sigmoid::forward(const values &src, phase) {
    dst_.reshape(src.shape);
    for (std::size_t i = 0; i < src.data.size(); ++i)
        dst_.data[i] = 1.0F / (1.0F + std::exp(-src.data[i]));
    return dst_;
}

const values &sigmoid::backward(const values &diff_dst) {
    diff_src_.reshape(diff_dst.shape);
    for (std::size_t i = 0; i < diff_dst.data.size(); ++i)
        diff_src_.data[i] = diff_dst.data[i] * dst_.data[i] * (1.0F - dst_.data[i]);
    return diff_src_;
}

const values &average_pool::forward(const values &src, phase) {
    src_shape_ = src.shape;
    const auto channels = static_cast<std::size_t>(src.channels());
    const auto area = static_cast<std::size_t>(src.shape[1] * src.shape[2]);
    dst_.reshape({src.shape[0], 1, 1, src.channels()});
    std::fill(dst_.data.begin(), dst_.data.end(), 0.0F);
    for_each_element(src, channels, [&](std::size_t i, std::size_t c) {
        dst_.data[i / (area * channels) * channels + c] += src.data[i];
    });
    for (float &v : dst_.data) v /= static_cast<float>(area);
    return dst_;
}

const values &average_pool::backward(const values &diff_dst) {
    diff_src_.reshape(src_shape_);
    const auto channels = static_cast<std::size_t>(diff_dst.channels());
    const auto area = static_cast<std::size_t>(src_shape_[1] * src_shape_[2]);
    for_each_element(diff_src_, channels, [&](std::size_t i, std::size_t c) {
        diff_src_.data[i] =
            diff_dst.data[i / (area * channels) * channels + c] / static_cast<float>(area);
    });
    return diff_src_;
}

}  // namespace convgrad::train
