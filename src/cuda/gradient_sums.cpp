#include <algorithm>

#include "cuda/general.hpp"

namespace convgrad::cuda {
namespace {

constexpr int threads = 256;
constexpr std::size_t alignment = 256;

std::size_t aligned(std::size_t bytes) {
    return (bytes + alignment - 1) / alignment * alignment;
}

std::size_t part_bytes(const conv::problem &p) {
    wide elements = p.groups * p.oc * p.ic;
    for (const conv::axis &a : p.x) elements *= a.kernel;
    return static_cast<std::size_t>(elements) * sizeof(float);
}

channel_sum_args make_channel_sums(const conv::problem &p) {
    const bool from_dst = p.diff_bias == conv::bias_gradient::from_dst;
    channel_sum_args s{};
    s.mb = p.mb;
    s.channels = p.groups * (from_dst ? p.oc : p.ic);
    s.positions = p.mb;
    for (std::size_t d = 0; d < 3; ++d) {
        s.x[d] = from_dst ? p.x[d].dst : p.x[d].src;
        s.positions *= s.x[d];
    }
    s.strides = to_args(from_dst ? p.dst : p.src);
    s.lanes_along_channels = s.strides.c == 1 && s.channels > 1 ? 1 : 0;
    // Parts by the problem alone, so many that a device is filled.
    const wide tiles =
        std::max<wide>(1, s.lanes_along_channels != 0 ? (s.channels + 31) / 32 : s.channels);
    s.parts = std::clamp<wide>(1024 / tiles, 1, std::max<wide>(1, s.positions / 1024));
    s.part_length = (s.positions + s.parts - 1) / s.parts;
    return s;
}

void launch_sums(const sum_args &sums, const lane &on) {
    const wide elements = sums.length >= many_sums ? threads : 32;  // of a block
    on.launch(kernel::sum_parts, (sums.length + elements - 1) / elements, threads, &sums);
}

}  // namespace

gradient_sums::gradient_sums(
    const conv::problem &p, wide wanted, const engines::plan_limits &limits) {
    if (p.diff_bias != conv::bias_gradient::none) {
        channels_ = make_channel_sums(p);
        bias_bytes_ =
            aligned(static_cast<std::size_t>(channels_.parts * channels_.channels) * sizeof(float));
        bias_.parts = channels_.parts;
        bias_.length = channels_.channels;
        for (int d = 0; d < 6; ++d) bias_.lengths[d] = 1;
        bias_.lengths[5] = channels_.channels;
        bias_.strides[5] = p.bias_stride;
        bias_.type = element_of(p.diff_bias_type);
        bias_.accumulate = p.accumulate ? 1 : 0;
    }
    const std::size_t bytes = part_bytes(p);
    const std::size_t room = limits.workspace > bias_bytes_ ? limits.workspace - bias_bytes_ : 0;
    weights_.parts = std::max<wide>(wanted, 1);
    while (weights_.parts > 1 && aligned(bytes * static_cast<std::size_t>(weights_.parts)) > room)
        weights_.parts = weights_.parts / 2;
    bias_at_ = aligned(bytes * static_cast<std::size_t>(weights_.parts));
    weights_.length = static_cast<wide>(bytes / sizeof(float));
    const wide lengths[] = {p.groups, p.oc, p.x[0].kernel, p.x[1].kernel, p.x[2].kernel, p.ic};
    const wide strides[] = {
        p.weights.g, p.weights.o, p.weights.k[0], p.weights.k[1], p.weights.k[2], p.weights.i};
    std::copy_n(lengths, 6, weights_.lengths);
    std::copy_n(strides, 6, weights_.strides);
    weights_.type = element_of(p.out_type);
    weights_.accumulate = p.accumulate ? 1 : 0;
}

void gradient_sums::finish(
    const conv::problem &p, const conv::buffers &data, void *workspace, const lane &on) const {
    sum_args sums = weights_;
    sums.partial = partial(workspace);
    sums.out = data.weights;
    launch_sums(sums, on);
    if (p.diff_bias == conv::bias_gradient::none) return;
    channel_sum_args channels = channels_;
    channels.data = p.diff_bias == conv::bias_gradient::from_dst ? data.dst : data.src;
    channels.partial = reinterpret_cast<float *>(static_cast<std::byte *>(workspace) + bias_at_);
    const wide lanes = channels.lanes_along_channels != 0 ? 32 : 1;
    on.launch(of_type(kernel::channel_sum_f32, p.type),
        (channels.channels + lanes - 1) / lanes * channels.parts, threads, &channels);
    sum_args bias = bias_;
    bias.partial = channels.partial;
    bias.out = data.bias;
    launch_sums(bias, on);
}

}  // namespace convgrad::cuda
