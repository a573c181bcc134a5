// Forward, and backward data of stride 1, for few reduced channels of f32 planes: first layers.
// Vectors run along the positions of a row. Each row of input is copied once for each tap of a row
// of taps, shifted by it, so that all products of an output are one run of rows at equal distances,
// and results of planes are written where they lie.
#pragma once

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
bool fits_shifted(const conv::problem &p, std::string *why);

class shifted_data {
public:
    /// `p` fits; `kernels` of format fma.
    shifted_data(const conv::problem &p, const kernel_set &kernels, int threads,
        std::size_t workspace_limit);

    [[nodiscard]] std::size_t workspace() const;
    [[nodiscard]] std::string describe() const;
    [[nodiscard]] work_list work() const;
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const;

private:
    struct scratch;
    struct task;
    struct tap {
        dim k, off;  // as in axis_tap
        dim at;      // where the patch has what position 0 reads
    };
    struct channel_block {
        dim first, count;  // output channels
    };

    void list_taps();
    void choose(int threads);
    void settle();
    bool shrink();
    [[nodiscard]] scratch lay_out(memory_walk &memory) const;
    [[nodiscard]] std::size_t scratch_bytes() const;
    [[nodiscard]] dim step() const;        // positions of one product
    [[nodiscard]] dim row_units() const;   // of k, of a row of taps
    [[nodiscard]] dim tap_rows() const;    // rows of taps
    [[nodiscard]] dim blocks() const;      // of output channels
    [[nodiscard]] dim block_rows() const;  // of the longest
    [[nodiscard]] channel_block block(dim b) const;
    [[nodiscard]] task make_task(const conv::buffers &data, dim index) const;

    void run_task(scratch &s, const task &t) const;
    void pack_weights(scratch &s, const task &t) const;
    void pack_patch(const scratch &s, const task &t) const;
    void pack_row(const scratch &s, const task &t, const float *in, dim row) const;
    void list_runs(const scratch &s, const task &t, dim d, dim h, product_args &args) const;
    void multiply_row(const scratch &s, const task &t, dim d, dim h) const;
    void multiply_block(
        const scratch &s, const task &t, product_args args, dim b, dim d, dim h) const;
    void sum_carefully(
        const scratch &s, const task &t, const channel_block &rows, dim d, dim h) const;
    void store(const scratch &s, const task &t, const channel_block &rows, dim d, dim h) const;
    [[nodiscard]] dim out_position(
        const conv::data_strides &strides, const task &t, dim channel, dim d, dim h) const;

    conv::problem p_;
    const kernel_set &kernels_;
    data_roles roles_;
    bool streams_ = exceeds_caches(p_);  // results go past the caches where they can
    bool direct_;                        // products leave their results in the output itself
    axis_walk walk_[3];
    axis_patch patch_[2];       // depth and height
    std::vector<tap> taps_[3];  // in the order of the input
    bool together_ = false;     // taps along height that follow each other are one run
    dim tile_[3] = {1, 1, 1}, tiles_[3] = {1, 1, 1};
    dim pitch_ = 0;  // floats from one unit of k to the next of a patch, and between rows of C
    dim tasks_ = 0;
    int workers_ = 1;
};

}  // namespace convgrad::cpu
