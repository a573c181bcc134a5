// The weights gradient with few channels of src: stems, and transposed convolutions that end in an
// image. The taps along the last axis and the channels of a position form the rows of one product.
#pragma once

#include <memory>
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

/// Whether a (simplified) problem can run in this form; if not, `why` (optional) tells.
bool fits_folded_weights(const conv::problem &p, std::string *why);

class folded_weights {
public:
    /// `kernels` of vectors; `exact` (null if they are of format fma) takes tiles that they cannot
    /// hold.
    folded_weights(const conv::problem &p, const kernel_set &kernels, const kernel_set *exact,
        int threads, std::size_t workspace_limit);

    [[nodiscard]] std::size_t workspace() const;
    [[nodiscard]] std::string describe() const;
    [[nodiscard]] work_list work() const;
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const;

private:
    struct scratch;
    struct task;

    /// The same tiles and sums with other kernels.
    folded_weights(const folded_weights &like, const kernel_set &kernels);

    void settle();
    void choose_parts(std::size_t workspace_limit);
    [[nodiscard]] dim panel_width() const { return dim{vectors_} * kernels_.lanes; }
    [[nodiscard]] dim panel_vectors(dim panel) const;
    /// Units of k of a row of output positions.
    [[nodiscard]] dim units(dim length) const { return div_up(length, kernels_.k_per_unit); }
    [[nodiscard]] dim row_positions(dim length) const;
    [[nodiscard]] dim raw_positions(dim length) const;
    [[nodiscard]] dim dst_row_bytes() const;
    [[nodiscard]] dim dst_bytes() const;
    [[nodiscard]] dim raw_bytes() const;
    [[nodiscard]] float *lay_out_partials(memory_walk &memory) const;
    [[nodiscard]] scratch lay_out(memory_walk &memory) const;
    [[nodiscard]] std::size_t partials_bytes() const;
    [[nodiscard]] std::size_t scratch_bytes() const;
    /// Weights of one group: [panel][tap of depth and height][tap of the row, channel][column].
    [[nodiscard]] dim group_floats() const;
    [[nodiscard]] dim partial_floats() const { return p_.groups * group_floats(); }
    [[nodiscard]] dim c_at(dim panel, dim run, dim row) const {
        return ((panel * runs_ + run) * rows_ + row) * panel_width();
    }

    [[nodiscard]] task make_task(const conv::buffers &data, float *partials, dim index) const;
    void set_tile(task &t, dim tile) const;
    void plan_ahead(scratch &s, const task &t, dim tile) const;
    void run_tile(scratch &s, const task &t) const;
    [[nodiscard]] value_range pack_src(const scratch &s, const task &t) const;
    [[nodiscard]] value_range pack_row(
        const scratch &s, const task &t, const char *in, dim row) const;
    [[nodiscard]] value_range prepare_dst(const scratch &s, const task &t) const;
    void multiply(scratch &s, const task &t) const;
    void multiply_careful(const task &t) const;
    void write_out(const conv::buffers &data, const float *partials, const executor &threads) const;

    conv::problem p_;
    const kernel_set &kernels_;
    axis_walk walk_[3];
    axis_patch patch_[3];
    gradient_taps taps_;
    dim low_ = 0, span_ = 0;  // of the taps along the last axis: the first, and how many
    dim runs_ = 0;            // taps along depth and height
    dim rows_ = 0;            // of a product: taps along the last axis × channels
    bool as_stored_ = false;  // dst itself is the vector operand
    bool fetches_ = false;    // the next tile, while one is multiplied
    int vectors_ = 1;
    dim panels_ = 1;
    dim tile_[3] = {1, 1, 1}, tiles_[3] = {1, 1, 1};
    dim row_bytes_ = 0;
    dim tiles_all_ = 0, parts_ = 1, tasks_ = 0;
    int workers_ = 1;
    std::unique_ptr<folded_weights> exact_;
};

}  // namespace convgrad::cpu
