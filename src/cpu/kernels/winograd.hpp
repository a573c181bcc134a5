// What the Winograd drivers hand to their kernels; see docs/winograd.md.
//
// A tile of m results of a filter of r taps is computed from m + r − 1 points, on each of two axes.
// Along one axis, with B, G and A the matrices of its points:
//
//     result = Aᵀ [ (G · filter) ⊙ (Bᵀ · input) ]        gradient = Gᵀ [ (Bᵀ · input) ⊙ (A · dst) ]
//
// Tiles at the edge of a map have fewer results and take a subset of the points, for which the
// filters are the same. At each point the sum over channels (or, for the gradient, over tiles) is a
// plain product of matrices. Everything is f32 and in vectors of `lanes` channels; a panel is two
// such vectors.
#pragma once

#include <cstdint>
#include <iterator>

#include <convgrad/types.hpp>

namespace convgrad::cpu {

/// Named after the results of a tile of a 3×3 filter, rows × columns. What a tile is are its
/// points: 4 or 6 along an axis, whatever the number of taps; 1 along an axis with one tap.
enum class winograd_tile : std::uint8_t { f2x2, f4x2, f4x4 };
inline constexpr winograd_tile all_winograd_tiles[] = {
    winograd_tile::f2x2, winograd_tile::f4x2, winograd_tile::f4x4};

/// Points along an axis (0: rows, 1: columns) of filters with so many taps.
inline constexpr int winograd_points(winograd_tile t, int axis, int taps) {
    if (taps == 1) return 1;
    return t == winograd_tile::f2x2 || (t == winograd_tile::f4x2 && axis == 1) ? 4 : 6;
}
/// Results along an axis.
inline constexpr int winograd_results(winograd_tile t, int axis, int taps) {
    return winograd_points(t, axis, taps) - taps + 1;
}
/// Filters that have kernels: rows and columns of taps.
struct winograd_taps {
    int rows, columns;
    friend constexpr bool operator==(winograd_taps, winograd_taps) = default;
};
inline constexpr winograd_taps all_winograd_taps[] = {
    {3, 3}, {2, 2}, {4, 4}, {5, 5}, {1, 2}, {1, 3}, {1, 4}, {1, 5}};
inline constexpr int winograd_shapes = std::size(all_winograd_taps);
inline constexpr int most_winograd_taps = 25;
/// Whether a tile has more than one result, and is not another tile too.
inline constexpr bool winograd_has(winograd_taps taps, winograd_tile t) {
    return winograd_results(t, 1, taps.columns) > 1
           && (taps.rows == 1 ? t != winograd_tile::f4x2 : winograd_results(t, 0, taps.rows) > 1);
}
/// Results along an axis of a tile that need not have all `m`: `wanted` or a few more. It is
/// computed from the first finite points, as many as the results and taps need, and from the last
/// point.
inline constexpr int winograd_edge(int m, int wanted) {
    return wanted < m / 2 ? m / 2 : wanted;
}
inline constexpr int most_winograd_lack = 3;
inline constexpr bool winograd_edge_has(int points, int taps, int results, int point) {
    return point < results + taps - 2 || point == points - 1;
}

/// From positions to points, or (results) back: `tiles` neighbours × `vectors` vectors of channels.
/// All steps in floats.
struct winograd_tile_args {
    const float *in;
    float *out;
    dim tiles, vectors;
    dim row, column;        // between the positions of a tile
    dim next_tile, vector;  // from tile to tile and from vector to vector, on the positions' side
    dim point;              // from point to point,
    dim slot, slot_vector;  // from tile to tile and from vector to vector, on the points' side
    bool stream = false;    // results go past the caches: all positions are on lines
};

/// Filters to points and back: `vectors` vectors that follow each other, of each tap and of each
/// point.
struct winograd_filter_args {
    const float *in;
    float *out;
    dim vectors;
    dim tap, point;  // floats from one to the next
};

/// C[m][n] (+)= Σ_runs Σ_k A · B, rows of B and C a panel wide. Sums of `chain` runs (gradient: of
/// `chain` steps) are formed by themselves and then added to C, so that no chain of roundings is
/// long.
struct winograd_product_args {
    const float *a;
    const float *b;
    float *c;
    dim a_run;  // floats from run to run of A
    dim runs;   // of `lanes` steps each; the gradient has one run of `last` steps
    dim last;   // steps of the last run
    dim chain;
    bool accumulate;
    const float *next;  // as much of B as this product reads, needed soon
};

struct winograd_kernels {
    isa set;
    int lanes;
    int most_rows;      // of a product
    int gradient_rows;  // of a product of the gradient: always this many

    /// A[k][m] at a + m·lanes + k, within a run.
    void (*product)(const winograd_product_args &args, int rows, int vectors);
    /// A[k][m] at a + k·lanes + m.
    void (*gradient)(const winograd_product_args &args, int vectors);

    struct tile_transforms {
        void (*input)(const winograd_tile_args &args);
        void (*gradient)(const winograd_tile_args &args);  // of dst
        /// Bit i: a result of tile i, of at most 64, is not finite.
        std::uint64_t (*results)(const winograd_tile_args &args);
    };
    struct transforms {
        /// By how many rows and columns of results a tile lacks: about half of them at most.
        tile_transforms of[most_winograd_lack + 1][most_winograd_lack + 1];
        void (*filters)(const winograd_filter_args &args);
        /// In place if asked to; false if a result is not finite.
        bool (*filter_gradients)(const winograd_filter_args &args);
    };
    transforms of[winograd_shapes][3];  // by all_winograd_taps and winograd_tile

    [[nodiscard]] dim panel() const { return 2 * dim{lanes}; }
    /// Null if there are none.
    [[nodiscard]] const transforms *find(winograd_taps taps, winograd_tile tile) const {
        for (std::size_t i = 0; i < std::size(all_winograd_taps); ++i)
            if (all_winograd_taps[i] == taps && winograd_has(taps, tile))
                return &of[i][static_cast<std::size_t>(tile)];
        return nullptr;
    }
};

/// Null if this build has none for the instruction set.
const winograd_kernels *find_winograd(isa set);

#define CONVGRAD_FMA_KERNELS(set) const winograd_kernels *winograd_##set();
#include "cpu/kernels/kernels.inc"

}  // namespace convgrad::cpu
