// Forward and backward data for few reduced channels per group: stems, and small groups on the
// matrix engine. The taps along the last axis and the channels of a position form one run of k,
// because in a row with channels side by side they lie next to each other; several groups may share
// a block, whose weights then have zeros off the diagonal.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "conv/problem.hpp"
#include "cpu/geometry.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/memory_walk.hpp"
#include "cpu/parallel.hpp"
#include "cpu/phases.hpp"
#include "cpu/streaming.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

/// Whether a (simplified) problem can run in this form; if not, `why` (optional) tells.
bool fits_folded(const conv::problem &p, std::string *why);
/// Taps of a row that meet in one sum.
dim folded_taps(const conv::problem &p);
/// Positions that a task has at least where work is cut for many threads: 64, or fewer where each
/// takes many products, since a layer of few positions has no more to cut.
inline double folded_least(double products) {
    constexpr double wanted = 1 << 21;
    return std::clamp(wanted / products, 8.0, 64.0);
}
/// Groups that share a block on the matrix engine, of `taps` taps in a row.
dim folded_groups(const conv::problem &p, dim taps);

class folded_data {
public:
    /// `exact` (null if `kernels` is of format fma itself) takes tiles that `kernels` cannot hold.
    folded_data(const conv::problem &p, const kernel_set &kernels, const kernel_set *exact,
        int threads, std::size_t workspace_limit);

    [[nodiscard]] std::size_t workspace() const;
    [[nodiscard]] std::string describe() const;
    [[nodiscard]] work_list work() const;
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const;

private:
    struct scratch;
    struct task;
    struct phase {
        const axis_phase *axis[3];
        std::size_t at[2];  // index of the phase along depth and height
        dim low;            // input index of the first tap along the last axis, at position 0
        dim k, units;       // of a run: taps along the last axis × channels
        dim runs;           // taps along depth and height
        dim packed;         // bytes from the start of a panel's weights
        dim patch;          // amx: bytes from the start of a row of the patch
    };

    /// The same tasks with other kernels.
    folded_data(const folded_data &like, const kernel_set &kernels);

    void choose_groups();
    void choose_panels();
    void choose(int threads);
    void settle();
    void list_phases();
    bool shrink();
    [[nodiscard]] dim in_block() const { return groups_ * roles_.in_c; }
    [[nodiscard]] dim out_block() const { return groups_ * roles_.out_c; }
    [[nodiscard]] dim panel_width() const { return dim{vectors_} * kernels_.lanes; }
    [[nodiscard]] dim panel_vectors(dim panel, dim columns) const;
    [[nodiscard]] dim packed_bytes() const;
    [[nodiscard]] dim patch_bytes() const;
    [[nodiscard]] dim gathered_bytes() const;
    [[nodiscard]] dim c_floats() const;
    [[nodiscard]] std::size_t scratch_bytes() const;
    [[nodiscard]] scratch lay_out(memory_walk &memory) const;
    [[nodiscard]] scratch make_scratch(char *memory) const;
    [[nodiscard]] task make_task(const conv::buffers &data, dim index) const;
    [[nodiscard]] task_cost cost_of(const task &t) const;

    void run_task(scratch &s, const task &t) const;
    void pack_weights(scratch &s, const task &t) const;
    void gather_weights(const scratch &s, const task &t, const phase &f) const;
    [[nodiscard]] value_range pack_patch(const scratch &s, const task &t) const;
    [[nodiscard]] value_range pack_row(
        const scratch &s, const task &t, const char *in, dim row) const;
    void pack_ends(const scratch &s, const task &t, const char *in, dim row) const;
    void find_inner(task &t) const;
    void multiply(const scratch &s, const task &t) const;
    [[nodiscard]] dim list_runs(
        const scratch &s, const phase &f, const task &t, const dim (&y)[2]) const;
    void multiply_row(const scratch &s, const task &t, const phase &f, dim runs, const dim (&y)[2],
        dim count) const;
    void multiply_piece(const task &t, const phase &f, product_args args, dim x, dim count,
        int vectors, const scratch &s) const;
    void multiply_careful(const scratch &s, const task &t) const;
    [[nodiscard]] dim missing_columns(const task &t, dim panel) const;
    [[nodiscard]] bool stores_itself(const task &t, dim panel) const;
    void to_output(product_args &args, const task &t, dim panel, dim place) const;
    void store(const scratch &s, const task &t, const phase &f, const dim (&y)[3], dim count,
        bool all_panels) const;
    [[nodiscard]] dim out_position(const conv::data_strides &strides, const phase &f, const task &t,
        dim column, const dim (&y)[3]) const;

    conv::problem p_;
    const kernel_set &kernels_;
    data_roles roles_;
    bool streams_ = exceeds_caches(p_);  // results go past the caches where they can
    axis_walk walk_[3];
    axis_patch patch_[2];     // depth and height; a row is whole
    dim low_ = 0, span_ = 1;  // of the taps along the last axis: the first, and how far they reach
    dim groups_ = 1, group_blocks_ = 1;  // groups of one block
    std::vector<phase> phases_;
    int vectors_ = 1;
    dim panels_ = 1;
    dim tile_[3] = {1, 1, 1}, tiles_[3] = {1, 1, 1};
    dim element_ = 4;    // bytes of an element of the packed patch (amx: of the row before packing)
    dim row_bytes_ = 0;  // of the packed patch
    dim piece_ = 1;      // positions of a row that are computed before they are stored
    dim images_per_task_ = 1, tasks_ = 0;
    int workers_ = 1;
    bool read_input_ = false;    // rows of the input are as packed ones, but for padding
    bool write_output_ = false;  // products leave their results in the output itself
    std::unique_ptr<folded_data> exact_;
};

}  // namespace convgrad::cpu
