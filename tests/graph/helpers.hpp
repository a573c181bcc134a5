// Small ops and buffers for the tests of graphs.
#pragma once

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include <convgrad/convgrad.hpp>

#include "op/expect_error.hpp"

namespace convgrad::test {

inline logical_tensor f32(std::size_t id, dims shape) {
    return {id, data_type::f32, std::move(shape)};
}
inline logical_tensor f32(std::size_t id) {
    return {id, data_type::f32};
}

/// A 2-D op with a 3×3 kernel in mind: strides and dilations 1, pads 1.
inline op padded(std::size_t id, op_kind kind, std::string name = {}) {
    op node(id, kind, std::move(name));
    node.set("strides", dims{1, 1}).set("dilations", dims{1, 1});
    node.set("pads_begin", dims{1, 1}).set("pads_end", dims{1, 1});
    return node;
}

inline std::size_t count_of(const dims &shape) {
    return static_cast<std::size_t>(
        std::accumulate(shape.begin(), shape.end(), dim{1}, std::multiplies<>()));
}

/// Memory with small whole numbers, on which all sums are exact.
class buffer {
public:
    explicit buffer(dims shape, int seed = 1)
        : shape_(std::move(shape)), values_(count_of(shape_)) {
        for (std::size_t i = 0; i < values_.size(); ++i)
            values_[i] =
                static_cast<float>((i * 7 + static_cast<std::size_t>(seed) * 3) % 5) - 2.0F;
    }
    static buffer filled(dims shape, float value) {
        buffer b(std::move(shape));
        b.values_.assign(b.values_.size(), value);
        return b;
    }
    [[nodiscard]] const dims &shape() const { return shape_; }
    /// For either role: what a test calls const is not written by the call that it makes.
    [[nodiscard]] tensor view() const { return {const_cast<float *>(values_.data()), shape_}; }
    [[nodiscard]] logical_tensor described(std::size_t id) const { return f32(id, shape_); }
    std::vector<float> &values() { return values_; }
    [[nodiscard]] const std::vector<float> &values() const { return values_; }

private:
    dims shape_;
    std::vector<float> values_;
};

// ThreadSanitizer cannot follow threads that start after fork().
#if defined(__SANITIZE_THREAD__)
inline constexpr bool can_fork = false;
#elif defined(__has_feature)
// Nor does the address sanitizer: a fork while another thread allocates leaves its lock taken in
// the child.
inline constexpr bool can_fork =
    !__has_feature(thread_sanitizer) && !__has_feature(address_sanitizer);
#else
inline constexpr bool can_fork = true;
#endif

/// A layer's tensors: 2 images of 5×5 pixels, 3 → 4 channels, 3×3 kernel, padded by 1.
struct layer {
    buffer src{{2, 5, 5, 3}, 1}, weights{{3, 3, 3, 4}, 2}, diff_dst{{2, 5, 5, 4}, 3};
    attributes attrs{.pads_begin = {1, 1}, .pads_end = {1, 1}};

    [[nodiscard]] std::vector<float> diff_src() const {
        buffer out(src.shape());
        convolution_backward_data(diff_dst.view(), weights.view(), out.view(), attrs);
        return out.values();
    }
    [[nodiscard]] std::vector<float> diff_weights() const {
        buffer out(weights.shape());
        convolution_backward_weights(src.view(), diff_dst.view(), out.view(), attrs);
        return out.values();
    }
};

}  // namespace convgrad::test
