// The dense driver for forward and backward data: tiles of positions × blocks of output channels.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "conv/problem.hpp"
#include "cpu/joint_pass.hpp"
#include "cpu/parallel.hpp"
#include "cpu/tiled_layout.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

/// Executes a layout.
class tiled_data : tiled_layout {
public:
    /// See find_tiled_layouts().
    tiled_data(const conv::problem &p, const kernel_set &kernels, const kernel_set *exact,
        int threads, std::size_t workspace_limit);

    using tiled_layout::describe;
    [[nodiscard]] std::size_t workspace() const;
    [[nodiscard]] work_list work() const;
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const;
    [[nodiscard]] bool joins() const;
    [[nodiscard]] data_walk start(
        const conv::buffers &data, char *workspace, const executor &threads) const;

private:
    /// Memory of one worker, and what it currently holds.
    struct scratch;
    /// A tile of positions of one image, one group, one block of output channels.
    struct task;

    explicit tiled_data(tiled_layouts found);

    [[nodiscard]] scratch make_scratch(char *memory) const;
    [[nodiscard]] task make_task(const conv::buffers &data, dim index) const;
    [[nodiscard]] task_cost cost_of(const task &t, bool weights_held) const;
    /// Bytes of the input from its start to image n, first channel of the chunk.
    [[nodiscard]] dim in_offset(const task &t, dim chunk) const;
    [[nodiscard]] float *c_of(const scratch &s, std::size_t ph, dim j) const;
    template <typename Body>
    void for_each_run(
        const conv_phase &f, const task &t, const dim (&length)[3], bool merged, Body &&body) const;

    void run_task(scratch &s, const task &t) const;
    void plan_ahead(scratch &s, const task &t, dim chunk) const;
    void run_units(scratch &s, const task &t) const;
    /// Which way a task must go: the format holds its values; it does not; infinities meet padding.
    enum class path : std::uint8_t { plain, exact, careful };
    [[nodiscard]] bool reads(const task &t) const;
    path run_chunk(scratch &s, const task &t, dim chunk) const;
    void pack_weights(scratch &s, const task &t, dim first_chunk, dim chunks) const;
    void pack_shared(
        const conv::buffers &data, std::vector<scratch> &workers, const executor &threads) const;
    [[nodiscard]] value_range shared_range(const scratch &s, const task &t) const;
    [[nodiscard]] value_range pack_panel(const scratch &s, const conv::buffers &data, dim group,
        dim panel, dim chunk, dim first, dim count, char *out) const;
    [[nodiscard]] dim chunk_offset(dim chunk, dim panels) const;
    [[nodiscard]] const char *packed_panel(const scratch &s, const task &t, dim chunk, dim j) const;
    [[nodiscard]] value_range pack_staged(
        const scratch &s, const pack_args &args, int vectors, dim tap_pitch, dim k_pitch) const;
    [[nodiscard]] value_range pack_patch(const scratch &s, const task &t, dim chunk) const;
    [[nodiscard]] value_range pack_images(const scratch &s, const task &t, dim chunk) const;
    [[nodiscard]] value_range scan_input(const task &t, dim chunk) const;
    [[nodiscard]] bool worth_cutting(const conv_phase &f, const task &t, dim count) const;
    [[nodiscard]] product_args product_form(bool direct) const;
    void multiply(scratch &s, const task &t, dim chunk) const;
    void multiply_rows(const scratch &s, const task &t) const;
    /// Positions [x, x + count) of panels from `panel` on, in C from `c` on.
    struct row_piece {
        dim x, count, panel;
        const float *c;
    };
    void store_positions(
        const scratch &s, const task &t, const conv_phase &f, const row_piece &rows) const;
    [[nodiscard]] store_args store_form() const;
    void multiply_careful(const scratch &s, const task &t) const;
    void load_bias(const scratch &s, const task &t) const;
    [[nodiscard]] dim out_position(const conv::data_strides &strides, const conv_phase &f,
        const task &t, dim column, dim d, dim h) const;
    void store_images(const scratch &s, const task &t, std::size_t ph, dim j) const;
    void store_rows(
        const scratch &s, const task &t, std::size_t ph, dim j, dim d, dim h, dim rows) const;

    std::unique_ptr<const tiled_data> exact_;  // for tiles that the format cannot hold
};

}  // namespace convgrad::cpu
