// The interface of a layer. A network is a list of them: forward in order, backward in reverse.
#pragma once

#include <string>
#include <vector>

#include "values.hpp"

namespace convgrad::train {

/// Numbers that training changes. Always f32: 16-bit convolutions work on rounded copies.
struct parameter {
    std::string name;
    std::vector<float> value, gradient;
    bool decays = false;  // weights shrink a little with every step; biases and scales do not
};

enum class phase { training, evaluation };

class layer {
public:
    layer() = default;
    virtual ~layer() = default;
    layer(const layer &) = delete;
    layer &operator=(const layer &) = delete;

    /// Results belong to the layer and hold until its next call. `src` must live until backward().
    virtual const values &forward(const values &src, phase when) = 0;
    /// The gradient with respect to src; fills the gradients of the parameters on the way.
    virtual const values &backward(const values &diff_dst) = 0;

    virtual std::vector<parameter *> parameters() { return {}; }
    /// What else a checkpoint must hold: running statistics.
    virtual std::vector<std::vector<float> *> statistics() { return {}; }
};

}  // namespace convgrad::train
