// Winograd algorithms for 3×3 layers of stride 1: what they fit, how exact and how fast they are,
// and how tiles lie on a map. The drivers are winograd_data and winograd_weights; see
// docs/winograd.md.
#pragma once

#include <algorithm>
#include <string>

#include "conv/problem.hpp"
#include "cpu/geometry.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/kernels/winograd.hpp"

namespace convgrad::cpu {

/// Why a tile cannot run a (simplified) problem; empty if it can.
std::string refuse_winograd(const conv::problem &p, winograd_tile tile, const kernel_set &kernels,
    std::size_t workspace_limit);
/// Whether the error of a tile is at most that of a plain f32 sum (by root mean square).
bool winograd_is_accurate(const conv::problem &p, winograd_tile tile);
/// Seconds of one nominal core. `pair_speed`: multiply-adds per second of the best other kernels.
double winograd_seconds(const conv::problem &p, winograd_tile tile, const kernel_set &kernels);
/// Why another algorithm should run a problem that a tile fits: its error in this math mode,
/// another tile's or the direct sum's speed; empty: it should not. `direct`: multiply-adds per
/// second of the kernels that would run it otherwise.
std::string winograd_rival(
    const conv::problem &p, winograd_tile tile, const kernel_set &kernels, double direct);

/// The problem with its axes named so that tiles of 4 × 2 leave less of the map empty.
conv::problem orient_for(const conv::problem &p, winograd_tile tile);

/// Tiles on the last two axes. Result y takes input y + k − pad for tap k; `pad` may be negative.
struct winograd_map {
    dim rows, columns, points;  // of a tile: results, points
    dim in[2], out[2], pad[2];  // lengths
    dim tiles[2], count;        // of an image; of all

    winograd_map(const conv::problem &p, winograd_tile tile);

    /// Neighbouring tiles of one row of tiles.
    struct run {
        dim n, y, x;  // image, first result
        dim tiles;
    };
    /// Tiles from index `first` on, at most `most` of them.
    [[nodiscard]] run run_at(dim first, dim most) const;
    [[nodiscard]] dim in_rows() const { return rows + 2; }
    [[nodiscard]] dim in_columns(dim tiles_in_run) const { return tiles_in_run * columns + 2; }
    /// Whether some tap of result y (axis 0) or x (axis 1) lies inside the input.
    [[nodiscard]] bool reached(int axis, dim at) const {
        return at + 2 - pad[axis] >= 0 && at - pad[axis] < in[axis];
    }
    [[nodiscard]] bool all_reached(int axis, dim first, dim length) const {
        return first + 2 - pad[axis] >= 0 && first + length - 1 - pad[axis] < in[axis];
    }
};

/// Tiles of a run to points, channels of one group from `tensor` on; padding and channels beyond
/// the last become zeros.
struct winograd_source {
    const void *tensor;
    data_type type;
    conv::data_strides strides;
    dim channels;
    dim length[2];      // of its axes
    dim shift[2];       // from a result's index to that of the first position of its tile
    dim rows, columns;  // positions of a tile
    dim step;           // columns from tile to tile
};

/// Where points go: vector v of tile slot s at out + s·slot + v·vector.
struct winograd_slots {
    float *out;
    dim point, slot, vector;
};

/// Floats of the stage that transform_run() needs for runs of up to `tiles`.
dim winograd_stage_floats(const winograd_map &map, const kernel_set &kernels, dim tiles);
/// `channel`, `channels`: which of them, from a multiple of the lanes on.
void transform_run(const kernel_set &kernels, void (*transform)(const winograd_tile_args &),
    const winograd_source &source, const winograd_map::run &run, dim channel, dim channels,
    float *stage, const winograd_slots &to);

}  // namespace convgrad::cpu
