// Operands of tiled_data: packed weights, patches, bias.
#include <algorithm>

#include "cpu/element.hpp"
#include "cpu/tasks.hpp"
#include "cpu/tiled_data_parts.hpp"

namespace convgrad::cpu {

void tiled_data::load_bias(const scratch &s, const task &t) const {
    if (!p_.bias) return;
    const dim first = t.first_panel * panel_width();
    const dim last = std::min(roles_.out_c, first + t.panels * panel_width());
    for (dim c = first; c < last; ++c)
        s.bias[c - first] =
            load_float(t.data->bias, p_.type, (t.group * roles_.out_c + c) * p_.bias_stride);
}

/// Weights of a panel: input channels [first, first + count) of a chunk, whose packed form begins
/// at `out`.
value_range tiled_data::pack_panel(const scratch &s, const conv::buffers &data, dim group,
    dim panel, dim chunk, dim first, dim count, char *out) const {
    const dim size = static_cast<dim>(size_of(p_.type)), column = panel * panel_width(),
              k_pitch = panel_width() * kernels_.column_bytes;
    const char *weights =
        static_cast<const char *>(data.weights)
        + size
              * (group * p_.weights.g + (chunk * k_chunk_ + first) * roles_.weights_in
                  + column * roles_.weights_out);
    const pack_args args{weights, p_.type, roles_.weights_in, roles_.weights_out, count,
        std::min(panel_width(), roles_.out_c - column), 0, 0,
        out + first / kernels_.k_per_unit * k_pitch};
    const int vectors = static_cast<int>(panel_vectors(panel));
    const dim tap_pitch = units(chunk_channels(chunk)) * k_pitch;
    return staged_ > 0 ? pack_staged(s, args, vectors, tap_pitch, k_pitch)
                       : kernels_.pack_weights(
                           args, taps_of_.weights.data(), taps_, vectors, tap_pitch, k_pitch);
}

/// Packed weights of so many panels lie chunk by chunk.
dim tiled_data::chunk_offset(dim chunk, dim panels) const {
    return chunk * panels * panel_bytes(units(k_chunk_));
}

void tiled_data::pack_weights(scratch &s, const task &t, dim first_chunk, dim chunks) const {
    for (dim chunk = first_chunk; chunk < first_chunk + chunks; ++chunk) {
        const dim channels = chunk_channels(chunk);
        // Output channels side by side: a few rows of all panels, in the order of memory.
        const dim each = roles_.weights_out == 1 ? piece_channels : channels;
        for (dim first = 0; first < channels; first += each)
            for (dim j = 0; j < t.panels; ++j)
                s.weights_range.merge(pack_panel(s, *t.data, t.group, t.first_panel + j, chunk,
                    first, std::min(each, channels - first),
                    s.weights + chunk_offset(chunk - first_chunk, panels_per_block_)
                        + j * panel_bytes(units(channels))));
    }
}

/// All weights, for all workers.
void tiled_data::pack_shared(
    const conv::buffers &data, std::vector<scratch> &workers, const executor &threads) const {
    for_each_task(threads.limited(workers_), shared_pieces(), [&](int worker, dim index) {
        // Panels first, in the order of memory where output channels lie side by side.
        const dim panel = index % panels_, piece = index / panels_ % chunk_pieces(),
                  chunk = index / chunk_pieces() / panels_ % chunks_,
                  group = index / chunk_pieces() / panels_ / chunks_;
        const dim channels = chunk_channels(chunk), first = piece * piece_channels;
        const scratch &s = workers[static_cast<std::size_t>(worker)];
        char *out = s.shared.weights + group * panels_ * panel_bytes(kept_units())
                    + chunk_offset(chunk, panels_) + panel * panel_bytes(units(channels));
        s.shared.ranges[((group * chunks_ + chunk) * panels_ + panel) * chunk_pieces() + piece] =
            first >= channels ? value_range{}
                              : pack_panel(s, data, group, panel, chunk, first,
                                  std::min(piece_channels, channels - first), out);
    });
}

/// What pack_weights() would have noticed.
value_range tiled_data::shared_range(const scratch &s, const task &t) const {
    value_range range;
    for (dim chunk = 0; chunk < chunks_; ++chunk)
        for (dim i = t.first_panel * chunk_pieces();
             i < (t.first_panel + t.panels) * chunk_pieces(); ++i)
            range.merge(
                s.shared.ranges[(t.group * chunks_ + chunk) * panels_ * chunk_pieces() + i]);
    return range;
}

/// Weights of panel j of the task's block.
const char *tiled_data::packed_panel(const scratch &s, const task &t, dim chunk, dim j) const {
    const dim each = panel_bytes(units(chunk_channels(chunk)));
    if (!keep_weights_) return s.weights + j * each;
    if (!share_weights_) return s.weights + chunk_offset(chunk, panels_per_block_) + j * each;
    return s.shared.weights + t.group * panels_ * panel_bytes(kept_units())
           + chunk_offset(chunk, panels_) + (t.first_panel + j) * each;
}

/// Filters as rows of a matrix become its columns, in the memory of the patch, which is packed
/// later.
value_range tiled_data::pack_staged(
    const scratch &s, const pack_args &args, int vectors, dim tap_pitch, dim k_pitch) const {
    const dim size = static_cast<dim>(size_of(p_.type)), filter = filter_size();
    const bool by_output =
        roles_.weights_in == filter;  // a row per output channel, or per reduced one
    value_range range;
    for (dim c = 0; c < args.channels; c += staged_) {
        pack_args staged = args;
        staged.channels = std::min(staged_, args.channels - c);
        staged.in = s.patch;
        staged.out = args.out + c / kernels_.k_per_unit * k_pitch;
        staged.cs = by_output ? filter * panel_width() : 1;
        staged.xs = by_output ? 1 : filter * staged_;
        kernels_.transpose({static_cast<const char *>(args.in) + size * c * args.cs,
            size * (by_output ? args.xs : args.cs), by_output ? args.count : staged.channels,
            filter * (by_output ? staged.channels : args.count), size, s.patch,
            size * (by_output ? panel_width() : staged_)});
        range.merge(
            kernels_.pack_weights(staged, tap_staged_.data(), taps_, vectors, tap_pitch, k_pitch));
    }
    return range;
}

dim tiled_data::in_offset(const task &t, dim chunk) const {
    const dim channel = t.group * roles_.in_c + chunk * k_chunk_;
    return static_cast<dim>(size_of(p_.type)) * (t.n * roles_.in.n + channel * roles_.in.c);
}

value_range tiled_data::pack_patch(const scratch &s, const task &t, dim chunk) const {
    if (stacked_) return pack_images(s, t, chunk);
    const dim size = static_cast<dim>(size_of(p_.type));
    const char *in = static_cast<const char *>(roles_.input(*t.data)) + in_offset(t, chunk);
    const dim part_pitch = patch_positions_ * kernels_.unit_bytes;
    value_range range;
    for_each_patch_row(walk_, patch_, tile_, t.t0, t.length, [&](const patch_row &row) {
        if (row.in[0] < 0 || row.in[0] >= walk_[0].in_length) return;  // list_runs leaves them out
        const pack_args args{in + size * row.offset(roles_.in), p_.type, roles_.in.c,
            roles_.in.x[2] * walk_[2].in_step, chunk_channels(chunk), row.count, row.lo, row.hi,
            s.patch + row.at * position_bytes_};
        range.merge(pixels_ ? kernels_.pack_pixels(args, position_bytes_)
                            : kernels_.pack_channels(args, unit_step_, part_pitch));
    });
    return range;
}

/// What pack_patch would have noticed.
value_range tiled_data::scan_input(const task &t, dim chunk) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    const char *in = static_cast<const char *>(roles_.input(*t.data)) + in_offset(t, chunk);
    value_range range;
    for_each_patch_row(walk_, patch_, tile_, t.t0, t.length, [&](const patch_row &row) {
        range.merge(kernels_.scan({in + size * row.offset(roles_.in), p_.type, roles_.in.c,
            roles_.in.x[2] * walk_[2].in_step, chunk_channels(chunk), row.count, row.lo, row.hi,
            nullptr}));
    });
    return range;
}

}  // namespace convgrad::cpu
