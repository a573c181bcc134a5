// The weights gradient with few channels per group: depthwise and small groups. Both operands lie
// along positions, and each weight is a dot product.
#pragma once

#include <string>
#include <vector>

#include "conv/problem.hpp"
#include "cpu/geometry.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/memory_walk.hpp"
#include "cpu/parallel.hpp"
#include "cpu/phases.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

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
    [[nodiscard]] dim column_blocks() const;
    [[nodiscard]] dim row_blocks(dim columns) const;
    /// Calls body(task, tile) for each tile of a task.
    template <typename Body>
    void for_each_tile(dim index, Body &&body) const;
    [[nodiscard]] task_cost cost_of(const task &t) const;
    void plan_ahead(scratch &s, const task &t, const task &next) const;
    void run_tile(scratch &s, const task &t, const task &next) const;
    [[nodiscard]] bool pack(const scratch &s, const task &t) const;
    void multiply(scratch &s, const task &t, dim group) const;
    void multiply_careful(const task &t) const;
    void write_out(const conv::buffers &data, const float *partials, const executor &threads) const;

    conv::problem p_;
    const kernel_set &kernels_;
    axis_walk walk_[3];
    axis_patch patch_[3];
    gradient_taps taps_;
    std::vector<dim> tap_patch_;  // positions, per kept tap
    dim tile_[3] = {1, 1, 1}, tiles_[3] = {1, 1, 1};
    dim src_pitch_ = 0, dst_pitch_ = 0, plane_pitch_ = 0;  // floats: channels, planes of dst
    dim groups_ = 1, group_blocks_ = 1;                    // groups of one task
    dim tiles_all_ = 0, parts_ = 1, tasks_ = 0;
    int workers_ = 1;
    bool ahead_ = false;  // memory is asked for
};

}  // namespace convgrad::cpu
