// Plans that compute every legal problem, and what other plans need of them: arguments, the sums of
// a weights gradient in parts, the bias gradient.
#pragma once

#include "cuda/plan.hpp"

namespace convgrad::cuda {

/// Kinds of general tiles: 64 columns, 8 columns (few channels), 64 columns with 64-bit indices.
enum class tile_kind : std::uint8_t { general, narrow, long_index };

/// What first layers read: algorithms that are for them are not weighed for others, which keeps
/// planning short.
constexpr wide few_channels = 8;

/// How many of length `by` cover `length`.
constexpr wide cover(wide length, wide by) {
    return (length + by - 1) / by;
}
wide taps_of(const conv::problem &p);
/// Of the output, in all images.
wide positions_of(const conv::problem &p);

/// Whether all sizes of a problem fit what kernels with 32-bit indices compute with.
bool fits_32_bits(const conv::problem &p);

std::unique_ptr<const engines::plan> make_general_plan(std::string_view name,
    const conv::problem &p, const architecture &on, tile_kind tiles,
    const engines::plan_limits &limits);
prediction predict_general(const conv::problem &p, const architecture &on, tile_kind tiles,
    const engines::plan_limits &limits);

/// Bytes that a problem reads and writes at least.
double least_bytes(const conv::problem &p);

inline bool is_backward(const conv::problem &p) {
    return p.what == conv::pass::backward_data;
}
inline bool is_weights(const conv::problem &p) {
    return p.what == conv::pass::backward_weights;
}
/// How far the last position reads beyond src; negative: it does not reach the end.
inline dim end_pad(const conv::axis &a) {
    return (a.dst - 1) * a.stride + (a.kernel - 1) * a.dilation + 1 - a.src - a.pad;
}
/// One TF32 product for each product of f32.
inline bool is_fast(const conv::problem &p) {
    return p.type == data_type::f32 && p.math == math_mode::fast;
}
/// Whether there is nothing to compute with.
bool has_empty_tensor(const conv::problem &p);

/// "sm_90", the machine code that an architecture runs.
std::string_view code_for(const architecture &on);

data_stride_args to_args(const conv::data_strides &s);
/// Axes with src as input (forward, backward weights) or dst (backward data).
data_axis_args to_args(const conv::axis &a, bool backward);
/// All of an epilogue but its pointers.
epilogue_args make_epilogue(const conv::problem &p);
/// The pointers of an epilogue.
void bind(epilogue_args &e, const conv::problem &p, const conv::buffers &data);
element element_of(data_type type);
/// Sizes and strides of a weights gradient: nothing of its parts, tiles and pointers.
weights_args make_weights_args(const conv::problem &p);
/// All of a data pass but its pointers, cut into tiles of positions by channels.
data_args make_data_args(const conv::problem &p, wide rows, wide columns);

/// The end of a weights gradient: parts in workspace [part][group][oc][tap][ic], added in order;
/// and the bias gradient, if asked for.
class gradient_sums {
public:
    gradient_sums() = default;
    /// As many parts as `wanted`, or as the workspace limit allows, at least 1.
    gradient_sums(const conv::problem &p, wide wanted, const engines::plan_limits &limits);

    [[nodiscard]] wide parts() const { return weights_.parts; }
    [[nodiscard]] std::size_t workspace() const { return bias_at_ + bias_bytes_; }
    [[nodiscard]] float *partial(void *workspace) const { return static_cast<float *>(workspace); }
    /// Adds the parts, which are complete on the lane.
    void finish(
        const conv::problem &p, const conv::buffers &data, void *workspace, const lane &on) const;

private:
    sum_args weights_{}, bias_{};
    channel_sum_args channels_{};
    std::size_t bias_at_ = 0, bias_bytes_ = 0;
};

}  // namespace convgrad::cuda
