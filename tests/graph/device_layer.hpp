// A layer whose tensors are in the memory of a device. Memory: takes a size; data(), copy_in(),
// copy_out().
#pragma once

#include <utility>
#include <vector>

#include "graph/helpers.hpp"

namespace convgrad::test {

/// A buffer of the host and its place on the device.
template <typename Memory>
class device_buffer {
public:
    explicit device_buffer(buffer host) : host_(std::move(host)), device_(bytes()) {
        device_.copy_in(host_.values().data(), bytes());
    }
    [[nodiscard]] tensor view() const { return {device_.data(), data_type::f32, host_.shape()}; }
    [[nodiscard]] std::vector<float> values() const {
        std::vector<float> copy(host_.values().size());
        device_.copy_out(copy.data(), bytes());
        return copy;
    }

private:
    [[nodiscard]] std::size_t bytes() const { return host_.values().size() * sizeof(float); }

    buffer host_;
    Memory device_;
};

/// A layer on the device, its outputs filled with -99; results as the CPU computes them.
template <typename Memory>
struct device_layer {
    using placed = device_buffer<Memory>;

    layer host;
    placed src{host.src}, weights{host.weights}, diff_dst{host.diff_dst};
    placed dst{buffer::filled({2, 5, 5, 4}, -99)};
    placed diff_src{buffer::filled({2, 5, 5, 3}, -99)};
    placed diff_weights{buffer::filled({3, 3, 3, 4}, -99)};

    [[nodiscard]] std::vector<float> expected() const {
        buffer out({2, 5, 5, 4});
        convolution(host.src.view(), host.weights.view(), {}, out.view(), host.attrs);
        return out.values();
    }
    void call(const stream &queue) const {
        convolution(src.view(), weights.view(), {}, dst.view(), host.attrs, {.queue = &queue});
    }
};

}  // namespace convgrad::test
