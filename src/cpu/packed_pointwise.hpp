// Forward and backward data of 1×1 layers on bf16 planes (NCX). Vectors run along positions as in
// pointwise_data, but pairs of channels are made first. Results leave where they lie.
#pragma once

#include <memory>
#include <string>

#include "conv/problem.hpp"
#include "cpu/fetch_lists.hpp"
#include "cpu/joint_pass.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/memory_walk.hpp"
#include "cpu/parallel.hpp"
#include "cpu/phases.hpp"
#include "cpu/pointwise_cut.hpp"
#include "cpu/streaming.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

class packed_pointwise {
public:
    /// `p` fits pointwise. `kernels` of format dot2; `exact` takes units whose values these cannot
    /// hold.
    packed_pointwise(const conv::problem &p, const kernel_set &kernels, const kernel_set *exact,
        int threads, std::size_t workspace_limit);

    [[nodiscard]] std::size_t workspace() const;
    [[nodiscard]] std::string describe() const;
    [[nodiscard]] work_list work() const;
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const;
    [[nodiscard]] bool joins() const { return cut_.tasks > 0; }
    [[nodiscard]] data_walk start(
        const conv::buffers &data, char *workspace, const executor &threads) const;

private:
    struct task;
    using channel_block = pointwise_block;
    /// Of one worker.
    struct scratch {
        char *weights = nullptr;  // of a block of output channels [unit][channel], then the next
        char *patch = nullptr;    // of a unit of positions [unit of k][position], then the next
        value_range *ranges = nullptr;  // of each unit of positions
        float *c = nullptr;             // [channel of a block][step]
        float *bias = nullptr;
        char *exact = nullptr;
        dim held = -1;  // group whose weights and bias are here
        value_range weights_range = {};
        fetch_ahead ahead = {};
    };

    /// The same units of positions with other kernels, one a task.
    packed_pointwise(const packed_pointwise &like, const kernel_set &kernels);

    [[nodiscard]] scratch lay_out(memory_walk &memory) const;
    [[nodiscard]] std::size_t scratch_bytes() const;
    [[nodiscard]] dim step() const;     // positions of one product
    [[nodiscard]] dim k_units() const;  // of all reduced channels
    [[nodiscard]] dim k_pitch() const;  // bytes from one of them to the next in a patch
    [[nodiscard]] dim blocks() const;   // of output channels
    [[nodiscard]] channel_block block(dim b) const;
    [[nodiscard]] task make_task(const conv::buffers &data, dim index) const;
    [[nodiscard]] const char *input_of(const task &t) const;
    void run_task(scratch &s, const task &t) const;
    void pack_weights(scratch &s, const task &t) const;
    [[nodiscard]] value_range pack_unit(const scratch &s, const task &t, dim first) const;
    void plan_ahead(scratch &s, const task &t) const;
    /// Positions [first, last) of a task: whole units, but for the last.
    void multiply(scratch &s, const task &t, dim first, dim last, const value_range &range) const;
    void store(const scratch &s, const task &t, const channel_block &rows, dim x, dim count) const;

    conv::problem p_;
    const kernel_set &kernels_;
    data_roles roles_;
    bool streams_ = exceeds_caches(p_);  // results go past the caches where they can
    bool direct_;                        // results leave the kernel as they are
    dim unit_ = 1;  // positions whose values are looked at together, however tasks are cut
    pointwise_cut cut_;
    std::unique_ptr<packed_pointwise> exact_;
};

}  // namespace convgrad::cpu
