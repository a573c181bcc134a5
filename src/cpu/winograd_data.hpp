// Forward and backward data by Winograd's algorithm; see docs/winograd.md.
#pragma once

#include <string>
#include <vector>

#include "conv/problem.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/kernels/winograd.hpp"
#include "cpu/memory_walk.hpp"
#include "cpu/parallel.hpp"
#include "cpu/phases.hpp"
#include "cpu/streaming.hpp"
#include "cpu/winograd.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

class winograd_data {
public:
    /// `kernels` of format fma. A `workspace_limit` is met by smaller blocks and fewer workers
    /// where possible; see workspace().
    winograd_data(const conv::problem &p, const kernel_set &kernels, winograd_tile tile,
        int threads, std::size_t workspace_limit);

    [[nodiscard]] std::size_t workspace() const;
    [[nodiscard]] std::string describe() const;
    [[nodiscard]] work_list work() const;
    /// data.prepared, if not null, is what prepare() has made of these weights.
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const;

    /// All filters in transformed form, for executions to come.
    [[nodiscard]] std::size_t prepared_bytes() const;
    void prepare(
        const conv::buffers &data, void *to, char *workspace, const executor &threads) const;

private:
    struct scratch;
    /// The smallest chunk_, or all channels: a multiple of any vector.
    static constexpr dim least_chunk = 16;
    /// Floats between points, which must not fall on the same sets of caches.
    static constexpr dim apart = 48;
    /// In transformed form, [point][panel][input channel][panel].
    struct transformed {
        const float *at;
        dim point;
    };
    /// A block of tiles × some panels of output channels, of one group and phase.
    struct task {
        winograd_map::block tiles;
        dim set, group, phase;
        dim first_panel, panels, block;  // which block of tiles
        transformed u;                   // of this set; none: the task makes them itself
        const float *v;                  // of this block
    };

    /// Without a choice of blocks.
    winograd_data(const conv::problem &p, const kernel_set &kernels, winograd_tile tile);
    void set_tiles(dim tiles);
    void choose_rows();
    [[nodiscard]] double skew() const;
    void choose_blocks(int threads);
    bool stream_filters(int threads);
    [[nodiscard]] bool keeps_tiles(int threads) const;
    void choose_chunks(int threads);
    bool share_panels(int threads);
    void fit_workspace(int threads, std::size_t limit);
    /// Groups and phases, each with filters of its own.
    [[nodiscard]] dim sets() const { return p_.groups * map_.phases; }
    [[nodiscard]] dim panel() const { return 2 * dim{kernels_.lanes}; }
    [[nodiscard]] dim panel_channels(dim index) const {
        return std::min(panel(), roles_.out_c - index * panel());
    }
    [[nodiscard]] int vectors_of(dim index) const {
        return panel_channels(index) > kernels_.lanes ? 2 : 1;
    }
    [[nodiscard]] dim filter_chunks() const { return div_up(in_c_, chunk_); }
    [[nodiscard]] dim input_chunks() const { return div_up(in_c_, input_chunk_); }
    [[nodiscard]] dim chunk_channels(dim chunk) const {
        return std::min(chunk_, in_c_ - chunk * chunk_);
    }

    // Floats.
    [[nodiscard]] dim v_floats() const { return map_.points * v_point_; }
    [[nodiscard]] dim m_floats() const { return map_.points * m_point_; }  // of a panel
    /// Of tiles that tasks share, where they do.
    [[nodiscard]] dim shared_v_bytes() const { return 4 * sets() * blocks_ * v_floats(); }
    [[nodiscard]] dim filters_floats() const;
    [[nodiscard]] dim stage_floats() const;
    [[nodiscard]] dim result_floats() const;
    struct shared {
        float *u, *v;
    };
    [[nodiscard]] shared lay_out_shared(memory_walk &memory) const;
    [[nodiscard]] scratch lay_out(memory_walk &memory) const;
    [[nodiscard]] std::vector<scratch> lay_out_workers(memory_walk &memory) const;
    /// Of all filters together.
    [[nodiscard]] dim all_filters_point() const { return panels_ * in_c_ * panel() + apart; }
    [[nodiscard]] std::size_t shared_bytes() const;
    [[nodiscard]] std::size_t scratch_bytes() const;

    [[nodiscard]] winograd_map::block tiles_of(dim block) const {
        return map_.block_at(block * block_, std::min(block_, map_.count - block * block_));
    }
    [[nodiscard]] task make_task(dim index) const;
    [[nodiscard]] task_cost cost_of(const task &t, bool has_tiles) const;
    value_range pack_filters(const conv::buffers &data, dim set, dim index, dim source, dim channel,
        dim channels, float *out, dim tap) const;
    void transform_all_filters(const conv::buffers &data, const std::vector<scratch> &own,
        const executor &workers, float *u) const;
    void transform_filters(const conv::buffers &data, float *stage, dim set, dim index, dim chunk,
        float *u, dim point) const;
    void transform_input(const conv::buffers &data, dim set, const winograd_map::block &tiles,
        dim channel, dim channels, float *stage, float *v) const;
    void run_task(const conv::buffers &data, const scratch &s, const task &t) const;
    void multiply_panels(const task &t, dim index, dim panels, float *m) const;
    void multiply(const task &t, dim q, const float *u, const float *next, dim first, dim count,
        int vectors, float *m) const;
    void multiply_range(const task &t, dim q, const float *u, const float *next, dim first,
        dim count, int vectors, float *m) const;
    void clear_point(const task &t, dim q, float *m) const;
    void finish(const conv::buffers &data, const scratch &s, const task &t, dim index) const;
    void finish_run(const conv::buffers &data, const scratch &s, const task &t, dim index,
        const winograd_map::run &run) const;
    [[nodiscard]] bool stores_itself(const winograd_map::run &run, const winograd_map::place &place,
        dim index, const dim (&length)[2]) const;
    void clear_unreached(float *results, const winograd_map::run &run,
        const winograd_map::place &place, const dim (&length)[2]) const;
    void sum_directly(const conv::buffers &data, const scratch &s, const task &t, dim index,
        const winograd_map::run &tile, float *results) const;
    void pack_patch(const conv::buffers &data, const winograd_map::place &place, dim channel,
        dim channels, const winograd_map::run &tile, float *patch) const;
    void sum_carefully(const conv::buffers &data, const task &t, dim index,
        const winograd_map::run &tile, float *results) const;
    [[nodiscard]] float careful_sum(
        const conv::buffers &data, const task &t, dim channel, dim map, dim y, dim x) const;
    void store(const conv::buffers &data, const scratch &s, const task &t, dim index,
        const winograd_map::run &run, const winograd_map::place &place,
        const dim (&length)[2]) const;
    /// f(source, channel, channels, channels before) for input channels [first, first + count) of
    /// all sources, of which so many follow each other in each channel.
    template <typename Function>
    void for_each_source(dim first, dim count, Function &&f, dim together = 1) const;
    /// Channels of whole vectors, of all sources that are transformed together.
    [[nodiscard]] dim least_input_chunk() const {
        return round_up_to(least_chunk, map_.joined_sources(roles_.in) * kernels_.lanes);
    }
    void load_bias(const conv::buffers &data, float *bias, dim group, dim index) const;

    conv::problem p_;
    const kernel_set &kernels_;
    const winograd_kernels &winograd_;
    const winograd_kernels::transforms &transforms_;
    winograd_tile tile_;
    data_roles roles_;
    bool streams_ = exceeds_caches(p_);  // results go past the caches where they can
    winograd_map map_;
    dim taps_;                  // of a transformed filter
    dim in_c_;                  // input channels, of all sources together,
    dim in_padded_;             // in whole vectors
    dim panels_ = 1;            // of output channels
    dim chunk_ = 1;             // input channels whose filters are transformed at a time
    dim input_chunk_ = 1;       // and of tiles before the tasks
    dim block_ = 1, rows_ = 1;  // tiles of a task, and of a product
    dim blocks_ = 1;            // of tiles
    dim panels_each_ = 1, panel_blocks_ = 1;
    dim together_ = 1;  // panels that a point of a block's tiles is multiplied with at a time
    bool share_u_ = true, share_v_ = false;  // transformed once, before the tasks
    bool keep_v_ = false;  // or by each worker, for all of its tasks with the same tiles
    dim v_point_ = 0, m_point_ = 0, u_point_ = 0;
    dim tasks_ = 0;
    int workers_ = 1;
};

}  // namespace convgrad::cpu
