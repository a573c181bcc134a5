#include "loss.hpp"

#include <algorithm>
#include <cmath>

namespace convgrad::train {

loss_result cross_entropy(const values &scores, std::span<const std::uint8_t> labels,
    float smoothing, float scale, values &diff) {
    loss_result result;
    diff.reshape(scores.shape);
    const auto classes = static_cast<std::size_t>(scores.channels());
    const float factor = scale / static_cast<float>(labels.size());
    const float floor = smoothing / static_cast<float>(classes);
    for (std::size_t n = 0; n < labels.size(); ++n) {
        const float *s = scores.data.data() + n * classes;
        float *d = diff.data.data() + n * classes;
        const float *best = std::max_element(s, s + classes);
        if (best - s == labels[n]) ++result.correct;
        // Softmax relative to the largest score, so that nothing overflows.
        double sum = 0;
        for (std::size_t c = 0; c < classes; ++c)
            sum += std::exp(static_cast<double>(s[c] - *best));
        for (std::size_t c = 0; c < classes; ++c) {
            const double log_share = static_cast<double>(s[c] - *best) - std::log(sum);
            const float target = floor + (c == labels[n] ? 1.0F - smoothing : 0.0F);
            result.loss -= static_cast<double>(target) * log_share;
            d[c] = factor * (static_cast<float>(std::exp(log_share)) - target);
        }
    }
    return result;
}

loss_result squared_error(const values &output, const values &target, float scale, values &diff) {
    diff.reshape(output.shape);
    const auto images = static_cast<std::size_t>(output.shape[0]);
    const auto count = static_cast<float>(output.data.size());
    double sum = 0;
    for (std::size_t i = 0; i < output.data.size(); ++i) {
        const float error = output.data[i] - target.data[i];
        sum += static_cast<double>(error) * static_cast<double>(error);
        diff.data[i] = scale * 2.0F * error / count;
    }
    return {sum / static_cast<double>(count) * static_cast<double>(images), 0};
}

}  // namespace convgrad::train
