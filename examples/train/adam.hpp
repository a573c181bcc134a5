// The optimiser: Adam with decoupled weight decay, f32 throughout.
#pragma once

#include <vector>

#include "layer.hpp"

namespace convgrad::train {

class adam {
public:
    adam(const std::vector<parameter *> &parameters, float weight_decay);

    /// One step with gradients divided by `gradient_scale`. If one of them is not finite (16-bit
    /// overflow), nothing changes and the answer is false.
    bool step(float rate, float gradient_scale);

    /// For checkpoints: moments in the order of the parameters, and the number of steps done.
    std::vector<std::vector<float> *> moments();
    long steps = 0;

private:
    struct state {
        parameter *of;
        std::vector<float> mean, square;
    };
    std::vector<state> states_;
    float weight_decay_;
};

}  // namespace convgrad::train
