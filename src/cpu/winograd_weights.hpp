// The weights gradient by Winograd's algorithm; see docs/winograd.md.
#pragma once

#include <string>
#include <utility>

#include "conv/problem.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/kernels/winograd.hpp"
#include "cpu/memory_walk.hpp"
#include "cpu/parallel.hpp"
#include "cpu/phases.hpp"
#include "cpu/tiled_weights.hpp"
#include "cpu/winograd.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

class winograd_weights {
public:
    /// `kernels` of format fma. A `workspace_limit` is met by smaller blocks and fewer workers
    /// where possible; see workspace().
    winograd_weights(const conv::problem &p, const kernel_set &kernels, winograd_tile tile,
        int threads, std::size_t workspace_limit);

    [[nodiscard]] std::size_t workspace() const;
    [[nodiscard]] std::string describe() const;
    [[nodiscard]] work_list work() const;
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const;

private:
    static constexpr dim chain_tiles = 32;       // of one chain of roundings
    static constexpr dim near_rows = 640 << 10;  // bytes of V that stay in a core's cache

    /// Memory of one group, and of all workers.
    struct memory {
        float *v, *y;
        dim first_row, first_panel;  // that V and Y hold
        float *sums;                 // [point or tap][panel][input channel][panel]
        float *stage;
        int *infinite;  // not zero: a result is not finite
        char *scratch;  // of all workers
        std::size_t scratch_each;

        [[nodiscard]] void *of(int worker) const {
            return scratch + static_cast<std::size_t>(worker) * scratch_each;
        }
        [[nodiscard]] float *floats_of(int worker) const {
            return static_cast<float *>(of(worker));
        }
    };

    /// What a task that keeps its tiles to itself sums: some rows (input channels, in chunks of a
    /// transform) and panels, of all tiles.
    struct share {
        dim first_chunk, last_chunk;
        dim first_row, last_row;
        dim first_panel, last_panel;
    };

    /// Without a choice of blocks; what tiled sums need is within `workspace_limit`.
    winograd_weights(const conv::problem &p, const kernel_set &kernels, winograd_tile tile,
        std::size_t workspace_limit, int threads);
    void set_block(dim tiles);
    void choose_block();
    [[nodiscard]] dim largest_range() const;
    /// A panel and a range of rows, of as many. Tasks of all points go through all panels for each
    /// range whose rows of V stay in a core's cache, or else through all rows for each panel.
    [[nodiscard]] std::pair<dim, dim> panel_and_range(dim index, dim panels, dim ranges) const {
        return all_points_ && 4 * map_.points * range_ * block_ <= near_rows
                   ? std::pair{index % panels, index / panels}
                   : std::pair{index / ranges, index % ranges};
    }
    void choose_tasks();
    void choose_groups();
    bool choose_parts();
    void choose_shares(int threads);
    bool try_shares(dim shares, bool of_rows, int threads);
    [[nodiscard]] share share_at(dim index) const;
    [[nodiscard]] dim row_of(dim chunk) const;
    void fit_workspace(int threads, std::size_t limit);
    [[nodiscard]] dim panel() const { return 2 * dim{kernels_.lanes}; }
    [[nodiscard]] dim panel_channels(dim index) const {
        return std::min(panel(), p_.oc - index * panel());
    }
    // Tasks of the stages of one block.
    [[nodiscard]] dim segments() const { return div_up(block_, segment_); }
    [[nodiscard]] dim source_chunks() const { return div_up(p_.ic, src_chunk_); }
    [[nodiscard]] dim src_chunks() const { return map_.sources / joined_ * source_chunks(); }
    [[nodiscard]] dim dst_chunks() const { return div_up(p_.oc, chunk_); }
    /// Of a chunk of src.
    [[nodiscard]] dim first_channel(dim chunk) const {
        return chunk % source_chunks() * src_chunk_;
    }
    [[nodiscard]] dim src_channels(dim chunk) const {
        return std::min(src_chunk_, p_.ic - first_channel(chunk));
    }
    [[nodiscard]] dim transform_tasks() const {  // of one group
        return segments() * (src_chunks() + dst_chunks());
    }
    [[nodiscard]] dim ranges() const { return div_up(ic_padded_, range_); }
    [[nodiscard]] dim product_tasks() const {
        return (all_points_ ? 1 : map_.points) * panels_ * ranges();
    }
    /// Each of some rows of one source, or (write, of filters whose taps lie side by side) of all.
    [[nodiscard]] dim combine_tasks() const { return panels_ * div_up(rows_, write_rows_); }
    [[nodiscard]] dim write_tasks() const {
        return panels_ * div_up(taps_inside_ ? p_.ic : rows_, write_rows_);
    }

    /// Whether a task writes what it has summed, from its core's cache: results that are not finite
    /// are written once more, unless they are added to what is there, and filters in one piece must
    /// have all their taps in one source.
    [[nodiscard]] bool leaves_at_once() const {
        return parts_ == 0 && !p_.accumulate && (!taps_inside_ || map_.sources == 1);
    }
    [[nodiscard]] double written_taps() const {  // of a row, by a task
        return static_cast<double>(taps_inside_ ? filter_taps_ : taps_);
    }

    // Floats.
    [[nodiscard]] dim v_floats() const { return map_.points * v_point_; }
    [[nodiscard]] dim y_floats() const { return map_.points * y_point_; }
    [[nodiscard]] dim part_floats() const { return taps_ * sum_point_; }
    [[nodiscard]] dim sum_floats() const {
        if (all_points_ && leaves_at_once()) return 0;
        return (all_points_ || parts_ > 0 ? taps_ : map_.points) * sum_point_;
    }
    [[nodiscard]] dim filter_floats() const;
    [[nodiscard]] dim stage_floats() const;
    [[nodiscard]] memory lay_out_group(memory_walk &walk) const;
    [[nodiscard]] memory lay_out_part(memory_walk &walk) const;   // of a worker
    [[nodiscard]] memory lay_out_share(memory_walk &walk) const;  // likewise
    [[nodiscard]] dim all_sums_floats() const {                   // of a range, of all points
        return parts_ == 0 && all_points_ ? map_.points * own_point_ : 0;
    }
    [[nodiscard]] std::size_t group_bytes() const;
    [[nodiscard]] std::size_t scratch_bytes() const;
    [[nodiscard]] std::size_t own_bytes(int workers) const;

    [[nodiscard]] winograd_map::block tiles_of(dim block) const {
        return map_.block_at(block * block_, std::min(block_, map_.count - block * block_));
    }
    [[nodiscard]] conv::buffers buffers_of(const conv::buffers &data, dim group) const;
    void sum_groups(const conv::buffers &data, char *workspace, dim first, dim last,
        const executor &threads) const;
    void transform_src(const conv::buffers &data, const memory &m, const winograd_map::block &some,
        dim chunk, float *stage) const;
    void transform_dst(const conv::buffers &data, const memory &m, const winograd_map::block &some,
        dim channel, dim end, float *stage) const;
    void transform_segment(
        const conv::buffers &data, const memory &m, dim block, int worker, dim index) const;
    void sum_part(const conv::buffers &data, const memory &m, int worker, dim part) const;
    void add_parts(const memory &m, dim index) const;
    void sum_share(const conv::buffers &data, const memory &m, int worker, dim index) const;
    void add_part_stages(work_list &list) const;
    void add_share_stage(work_list &list) const;
    void multiply(const memory &m, dim block, dim index) const;
    void multiply_all(
        const conv::buffers &data, const memory &m, float *own, dim at, dim first, dim last) const;
    void product(const memory &m, const winograd_map::block &tiles, dim point, dim at, dim first,
        dim last, float *c, bool accumulate) const;
    void note(const memory &m, bool finite) const;
    void combine(const conv::buffers &data, const memory &m, float *sums, dim point, dim at,
        dim first, dim last) const;
    void leave(const conv::buffers &data, float *sums, dim point, dim at, dim first, dim rows,
        float *stage) const;
    void write_filters(const conv::buffers &data, const float *sums, dim point, dim at, dim first,
        dim rows, float *stage) const;

    conv::problem p_;  // of one group
    conv::problem whole_;
    dim groups_;
    const kernel_set &kernels_;
    const winograd_kernels &winograd_;
    const winograd_kernels::transforms &transforms_;
    winograd_map map_;
    dim taps_;       // of a transformed filter
    dim rows_;       // input channels, of all sources together,
    dim ic_padded_;  // in whole vectors
    dim panels_;
    dim chunk_;        // channels of a transform,
    dim joined_;       // and of src of so many sources
    dim src_chunk_;    // so many
    dim segment_ = 1;  // tiles of a transform
    dim block_ = 1, blocks_ = 1;
    dim range_ = 1;            // input channels of a product
    dim groups_each_ = 1;      // at a time
    bool all_points_ = false;  // a product is of all points, and combines them at once
    dim parts_ = 0;            // not 0: tasks sum up that many parts of the tiles
    dim part_tiles_ = 0;
    dim shares_ = 0;               // not 0: tasks sum up that many shares of the channels,
    bool shares_of_rows_ = false;  // of src's; else of dst's
    dim write_rows_;
    dim filter_taps_;  // of the layer
    dim v_point_ = 0, y_point_ = 0, sum_point_ = 0, own_point_ = 0;
    int workers_ = 1;
    bool taps_inside_;      // the taps of a filter lie side by side
    tiled_weights direct_;  // where a value is not finite
};

}  // namespace convgrad::cpu
