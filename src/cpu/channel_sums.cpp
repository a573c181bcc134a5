#include "cpu/channel_sums.hpp"

#include <algorithm>

#include "cpu/element.hpp"
#include "cpu/geometry.hpp"
#include "cpu/tasks.hpp"

namespace convgrad::cpu {
namespace {

constexpr dim parts_wanted = 32;  // fixed, so that the order of the sum is

template <typename T>
void add_row(const T *data, dim cs, dim xs, dim channels, dim length, double *sums, float *row) {
    if (cs == 1 || xs != 1) {
        std::fill(row, row + channels, 0.0F);
        for (dim x = 0; x < length; ++x)
            for (dim c = 0; c < channels; ++c) row[c] += conv::to_float(data[c * cs + x * xs]);
        for (dim c = 0; c < channels; ++c) sums[c] += static_cast<double>(row[c]);
        return;
    }
    for (dim c = 0; c < channels; ++c) {
        double sum = 0;
        for (dim x = 0; x < length; ++x)
            sum += static_cast<double>(conv::to_float(data[c * cs + x]));
        sums[c] += sum;
    }
}

}  // namespace

channel_sums::channel_sums(const conv::problem &p, std::size_t workspace_limit) : p_(p) {
    if (p.diff_bias == conv::bias_gradient::none) return;
    const bool dst = p.diff_bias == conv::bias_gradient::from_dst;
    strides_ = dst ? p.dst : p.src;
    channels_ = p.groups * (dst ? p.oc : p.ic);
    for (std::size_t a = 0; a < 3; ++a) length_[a] = dst ? p.x[a].dst : p.x[a].src;
    rows_ = p.mb * length_[0] * length_[1];
    parts_ = std::clamp<dim>(rows_, 1, parts_wanted);
    while (parts_ > 1 && workspace() > workspace_limit) --parts_;
}

std::size_t channel_sums::workspace() const {
    return static_cast<std::size_t>(round_up_to(channels_ * 12, 64) * parts_);
}

void channel_sums::add_work(work_list &work, int threads) const {
    if (channels_ == 0) return;
    const dim size = static_cast<dim>(size_of(p_.type));
    work.stages.push_back({"bias gradient", parts_, threads, [this, size](dim part, dim) {
                               const dim rows = rows_ * (part + 1) / parts_ - rows_ * part / parts_;
                               return task_cost{0,
                                   static_cast<double>(rows * length_[2] * channels_ * size),
                                   static_cast<double>(8 * channels_)};
                           }});
    work.stages.push_back({"sum of its parts", 1, 1, [this](dim, dim) {
                               return task_cost{0, static_cast<double>(8 * channels_ * parts_), 0};
                           }});
}

void channel_sums::sum_rows(const void *data, dim first, dim last, double *sums, float *row) const {
    std::fill(sums, sums + channels_, 0.0);
    for (dim r = first; r < last; ++r) {
        const dim h = r % length_[1], d = r / length_[1] % length_[0],
                  n = r / length_[1] / length_[0];
        const dim at = n * strides_.n + d * strides_.x[0] + h * strides_.x[1];
        const auto add = [&](const auto *typed) {
            add_row(typed + at, strides_.c, strides_.x[2], channels_, length_[2], sums, row);
        };
        if (p_.type == data_type::f32) add(static_cast<const float *>(data));
        if (p_.type == data_type::bf16) add(static_cast<const bf16 *>(data));
        if (p_.type == data_type::f16) add(static_cast<const f16 *>(data));
    }
}

void channel_sums::execute(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    const batch_walk all = walk(data, workspace, threads.threads());
    for_each_task(threads, all.tasks, all.run);
    all.finish(threads);
}

batch_walk channel_sums::walk(const conv::buffers &data, char *workspace, int workers) const {
    const void *in = p_.diff_bias == conv::bias_gradient::from_dst ? data.dst : data.src;
    const dim pitch = round_up_to(channels_ * 12, 64);
    const auto sums_of = [workspace, pitch](dim part) {
        return static_cast<double *>(static_cast<void *>(workspace + part * pitch));
    };
    return {channels_ == 0 ? 0 : parts_, workers,
        [this, in, sums_of](int, dim part) {
            double *sums = sums_of(part);
            auto *row = static_cast<float *>(static_cast<void *>(sums + channels_));
            sum_rows(in, rows_ * part / parts_, rows_ * (part + 1) / parts_, sums, row);
        },
        [this, &data, sums_of](const executor &) {
            for (dim c = 0; c < channels_; ++c) {
                double sum = 0;
                for (dim part = 0; part < parts_; ++part) sum += sums_of(part)[c];
                store_rounded(data.bias, p_.diff_bias_type, c * p_.bias_stride, sum, p_.accumulate);
            }
        }};
}

}  // namespace convgrad::cpu
