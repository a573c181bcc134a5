// One channel per group, channels side by side (NXC): every pass reads the tensors in place,
// vectors along channels, and visits only taps that lie inside, so there is no padding to stand
// for.
#pragma once

#include <string>
#include <vector>

#include "conv/problem.hpp"
#include "cpu/depthwise_taps.hpp"
#include "cpu/geometry.hpp"
#include "cpu/joint_pass.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/memory_walk.hpp"
#include "cpu/parallel.hpp"
#include "cpu/phases.hpp"
#include "cpu/streaming.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

/// Whether the depthwise drivers can run a problem; if not, `why` (optional) says what they need.
bool fits_depthwise(const conv::problem &p, std::string *why);

/// Forward and backward data.
class depthwise_data {
public:
    depthwise_data(const conv::problem &p, const kernel_set &kernels, int threads,
        std::size_t workspace_limit);
    [[nodiscard]] std::size_t workspace() const;
    [[nodiscard]] std::string describe() const;
    [[nodiscard]] work_list work() const;
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const;
    [[nodiscard]] bool joins() const { return tasks_ > 0; }
    /// Starts an execution whose pieces go with those of a weights gradient.
    [[nodiscard]] data_walk start(
        const conv::buffers &data, char *workspace, const executor &threads) const;

private:
    struct phase {
        line_list lines;  // depth and height
        const chained_phase *width;
        dim weights;  // floats from a block's first weight
    };
    struct task {
        dim n, depth;
        dim row, rows, column, columns;  // positions
        dim block, blocks;               // of channels
    };
    void choose_tasks(int threads);
    [[nodiscard]] task make_task(dim index) const;
    /// Weights and bias of all blocks.
    struct packed {
        float *weights, *bias;
    };
    [[nodiscard]] packed lay_out(memory_walk &memory) const;
    packed prepare(const conv::buffers &data, char *workspace, const executor &threads) const;
    void run_piece(const conv::buffers &data, const packed &from, const walk_piece &piece) const;
    void expect_piece(const conv::buffers &data, const walk_piece &piece) const;
    void pack_weights(const conv::buffers &data, const packed &all, dim block) const;
    void run_task(const conv::buffers &data, const packed &from, const task &t) const;
    void run_phase(
        const conv::buffers &data, depthwise_args &args, const phase &f, const task &t) const;
    /// Columns [begin, end) of a phase, one position at a time or several in a pair.
    struct columns {
        const phase &f;
        dim begin, end;
    };
    void run_columns(
        const conv::buffers &data, depthwise_args &args, const columns &c, const task &t) const;
    void run_merged(
        const conv::buffers &data, depthwise_args args, const columns &c, const task &t) const;
    void place(const conv::buffers &data, depthwise_args &args, const phase &f, const task &t,
        dim column, dim residue, dim step) const;
    [[nodiscard]] task_cost cost_of(const task &t) const;

    conv::problem p_;
    const kernel_set &kernels_;
    data_roles roles_;
    bool streams_ = exceeds_caches(p_);  // results go past the caches where they can
    axis_walk walk_[3];
    std::vector<chained_phase> width_;
    merged_columns merged_;
    std::vector<phase> phases_;
    dim pair_ = 0;                                  // channels of a block
    dim blocks_ = 0;                                // of channels
    dim block_floats_ = 0;                          // weights of a block
    dim rows_ = 0, columns_ = 0, task_blocks_ = 0;  // of a task
    dim tiles_[3] = {0, 0, 0};                      // tasks along rows, columns, blocks
    dim tasks_ = 0;
    bool ahead_ = false;  // rows are fetched ahead
    int workers_ = 1;
};

/// Backward weights.
class depthwise_weights {
public:
    depthwise_weights(const conv::problem &p, const kernel_set &kernels, int threads,
        std::size_t workspace_limit);
    [[nodiscard]] std::size_t workspace() const;
    [[nodiscard]] std::string describe() const;
    [[nodiscard]] work_list work() const;
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const;
    /// The same on the calling thread, without memory of its own: another driver's task.
    void execute_alone(const conv::buffers &data, char *workspace) const;
    [[nodiscard]] bool joins() const { return parts_ > 0; }
    [[nodiscard]] sum_cut sums() const { return {units_, parts_, block_groups_}; }
    [[nodiscard]] sum_walk start(
        const conv::buffers &data, char *workspace, const executor &threads) const;

private:
    /// Rows of one plane of dst.
    struct unit {
        dim n, depth, row, rows;
    };
    [[nodiscard]] unit make_unit(dim index) const;
    void run_units(const conv::buffers &data, float *sums, dim part, dim group, dim first_unit,
        dim last_unit) const;
    [[nodiscard]] depthwise_gradient_args make_args() const;
    void run_unit(
        const conv::buffers &data, depthwise_gradient_args &args, const unit &u, dim block) const;
    void run_columns(depthwise_gradient_args args, dim begin, dim end) const;
    void run_merged(depthwise_gradient_args args) const;
    void expect_unit(const conv::buffers &data, const unit &u, dim block, dim last_block) const;
    [[nodiscard]] const float *in_order(
        const float *pair, dim block, float (&values)[max_pair]) const;
    void write_block(const conv::buffers &data, float *sums, dim block) const;
    double choose_groups();
    [[nodiscard]] dim part_floats() const { return blocks_ * block_floats_; }
    [[nodiscard]] dim channels_of(dim block) const;
    [[nodiscard]] bool one_vector(dim block) const;
    [[nodiscard]] dim first_block(dim group) const { return blocks_ * group / block_groups_; }

    conv::problem p_;
    const kernel_set &kernels_;
    axis_walk walk_[3];
    gradient_taps taps_;
    line_list lines_;
    chained_phase width_;
    merged_columns merged_;
    std::vector<dim> order_;  // of each tap in `sums`: its offset in diff_weights
    dim pair_ = 0, blocks_ = 0, block_floats_ = 0;
    dim rows_ = 0, row_tiles_ = 0;            // of a unit; units in a plane
    dim task_blocks_ = 0, block_groups_ = 0;  // blocks of a task
    dim units_ = 0, parts_ = 0;
    bool ahead_ = false;
    int threads_ = 1;
};

}  // namespace convgrad::cpu
