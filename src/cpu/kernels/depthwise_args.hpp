// What the depthwise drivers hand to the depthwise kernels.
//
// A kernel works on a "pair": the elements of two vectors, side by side in memory (channels of NXC
// data, columns of NCX planes). Results of neighbouring positions are held in registers together;
// an input pair is loaded and widened once and serves all positions whose taps meet there:
//
//     slots      s0   s1   s2   s3   s4      (input pairs, `slot` bytes apart)
//     position 0 w0   w1   w2
//     position 1      w0   w1   w2           (a chain of three taps)
//     position 2           w0   w1   w2
//
// Taps that are one slot apart along the positions' axis form a chain; all else (other residues of
// a stride, other axes) is several chains and lines. Slots that do not exist are never read, so
// there is no padding to stand for.
//
// Weights and sums have one pair of f32 vectors per tap. The elements of a pair are in memory
// order, except that bf16 goes by even and odd elements (widening is then one shift or mask): see
// depthwise_slot(). Data passes take a last pair of at most one vector in memory order.
#pragma once

#include <convgrad/types.hpp>

namespace convgrad::cpu {

inline constexpr int longest_chain = 4;
/// Positions that fill a pair together: two take one vector each anyway, three gain too little.
inline constexpr dim fewest_merged = 4;

/// Taps along the positions' axis, one slot apart.
struct tap_chain {
    dim in;       // bytes from the input of position 0 to the first tap's
    dim weights;  // floats from the line's first weight to the chain's
    int taps;     // 1 to longest_chain
    dim lo, hi;   // slots that exist, counted from the first tap's of position 0
};

/// One index along the other axes of the filter.
struct tap_line {
    dim in;       // bytes
    dim weights;  // floats
    dim lo, hi;   // rows of positions that it reaches inside the input
};

/// out[row][position] = Σ_lines Σ_chains Σ_taps in[…] · weights, then bias, add, old contents,
/// ReLU.
struct depthwise_args {
    const char *in;
    char *out;
    data_type in_type, out_type;  // equal, or in_type is f32
    const tap_line *lines;
    dim line_count;
    const tap_chain *chains;
    dim chain_count;
    const float *weights;
    dim weights_block;  // floats from one pair's weights to the next's
    dim elements;       // of all pairs
    dim rows, positions;
    dim first_row;        // what lines' lo and hi count from
    dim first_position;   // likewise for chains'
    dim in_row, out_row;  // bytes
    dim slot, out_position;
    const float *bias;  // or null
    dim bias_block;     // floats from one pair's to the next's
    const char *add;    // of out_type, or null
    dim add_row, add_position;
    bool accumulate, relu;
    // What the next row will read first: `fresh_rows` rows of the input, fresh_row bytes apart,
    // from `fresh` bytes beyond a position's input on. Far rows are not foreseen by hardware when
    // each position has more channels than a task.
    dim fresh, fresh_row, fresh_rows;
    dim out_fresh;  // likewise in the output, one row
    bool stream;    // whole pairs go past the caches: out and all its positions are on lines
};

/// sums[line][chain][tap] += Σ_rows Σ_positions in[…] · dst[row][position].
struct depthwise_gradient_args {
    const char *in;
    const char *dst;
    data_type type;
    const tap_line *lines;  // `weights`: floats within `sums`
    dim line_count;
    const tap_chain *chains;
    dim chain_count;
    float *sums;
    dim elements;  // of the pair that exist
    bool vector;   // at most one vector of them, in memory order
    dim rows, positions;
    dim first_row, first_position;
    dim in_row, dst_row;
    dim slot, dst_position;
    dim fresh, fresh_row, fresh_rows;  // as in depthwise_args
};

/// Rows of elements, `step` apart, to f32. Whole vectors are written: zeros follow a row.
struct plane_rows_args {
    const char *in;
    data_type type;
    dim in_depth, in_row;  // bytes
    dim depths, rows, count, step;
    float *out;
    dim out_depth, out_row;  // floats
    bool watched;            // for values that are not finite
};

/// Rows of f32 to the output: add, old contents, ReLU, one rounding.
struct plane_store_args {
    const float *in;
    dim in_depth, in_row;  // floats
    dim second;            // 0, or floats to a second row whose elements go in between
    dim depths, rows, count;
    char *out;
    data_type type;
    dim out_depth, out_row;  // bytes
    const char *add;
    dim add_depth, add_row;
    bool accumulate, relu;
    bool stream;  // out and all its rows are on lines: whole vectors go past the caches
};

/// sums[channel] = Σ in[…] over positions, in order where channels lie side by side.
struct position_sums_args {
    const char *in;
    data_type type;
    dim channel, position;  // bytes from one to the next
    dim channels, positions;
    float *sums;
};

/// Where element i of a pair lies among its 2·lanes floats.
inline dim depthwise_slot(data_type type, int lanes, dim i) {
    return type == data_type::bf16 ? i % 2 * lanes + i / 2 : i;
}

}  // namespace convgrad::cpu
