// One input channel per group, columns side by side (NCX). Tiles of planes are copied to f32 with
// their padding columns; then vectors run along columns and the kernels slide along rows. Small
// planes lie side by side in one row of the copy, each beginning in the padding of the one before,
// so that even planes of 7 columns fill vectors.
#pragma once

#include <algorithm>
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

/// Whether the plane drivers can run a (simplified) problem; if not, `why` (optional) says what
/// they need.
bool fits_planes(const conv::problem &p, std::string *why);

/// How tiles of planes lie in a copy.
struct plane_layout {
    dim tile[3] = {1, 1, 1};  // positions
    dim tiles[3] = {0, 0, 0};
    dim planes = 1;        // side by side
    dim blocks = 0;        // of planes, in the whole problem
    axis_patch patch;      // of columns
    dim pitch = 0;         // from plane to plane
    dim lanes = 0;         // of a row of results
    dim row = 0;           // floats of a row of the copy
    dim low[2] = {0, 0};   // depth and height: least offset of a tap
    dim span[2] = {0, 0};  // indices that a tile needs

    [[nodiscard]] dim plane_floats() const { return span[1] * row; }
    [[nodiscard]] dim copy_floats() const;
};

/// Part of the problem: some planes, a tile.
struct plane_task {
    dim n, group, planes;
    dim t0[3], length[3];
};

/// What the data passes and the weights gradient share.
class plane_driver {
protected:
    plane_driver(const conv::problem &p, const kernel_set &kernels);
    /// Chooses planes and tile for about `bytes` per copied tensor.
    void choose_layout(dim bytes, dim copies);
    void settle();
    /// Less memory; false if there is no way.
    bool shrink();
    [[nodiscard]] plane_task make_task(dim index) const;
    /// Tiles of all images of a block of planes.
    [[nodiscard]] dim tile_count() const {
        return p_.mb * layout_.tiles[0] * layout_.tiles[1] * layout_.tiles[2];
    }
    [[nodiscard]] dim task_count() const { return layout_.blocks * tile_count(); }
    /// Copies the planes of input channels first, first + step, … False if a value is not finite.
    bool copy_in(const plane_task &t, const void *in, const conv::data_strides &s, dim channel,
        dim step, float *to) const;
    /// Whether a plane is a single row, which no tap leaves.
    [[nodiscard]] bool flat() const {
        return layout_.planes == 1 && walk_[1].in_length == 1 && walk_[1].out_length == 1
               && walk_[1].phases.size() == 1 && walk_[1].phases[0].taps.size() == 1;
    }
    /// Bytes from a copy's start to what position (t0, u) of a class reads before its taps'
    /// offsets.
    [[nodiscard]] dim start_bytes(const plane_task &t, dim row_index) const;

    conv::problem p_;
    const kernel_set &kernels_;
    data_roles roles_;
    bool streams_ = exceeds_caches(p_);  // results go past the caches where they can
    axis_walk walk_[3];
    plane_layout layout_;
    dim pair_;
};

/// Forward and backward data.
class plane_data : plane_driver {
public:
    plane_data(const conv::problem &p, const kernel_set &kernels, int threads,
        std::size_t workspace_limit);
    [[nodiscard]] std::size_t workspace() const;
    [[nodiscard]] std::string describe() const;
    [[nodiscard]] work_list work() const;
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const;
    [[nodiscard]] bool joins() const { return tasks_ > 0; }
    [[nodiscard]] data_walk start(
        const conv::buffers &data, char *workspace, const executor &threads) const;

private:
    struct phase {
        const axis_phase *depth, *height, *width;
        chained_phase chains;         // along rows
        std::vector<tap_line> lines;  // [channel][column tap][depth tap]
        dim weights;                  // floats from a block's first weight
        dim c;                        // floats from the results' start
    };
    struct scratch;
    void list_taps();
    void pack_weights(scratch &s, const conv::buffers &data, const plane_task &t) const;
    void run_task(scratch &s, const conv::buffers &data, const plane_task &t) const;
    void expect_task(const conv::buffers &data, const plane_task &t) const;
    void run_phase(const scratch &s, const conv::buffers &data, const plane_task &t, const phase &f,
        dim m) const;
    void run_careful(const scratch &s, const conv::buffers &data, const plane_task &t) const;
    void run_flat(depthwise_args args) const;
    void store(const scratch &s, const conv::buffers &data, const plane_task &t, dim m) const;
    void store_rows(
        const scratch &s, const plane_store_args &all, std::size_t first_phase, bool whole) const;
    [[nodiscard]] scratch lay_out(memory_walk &memory) const;
    [[nodiscard]] bool direct() const { return layout_.planes == 1 && walk_[2].out_step == 1; }
    [[nodiscard]] dim c_row() const { return round_up_to(layout_.lanes, pair_); }
    [[nodiscard]] dim weight_blocks() const { return layout_.planes == 1 ? 1 : c_row() / pair_; }
    [[nodiscard]] dim line_floats() const;
    [[nodiscard]] std::size_t scratch_bytes() const;
    [[nodiscard]] task_cost cost_of(const plane_task &t) const;

    std::vector<phase> phases_;
    dim multiplier_;        // dst channels per src channel
    dim copies_;            // input tensors of a task
    dim block_floats_ = 0;  // weights of a pair, all phases
    dim c_floats_ = 0;
    dim tasks_ = 0;
    int workers_ = 1;
};

/// Backward weights.
class plane_weights : plane_driver {
public:
    plane_weights(const conv::problem &p, const kernel_set &kernels, int threads,
        std::size_t workspace_limit);
    [[nodiscard]] std::size_t workspace() const;
    [[nodiscard]] std::string describe() const;
    [[nodiscard]] work_list work() const;
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const;
    [[nodiscard]] bool joins() const { return parts_ > 0; }
    [[nodiscard]] sum_cut sums() const { return {tiles_all_, parts_, layout_.blocks}; }
    [[nodiscard]] sum_walk start(
        const conv::buffers &data, char *workspace, const executor &threads) const;

private:
    struct scratch;
    void run_tiles(scratch &s, const conv::buffers &data, float *results, dim part, dim block,
        dim first, dim last) const;
    void add_tile(scratch &s, const conv::buffers &data, const plane_task &t, float *results) const;
    void add_products(const scratch &s, const plane_task &t, float *sums) const;
    void add_careful(const conv::buffers &data, const plane_task &t, dim m, float *results) const;
    void fold(const scratch &s, dim planes, float *results) const;
    void write_block(const conv::buffers &data, float *results, dim block) const;
    [[nodiscard]] dim sum_blocks() const;
    /// Floats: whole pairs are read, whole vectors written.
    [[nodiscard]] dim dst_row() const {
        return round_up_to(
            std::max(round_up_to(layout_.lanes, pair_), layout_.lanes + kernels_.lanes - 1), 16);
    }
    [[nodiscard]] dim taps() const { return static_cast<dim>(order_.size()); }
    [[nodiscard]] dim part_floats() const { return p_.groups * p_.oc * taps(); }
    [[nodiscard]] float *lay_out_results(memory_walk &memory) const;
    [[nodiscard]] scratch lay_out(memory_walk &memory) const;
    [[nodiscard]] std::size_t results_bytes() const;
    [[nodiscard]] std::size_t scratch_bytes() const;

    gradient_taps kept_;
    chained_phase chains_;
    std::vector<tap_line> lines_;
    std::vector<dim> order_;  // of each tap of `sums`: its offset in diff_weights
    dim dst_floats_ = 0;
    dim tiles_all_ = 0, parts_ = 0;
    int workers_ = 1;
};

}  // namespace convgrad::cpu
