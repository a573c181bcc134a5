#include "adam.hpp"

#include <cmath>

namespace convgrad::train {

adam::adam(const std::vector<parameter *> &parameters, float weight_decay)
    : weight_decay_(weight_decay) {
    for (parameter *p : parameters)
        states_.push_back({p, std::vector<float>(p->value.size(), 0.0F),
            std::vector<float>(p->value.size(), 0.0F)});
}

bool adam::step(float rate, float gradient_scale) {
    // Zero times anything finite is zero, so one sum finds any infinity or NaN.
    float poison = 0;
    for (const state &s : states_)
        for (float g : s.of->gradient) poison += g * 0.0F;
    if (!std::isfinite(poison)) return false;

    constexpr float keep_mean = 0.9F, keep_square = 0.99F, epsilon = 1e-8F;
    ++steps;
    const auto n = static_cast<float>(steps);
    const float mean_bias = 1.0F - std::pow(keep_mean, n);
    const float square_bias = 1.0F - std::pow(keep_square, n);
    for (state &s : states_) {
        const float decay = s.of->decays ? rate * weight_decay_ : 0.0F;
        for (std::size_t i = 0; i < s.mean.size(); ++i) {
            const float g = s.of->gradient[i] / gradient_scale;
            s.mean[i] += (1.0F - keep_mean) * (g - s.mean[i]);
            s.square[i] += (1.0F - keep_square) * (g * g - s.square[i]);
            const float direction =
                s.mean[i] / mean_bias / (std::sqrt(s.square[i] / square_bias) + epsilon);
            s.of->value[i] -= rate * direction + decay * s.of->value[i];
        }
    }
    return true;
}

std::vector<std::vector<float> *> adam::moments() {
    std::vector<std::vector<float> *> list;
    for (state &s : states_) list.push_back(&s.mean), list.push_back(&s.square);
    return list;
}

}  // namespace convgrad::train
