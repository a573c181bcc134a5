// The bias gradient: the sum of a data tensor over batch and space, per channel.
#pragma once

#include "conv/problem.hpp"
#include "cpu/joint_pass.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/parallel.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

class channel_sums {
public:
    /// Does nothing if the problem has no bias gradient. It is summed in the parts of the weights
    /// gradient (`like`) where memory allows, so that the two may go together; otherwise in a few
    /// parts of its own. `kernels` of format fma.
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
    void finish(const conv::buffers &data, char *workspace) const;

private:
    [[nodiscard]] dim row_at(dim unit) const { return rows_ * unit / cut_.units; }
    [[nodiscard]] dim pitch() const;
    void add_row(const char *row, dim first_channel, dim channels, double *sums) const;

    conv::problem p_;
    const kernel_set &kernels_;
    conv::data_strides strides_;
    dim length_[3] = {1, 1, 1};
    dim channels_ = 0, rows_ = 0;
    sum_cut cut_{1, 1, 1};
    bool follows_ = true;
};

}  // namespace convgrad::cpu
