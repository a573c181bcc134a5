// The dense driver for forward and backward data: tiles of positions × blocks of output channels.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "conv/problem.hpp"
#include "cpu/geometry.hpp"
#include "cpu/joint_pass.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/parallel.hpp"
#include "cpu/phases.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

class tiled_data {
public:
    /// `workspace_limit` is met by smaller blocks and fewer workers where possible; see
    /// workspace(). `exact` (null if `kernels` is of format fma itself) takes tiles that `kernels`
    /// cannot hold.
    tiled_data(const conv::problem &p, const kernel_set &kernels, const kernel_set *exact,
        int threads, std::size_t workspace_limit);

    [[nodiscard]] std::size_t workspace() const;
    [[nodiscard]] std::string describe() const;
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

    /// The same tasks with other kernels.
    tiled_data(const tiled_data &like, const kernel_set &kernels);

    void choose_chunks();
    void set_chunks(dim channels);
    [[nodiscard]] dim tile_positions() const;
    void consider_streaming(dim panels);
    void choose_panels();
    void choose_paths();
    void choose_blocks();
    void learn_axes();
    [[nodiscard]] dim touched(int a) const;
    void choose_units(dim positions);
    void set_units();
    void use_units();
    void bundle_units(int threads);
    void set_tile(const dim (&tile)[3]);
    [[nodiscard]] dim count_tasks() const;
    [[nodiscard]] double cut_seconds() const;
    [[nodiscard]] double skew() const;
    [[nodiscard]] double share_on(int threads, double largest) const;
    [[nodiscard]] double share_up_to(int threads) const;
    void choose_tile(dim positions);
    bool shrink();
    void settle();
    [[nodiscard]] scratch make_scratch(char *memory) const;
    [[nodiscard]] task make_task(const conv::buffers &data, dim index) const;
    [[nodiscard]] task_cost cost_of(const task &t, bool weights_held) const;
    [[nodiscard]] std::size_t scratch_bytes() const;
    [[nodiscard]] dim chunk_channels(dim chunk) const;
    [[nodiscard]] dim units(dim channels) const { return div_up(channels, kernels_.k_per_unit); }
    [[nodiscard]] dim panel_width() const { return static_cast<dim>(vectors_) * kernels_.lanes; }
    [[nodiscard]] dim panel_vectors(dim panel) const;
    /// Packed weights of one panel for one chunk of reduced channels, all taps.
    [[nodiscard]] dim panel_bytes(dim chunk_units) const {
        return chunk_units * taps_ * panel_width() * kernels_.column_bytes;
    }
    [[nodiscard]] dim kept_units() const;
    [[nodiscard]] dim patch_bytes() const;  // as packed, or with weights that are staged there
    [[nodiscard]] dim packed_patch_bytes() const;
    /// Bytes of the input from its start to image n, first channel of the chunk.
    [[nodiscard]] dim in_offset(const task &t, dim chunk) const;
    [[nodiscard]] dim c_floats() const;
    [[nodiscard]] float *c_of(const scratch &s, std::size_t ph, dim j) const;
    /// Positions of phase f in a tile, per axis; false if none.
    template <typename Body>
    void for_each_run(const dim (&length)[3], Body &&body) const;

    void run_task(scratch &s, const task &t) const;
    void run_units(scratch &s, const task &t) const;
    /// Which way a task must go: the format holds its values; it does not; infinities meet padding.
    enum class path : std::uint8_t { plain, exact, careful };
    path run_chunk(scratch &s, const task &t, dim chunk) const;
    void choose_staging();
    void choose_rows();
    [[nodiscard]] dim filter_size() const {
        return p_.x[0].kernel * p_.x[1].kernel * p_.x[2].kernel;
    }
    void pack_weights(scratch &s, const task &t, dim first_chunk, dim chunks) const;
    [[nodiscard]] value_range pack_staged(
        const scratch &s, const pack_args &args, int vectors, dim tap_pitch, dim k_pitch) const;
    [[nodiscard]] value_range pack_patch(const scratch &s, const task &t, dim chunk) const;
    [[nodiscard]] value_range scan_input(const task &t, dim chunk) const;
    [[nodiscard]] bool worth_cutting(const conv_phase &f, const task &t, dim count) const;
    void multiply(const scratch &s, const task &t, dim chunk) const;
    void multiply_rows(const scratch &s, const task &t) const;
    void store_positions(
        const scratch &s, const task &t, const conv_phase &f, dim x, dim count) const;
    [[nodiscard]] store_args store_form() const;
    void multiply_careful(const scratch &s, const task &t) const;
    void load_bias(const scratch &s, const task &t) const;
    /// Whether the product of a panel goes straight to the output.
    [[nodiscard]] dim missing_columns(dim panel) const;
    [[nodiscard]] bool stores_itself(dim panel) const;
    [[nodiscard]] dim out_position(const conv::data_strides &strides, const conv_phase &f,
        const task &t, dim column, dim d, dim h) const;
    void store_rows(
        const scratch &s, const task &t, std::size_t ph, dim j, dim d, dim h, dim rows) const;

    conv::problem p_;
    const kernel_set &kernels_;
    data_roles roles_;
    // How the patch is laid out: channels side by side (pixels) or positions side by side.
    bool pixels_ = false;
    dim position_bytes_ = 4, unit_step_ = 4;  // from position to position, from k unit to k unit
    bool read_input_ = false;    // tiles without padding are multiplied from the input itself
    bool write_output_ = false;  // whole panels leave from the kernel, or are accumulated there

    axis_walk walk_[3];
    axis_patch patch_[3];
    dim patch_positions_ = 0;
    dim tile_[3] = {1, 1, 1}, tiles_[3] = {1, 1, 1};
    // Positions and panels that decide together which path they take: a task is one or more units.
    dim unit_[3] = {1, 1, 1}, unit_panels_ = 1;
    double least_seconds_ = 0;  // of an execution on one thread
    struct {
        dim taps, reach;  // of all phases; from the first input element of a position to its last
        double padding;   // all pairs of a position and a tap in terms of those inside
    } axes_[3] = {};
    dim most_panels_ = 1;  // of a block, by the size of caches
    bool flat_;  // rows of a tile form one run of positions; the gaps are computed and dropped
    dim row_pitch_ = 0, plane_pitch_ = 0;  // of C, in positions
    dim rows_ = 0;                         // positions of C per phase
    dim row_block_ = 0;  // pointwise layers: positions that leave together; 0: other layers

    phase_list taps_of_;
    std::vector<dim> tap_patch_;      // bytes from the patch's start
    std::vector<dim> tap_input_;      // bytes in the input from where position 0 is
    std::vector<dim> tap_packed_[2];  // bytes in a panel: for whole chunks, for the last chunk
    dim taps_ = 0;
    // Weights with the taps innermost (OIX, IOX) are transposed before they are packed, this many
    // reduced channels at a time; 0: they are not.
    dim staged_ = 0, stage_bytes_ = 0;
    bool roomy_ = true;            // memory of their own if the patch has too little
    std::vector<dim> tap_staged_;  // as taps_of_.weights, in what was transposed

    dim k_chunk_ = 0, chunks_ = 1;  // reduced channels per pass over the tile
    int vectors_ = 1;               // width of a panel
    dim panels_ = 1, panels_per_block_ = 1, blocks_ = 1;
    bool keep_weights_ = true;  // scratch holds a block's weights for all chunks
    dim images_per_task_ = 1;
    dim tasks_ = 0;
    int workers_ = 1;

    std::unique_ptr<tiled_data> exact_;  // fma kernels, for tiles that the format cannot hold
};

}  // namespace convgrad::cpu
