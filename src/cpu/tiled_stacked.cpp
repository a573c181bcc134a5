// tiled_data with the batch as its last axis (`stacked`): rows of C are the same position of
// several images, which meet the same taps. Small maps have much padding, which costs nothing then,
// and rows too short for a block of C.
#include <algorithm>

#include "cpu/tiled_data_parts.hpp"

namespace convgrad::cpu {

/// The patch of pack_patch, image by image. Of padding there is nothing to pack: no run meets it.
value_range tiled_data::pack_images(const scratch &s, const task &t, dim chunk) const {
    const dim size = static_cast<dim>(size_of(p_.type)), channels = chunk_channels(chunk);
    const axis_walk &rows = walk_[0], &columns = walk_[1];
    const bool planes = stage_rows_ > 0;
    const dim y_step = planes ? columns.in_length * channels : roles_.in.x[0];
    const dim x_step = planes ? channels : roles_.in.x[1];
    const dim first_y = t.t0[0] * rows.in_step, first_x = t.t0[1] * columns.in_step;
    const dim skipped[2] = {tile_[0] - t.length[0], tile_[1] - t.length[1]};
    const input_range met = patch_range(rows, patch_[0], t.t0[0], skipped[0]);
    const dim low = std::max<dim>(met.first, 0), high = std::min(met.last, rows.in_length);
    const dim first_row = planes ? low : 0;  // of what is packed from
    value_range range;
    const char *in = static_cast<const char *>(roles_.input(*t.data)) + in_offset(t, chunk)
                     + size * t.t0[2] * roles_.in.x[2];
    for (dim image = 0; image < t.length[2]; ++image, in += size * roles_.in.x[2]) {
        const char *from = in;
        if (planes) {
            kernels_.transpose({in + size * low * roles_.in.x[0], size * roles_.in.c, channels,
                (high - low) * columns.in_length, size, s.stage, size * channels});
            from = s.stage;
        }
        for (const auto &sd : patch_[0].segments)
            for (dim d = 0; d < sd.count - skipped[0]; ++d) {
                const dim y = first_y + sd.in + d * rows.in_step;
                if (y < 0 || y >= rows.in_length) continue;
                for (const auto &sh : patch_[1].segments) {
                    dim lo, hi;
                    clip(first_x + sh.in, columns.in_step, sh.count - skipped[1], columns.in_length,
                        lo, hi);
                    if (lo >= hi) continue;
                    const dim x = first_x + sh.in + lo * columns.in_step;
                    range.merge(kernels_.pack_pixels(
                        {from + size * ((y - first_row) * y_step + x * x_step), p_.type, 1,
                            x_step * columns.in_step, channels, hi - lo, 0, hi - lo,
                            s.patch
                                + position_bytes_
                                      * (patch_index(patch_, sd.at + d, sh.at + lo, 0) + image)},
                        patch_[2].row * position_bytes_));
                }
            }
    }
    return range;
}

/// All positions of a phase and panel leave, image by image.
void tiled_data::store_images(const scratch &s, const task &t, std::size_t ph, dim j) const {
    const dim size = static_cast<dim>(size_of(p_.type)), width = panel_width();
    const dim column = (t.first_panel + j) * width;
    const conv_phase &f = taps_of_.phases[ph];
    dim length[3];
    if (!phase_length(f, t, length)) return;
    store_args args = store_form();
    args.xs = roles_.out.x[1] * walk_[1].out_step;
    args.add_xs = p_.add_strides.x[1] * walk_[1].out_step;
    args.c_xs = row_pitch_ * width;
    args.channels = std::min(width, roles_.out_c - column);
    args.bias = p_.bias ? s.bias + j * width : nullptr;
    args.count = length[1];
    // Rows without gaps are one.
    const auto one_row = [&](const conv::data_strides &strides) {
        return strides.x[0] * walk_[0].out_step == length[1] * strides.x[1] * walk_[1].out_step;
    };
    const bool whole =
        length[1] == tile_[1] && one_row(roles_.out) && (!p_.add || one_row(p_.add_strides));
    if (whole) args.count *= length[0];
    for (dim image = 0; image < length[2]; ++image)
        for (dim d = 0; d < (whole ? 1 : length[0]); ++d) {
            const auto at = [&](const conv::data_strides &strides) {
                return size
                       * (out_position(strides, f, t, column, d, 0)
                           + image * walk_[2].out_step * strides.x[2]);
            };
            args.c = c_of(s, ph, j) + (d * plane_pitch_ + image) * width;
            args.out = static_cast<char *>(roles_.output(*t.data)) + at(roles_.out);
            args.stream = streams_ && stores_lines(args);
            if (p_.add) args.add = static_cast<const char *>(t.data->add) + at(p_.add_strides);
            kernels_.store(args);
        }
}

}  // namespace convgrad::cpu
