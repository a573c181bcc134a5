// The weights gradient with few channels per group: depthwise and small groups. Both operands lie
// along positions, and each weight is a dot product.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "conv/problem.hpp"
#include "cpu/box_lines.hpp"
#include "cpu/cost_model.hpp"
#include "cpu/geometry.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/memory_walk.hpp"
#include "cpu/parallel.hpp"
#include "cpu/phases.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

/// How dst comes to the products. In place: f32 whose positions of a row lie side by side.
enum class dst_reading : std::uint8_t {
    packed,  // with gaps between rows, as src has them
    rows,    // where it lies, row by row
    planes,  // where it lies, all rows of a tile as one; src has a copy for each tap of a row
};
/// Positions of a tile below which calls of kernels take too long a part (rows of 149 and 224: 1.3
/// to 1.5 times as long as 2,048 positions).
inline constexpr dim shortest_in_place = 512;

/// What the cost model and the driver agree on.
struct narrow_cut {
    dst_reading dst = dst_reading::packed;
    double groups = 1, positions = 1;  // of a tile
    double cuts = 1;    // ranges of dst's channels, each a task: src is packed for each of them
    double copies = 1;  // of what is packed of src
    double rows = 1, columns = 1, blocks = 1;  // of weights that are summed together
};
narrow_cut cut_narrow_weights(const problem_sizes &s, const kernel_set &kernels);

class narrow_weights {
public:
    /// `kernels` of format fma.
    narrow_weights(const conv::problem &p, const kernel_set &kernels, int threads,
        std::size_t workspace_limit);

    [[nodiscard]] std::size_t workspace() const;
    [[nodiscard]] std::string describe() const;
    [[nodiscard]] work_list work() const;
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const;

private:
    struct scratch;
    struct task;

    [[nodiscard]] bool in_place() const { return dst_ != dst_reading::packed; }
    /// Of planes, if a tile has them.
    [[nodiscard]] bool whole_rows() const {
        return dst_ == dst_reading::planes && tile_[2] == walk_[2].longest;
    }
    [[nodiscard]] dim blocks() const { return group_blocks_ * cuts_; }
    void settle();
    double choose_parts(std::size_t workspace_limit);
    [[nodiscard]] float *lay_out_partials(memory_walk &memory) const;
    [[nodiscard]] scratch lay_out(memory_walk &memory) const;
    [[nodiscard]] std::size_t partials_bytes() const;
    [[nodiscard]] std::size_t scratch_bytes() const;
    /// Weights of one group: [input channel][tap][output channel].
    [[nodiscard]] dim group_floats() const {
        return p_.ic * static_cast<dim>(taps_.kept.size()) * p_.oc;
    }
    [[nodiscard]] dim partial_floats() const { return p_.groups * group_floats(); }

    /// Tiles of a part: from the end of the one before.
    [[nodiscard]] dim part_end(dim part) const { return tiles_all_ * (part + 1) / parts_; }
    [[nodiscard]] task place(dim index, dim tile) const;
    [[nodiscard]] task first_of(dim index) const;
    [[nodiscard]] channel_range dst_channels(const task &t) const;
    [[nodiscard]] dim row_blocks(dim columns) const;
    /// Calls body(task, tile) for each tile of a task.
    template <typename Body>
    void for_each_tile(dim index, Body &&body) const;
    [[nodiscard]] task_cost cost_of(const task &t) const;
    void plan_ahead(scratch &s, const task &t, const task &next) const;
    void run_task(
        scratch &s, const conv::buffers &data, float *partial, dim index, bool careful) const;
    [[nodiscard]] bool all_finite(const float *partial, dim index) const;
    void run_tile(scratch &s, const task &t, const task &next, bool careful) const;
    [[nodiscard]] bool pack(const scratch &s, const task &t) const;
    [[nodiscard]] value_range pack_src(const scratch &s, const task &t) const;
    [[nodiscard]] value_range pack_dst(const scratch &s, const task &t) const;
    [[nodiscard]] bool finite_at_padding(const task &t) const;
    [[nodiscard]] const float *first_dst(const task &t) const;
    [[nodiscard]] dim list_runs(const scratch &s, const task &t) const;
    [[nodiscard]] dim rows_of_run(const task &t) const;
    [[nodiscard]] dim run_length(const task &t) const;
    [[nodiscard]] dim row_offset(const task &t, dim d, dim h) const;
    void multiply(scratch &s, const task &t, dim group, dim runs) const;
    void multiply_careful(const task &t) const;
    void write_out(const conv::buffers &data, const float *partials, const executor &threads) const;

    conv::problem p_;
    const kernel_set &kernels_;
    axis_walk walk_[3];
    axis_patch patch_[3];
    gradient_taps taps_;
    dim inside_[2] = {};       // positions of a row of which all taps lie inside src
    std::vector<dim> row_at_;  // floats from a group's packed src, per channel and kept tap
    dim tile_[3] = {1, 1, 1}, tiles_[3] = {1, 1, 1};
    dim src_pitch_ = 0, dst_pitch_ = 0, plane_pitch_ = 0;  // floats: channels, planes of dst
    dim groups_ = 1, group_blocks_ = 1;                    // groups of one task
    dim cuts_ = 1;                                         // of dst's channels
    dim tiles_all_ = 0, parts_ = 1, tasks_ = 0;
    int workers_ = 1;
    bool ahead_ = false;  // memory is asked for
    dst_reading dst_ = dst_reading::packed;
};

}  // namespace convgrad::cpu
