// Losses with their gradients, averaged over the batch.
#pragma once

#include <cstdint>
#include <span>

#include "values.hpp"

namespace convgrad::train {

struct loss_result {
    double loss = 0;   // sum over the batch
    long correct = 0;  // classification only
};

/// Softmax and cross-entropy. `smoothing` of each target is spread over all classes. `diff` gets
/// `scale` times the gradient of the batch's mean loss.
loss_result cross_entropy(const values &scores, std::span<const std::uint8_t> labels,
    float smoothing, float scale, values &diff);

/// Mean squared error of each image, summed over the batch.
loss_result squared_error(const values &output, const values &target, float scale, values &diff);

}  // namespace convgrad::train
