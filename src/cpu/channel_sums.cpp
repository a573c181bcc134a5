#include "cpu/channel_sums.hpp"

#include <algorithm>

#include "cpu/element.hpp"
#include "cpu/geometry.hpp"
#include "cpu/tasks.hpp"

namespace convgrad::cpu {
namespace {

constexpr dim parts_wanted = 32;  // fixed, so that the order of the sum is
constexpr dim channels_at_once = 256;
constexpr dim positions_at_once = 1024;  // summed in f32; beyond that in f64
constexpr dim least_piece = 64;          // positions; shorter ones are not worth a sum in f64
constexpr dim channels_finished = 1024;  // by one task
constexpr dim most_rows = dim{1} << 31;  // products of rows and units fit

double *doubles(char *p) {
    return static_cast<double *>(static_cast<void *>(p));
}

}  // namespace

channel_sums::channel_sums(const conv::problem &p, const kernel_set &kernels, const sum_cut &like,
    std::size_t workspace_limit)
    : p_(p), kernels_(kernels) {
    if (p.diff_bias == conv::bias_gradient::none) return;
    const bool dst = p.diff_bias == conv::bias_gradient::from_dst;
    strides_ = dst ? p.dst : p.src;
    channels_ = p.groups * (dst ? p.oc : p.ic);
    batch_ = p.mb;
    for (std::size_t a = 0; a < 3; ++a) length_[a] = dst ? p.x[a].dst : p.x[a].src;
    const bool alone = p.what == conv::pass::backward_bias;
    // Planes in one piece are one long row.
    for (std::size_t a = 2; a-- > 0 && (alone || strides_.c != 1);) {
        if (length_[a] != 1 && strides_.x[a] != strides_.x[2] * length_[2]) break;
        length_[2] *= length_[a];
        length_[a] = 1;
    }
    piece_ = length_[2];
    if (alone && channels_ > 0) {
        cut_alone();
        fit_parts(cut_.parts, workspace_limit);
        return;
    }
    rows_ = batch_ * length_[0] * length_[1];
    cut_ = like;
    follows_ = like.parts > 0 && rows_ < most_rows && like.units < most_rows;
    if (follows_ && workspace() <= workspace_limit) return;
    follows_ = false;
    cut_.groups = 1;
    fit_parts(std::clamp<dim>(rows_, 1, parts_wanted), workspace_limit);
}

/// Rows are short enough that there are some for every part; where there are few all the same,
/// channels are shared out as well, whole cache lines of them.
void channel_sums::cut_alone() {
    const bool one_row = length_[0] == 1 && length_[1] == 1;
    if (one_row && length_[2] == 1) strides_.x[2] = strides_.n;
    if (one_row && strides_.n == strides_.x[2] * length_[2]) {
        length_[2] *= batch_;
        batch_ = 1;
    }
    const dim outer = batch_ * length_[0] * length_[1];
    piece_ = std::clamp(div_up(outer * length_[2], parts_wanted), least_piece, positions_at_once);
    pieces_ = std::max<dim>(div_up(length_[2], piece_), 1);
    rows_ = outer * pieces_;
    cut_.parts = std::clamp<dim>(rows_, 1, parts_wanted);
    const dim least_channels = strides_.c == 1 ? 64 : 1;
    cut_.groups =
        std::clamp(parts_wanted / cut_.parts, dim{1}, std::max<dim>(channels_ / least_channels, 1));
    follows_ = false;
}

void channel_sums::fit_parts(dim parts, std::size_t workspace_limit) {
    cut_.parts = parts;
    while (cut_.parts > 1 && workspace() > workspace_limit) --cut_.parts;
    cut_.units = cut_.parts;
}

std::string channel_sums::describe() const {
    const auto count = [](dim n, std::string_view what) {
        return std::to_string(n) + " " + std::string(what) + (n == 1 ? "" : "s");
    };
    return count(rows_, "row") + " of " + count(std::min(piece_, length_[2]), "position") + " in "
           + count(cut_.parts, "part") + ", " + count(cut_.groups, "group") + " of channels";
}

dim channel_sums::pitch() const {
    return round_up_to(channels_ * 8, 64);
}

std::size_t channel_sums::workspace() const {
    return static_cast<std::size_t>(pitch() * cut_.parts);
}

void channel_sums::add_work(work_list &work, int threads) const {
    if (channels_ == 0) return;
    const dim size = static_cast<dim>(size_of(p_.type));
    work.stages.push_back(
        {"bias gradient", cut_.parts * cut_.groups, threads, [this, size](dim task, dim) {
             const dim part = task / cut_.groups, group = task % cut_.groups;
             const dim channels = first_channel(group + 1) - first_channel(group);
             const dim rows = row_at(cut_.begin(part + 1)) - row_at(cut_.begin(part));
             return task_cost{0, static_cast<double>(rows * piece_ * channels * size),
                 static_cast<double>(8 * channels)};
         }});
    work.stages.push_back(
        {"sum of its parts", div_up(channels_, channels_finished), threads, [this](dim, dim) {
             const dim channels = std::min(channels_, channels_finished);
             return task_cost{0, static_cast<double>(8 * channels * cut_.parts), 0};
         }});
}

/// Adds the sums of one row.
void channel_sums::add_row(
    const char *row, dim positions, dim channel, dim channels, double *sums) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    float found[channels_at_once];
    for (dim c = 0; c < channels; c += channels_at_once)
        for (dim x = 0; x < positions; x += positions_at_once) {
            const dim some = std::min(channels_at_once, channels - c);
            kernels_.sum_positions({row + size * ((channel + c) * strides_.c + x * strides_.x[2]),
                p_.type, size * strides_.c, size * strides_.x[2], some,
                std::min(positions_at_once, positions - x), found});
            for (dim i = 0; i < some; ++i) sums[c + i] += static_cast<double>(found[i]);
        }
}

void channel_sums::add_piece(
    const conv::buffers &data, char *workspace, dim part, dim group, dim first, dim last) const {
    if (channels_ == 0) return;
    const dim channel = first_channel(group), channels = first_channel(group + 1) - channel;
    double *sums = doubles(workspace + part * pitch()) + channel;
    if (first == cut_.begin(part)) std::fill(sums, sums + channels, 0.0);
    const dim size = static_cast<dim>(size_of(p_.type));
    const auto *in = static_cast<const char *>(
        p_.diff_bias == conv::bias_gradient::from_dst ? data.dst : data.src);
    for (dim r = row_at(first); r < row_at(last); ++r) {
        const dim x = r % pieces_ * piece_, line = r / pieces_;
        const dim h = line % length_[1], d = line / length_[1] % length_[0],
                  n = line / length_[1] / length_[0];
        add_row(in
                    + size
                          * (n * strides_.n + d * strides_.x[0] + h * strides_.x[1]
                              + x * strides_.x[2]),
            std::min(piece_, length_[2] - x), channel, channels, sums);
    }
}

void channel_sums::finish_channels(
    const conv::buffers &data, char *workspace, dim first, dim last) const {
    double *sums = doubles(workspace);
    for (dim part = 1; part < cut_.parts; ++part) {
        const double *more = doubles(workspace + part * pitch());
        for (dim c = first; c < last; ++c) sums[c] += more[c];
    }
    for (dim c = first; c < last; ++c)
        store_rounded(data.bias, p_.diff_bias_type, c * p_.bias_stride, sums[c], p_.accumulate);
}

void channel_sums::execute(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    if (channels_ == 0) return;
    for_each_task(threads, cut_.parts * cut_.groups, [&](int, dim index) {
        const dim part = index / cut_.groups;
        add_piece(
            data, workspace, part, index % cut_.groups, cut_.begin(part), cut_.begin(part + 1));
    });
    for_each_task(threads, div_up(channels_, channels_finished), [&](int, dim index) {
        const dim first = index * channels_finished;
        finish_channels(data, workspace, first, std::min(first + channels_finished, channels_));
    });
}

}  // namespace convgrad::cpu
