// Execution of the dense driver for the weights gradient. Start reading at execute(); the choice of
// blocks is in tiled_weights_plan.cpp.
//
// The batch and the output positions are cut into tiles, and the tiles into parts_ runs, by the problem
// alone. For each task (a part × a block of rows × a block of columns of the gradient):
//   for each tile of the part:
//     both operands are packed with positions as k, padding as zeros             pack
//     C[tap][row][column] += Σ_positions rows(position) · columns(position)      multiply
// Then the parts are added in order and leave with one rounding                  write_out
#include "cpu/tiled_weights.hpp"

#include <algorithm>

#include "cpu/element.hpp"
#include "cpu/tasks.hpp"
#include "cpu/tiled.hpp"

namespace convgrad::cpu {

struct tiled_weights::task {
    float *partial;
    dim group;
    dim first_row, rows, first_column, columns;  // channels within the group
    dim n, t0[3], length[3];
};

struct tiled_weights::scratch {
    char *rows;
    char *columns;
    char *exact;
};

/// Positions that one tile of a side occupies when packed.
dim tiled_weights::positions(const side &s) const {
    if (s.is_src) return patch_[0].length * patch_[1].length * patch_[2].length;
    return tile_[0] * tile_[1] * tile_[2];
}

/// Channels as packed: rows lie side by side, columns in panels.
dim tiled_weights::padded(const side &s, dim channels) const {
    return round_up_to(channels, &s == &rows_ ? kernels_.lanes : panel_width());
}

dim tiled_weights::packed_bytes(const side &s) const {
    return round_up_to(4 * padded(s, s.block) * positions(s), 64);
}

std::size_t tiled_weights::scratch_bytes() const {
    return static_cast<std::size_t>(packed_bytes(rows_) + packed_bytes(columns_))
        + (exact_ ? exact_->scratch_bytes() : 0);
}

dim tiled_weights::partial_floats() const {
    return p_.groups * panels() * static_cast<dim>(tap_patch_.size()) * rows_.channels * panel_width();
}

float *tiled_weights::c_of(float *partial, dim group, dim panel, dim tap, dim row) const {
    const dim taps = static_cast<dim>(tap_patch_.size());
    return partial + (((group * panels() + panel) * taps + tap) * rows_.channels + row) * panel_width();
}

std::size_t tiled_weights::workspace() const {
    return static_cast<std::size_t>(4 * parts_ * partial_floats())
        + scratch_bytes() * static_cast<std::size_t>(workers_);
}

void tiled_weights::execute(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    write_zeros(data);
    if (tasks_ == 0) return;
    auto *partials = static_cast<float *>(static_cast<void *>(workspace));
    char *memory = workspace + 4 * parts_ * partial_floats();
    for_each_task(threads.limited(workers_), tasks_, [&](int worker, dim index) {
        char *mine = memory + static_cast<std::size_t>(worker) * scratch_bytes();
        scratch s {mine, mine + packed_bytes(rows_), mine + packed_bytes(rows_) + packed_bytes(columns_)};
        run_task(data, s, partials, index);
    });
    write_out(data, partials, threads);
}

void tiled_weights::run_task(
    const conv::buffers &data, scratch &s, float *partials, dim index) const {
    task t {};
    t.first_row = index % rows_.blocks * rows_.block;
    t.rows = std::min(rows_.block, rows_.channels - t.first_row);
    index /= rows_.blocks;
    t.first_column = index % columns_.blocks * columns_.block;
    t.columns = std::min(columns_.block, columns_.channels - t.first_column);
    index /= columns_.blocks;
    t.group = index % p_.groups;
    const dim part = index / p_.groups;
    t.partial = partials + part * partial_floats();
    const dim first = tiles_all_ * part / parts_, last = tiles_all_ * (part + 1) / parts_;
    for (dim tile = first; tile < last; ++tile) {
        dim rest = tile;
        for (int a = 2; a >= 0; --a) {
            t.t0[a] = rest % tiles_[a] * tile_[a];
            rest /= tiles_[a];
            t.length[a] = std::min(tile_[a], walk_[a].longest - t.t0[a]);
        }
        t.n = rest;
        run_tile(data, s, t, tile == first);
    }
}

void tiled_weights::run_tile(const conv::buffers &data, scratch &s, task &t, bool first) const {
    const std::uint32_t row_flags = pack(data, rows_, t, s.rows);
    const std::uint32_t column_flags = pack(data, columns_, t, s.columns);
    if (exact_ && (row_flags | column_flags) != no_flags) {
        scratch other {s.exact, s.exact + exact_->packed_bytes(exact_->rows_),
            s.exact + exact_->packed_bytes(exact_->rows_) + exact_->packed_bytes(exact_->columns_)};
        exact_->run_tile(data, other, t, first);
        return;
    }
    // A padded position of src must contribute nothing, but 0 · ∞ is NaN.
    const std::uint32_t dst_flags = rows_.is_src ? column_flags : row_flags;
    bool padded_tile = false;
    for (int a = 0; a < 3; ++a)
        padded_tile = padded_tile || touches_padding(walk_[a], t.t0[a], t.length[a]);
    if ((dst_flags & has_nonfinite) != 0 && padded_tile)
        multiply_careful(data, t, first);
    else
        multiply(s, t, first);
}

/// k units of a row of `length` positions.
dim tiled_weights::part_pairs(dim length) const { return div_up(length, kernels_.k_per_unit); }

/// Packs one side's channels of the task for one tile: [panel][position][channel].
std::uint32_t tiled_weights::pack(
    const conv::buffers &data, const side &s, const task &t, char *out) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    const bool is_rows = &s == &rows_;
    const dim channels = is_rows ? t.rows : t.columns;
    const dim first = is_rows ? t.first_row : t.first_column;
    const dim block = is_rows ? padded(s, channels) : panel_width();
    const dim panel_pitch = 4 * block * positions(s);
    const dim half = part_pairs(t.length[2]);  // dot2 pairs position x with x + half
    const dim pair = kernels_.k_per_unit > 1 ? half : 0;
    const char *in = static_cast<const char *>(s.is_src ? data.src : data.dst)
        + size * (t.n * s.strides.n + (t.group * s.channels + first) * s.strides.c);
    std::uint32_t flags = no_flags;
    const auto pack_row = [&](const char *row, dim xs, dim at, dim count, dim lo, dim hi) {
        const pack_args args {row, p_.type, s.strides.c, xs, channels, count, lo, hi,
            out + 4 * block * at};
        const pair_row second {row + size * pair * xs, lo - pair, hi - pair};
        flags |= kernels_.pack_positions(args, second, block, panel_pitch);
    };
    if (s.is_src) {
        for_each_patch_row(walk_, patch_, tile_, t.t0, t.length, [&](const patch_row &row) {
            pack_row(in + size * row.offset(s.strides), s.strides.x[2] * walk_[2].in_step, row.at,
                row.count - t.length[2] + half, row.lo, row.hi);
        });
        return flags;
    }
    for (dim d = 0; d < t.length[0]; ++d)
        for (dim h = 0; h < t.length[1]; ++h) {
            const dim offset = (t.t0[0] + d) * s.strides.x[0] + (t.t0[1] + h) * s.strides.x[1]
                + t.t0[2] * s.strides.x[2];
            // The partner of a last odd position is zero.
            pack_row(in + size * offset, s.strides.x[2], (d * tile_[1] + h) * tile_[2], half, 0,
                t.length[2]);
        }
    return flags;
}

void tiled_weights::multiply(const scratch &s, const task &t, bool first) const {
    // One run per row of output positions; a run's k are the positions of that row.
    constexpr dim most_runs = 256;
    dim src_run[most_runs], dst_run[most_runs];
    const dim rows_block = 4 * padded(rows_, t.rows), columns_block = 4 * panel_width();
    const dim src_block = rows_.is_src ? rows_block : columns_block;
    const dim dst_block = rows_.is_src ? columns_block : rows_block;
    const dim all_runs = t.length[0] * t.length[1];
    product_args args {};
    args.ldc = panel_width();
    args.k = part_pairs(t.length[2]);
    args.a_step = rows_block;
    args.b_step = columns_block;
    for (dim run0 = 0; run0 < all_runs; run0 += most_runs) {
        args.runs = std::min(most_runs, all_runs - run0);
        for (dim r = 0; r < args.runs; ++r) {
            const dim d = (run0 + r) / t.length[1], h = (run0 + r) % t.length[1];
            src_run[r] = src_block * (d * patch_[1].length + h) * patch_[2].length;
            dst_run[r] = dst_block * (d * tile_[1] + h) * tile_[2];
        }
        args.a_run = rows_.is_src ? src_run : dst_run;
        args.b_run = rows_.is_src ? dst_run : src_run;
        args.accumulate = !first || run0 > 0;
        const dim first_panel = t.first_column / panel_width();
        for (dim j = 0; j * panel_width() < t.columns; ++j) {
            const int vectors = static_cast<int>(
                std::min<dim>(vectors_, div_up(t.columns - j * panel_width(), kernels_.lanes)));
            const char *columns = s.columns + j * columns_block * positions(columns_);
            for (std::size_t tap = 0; tap < tap_patch_.size(); ++tap) {
                const dim shift = src_block * tap_patch_[tap];
                args.a = s.rows + (rows_.is_src ? shift : 0);
                args.b = columns + (rows_.is_src ? 0 : shift);
                args.c = c_of(t.partial, t.group, first_panel + j, static_cast<dim>(tap), t.first_row);
                multiply_run(kernels_, args, t.rows, vectors);
            }
        }
    }
}

/// The plain sum over taps inside src only, straight from the tensors: for infinities and NaNs in dst
/// beside padding. Slow, and rare.
void tiled_weights::multiply_careful(const conv::buffers &data, const task &t, bool first) const {
    std::size_t tap = 0;
    for (const axis_tap &kd : walk_[0].phases[0].taps)
        for (const axis_tap &kh : walk_[1].phases[0].taps)
            for (const axis_tap &kw : walk_[2].phases[0].taps) {
                const axis_tap *taps[3] = {&kd, &kh, &kw};
                for (dim i = t.first_row; i < t.first_row + t.rows; ++i)
                    for (dim j = t.first_column; j < t.first_column + t.columns; ++j) {
                        float *c = c_of(t.partial, t.group, j / panel_width(), static_cast<dim>(tap), i)
                            + j % panel_width();
                        *c = (first ? 0 : *c) + careful_sum(data, t, taps, i, j);
                    }
                ++tap;
            }
}

float tiled_weights::careful_sum(const conv::buffers &data, const task &t,
    const axis_tap *const (&taps)[3], dim row, dim column) const {
    const side &src = rows_.is_src ? rows_ : columns_, &dst = rows_.is_src ? columns_ : rows_;
    const dim src_base = t.n * src.strides.n
        + (t.group * src.channels + (rows_.is_src ? row : column)) * src.strides.c;
    const dim dst_base = t.n * dst.strides.n
        + (t.group * dst.channels + (rows_.is_src ? column : row)) * dst.strides.c;
    float sum = 0;
    dim y[3];
    for (y[0] = 0; y[0] < t.length[0]; ++y[0])
        for (y[1] = 0; y[1] < t.length[1]; ++y[1])
            for (y[2] = 0; y[2] < t.length[2]; ++y[2]) {
                dim src_at = src_base, dst_at = dst_base;
                bool inside = true;
                for (std::size_t a = 0; a < 3; ++a) {
                    const dim position = t.t0[a] + y[a];
                    const dim x = position * walk_[a].in_step + taps[a]->off;
                    inside = inside && x >= 0 && x < walk_[a].in_length;
                    src_at += x * src.strides.x[a];
                    dst_at += position * dst.strides.x[a];
                }
                if (inside)
                    sum += load_float(data.src, p_.type, src_at) * load_float(data.dst, p_.type, dst_at);
            }
    return sum;
}

/// Adds the parts in order and writes a slice of rows of one panel.
void tiled_weights::write_panel(const conv::buffers &data, float *partials, dim group, dim panel,
    dim row0, dim row1) const {
    const dim width = panel_width(), column = panel * width;
    const dim row_stride = rows_.is_src ? p_.weights.i : p_.weights.o;
    const dim column_stride = rows_.is_src ? p_.weights.o : p_.weights.i;
    const dim size = static_cast<dim>(size_of(p_.out_type));
    for (std::size_t tap = 0; tap < tap_patch_.size(); ++tap) {
        float *sum = c_of(partials, group, panel, static_cast<dim>(tap), row0);
        for (dim part = 1; part < parts_; ++part) {
            const float *next = sum + part * partial_floats();
            for (dim i = 0; i < (row1 - row0) * width; ++i) sum[i] += next[i];
        }
        store_args args {};
        args.c = sum;
        args.c_cs = 1;
        args.c_xs = width;
        args.channels = std::min(width, columns_.channels - column);
        args.count = row1 - row0;
        args.out = static_cast<char *>(data.weights)
            + size
                * (group * p_.weights.g + tap_out_[tap] + row0 * row_stride + column * column_stride);
        args.type = p_.out_type;
        args.cs = column_stride;
        args.xs = row_stride;
        args.accumulate = p_.accumulate;
        kernels_.store(args);
    }
}

void tiled_weights::write_out(
    const conv::buffers &data, float *partials, const executor &threads) const {
    constexpr dim slice = 16;  // rows at a time: all taps of a slice stay in L1 while they are written
    const dim slices = div_up(rows_.channels, slice);
    for_each_task(threads, p_.groups * panels() * slices, [&](int, dim index) {
        const dim row0 = index % slices * slice;
        const dim panel = index / slices % panels(), group = index / slices / panels();
        write_panel(data, partials, group, panel, row0, std::min(row0 + slice, rows_.channels));
    });
}

/// Taps that never meet the input, or everything if there is nothing to sum.
void tiled_weights::write_zeros(const conv::buffers &data) const {
    if (p_.accumulate) return;
    const auto zero = [&](dim offset) {
        for (dim g = 0; g < p_.groups; ++g)
            for (dim o = 0; o < p_.oc; ++o)
                for (dim i = 0; i < p_.ic; ++i) {
                    const dim at
                        = g * p_.weights.g + o * p_.weights.o + i * p_.weights.i + offset;
                    if (p_.out_type == data_type::f32)
                        static_cast<float *>(data.weights)[at] = 0;
                    else
                        static_cast<std::uint16_t *>(data.weights)[at] = 0;
                }
    };
    for (dim offset : tap_empty_) zero(offset);
}

}  // namespace convgrad::cpu
