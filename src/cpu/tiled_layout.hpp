// How tiled_data cuts a problem into tasks, and where everything lies: found once, when a plan is
// made (tiled_search.cpp), and never changed afterwards. Words: docs/architecture.md.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "conv/problem.hpp"
#include "cpu/geometry.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/memory_walk.hpp"
#include "cpu/phases.hpp"
#include "cpu/streaming.hpp"

namespace convgrad::cpu {

class tiled_layout {
public:
    tiled_layout(tiled_layout &&) = default;
    tiled_layout(const tiled_layout &) = delete;  // lists of taps refer to the walk
    tiled_layout &operator=(const tiled_layout &) = delete;
    ~tiled_layout() = default;

    [[nodiscard]] std::string describe() const;
    /// Of one worker.
    [[nodiscard]] std::size_t scratch_bytes() const;
    /// Of all workers together, beside that.
    [[nodiscard]] std::size_t shared_bytes() const;

protected:
    /// Memory of one worker.
    struct worker_memory {
        char *weights;
        char *patch;
        float *c;
        float *bias;
        dim *runs;    // two lists of as many entries as there are taps
        char *stage;  // planes of an image, channels side by side
        char *exact;  // of the layout for tiles that the format cannot hold
    };

    /// What all workers read: weights of all groups, in each chunk by chunk and panel by panel, and
    /// what was noticed about each chunk of a panel.
    struct shared_memory {
        char *weights;
        value_range *ranges;
    };

    tiled_layout(const conv::problem &p, const kernel_set &kernels)
        : p_(p), kernels_(kernels), roles_(p) {}

    /// Input channels that are packed at a time for all workers, so that there is work for many.
    static constexpr dim piece_channels = 32;
    [[nodiscard]] dim chunk_pieces() const { return div_up(k_chunk_, piece_channels); }
    [[nodiscard]] dim shared_pieces() const {
        return p_.groups * chunks_ * panels_ * chunk_pieces();
    }

    /// Lists of taps, given tiles and chunks.
    void list_taps();
    [[nodiscard]] worker_memory lay_out(memory_walk &memory) const;
    [[nodiscard]] shared_memory lay_out_shared(memory_walk &memory) const;
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
    [[nodiscard]] dim c_floats() const;
    [[nodiscard]] dim filter_size() const {
        return p_.x[0].kernel * p_.x[1].kernel * p_.x[2].kernel;
    }
    [[nodiscard]] dim missing_columns(dim panel) const;
    /// Whether the product of a panel goes straight to the output.
    [[nodiscard]] bool stores_itself(dim panel) const;

    conv::problem p_;
    const kernel_set &kernels_;
    data_roles roles_;
    bool streams_ = exceeds_caches(p_);  // results go past the caches where they can
    // How the patch is laid out: channels side by side (pixels) or positions side by side.
    bool pixels_ = false;
    dim position_bytes_ = 4, unit_step_ = 4;  // from position to position, from k unit to k unit
    // The last axis is the batch: positions of several images side by side meet the same taps, so
    // that none of them lies in padding.
    bool stacked_ = false;
    dim stage_rows_ = 0;         // stacked planes: rows that are transposed for a tile
    bool read_input_ = false;    // tiles without padding are multiplied from the input itself
    dim direct_rows_ = 1;        // at once, then
    bool write_output_ = false;  // whole panels leave from the kernel, or are accumulated there

    axis_walk walk_[3];
    axis_patch patch_[3];
    dim patch_positions_ = 0;
    dim tile_[3] = {1, 1, 1}, tiles_[3] = {1, 1, 1};
    // Positions and panels that decide together which path they take: a task is one or more units.
    dim unit_[3] = {1, 1, 1}, unit_panels_ = 1;
    bool flat_ = false;  // rows of a tile are one run of positions; gaps are computed and dropped
    dim row_pitch_ = 0, plane_pitch_ = 0;  // of C, in positions
    dim rows_ = 0;                         // positions of C per phase
    dim row_block_ = 0;   // pointwise layers: positions that leave together; 0: other layers
    dim row_panels_ = 1;  // and panels

    phase_list taps_of_;
    std::vector<dim> tap_patch_;      // bytes from the patch's start
    std::vector<dim> tap_input_;      // bytes in the input from where position 0 is
    std::vector<dim> tap_packed_[2];  // bytes in a panel: for whole chunks, for the last chunk
    dim taps_ = 0;
    // Weights with the taps innermost (OIX, IOX) are transposed before they are packed, this many
    // reduced channels at a time; 0: they are not.
    dim staged_ = 0, stage_bytes_ = 0;
    std::vector<dim> tap_staged_;  // as taps_of_.weights, in what was transposed

    dim k_chunk_ = 0, chunks_ = 1;  // reduced channels per pass over the tile
    int vectors_ = 1;               // width of a panel
    dim panels_ = 1, panels_per_block_ = 1, blocks_ = 1;
    bool keep_weights_ = true;    // scratch holds a block's weights for all chunks
    bool share_weights_ = false;  // they are packed once, before the tasks, for all workers
    dim images_per_task_ = 1;
    dim tasks_ = 0;
    int workers_ = 1;
    std::size_t exact_bytes_ = 0;  // scratch of the layout below
};

/// A layout, and the same tasks with fma kernels for tiles that the format cannot hold (null: it
/// holds everything).
struct tiled_layouts {
    tiled_layout own;
    std::unique_ptr<tiled_layout> exact;
};

/// `workspace_limit` is met by smaller blocks and fewer workers where possible; throws
/// out_of_memory where not. `exact` is null if `kernels` is of format fma itself.
tiled_layouts find_tiled_layouts(const conv::problem &p, const kernel_set &kernels,
    const kernel_set *exact, int threads, std::size_t workspace_limit);

}  // namespace convgrad::cpu
