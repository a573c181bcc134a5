// The contract between drivers and kernels: one struct of functions per instruction set and operand
// format. Everything that touches a vector register is behind it.
//
// All dense convolution is one building block, a batch-reduce product
//
//     C[m][n] (+)= Σ_runs Σ_k A_run[k][m] · B_run[k][n]
//
// with A broadcast and B in vectors. A "unit" is what one k step holds for one m or n:
//
//   format   unit                                     k per unit
//   fma      one f32                                  1
//   dot2     two bf16 that VDPBF16PS adds together    2
//   amx      32 bf16 of one tile row (A); B is a tile of 16 pair rows × 16 columns, 32 k per tile
//
// Operands are packed by the functions beside the product, so that a driver never looks inside a
// unit.
#pragma once

#include <cstdint>

#include <convgrad/types.hpp>

#include "cpu/isa.hpp"
#include "cpu/kernels/depthwise_args.hpp"

namespace convgrad::cpu {

enum class operand_format : std::uint8_t { fma, dot2, amx };

/// What a packer noticed about the values it copied. The matrix and dot-product instructions flush
/// subnormals, and a split value must neither underflow nor overflow, so their packers also tell
/// the exponents of the smallest and largest nonzero magnitude.
struct value_range {
    bool nonfinite = false;
    std::uint8_t least = 255;  // biased exponent of the smallest nonzero magnitude; 255: none
    std::uint8_t most = 0;     // of the largest

    void merge(const value_range &other) {
        nonfinite = nonfinite || other.nonfinite;
        least = other.least < least ? other.least : least;
        most = other.most > most ? other.most : most;
    }
};

/// What a format can compute as if in plain f32: biased exponents of operands, and their sums.
struct format_limits {
    int least, least_product, most_product;

    /// Whether no sum of products of bf16 is subnormal: they are whole multiples of the product of
    /// the last bits of the smallest operands, and rounding to f32 keeps them so.
    [[nodiscard]] static bool normal_sums(const value_range &a, const value_range &b) {
        constexpr int bias = 127, last_bits = 2 * 7, least_normal = 1;
        return a.least + b.least - bias - last_bits >= least_normal;
    }
    [[nodiscard]] bool allow(const value_range &a, const value_range &b) const {
        return !a.nonfinite && !b.nonfinite && a.least >= least && b.least >= least
               && (a.least == 255 || b.least == 255 || a.least + b.least >= least_product)
               && a.most + b.most <= most_product;
    }
};

/// Rows of a tile, and its bytes.
inline constexpr dim amx_tile_rows = 16, amx_tile_bytes = 1024;
inline constexpr dim tile_block = 2 * amx_tile_rows;  // rows of C that a product takes
/// Channels on each side of group_gradient(), and its taps.
inline constexpr dim gradient_channels = 8, most_gradient_taps = 3;

struct product_args {
    const char *a;
    const char *b;
    float *c;
    dim ldc;           // floats between rows m of C
    const dim *a_run;  // bytes from a to the operand of run r
    const dim *b_run;  // bytes from b to the operand of run r
    dim runs;
    dim k;               // units per run
    dim a_step, b_step;  // bytes from one k unit to the next
    dim a_m;             // bytes from row m of A to row m + 1 (not amx)
    bool accumulate;     // C += …; otherwise C = …
    // dot2 only: if not null, results leave here as bf16, rows `ld_out` elements apart, and C is
    // only read.
    std::uint16_t *out = nullptr;
    dim ld_out = 0;
    bool normal = false;  // and none is subnormal, as the operands' range tells
    bool stream = false;  // results go past the caches: C or `out` and all its rows are on lines
    // If not null, the units of B are copied here, one after the other, as they are multiplied: one
    // or two vectors, where the kernels can (kernel_set::copies).
    char *copy = nullptr;
    dim last = 0;  // columns of the last vector that are stored (not amx, no accumulate); 0: all
    // Memory that will be used soon, asked for on the way: two lines with each k unit, as many as
    // there are units for. In one go they would wait for each other, and the product for them.
    struct soon {
        const char *at = nullptr;
        dim step = 0, count = 0;  // bytes from a pair of lines to the next; pairs
    };
    soon fetch[2] = {};  // one after the other
    // amx only, all in bytes: from the first to the second tile of A (rows 16–31) and of B (columns
    // 16–31), from one row of a tile to the next, from one part of a split value to the next.
    dim a_tile = 0, b_tile = 0;
    dim a_row = 64, b_row = 64;
    dim a_part = 0, b_part = 0;
    bool a_ends = false;  // nothing may be read beyond the last row of A: blocks overlap instead
};

/// C[m][n] (+)= Σ_runs Σ_x a[m][run + x] · b[n][run + x]: rows and columns that both lie along x.
struct dot_args {
    const float *const *a;
    const float *const *b;
    const dim *a_run, *b_run;  // in floats
    dim runs;
    dim count;  // per run; nothing beyond is read
    float *c;
    dim ldc;
    bool accumulate;
};

/// Copies `count` positions of `channels` channels. Element (c, x) is at in[c·cs + x·xs]; only
/// positions [lo, hi) exist, the others (padding) become zeros and are never read.
struct pack_args {
    const void *in;
    data_type type;
    dim cs, xs;
    dim channels, count;
    dim lo, hi;
    char *out;
};

/// A second row of the same shape, channels and strides as that of pack_args.
struct pair_row {
    const void *in;
    dim lo, hi;
};

/// out[j][i] = in[i][j], elements of 2 or 4 bytes.
struct transpose_args {
    const char *in;
    dim in_pitch;  // bytes from row to row
    dim rows, columns;
    dim size;
    char *out;
    dim out_pitch;
};

/// How results leave: value = c + bias + add + old contents, ReLU, one rounding.
struct store_args {
    const float *c;
    dim c_cs, c_xs;  // strides of C in floats: channel, position
    dim channels, count;
    void *out;
    data_type type;
    dim cs, xs;         // strides of out in elements
    const float *bias;  // one per channel, or null
    const void *add;    // of type `type`, strides add_cs and add_xs, or null
    dim add_cs, add_xs;
    bool accumulate;
    bool relu;
    bool stream = false;  // results go past the caches: out and all its rows are on lines
};

struct kernel_set {
    isa set = isa::portable;
    operand_format format = operand_format::fma;
    int lanes = 0;        // columns of one vector (or tile) of B
    int max_vectors = 0;  // widest C block, in vectors
    int max_m[5] = {};    // tallest C block for 1..max_vectors vectors (index 0 unused)
    bool copies = false;  // product() can copy B on the way
    int k_per_unit = 1;
    int unit_bytes = 4;    // of A, per position
    int column_bytes = 4;  // of B, per column of a k unit, all parts
    int parts = 1;         // amx: how many bf16 an element is split into
    format_limits limits = {};
    void (*enter)() = nullptr;  // before a thread's first product, and after its last; null:
    void (*leave)() = nullptr;  // nothing to do

    /// Whether products are of whole tiles (amx): C in tiles of 16 rows, A not broadcast but in
    /// rows of tiles, channels and positions packed by other rules. Otherwise of vectors.
    [[nodiscard]] constexpr bool tiles() const { return format == operand_format::amx; }

    void (*product)(const product_args &args, int m, int vectors) = nullptr;

    /// The product for channels side by side, in units of 16 bytes: four channels as f32, or eight
    /// as bf16, which belong to one group or to two of four. A unit of B has 64 bytes for each
    /// vector, which is four columns: channel or pair q of the unit (of its group's) for column r
    /// is at 4·(4·r + q); with two groups, q counts the pairs of both. Columns of the second group
    /// go to C `next_group` floats further; 0: one group, which may leave as bf16 (`out`) if its
    /// vectors are even in number. Does not accumulate. Null: there is none.
    void (*quad_product)(const product_args &args, int m, int vectors, dim next_group) = nullptr;

    /// C[tap][o][i] (+)= Σ_runs Σ_k a_run[tap_at[tap] + k][i] · b_run[k][o] for eight channels i of
    /// A by eight o of B, whose units lie side by side; at most `most_gradient_taps` taps, tap_at
    /// in bytes. Not amx.
    void (*group_gradient)(const product_args &args, const dim *tap_at, int taps) = nullptr;

    /// Channels become k: unit (k, x) at out + k·k_pitch + x·unit_bytes. Missing channels of the
    /// last unit are zero.
    value_range (*pack_channels)(const pack_args &args, dim k_pitch, dim part_pitch) = nullptr;
    /// The same with channels side by side (cs = 1; not amx): unit (k, x) at out + x·x_pitch + 4·k.
    /// x_pitch is a multiple of 64.
    value_range (*pack_pixels)(const pack_args &args, dim x_pitch) = nullptr;
    /// Only looks at the values (cs = 1; amx: whole units of bf16); `out` is not used.
    value_range (*scan)(const pack_args &args) = nullptr;
    /// Weights for `count` columns (the positions of pack_args) padded with zeros to `vectors`
    /// vectors: element (k, n, tap) at in[k·cs + n·xs + tap_in[tap]] goes to unit k of
    /// out + tap·tap_pitch, k_pitch apart.
    value_range (*pack_weights)(const pack_args &args, const dim *tap_in, dim taps, int vectors,
        dim tap_pitch, dim k_pitch) = nullptr;
    /// Positions become k (weights gradient): element (c, x) goes to column c % block of panel
    /// c / block: out + (c / block)·panel_pitch + x·(4·block). Columns without a channel, up to a
    /// whole vector, are zero. In dot2 and amx position x is paired with position x of `pair`.
    value_range (*pack_positions)(const pack_args &args, const pair_row &pair, dim block,
        dim panel_pitch, dim part_pitch) = nullptr;
    /// amx only: the broadcast operand of the weights gradient. Pair (c, x) goes to
    /// out + c·row_pitch + 4·x.
    value_range (*pack_rows)(
        const pack_args &args, const pair_row &pair, dim row_pitch, dim part_pitch) = nullptr;
    void (*store)(const store_args &args) = nullptr;
    void (*transpose)(const transpose_args &args) = nullptr;
    /// fma only; blocks of at most max_dot[n] rows and n ≤ 4 columns.
    void (*dot)(const dot_args &args, int m, int n) = nullptr;
    int max_dot[5] = {};
    /// fma only.
    void (*depthwise)(const depthwise_args &args) = nullptr;
    void (*depthwise_gradient)(const depthwise_gradient_args &args) = nullptr;
    /// False if a value is not finite.
    bool (*widen_rows)(const plane_rows_args &args) = nullptr;
    void (*narrow_rows)(const plane_store_args &args) = nullptr;
    void (*sum_positions)(const position_sums_args &args) = nullptr;
};

/// The kernels of one instruction set for one element type; null if this build or this pairing has
/// none. `math` matters for f32 on amx only.
const kernel_set *find_kernels(isa set, operand_format format, data_type type, math_mode math);

/// A line of kernels.inc.
struct kernel_line {
    isa set;
    operand_format format;
};
inline constexpr kernel_line kernel_lines[] = {
#define CONVGRAD_KERNELS(set, format) {isa::set, operand_format::format},
#include "cpu/kernels/kernels.inc"
};

/// The best fma kernels that need no more than `may_use`.
const kernel_set *best_fma(capabilities may_use);

// Of each line of kernels.inc; null where it has none for the type and mode.
#define CONVGRAD_KERNELS(set, format)                                                              \
    const kernel_set *format##_##set(data_type type, math_mode math);
#include "cpu/kernels/kernels.inc"

#define CONVGRAD_FMA_KERNELS(set)                                                                  \
    void depthwise_##set(const depthwise_args &args);                                              \
    void depthwise_gradient_##set(const depthwise_gradient_args &args);                            \
    bool widen_rows_##set(const plane_rows_args &args);                                            \
    void narrow_rows_##set(const plane_store_args &args);                                          \
    void sum_positions_##set(const position_sums_args &args);
#include "cpu/kernels/kernels.inc"

}  // namespace convgrad::cpu
