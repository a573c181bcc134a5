#include <algorithm>
#include <cstdint>

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

/// Whether positions of an image are `step` apart, one after the other.
bool is_even(const channel_sum_args &s) {
    wide next = s.step;
    for (std::size_t d = 3; d-- > 0; next *= s.x[d])
        if (s.x[d] != 1 && s.strides.x[d] != next) return false;
    return true;
}

/// Elements that 16 bytes hold.
wide run_length(const conv::problem &p) {
    return 16 / static_cast<wide>(size_of(p.type));
}

/// By the problem alone.
channel_sum_args make_channel_sums(const conv::problem &p) {
    const bool from_dst = p.diff_bias == conv::bias_gradient::from_dst;
    const wide run = run_length(p);
    channel_sum_args s{};
    s.channels = p.groups * (from_dst ? p.oc : p.ic);
    s.image_positions = 1;
    for (std::size_t d = 0; d < 3; ++d) {
        s.x[d] = from_dst ? p.x[d].dst : p.x[d].src;
        s.image_positions *= s.x[d];
    }
    s.strides = to_args(from_dst ? p.dst : p.src);
    for (std::size_t d = 0; d < 3; ++d)
        if (s.x[d] != 1) s.step = s.strides.x[d];
    constexpr wide most = wide{1} << 30;
    const bool counts = p.mb * s.image_positions < most && s.channels < most && is_even(s);
    const bool rows = counts && s.strides.c == 1 && s.channels > 1,
               planes = counts && !rows && (s.step == 1 || s.image_positions == 1);
    s.form = rows     ? channel_sum_form::rows
             : planes ? channel_sum_form::planes
                      : channel_sum_form::anywhere;
    s.image_runs = planes ? (s.image_positions + run - 1) / run : s.image_positions;
    s.runs = p.mb * s.image_runs;
    s.lanes = 1;
    while (rows && s.lanes < 32 && s.lanes * run < s.channels) s.lanes *= 2;
    // So many parts that a device is filled.
    const wide tiles =
        std::max<wide>(1, rows ? (s.channels + s.lanes * run - 1) / (s.lanes * run) : s.channels);
    const wide least = rows ? 16 * (threads / s.lanes) : planes ? threads : 4 * threads;
    s.parts = std::clamp<wide>(1024 / tiles, 1, std::max<wide>(1, s.runs / least));
    s.part_length = (s.runs + s.parts - 1) / s.parts;
    return s;
}

/// An axis of the output is one with that before it where it only goes on: nothing is divided then.
void add_axis(sum_args &s, wide length, wide stride) {
    if (length == 1) return;
    if (s.axes > 0 && s.strides[s.axes - 1] == length * stride) {
        s.lengths[s.axes - 1] *= length;
        s.strides[s.axes - 1] = stride;
        return;
    }
    s.lengths[s.axes] = length;
    s.strides[s.axes++] = stride;
}

void set_form(sum_args &s) {
    if (s.axes == 0) {
        s.lengths[0] = s.strides[0] = 1;
        s.axes = 1;
    }
    constexpr wide many = wide{1} << 15, very_many = wide{1} << 18;
    const bool fours = s.length >= very_many && s.lengths[s.axes - 1] % 4 == 0;
    s.form = fours ? sum_form::fours : s.length >= many ? sum_form::ones : sum_form::chains;
}

void launch_sums(sum_args sums, const lane &on) {
    const std::size_t piece = 4 * (sums.type == element::f32 ? sizeof(float) : 2);
    bool whole = reinterpret_cast<std::uintptr_t>(sums.out) % piece == 0;
    for (int d = 0; d < sums.axes; ++d)
        whole = whole && (d == sums.axes - 1 ? sums.strides[d] == 1 : sums.strides[d] % 4 == 0);
    sums.whole = whole ? 1 : 0;
    const wide elements = sums.form == sum_form::fours  ? threads * 4
                          : sums.form == sum_form::ones ? threads
                                                        : 32;  // of a block
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
        add_axis(bias_, channels_.channels, p.bias_stride);
        set_form(bias_);
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
    for (std::size_t d = 0; d < 6; ++d) add_axis(weights_, lengths[d], strides[d]);
    set_form(weights_);
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
    const bool rows = channels.form == channel_sum_form::rows;
    const wide run = run_length(p), across = rows ? channels.lanes * run : 1;
    const auto fits = [&](wide n) { return n % run == 0; };
    channels.whole = reinterpret_cast<std::uintptr_t>(channels.data) % 16 == 0
                             && fits(channels.strides.n)
                             && (rows ? fits(channels.channels) && fits(channels.step)
                                      : fits(channels.strides.c) && fits(channels.image_positions))
                         ? 1
                         : 0;
    on.launch(of_type(kernel::channel_sum_f32, p.type),
        (channels.channels + across - 1) / across * channels.parts, threads, &channels);
    sum_args bias = bias_;
    bias.partial = channels.partial;
    bias.out = data.bias;
    launch_sums(bias, on);
}

}  // namespace convgrad::cuda
