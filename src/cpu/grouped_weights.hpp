// The weights gradient of groups of 8, 16, 24… channels: outer products of eight channels by eight,
// so that groups that are narrower than a vector neither leave lanes empty nor meet each other.
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
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

/// Whether a (simplified) problem can run in this form; if not, `why` (optional) tells.
bool fits_grouped(const conv::problem &p, std::string *why);

class grouped_weights {
public:
    /// `exact` (null if `kernels` are of format fma) takes tiles that they cannot hold.
    grouped_weights(const conv::problem &p, const kernel_set &kernels, const kernel_set *exact,
        int threads, std::size_t workspace_limit);

    [[nodiscard]] std::size_t workspace() const;
    [[nodiscard]] std::string describe() const;
    [[nodiscard]] work_list work() const;
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const;

private:
    struct tile;
    struct task;
    struct scratch;

    /// The same tiles and sums with other kernels.
    grouped_weights(const grouped_weights &like, const kernel_set &kernels);

    void halve_maps();
    void settle();
    double choose_parts(std::size_t workspace_limit);
    [[nodiscard]] float *lay_out_partials(memory_walk &memory) const;
    [[nodiscard]] scratch lay_out(memory_walk &memory) const;
    [[nodiscard]] std::size_t partials_bytes() const;
    [[nodiscard]] std::size_t scratch_bytes() const;
    /// Weights of one group: [eight input channels][eight output channels][tap][output][input].
    [[nodiscard]] dim group_floats() const {
        return p_.ic * static_cast<dim>(taps_.kept.size()) * p_.oc;
    }
    [[nodiscard]] dim partial_floats() const { return p_.groups * group_floats(); }
    [[nodiscard]] dim weight_at(dim tap, dim i, dim o) const;
    /// Channels that are packed side by side.
    [[nodiscard]] dim src_panel() const { return groups_ * p_.ic; }
    [[nodiscard]] dim dst_panel() const { return groups_ * p_.oc; }

    /// Sets of a part, one tile or two that are paired: from the end of the part before.
    [[nodiscard]] dim part_end(dim part) const { return sets_ * (part + 1) / parts_; }
    [[nodiscard]] task place(dim index, dim set) const;
    template <typename Body>
    void for_each_set(dim index, Body &&body) const;
    [[nodiscard]] task_cost cost_of(const task &t) const;
    void plan_ahead(scratch &s, const task &t, const task &next) const;
    void run_set(scratch &s, const task &t, const task &next) const;
    void run_exactly(const scratch &s, const task &t) const;
    [[nodiscard]] value_range pack_src(const scratch &s, const task &t) const;
    [[nodiscard]] value_range pack_dst(const scratch &s, const task &t) const;
    [[nodiscard]] dim list_rows(const scratch &s, const task &t, dim kd, dim kh) const;
    void multiply(scratch &s, const task &t) const;
    void multiply_careful(const task &t) const;
    void write_out(const conv::buffers &data, const float *partials, const executor &threads) const;
    void leave(const conv::buffers &data, const float *sums, dim at) const;

    conv::problem p_;
    const kernel_set &kernels_;
    axis_walk walk_[3];
    axis_patch patch_[3];
    gradient_taps taps_;
    std::vector<dim> tap_at_;  // bytes in packed src, per kept tap
    dim tile_[3] = {1, 1, 1}, tiles_[3] = {1, 1, 1};
    dim groups_ = 1, group_blocks_ = 1;  // of one task
    dim src_bytes_ = 0, dst_bytes_ = 0;  // packed
    dim tiles_all_ = 0, sets_ = 0, parts_ = 1, tasks_ = 0;
    int workers_ = 1;
    bool ahead_ = false;  // memory is asked for
    std::unique_ptr<grouped_weights> exact_;
};

}  // namespace convgrad::cpu
