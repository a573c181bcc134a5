// The bias gradient: the sum of a data tensor over batch and space, per channel.
#pragma once

#include <string>

#include "conv/problem.hpp"
#include "cpu/joint_pass.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/parallel.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

class channel_sums {
public:
    /// Does nothing if the problem has no bias gradient. Beside a weights gradient it is summed in
    /// the parts of that (`like`) where memory allows, so that the two may go together; otherwise
    /// in a few parts of its own. As a pass of its own it is cut so that many threads can share it.
    /// `kernels` of format fma.
    channel_sums(const conv::problem &p, const kernel_set &kernels, const sum_cut &like,
        std::size_t workspace_limit);
    [[nodiscard]] std::size_t workspace() const;
    /// Adds its stages to those of the gradient that it goes with.
    void add_work(work_list &work, int threads) const;
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const;

    /// Whether it can go with the weights gradient; then these are the pieces of one execution.
    [[nodiscard]] bool follows() const { return follows_; }
    void add_piece(
        const conv::buffers &data, char *workspace, dim part, dim group, dim first, dim last) const;
    void finish(const conv::buffers &data, char *workspace) const {
        finish_channels(data, workspace, 0, channels_);
    }

    /// "49 rows of 64 positions in 12 parts, 2 groups of channels".
    [[nodiscard]] std::string describe() const;

private:
    void cut_alone();
    void fit_parts(dim parts, std::size_t workspace_limit);
    void finish_channels(const conv::buffers &data, char *workspace, dim first, dim last) const;
    [[nodiscard]] dim row_at(dim unit) const { return rows_ * unit / cut_.units; }
    [[nodiscard]] dim first_channel(dim group) const { return channels_ * group / cut_.groups; }
    [[nodiscard]] dim pitch() const;
    void add_row(
        const char *row, dim positions, dim first_channel, dim channels, double *sums) const;

    conv::problem p_;
    const kernel_set &kernels_;
    conv::data_strides strides_;
    dim batch_ = 0, length_[3] = {1, 1, 1};
    /// The last axis in pieces, each a row: as a pass of its own, rows may be long.
    dim pieces_ = 1, piece_ = 0;
    dim channels_ = 0, rows_ = 0;
    sum_cut cut_{1, 1, 1};
    bool follows_ = true;
};

}  // namespace convgrad::cpu
