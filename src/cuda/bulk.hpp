// Products of warpgroups fed by the copy engine (compute capability 9.0): 16-bit types.
#pragma once

#include <algorithm>
#include <array>
#include <span>

#include "cuda/operand.hpp"

namespace convgrad::cuda {

/// A tile that there are kernels for.
struct bulk_tile_size {
    int rows, columns, at_once, threads, shared, index;
    double rate;  // bytes of stages in a cycle of a multiprocessor, as measured on an H200
};
template <int M, int N>
constexpr bulk_tile_size bulk_size(int index, double rate) {
    using tiles = bulk_tiles<M, N>;
    return {
        tiles::rows, tiles::columns, tiles::at_once, tiles::threads, tiles::shared, index, rate};
}
/// In the order of the kernels.
constexpr bulk_tile_size bulk_tile_sizes[] = {bulk_size<2, 64>(0, 54), bulk_size<1, 128>(1, 44),
    bulk_size<2, 128>(2, 42), bulk_size<1, 256>(3, 46)};
/// Those that a plan may choose from.
std::span<const bulk_tile_size> allowed_tiles();
/// Tests only: plans that are made from now on have this one of bulk_tile_sizes (-1: the fastest).
void limit_tiles_for_testing(int index);

/// The kernel for a tile, of the rows that start with `first`.
constexpr kernel bulk_kernel(kernel first, const bulk_tile_size &tile, data_type type) {
    return static_cast<kernel>(
        static_cast<int>(first) + tile.index * 2 + (type == data_type::bf16 ? 0 : 1));
}

/// The device that predictions are for, whatever the card.
struct nominal {
    static constexpr wide multiprocessors = 132;
    static constexpr double clock = 1.7e9;
    static constexpr double products = 2048;    // of a multiprocessor in a cycle
    static constexpr double tile_start = 2000;  // cycles
    static constexpr double stored = 9;         // sums of a tile in a cycle
    /// Rounds of tiles, one on each multiprocessor.
    static constexpr wide rounds(wide tiles) {
        return std::max<wide>(1, (tiles + multiprocessors - 1) / multiprocessors);
    }
};

/// Seconds that the nominal device takes for tiles of `steps` stages each, of which so many columns
/// are stored on average.
double bulk_seconds(const bulk_tile_size &tile, wide tiles, double steps, double columns);
/// Of so many columns of all.
inline double stored_columns(const bulk_tile_size &tile, wide all) {
    return static_cast<double>(all) / static_cast<double>(cover(all, tile.columns));
}

/// How a weights gradient is cut into tiles, and its positions into parts: by the problem alone.
struct weights_cut {
    bulk_tile_size tile = bulk_tile_sizes[0];
    wide tiles_m = 0, tiles_n = 0, tiles = 0;  // of one part
    wide parts = 1;
    double seconds = 1e30;  // of products and sums
};
/// Of `rows` by `columns` sums of each group, `steps` stages long; a part's sums take `part_bytes`,
/// written and read.
weights_cut cut_weights(wide rows, wide columns, wide groups, wide steps, double part_bytes);

/// One axis of a tensor as the copy engine walks along it: from `start` on, `count` times by
/// `step`.
struct pixel_axis {
    wide length, start = 0, count, step = 1;
    wide farthest = 0;  // the largest offset of a tap from there

    pixel_axis(wide of, wide first, wide times, wide by, wide offset)
        : length(of), start(first), count(times), step(by), farthest(offset) {}
    /// All of a tensor's.
    explicit pixel_axis(wide of) : length(of), count(of) {}
};

/// A phase of positions as kernels have it, and how the copy engine walks through it.
struct phase_walk {
    bulk_phase args{};
    std::array<pixel_axis, 3> axes{pixel_axis(1), pixel_axis(1), pixel_axis(1)};
    bool is_empty = false;  // no position reads anything
};
phase_walk find_phase(const conv::problem &p, const data_args &a, int number);
constexpr wide phases_of(const data_args &a) {
    return a.phases[0] * a.phases[1] * a.phases[2];
}

/// How results are stored: pieces of eight channels, or so many neighbouring positions at once.
struct store_form {
    bool along_channels;
    int unit;
    bool by_engine = false;  // the copy engine may store
    /// Seconds that short pieces take beyond what whole ones take.
    [[nodiscard]] double seconds(const conv::problem &p, const architecture &on) const;
};
/// Of `channels` of a merged group. Positions run through images, or (`row` is not 0) through rows
/// of that length.
store_form find_store(const conv::problem &p, wide channels, wide row);

/// From one position of a tensor to the next, through all images, in elements; 0: not all lie at
/// one distance.
wide pitch_of(const conv::problem &p, bool is_src);
/// The same of the output; 0: its positions are cut into phases.
wide position_pitch(const conv::problem &p);

/// Why the engine cannot walk so; empty if it can.
std::string refuse_walk(std::span<const pixel_axis, 3> axes);
/// Whether the slowest axis counts.
bool has_three_axes(const conv::problem &p);

/// Boxes of 64 channels by `pixels` of a tensor that lies as `strides` say.
tensor_map map_pixels(const lane &on, data_type type, const void *data,
    const data_stride_args &strides, wide images, wide channels,
    std::span<const pixel_axis, 3> axes, bool three_axes, int pixels);

/// Boxes of 64 channels of one tap by `columns` rows of weights [row][tap][channel].
tensor_map map_weights(const lane &on, data_type type, const void *data, wide rows, wide taps,
    wide channels, int columns);
/// Boxes of 32 channels of one part of f32 weights by `columns` rows of [part][row][channel].
tensor_map map_split_weights(
    const lane &on, const void *data, wide rows, wide channels, wide parts, int columns);
/// 16-bit weights that are turned: boxes of 64 output channels of one tap by so many terms.
tensor_map map_turned_weights(const lane &on, data_type type, const void *data,
    const weights_operand::turned_form &form, wide terms);

/// Boxes of 32 positions by `box_rows` rows of f32 values that were turned (operand::turn): parts,
/// each of all rows.
tensor_map map_turned_rows(
    const lane &on, const float *data, wide positions, wide rows, wide parts, int box_rows);

/// How planes lie, or pixels, which are one plane whose channels lie side by side.
struct plane_form {
    wide positions, channels, images, step, channel_stride, image_stride;
    [[nodiscard]] bool are_pixels() const { return channel_stride == 1; }
};
/// Boxes of positions, as many as 128 bytes hold (pixels: 64), by so many channels.
tensor_map map_planes(
    const lane &on, data_type type, const void *data, const plane_form &form, int channels);

/// Slices of channels of a merged group by 64 of the output's positions, `pitch` from one to the
/// next.
tensor_map map_outputs(
    const lane &on, const conv::problem &p, void *out, wide channels, wide pitch);

/// The pointers of a data pass with tiles of `columns`: operands are read or packed, weights
/// mapped. Returns where the input is.
operand::place bind(bulk_args &args, const conv::problem &p, const merged_data &what,
    const store_form &store, int columns, const conv::buffers &data, void *workspace,
    const lane &on);

/// Why a problem is none of these; empty if it is.
std::string refuse_bulk(const conv::problem &p);
prediction predict_bulk(
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);
std::unique_ptr<const engines::plan> make_bulk_plan(std::string_view name, const conv::problem &p,
    const architecture &on, const engines::plan_limits &limits);

/// The same of weights gradients, which the ones above end in.
std::string refuse_bulk_weights(const conv::problem &p);
prediction predict_bulk_weights(
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);
std::unique_ptr<const engines::plan> make_bulk_weights_plan(std::string_view name,
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);

/// Data passes whose taps share what is copied (stride 1): see halo.cpp.
std::string refuse_halo(const conv::problem &p);
prediction predict_halo(
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);
std::unique_ptr<const engines::plan> make_halo_plan(std::string_view name, const conv::problem &p,
    const architecture &on, const engines::plan_limits &limits);

/// Layers of one tap between planes: see pointwise.cpp.
std::string refuse_pointwise(const conv::problem &p);
prediction predict_pointwise(
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);
std::unique_ptr<const engines::plan> make_pointwise_plan(std::string_view name,
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);

}  // namespace convgrad::cuda
