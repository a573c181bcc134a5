// The bias gradient: the sum of a data tensor over batch and space, per channel.
#pragma once

#include "conv/problem.hpp"
#include "cpu/batch_walk.hpp"
#include "cpu/parallel.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

class channel_sums {
public:
    /// Does nothing if the problem has no bias gradient. A small workspace limit means fewer parts.
    channel_sums(const conv::problem &p, std::size_t workspace_limit);
    [[nodiscard]] std::size_t workspace() const;
    /// Adds its stages to those of the gradient that it goes with.
    void add_work(work_list &work, int threads) const;
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const;
    [[nodiscard]] batch_walk walk(const conv::buffers &data, char *workspace, int workers) const;

private:
    void sum_rows(const void *data, dim first, dim last, double *sums, float *row) const;

    conv::problem p_;
    conv::data_strides strides_;
    dim length_[3] = {1, 1, 1};
    dim channels_ = 0, rows_ = 0, parts_ = 1;
};

}  // namespace convgrad::cpu
