// The search for a layout of tiled_data, see tiled_search.cpp.
#pragma once

#include <memory>
#include <utility>

#include "cpu/tiled_layout.hpp"

namespace convgrad::cpu {

/// Bytes that a core's caches ask for.
struct cache_targets {
    dim weights;    // packed, of a block, if a block can be that small
    dim tile;       // patch and C of a tile
    dim patch_row;  // of one position of a patch: sets k_chunk_
};

/// A layout that is still being chosen.
class tiled_search : public tiled_layout {
public:
    tiled_search(const conv::problem &p, const kernel_set &kernels, bool stacked);

    /// False: stacked images take more than the limit.
    [[nodiscard]] bool find(const kernel_set *exact, int threads, std::size_t workspace_limit);
    [[nodiscard]] tiled_layouts result() { return {std::move(*this), std::move(exact_layout_)}; }

private:
    /// The same tasks with other kernels.
    tiled_search(const tiled_search &like, const kernel_set &kernels);

    void settle_both(const kernel_set *exact);
    void learn_axes();
    void choose_chunks();
    void set_chunks(dim channels);
    void choose_panels();
    void choose_paths();
    [[nodiscard]] bool reads_apart(dim bytes);
    [[nodiscard]] bool reads_tiles() const;
    [[nodiscard]] bool packs_input() const;
    void choose_blocks();
    void consider_streaming(dim panels);
    void choose_units(dim positions);
    void even_units();
    void use_units();
    void bundle_units(int threads);
    void choose_tile(dim positions);
    void set_tile(const dim (&tile)[3]);
    bool shrink();
    void settle();
    void choose_staging();
    void choose_rows();

    [[nodiscard]] std::size_t least_workspace() const;
    void choose_workers(int threads, std::size_t workspace_limit);
    [[nodiscard]] bool worth_sharing() const;
    [[nodiscard]] dim tile_positions() const;
    [[nodiscard]] dim longest_row() const;
    [[nodiscard]] dim touched(int a) const;
    [[nodiscard]] dim count_tasks() const;
    [[nodiscard]] double cut_seconds() const;
    [[nodiscard]] double skew() const;
    [[nodiscard]] double largest_tile(int a) const;
    [[nodiscard]] double share_on(int threads, double largest) const;
    [[nodiscard]] double share_up_to(int threads) const;

    cache_targets target_;
    double least_seconds_ = 0;  // of an execution on one thread
    struct {
        dim taps, reach;  // of all phases; from the first input element of a position to its last
        double padding;   // all pairs of a position and a tap in terms of those inside
    } axes_[3] = {};
    dim most_panels_ = 1;  // of a block, by the size of caches
    dim near_panels_ = 1;  // more only if all threads have work
    bool roomy_ =
        true;  // weights are transposed in memory of their own if the patch has too little
    std::unique_ptr<tiled_layout> exact_layout_;
};

}  // namespace convgrad::cpu
