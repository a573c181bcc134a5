// Forward and backward data with few output channels per group: depthwise, small groups, and the
// mirror image of a stem. Vectors run along positions, and a task takes many groups at once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "conv/problem.hpp"
#include "cpu/box_lines.hpp"
#include "cpu/geometry.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/memory_walk.hpp"
#include "cpu/parallel.hpp"
#include "cpu/phases.hpp"
#include "cpu/streaming.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

class narrow_data {
public:
    /// `kernels` of format fma or dot2; `exact` (null if it is fma) takes tiles that dot2 cannot
    /// hold.
    narrow_data(const conv::problem &p, const kernel_set &kernels, const kernel_set *exact,
        int threads, std::size_t workspace_limit);

    [[nodiscard]] std::size_t workspace() const;
    [[nodiscard]] std::string describe() const;
    [[nodiscard]] work_list work() const;
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const;

private:
    struct scratch;
    struct task;

    /// The same tasks with other kernels.
    narrow_data(const narrow_data &like, const kernel_set &kernels);

    void choose(int threads);
    /// Whether channels may stay side by side.
    [[nodiscard]] bool in_quads() const;
    [[nodiscard]] bool in_vectors() const;
    /// Whether the input is planes that become channels side by side before they are packed.
    [[nodiscard]] bool turns_planes() const;
    [[nodiscard]] dim rows_of_c() const;
    void settle();
    bool shrink();
    [[nodiscard]] scratch lay_out(memory_walk &memory) const;
    [[nodiscard]] std::size_t scratch_bytes() const;
    [[nodiscard]] dim units(dim channels) const { return div_up(channels, kernels_.k_per_unit); }
    /// Channels of a unit of 16 bytes, groups that share one, units of a group (or of two), and its
    /// vectors.
    [[nodiscard]] dim quad_channels() const { return 4 * kernels_.k_per_unit; }
    [[nodiscard]] dim quad_groups() const { return div_up(quad_channels(), roles_.in_c); }
    [[nodiscard]] dim quad_units() const { return div_up(roles_.in_c, quad_channels()); }
    [[nodiscard]] dim quad_vectors() const { return roles_.out_c / 4; }
    /// Of a chunk, and of all that are held at once. (Quads take as much.)
    [[nodiscard]] dim weights_units() const {
        return groups_ * taps_ * units(k_chunk_) * roles_.out_c;
    }
    [[nodiscard]] dim held_units() const {
        return round_up_to((keep_weights_ ? chunks_ : 1) * weights_units(), 16);
    }
    [[nodiscard]] dim chunk_channels(dim chunk) const;

    [[nodiscard]] task make_task(const conv::buffers &data, dim index) const;
    [[nodiscard]] task_cost cost_of(const task &t) const;
    [[nodiscard]] float bias_of(const conv::buffers &data, dim channel) const;
    /// `next` (or null) is what the worker probably does then: its input is asked for meanwhile.
    void run_task(scratch &s, const task &t, const task *next) const;
    [[nodiscard]] box_lines input_lines(const task &t, dim chunk) const;
    void plan_ahead(scratch &s, const task &t, dim chunk, const task *next) const;
    void pack_weights(scratch &s, const task &t, dim chunk) const;
    [[nodiscard]] value_range pack_patch(const scratch &s, const task &t, dim chunk) const;
    [[nodiscard]] value_range pack_pixels(const scratch &s, const task &t) const;
    void pack_quads(scratch &s, const task &t) const;
    void multiply_pixels(scratch &s, const task &t) const;
    void multiply(scratch &s, const task &t, dim chunk) const;
    /// Taps of a row of a phase, whether they are multiplied together, and where its positions lie:
    /// the first of its first row in the patch, and how far behind that those of its last tap are.
    [[nodiscard]] static dim row_taps(const conv_phase &f) {
        return static_cast<dim>(f.axis[2]->taps.size());
    }
    [[nodiscard]] bool shares_rows(const conv_phase &f) const;
    [[nodiscard]] dim first_shift(const conv_phase &f) const;
    [[nodiscard]] dim last_shift(const conv_phase &f) const;
    [[nodiscard]] dim list_rows(
        const scratch &s, const task &t, const conv_phase &f, dim d, dim h, dim rows) const;
    void multiply_rows(scratch &s, const task &t, const conv_phase &f, dim chunk, dim d, dim h,
        dim rows, float *c) const;
    void shift_rows(
        const scratch &s, const conv_phase &f, dim count, bool accumulate, float *c) const;
    [[nodiscard]] bool worth_cutting(const task &t, const conv_phase &f, dim rows) const;
    [[nodiscard]] bool cuts_all(const task &t) const;
    void multiply_careful(const scratch &s, const task &t) const;
    void sum_carefully(const task &t, const conv_phase &f, dim d, dim h, dim count, float *c) const;
    void store_tile(const scratch &s, const task &t) const;
    /// Elements of a tensor to the task's first channel in row (d, h) of a phase of its tile.
    [[nodiscard]] dim row_at(
        const conv::data_strides &st, const task &t, const conv_phase &f, dim d, dim h) const;
    void store_row(const scratch &s, const task &t, const conv_phase &f, dim d, dim h, dim count,
        const float *c) const;

    conv::problem p_;
    const kernel_set &kernels_;
    data_roles roles_;
    axis_walk walk_[3];
    axis_patch patch_[3];
    phase_list taps_of_;
    std::vector<dim> tap_patch_, tap_packed_;  // bytes, per tap: in the patch, in packed weights
    dim taps_ = 0;
    dim tile_[3] = {1, 1, 1}, tiles_[3] = {1, 1, 1};
    dim patch_pitch_ = 0;  // units from one k to the next of the patch
    dim c_pitch_ = 0;      // floats from channel to channel of C; rows keep the patch's pitch
    dim plane_pitch_ = 0;
    dim vectors_ = 4;                    // of positions that are multiplied together
    dim d_pitch_ = 0, d_rows_ = 0;       // floats from row to row of D (narrow_rows.cpp), its rows
    dim groups_ = 1, group_blocks_ = 1;  // groups of one task
    // Channels stay side by side, in the patch and in C: small groups of NXC, whose outputs fill
    // vectors or are multiplied in quads (see quad_product).
    bool pixels_ = false, quads_ = false;
    dim stage_rows_ = 0;   // planes that are turned: rows of a tile's input
    dim c_rows_ = 1;       // rows of results that leave together then
    dim pixel_bytes_ = 0;  // from position to position of the patch then
    dim k_chunk_ = 1, chunks_ = 1;
    bool keep_weights_ = true;           // of all chunks
    bool ahead_ = false;                 // memory is asked for
    bool streams_ = exceeds_caches(p_);  // results go past the caches where they can
    dim images_per_task_ = 1, tasks_ = 0;
    int workers_ = 1;
    std::unique_ptr<narrow_data> exact_;
};

}  // namespace convgrad::cpu
