// Forward and backward data of 1×1 layers on f32 planes (NCX). Vectors run along positions, so that
// input and output are used where they lie: nothing is packed but the weights.
#pragma once

#include <string>

#include "conv/problem.hpp"
#include "cpu/joint_pass.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/parallel.hpp"
#include "cpu/phases.hpp"
#include "cpu/pointwise_cut.hpp"
#include "cpu/streaming.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

/// Whether pointwise_data (fma, f32) or packed_pointwise (dot2) can run a (simplified) problem; if
/// not, `why` (optional) tells. What fma multiplies is as well packed for `tiled` where it is not
/// f32 (0.8 to 1.1 times as fast over 15 layers in f16).
bool fits_pointwise(const conv::problem &p, const kernel_set &kernels, std::string *why);

class pointwise_data {
public:
    /// `kernels` of format fma.
    pointwise_data(const conv::problem &p, const kernel_set &kernels, int threads,
        std::size_t workspace_limit);

    [[nodiscard]] std::size_t workspace() const;
    [[nodiscard]] std::string describe() const;
    [[nodiscard]] work_list work() const;
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const;
    [[nodiscard]] bool joins() const { return cut_.tasks > 0; }
    [[nodiscard]] data_walk start(
        const conv::buffers &data, char *workspace, const executor &threads) const;

private:
    struct scratch;
    struct task;
    using channel_block = pointwise_block;

    /// Positions of a task whose blocks are multiplied one after the other.
    struct stretch {
        dim first, last;
    };

    [[nodiscard]] dim step() const;    // positions of one product
    [[nodiscard]] dim copied() const;  // positions at a time
    [[nodiscard]] dim blocks() const;  // of output channels
    [[nodiscard]] channel_block block(dim b) const;
    [[nodiscard]] task make_task(const conv::buffers &data, dim index) const;
    void run_task(scratch &s, const task &t) const;
    void pack_weights(const scratch &s, const task &t) const;
    [[nodiscard]] bool streams(const task &t, dim x, dim count) const;
    [[nodiscard]] const float *input_of(const task &t) const;
    void plan_ahead(scratch &s, const task &t, const stretch &all) const;
    void expect_results(const task &t, const channel_block &rows, dim x, dim last) const;
    void expect_next(scratch &s, const task &t, const channel_block &rows, const stretch &all,
        dim x, product_args &args) const;
    void multiply_block(
        scratch &s, const task &t, const channel_block &rows, const stretch &all) const;
    void multiply(scratch &s, const task &t, const channel_block &rows, const stretch &all, dim x,
        dim count) const;
    void store(const scratch &s, const task &t, const channel_block &rows, dim x, dim count) const;

    conv::problem p_;
    const kernel_set &kernels_;
    data_roles roles_;
    bool streams_ = exceeds_caches(p_);  // results go past the caches where they can
    bool buffered_;        // bias, add or ReLU: results do not leave the kernel as they are
    bool copies_ = false;  // the first block copies what it reads
    dim stretch_ = 1;      // positions of a stretch
    pointwise_cut cut_;
    std::size_t bytes_ = 0;  // of workspace, per worker
};

}  // namespace convgrad::cpu
