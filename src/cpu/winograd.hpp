// Winograd algorithms for filters of few taps along two axes: what they fit, how exact and how fast
// they are, and how tiles lie on a map. The drivers are winograd_data and winograd_weights; see
// docs/winograd.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "conv/problem.hpp"
#include "cpu/geometry.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/kernels/winograd.hpp"

namespace convgrad::cpu {

/// Whether a tile can run a (simplified) problem; if not, `why` (optional) tells.
bool fits_winograd(
    const conv::problem &p, winograd_tile tile, const kernel_set &kernels, std::string *why);
/// Whether the error of a tile is at most that of a plain f32 sum (by root mean square).
bool winograd_is_accurate(const conv::problem &p, winograd_tile tile, isa set);

/// Whether transformed filters are too large to be kept and used again: each task makes those of
/// its panel, which all tiles beside them then go through.
inline bool streams_filters(double filter_bytes, double tile_bytes) {
    constexpr double kept = 8 << 20, most_tiles = 32 << 20;
    return filter_bytes > kept && tile_bytes <= std::min(most_tiles, 2 * filter_bytes);
}
/// Multiply-adds that a point of a transform takes as long as.
inline constexpr double winograd_point_of_data = 10, winograd_point_of_filters = 14;
/// Of products: what few threads may take longer because each transforms the same again.
inline constexpr double most_transformed_again = 0.125;
/// That error, in terms of the plain sum's, on normal or ReLU data (the larger), as measured.
double winograd_error(const conv::problem &p, winograd_tile tile);
/// The problem with its axes named so that tiles of 4 × 2 leave less of the map empty, and that an
/// axis with one tap comes first.
conv::problem orient_for(const conv::problem &p, winograd_tile tile);

/// The taps, along the last two axes, of the filters that are transformed: those that one result
/// has of each residue modulo the stride. A single one comes first, see orient_for().
winograd_taps taps_for(const conv::problem &p);

/// Tiles to points, channels of one map and group from `tensor` on; padding and channels beyond the
/// last become zeros.
struct winograd_source {
    const void *tensor;
    data_type type;
    conv::data_strides strides;
    dim length[2];      // of its axes
    dim shift[2];       // from a result's first position to that of its tile
    dim rows, columns;  // positions of a tile
    dim step;           // columns from tile to tile
    /// Between positions of a tile. Above 1 the positions between them are those of tiles of other
    /// sources, which are made of the same copy.
    dim apart[2] = {1, 1};
};

/// Tiles on the last two axes. Layers with dilation have a map for every residue of a position: the
/// results of one take the positions of one, as without dilation. So has every plane of a volume.
///
/// A stride interleaves convolutions of stride 1. Forward (and for the weights gradient), taps of
/// one residue modulo the stride read positions of one residue: a result sums up that many
/// *sources*, which are to it like more channels, and so are the planes that taps along the first
/// axis read. Backward, results of one residue, a *phase*, meet taps of one residue: filters of
/// their own. The last tile along an axis may have fewer results, and then fewer points.
struct winograd_map {
    dim rows, columns, points;    // of a whole tile: results, points
    dim taps[2], across[2];       // of filters; points along an axis
    dim last[2];                  // results of the last tile along an axis
    dim tiles[2], count;          // of a map; of all
    dim in_step[2], out_step[2];  // from position to position of a map
    dim planes;                   // taps along the first axis
    dim sources = 1, phases = 1;

    winograd_map(const conv::problem &p, winograd_tile tile);

    /// One map and one source. Its result y takes input y + k − pad for tap k; `pad` may be
    /// negative.
    struct place {
        dim n, plane, in_plane;  // of the results; of the inputs, −1: there are none
        dim in[2], out[2];       // lengths
        dim pad[2];
        dim from[2], to[2];               // first position in the tensors: of inputs, of results
        dim first_tap[2], end_tap[2];     // that the layer has; others are zeros
        dim reached_from[2], reached[2];  // results that some tap of some source reaches: [, )

        [[nodiscard]] bool all_reached(int axis, dim first, dim length) const {
            return first >= reached_from[axis] && first + length <= reached[axis];
        }
        [[nodiscard]] dim of_results(const conv::data_strides &s) const {
            return n * s.n + plane * s.x[0] + to[0] * s.x[1] + to[1] * s.x[2];
        }
        [[nodiscard]] dim of_inputs(const conv::data_strides &s) const {
            return n * s.n + std::max<dim>(in_plane, 0) * s.x[0] + from[0] * s.x[1]
                   + from[1] * s.x[2];
        }
    };
    [[nodiscard]] place place_of(dim map, dim phase, dim source) const;
    /// Whether some source or phase has fewer taps than others: zeros stand for them.
    [[nodiscard]] bool lacks_taps() const {
        return kernel_[0] % stride_[0] != 0 || kernel_[1] % stride_[1] != 0;
    }
    /// Whether the transformed filter of a source or phase is zero at a point, because it lacks a
    /// tap: its last one, and then at the last point (∞) of the axis; backward, where filters are
    /// turned round, its first one, and then at the first point (0).
    [[nodiscard]] bool vanishes(dim phase, dim source, dim point) const;
    /// The share of points, of all sources and phases, at which filters do not vanish.
    [[nodiscard]] double multiplied() const;
    /// Elements from a filter's first weight to the first tap of a source's or phase's residue, and
    /// from there to tap (row, column) of the transformed filter.
    [[nodiscard]] dim first_weight(const conv::weights_strides &w, dim phase, dim source) const;
    [[nodiscard]] dim tap_weight(const conv::weights_strides &w, dim row, dim column) const;
    /// Whether a source has a tap (weights gradient), and whether that meets the input anywhere:
    /// others have empty sums.
    [[nodiscard]] bool has(dim source, dim row, dim column) const;
    [[nodiscard]] bool meets(dim source, dim row, dim column) const;
    /// Strides of a tensor between positions of a map.
    [[nodiscard]] conv::data_strides input_strides(conv::data_strides s) const {
        s.x[1] *= in_step[0];
        s.x[2] *= in_step[1];
        return s;
    }
    [[nodiscard]] conv::data_strides result_strides(conv::data_strides s) const {
        s.x[1] *= out_step[0];
        s.x[2] *= out_step[1];
        return s;
    }

    /// Whether a tile is whole along the rows and along the columns. In this order tiles that have
    /// a point follow each other, whichever point it is.
    enum kind : std::uint8_t { whole_rows, whole, whole_columns, corner };
    static constexpr int kinds = 4;
    static constexpr bool lacks_rows(kind k) { return k >= whole_columns; }
    static constexpr bool lacks_columns(kind k) { return k == whole_rows || k == corner; }

    /// Neighbouring tiles of one kind in one row of tiles.
    struct run {
        dim map, y, x;  // first result
        dim tiles;
        kind what;
        dim slot;  // of the first tile, in its block
    };
    [[nodiscard]] dim rows_of(kind k) const { return lacks_rows(k) ? last[0] : rows; }
    [[nodiscard]] dim columns_of(kind k) const { return lacks_columns(k) ? last[1] : columns; }
    [[nodiscard]] dim input_rows(kind k) const { return rows_of(k) + taps[0] - 1; }
    [[nodiscard]] dim input_columns(kind k) const { return columns_of(k) + taps[1] - 1; }
    [[nodiscard]] dim points_of(kind k) const { return input_rows(k) * input_columns(k); }
    [[nodiscard]] const winograd_kernels::tile_transforms &transforms(
        const winograd_kernels::transforms &of, kind k) const {
        return of.of[rows - rows_of(k)][columns - columns_of(k)];
    }

    /// Sources that interleave.
    [[nodiscard]] dim residues() const { return back_ ? 1 : stride_[0] * stride_[1]; }
    /// Sources that are transformed together: those that interleave, where rows of planes would be
    /// taken apart for each of them; else one.
    [[nodiscard]] dim joined_sources(const conv::data_strides &in) const {
        return in.c == 1 || in.x[2] != 1 ? 1 : residues();
    }
    /// The input of a source, and of those that are transformed together with it, for tiles of one
    /// kind; `data`: the tensor from the first channel on.
    [[nodiscard]] winograd_source source_at(const place &at, kind what, const void *data,
        data_type type, const conv::data_strides &in) const;

    /// Tiles [first, first + tiles), sorted by kind: kind k has slots [begin[k], begin[k + 1]).
    struct block {
        dim first, tiles;
        dim begin[kinds + 1];
    };
    [[nodiscard]] block block_at(dim first, dim tiles) const;
    /// Tiles [from, from + tiles) of a block for for_each_run(): they keep their slots.
    [[nodiscard]] block part_of(const block &b, dim from, dim tiles) const;
    /// Slots of a block's tiles that have a point: [first, second).
    [[nodiscard]] std::pair<dim, dim> slots(const block &b, dim point) const;
    /// Points of all tiles of a block.
    [[nodiscard]] dim points_of(const block &b) const;
    [[nodiscard]] dim all_points() const { return points_of(block_at(0, count)); }

    /// Runs of a block's tiles, none of which crosses a multiple of `group` slots.
    template <typename Function>
    void for_each_run(const block &b, dim group, Function &&f) const;

private:
    [[nodiscard]] dim whole_tiles(int axis) const {
        return last[axis] < (axis == 0 ? rows : columns) ? tiles[axis] - 1 : tiles[axis];
    }
    /// Adds the kinds of the first `tiles` tiles, times `sign`.
    void count_kinds(dim tiles_before, dim sign, dim (&counts)[kinds]) const;

    /// Along axis 0 or 1: which residue of taps a phase or source has.
    [[nodiscard]] dim residue(int axis, dim phase, dim source) const;

    bool back_;
    dim kernel_[2], stride_[2];              // of the layer
    dim in_[2], out_[2], pad_[2], maps_[2];  // of the tensors; maps along an axis
    dim in_depth_, out_depth_, depth_pad_, depth_step_;
};

template <typename Function>
void winograd_map::for_each_run(const block &b, dim group, Function &&f) const {
    dim next[kinds];  // slots
    std::copy_n(b.begin, kinds, next);
    for (dim at = b.first; at < b.first + b.tiles;) {
        const dim column = at % tiles[1], row = at / tiles[1];
        const bool lacks[2] = {row % tiles[0] >= whole_tiles(0), column >= whole_tiles(1)};
        const kind what =
            lacks[0] ? (lacks[1] ? corner : whole_columns) : (lacks[1] ? whole_rows : whole);
        const dim slot = next[what], end = lacks[1] ? tiles[1] : whole_tiles(1);
        const dim some = std::min({end - column, b.first + b.tiles - at, group - slot % group});
        f(run{row / tiles[0], row % tiles[0] * rows, column * columns, some, what, slot});
        next[what] += some;
        at += some;
    }
}

/// Where points go: vector v of tile slot s at out + s·slot + v·vector; those of the next source
/// that is transformed together with this one `source` floats on.
struct winograd_slots {
    float *out;
    dim point, slot, vector;
    dim source = 0;
};

/// Floats of the stage that transform_run() needs for runs of up to `tiles`.
dim winograd_stage_floats(const winograd_map &map, const kernel_set &kernels, dim tiles);
/// `channel`, `channels`: which of them, from a multiple of the lanes on.
void transform_run(const kernel_set &kernels, void (*transform)(const winograd_tile_args &),
    const winograd_source &source, const winograd_map::run &run, dim channel, dim channels,
    float *stage, const winograd_slots &to);

}  // namespace convgrad::cpu
