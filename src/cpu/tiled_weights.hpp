// The dense driver for the weights gradient: blocks of channels × channels × taps, summed over
// parts of the batch and space, and the parts added in a fixed order.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "conv/problem.hpp"
#include "cpu/geometry.hpp"
#include "cpu/joint_pass.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/memory_walk.hpp"
#include "cpu/parallel.hpp"
#include "cpu/phases.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

class tiled_weights {
public:
    tiled_weights(const conv::problem &p, const kernel_set &kernels, const kernel_set *exact,
        int threads, std::size_t workspace_limit);

    [[nodiscard]] std::size_t workspace() const;
    [[nodiscard]] std::string describe() const;
    [[nodiscard]] work_list work() const;
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const;
    [[nodiscard]] bool joins() const;
    [[nodiscard]] sum_cut sums() const { return {tiles_all_, parts_, tasks_ / parts_}; }
    [[nodiscard]] sum_walk start(
        const conv::buffers &data, char *workspace, const executor &threads) const;

private:
    /// One of the two data operands: src is read through the taps, dst is not.
    struct side {
        dim channels;  // per group
        dim block;     // channels of one task
        dim blocks;
        dim unit;  // channels that decide together whether the format can hold them
        conv::data_strides strides;
        bool is_src;
        bool is_rows;    // broadcast, or rows of tiles; the other side runs along vectors
        bool as_stored;  // the tensor itself can serve as the packed operand
    };
    struct scratch;
    struct task;
    struct operand;
    static constexpr dim most_runs = 256;  // per call of a kernel
    /// How the positions of a tile become k. In fma they simply follow each other. dot2 and amx
    /// take them in pairs that keep their distance under every tap: a row's first half with its
    /// second, or (amx) the upper rows of a tile with the lower ones, whole rows and the gaps
    /// between them. With one tap neighbours on planes are pairs as they lie.
    struct order {
        dim half;         // distance of partners: positions, or rows
        dim runs;         // runs per plane
        dim k;            // units per run
        dim run_pitch;    // dst positions (amx: pairs) from run to run
        dim plane_pitch;  // and from plane to plane
    };

    tiled_weights(const tiled_weights &like, const kernel_set &kernels);
    void choose_orientation();
    [[nodiscard]] bool rows_on_planes(const side &s, int vectors) const;
    void choose_paths();
    void choose_writing();
    void choose_cut();
    void even_parts();
    struct cut;
    void set_blocks(dim rows, dim columns);
    [[nodiscard]] dim block_of(const side &s, dim blocks) const;
    double share_of_units(cut &c, int threads);
    void try_cuts(cut &best, int threads, int vectors);
    void bundle_units(int threads);
    void choose_tile(dim bytes);
    [[nodiscard]] double skew() const;
    [[nodiscard]] double cut_seconds() const;
    [[nodiscard]] dim count_tasks() const {
        return parts_ * p_.groups * rows_.blocks * columns_.blocks * tap_blocks_;
    }
    [[nodiscard]] dim most_tap_blocks() const {
        return std::min<dim>(static_cast<dim>(taps_.kept.size()), most_cut_threads);
    }
    void settle_tile();

    [[nodiscard]] dim panel_width() const { return static_cast<dim>(vectors_) * kernels_.lanes; }
    [[nodiscard]] dim panels() const { return div_up(columns_.channels, panel_width()); }
    [[nodiscard]] dim out_slices() const {
        return p_.groups * panels() * div_up(rows_.channels, out_rows_);
    }
    [[nodiscard]] dim partial_floats() const;  // one part, all groups
    [[nodiscard]] float *c_of(float *partial, dim group, dim panel, dim tap, dim row) const;
    [[nodiscard]] order order_of(const dim (&length)[3]) const;
    [[nodiscard]] dim positions(const side &s) const;
    [[nodiscard]] dim padded(const side &s, dim channels) const;
    /// One part of one operand.
    [[nodiscard]] dim part_bytes(const side &s) const;
    [[nodiscard]] dim packed_bytes(const side &s) const;
    [[nodiscard]] scratch lay_out(memory_walk &memory) const;
    [[nodiscard]] float *lay_out_partials(memory_walk &memory) const;
    [[nodiscard]] std::size_t scratch_bytes() const;
    [[nodiscard]] std::size_t partials_bytes() const;
    [[nodiscard]] std::size_t stage_bytes() const;

    [[nodiscard]] task place(dim index, dim tile) const;
    void plan_ahead(const conv::buffers &data, scratch &s, const task &t, const task &next) const;
    /// Calls body(task, tile) for some tiles of a task.
    template <typename Body>
    void for_each_tile(dim index, dim first, dim last, Body &&body) const;
    [[nodiscard]] task_cost cost_of(const task &t) const;
    void run_tiles(const conv::buffers &data, scratch &s, float *partials, dim index, dim first,
        dim last) const;
    void clear_slack(const scratch &s) const;
    void run_tile(const conv::buffers &data, scratch &s, const task &t, bool first) const;
    void run_units(const conv::buffers &data, scratch &s, const task &t, bool first) const;
    [[nodiscard]] bool reads_input(const side &s, const task &t) const;
    value_range prepare(const conv::buffers &data, const side &s, const task &t, char *out) const;
    [[nodiscard]] const char *first_element(
        const conv::buffers &data, const side &s, const task &t) const;
    [[nodiscard]] dim row_offset(const side &s, const task &t, dim d, dim h) const;
    value_range pack(const conv::buffers &data, const side &s, const task &t, char *out) const;
    template <typename Pack>
    void for_each_src_row(const task &t, Pack &&pack_row) const;
    template <typename Pack>
    void for_each_dst_row(const task &t, Pack &&pack_row) const;
    void describe_operand(const conv::buffers &data, const scratch &s, const side &d, const task &t,
        dim run0, dim runs, operand &o) const;
    void skip_padding(const axis_tap &tap, const task &t, product_args &args) const;
    void multiply(const conv::buffers &data, scratch &s, const task &t, bool first) const;
    void multiply_careful(const conv::buffers &data, const task &t, bool first) const;
    void write_out(
        const conv::buffers &data, float *partials, char *memory, const executor &threads) const;
    void write_panel(const conv::buffers &data, float *partials, float *stage, dim group, dim panel,
        dim row0, dim row1) const;
    void write_filters(const conv::buffers &data, const float *sum, float *stage, dim group,
        dim panel, dim row0, dim row1) const;

    conv::problem p_;
    const kernel_set &kernels_;
    axis_walk walk_[3];
    axis_patch patch_[3];
    dim tile_[3] = {1, 1, 1}, tiles_[3] = {1, 1, 1};
    side rows_{}, columns_{};  // broadcast and vector operand
    struct {
        dim rows, columns;
    } largest_{};  // block that the tiles were chosen for
    int vectors_ = 1;
    bool by_rows_ = false;     // see order
    bool neighbours_ = false;  // see order
    dim c_rows_ = 0;           // rows of C per tap
    gradient_taps taps_;
    std::vector<dim> tap_patch_;  // kept taps: positions from the patch's start
    /// What a tap adds to the address of src, in bytes: in the tensor, packed as rows or as
    /// columns.
    std::vector<dim> tap_input_, tap_rows_, tap_columns_;
    bool taps_inside_ = false;  // the taps of a filter lie side by side, and all are computed
    dim parts_ = 1, tiles_all_ = 0, tap_blocks_ = 1;
    dim out_rows_ = 16;  // written at a time: all their taps stay in L1 meanwhile
    dim tasks_ = 0;
    int workers_ = 1;
    std::unique_ptr<tiled_weights> exact_;
};

}  // namespace convgrad::cpu
