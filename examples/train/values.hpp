// What flows between layers: f32 numbers with a shape, in the order N, height, width, channels.
#pragma once

#include <cstddef>
#include <vector>

#include <convgrad/tensor.hpp>

namespace convgrad::train {

struct values {
    dims shape;
    std::vector<float> data;

    values() = default;
    explicit values(dims shape_) { reshape(std::move(shape_)); }

    /// Memory is kept when the size shrinks: layers reuse their tensors step after step.
    void reshape(dims to) {
        shape = std::move(to);
        std::size_t count = 1;
        for (dim d : shape) count *= static_cast<std::size_t>(d);
        data.resize(count);
    }
    [[nodiscard]] dim channels() const { return shape.back(); }
    [[nodiscard]] dim pixels() const { return static_cast<dim>(data.size()) / channels(); }
};

}  // namespace convgrad::train
