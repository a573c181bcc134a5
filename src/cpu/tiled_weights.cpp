// Execution of the dense driver for the weights gradient. Start reading at execute(); the choice of
// blocks is in tiled_weights_plan.cpp, what becomes of the sums in tiled_weights_out.cpp.
//
// The batch and the output positions are cut into tiles, and the tiles into parts_ runs, by the
// problem alone. For each task (a part × a block of rows × a block of columns of the gradient; more
// threads have smaller blocks):
//   for each tile of the part:
//     both operands are packed with positions as k, padding as zeros             pack
//     C[tap][row][column] += Σ_positions rows(position) · columns(position)      multiply
// Then the parts are added in order and leave with one rounding                  write_out
#include "cpu/tiled_weights.hpp"

#include <algorithm>
#include <cstring>

#include "cpu/box_lines.hpp"
#include "cpu/tasks.hpp"
#include "cpu/tiled.hpp"

namespace convgrad::cpu {

struct tiled_weights::task : tile_place {
    float *partial;
    dim part, group;
    dim first_row, rows, first_column, columns;  // channels within the group
    dim first_tap, last_tap;
    dim n;
};

namespace {

/// Positions of a row that exist.
struct row_range {
    dim lo, hi;
};

}  // namespace

struct tiled_weights::scratch {
    char *rows;
    char *columns;
    char *exact;
    fetch_ahead ahead;  // both operands of the next tile
};

tiled_weights::order tiled_weights::order_of(const dim (&length)[3]) const {
    if (!kernels_.tiles()) {
        const dim k = div_up(length[2], kernels_.k_per_unit);
        return {k, length[1], k, tile_[2], tile_[1] * tile_[2]};
    }
    if (by_rows_) {
        const dim half = div_up(length[1], 2), all = div_up(tile_[1], 2), row = patch_[2].row;
        return {half, 1, div_up((half - 1) * row + length[2], 16), 0,
            round_up_to((all - 1) * row + tile_[2], 16)};
    }
    const dim half = div_up(length[2], 2), pitch = round_up_to(div_up(tile_[2], 2), 16);
    return {half, length[1], div_up(half, 16), pitch, tile_[1] * pitch};
}

/// Positions (amx: of dst, pairs) that one tile of a side occupies when packed.
dim tiled_weights::positions(const side &s) const {
    if (!s.is_src) return tile_[0] * order_of(tile_).plane_pitch;
    return patch_[0].length * patch_[1].length * patch_[2].length
           + (kernels_.tiles() ? patch_slack : 0);
}

/// Channels as packed: rows lie side by side, columns in panels.
dim tiled_weights::padded(const side &s, dim channels) const {
    return round_up_to(channels, s.is_rows ? kernels_.lanes : panel_width());
}

dim tiled_weights::part_bytes(const side &s) const {
    return round_up_to(4 * padded(s, s.block) * positions(s), 64);
}

dim tiled_weights::packed_bytes(const side &s) const {
    return kernels_.parts * part_bytes(s);
}

tiled_weights::scratch tiled_weights::lay_out(memory_walk &memory) const {
    scratch s{};
    s.rows = memory.take<char>(packed_bytes(rows_));
    s.columns = memory.take<char>(packed_bytes(columns_));
    if (exact_) s.exact = memory.take<char>(static_cast<dim>(exact_->scratch_bytes()));
    return s;
}

float *tiled_weights::lay_out_partials(memory_walk &memory) const {
    return memory.take<float>(parts_ * partial_floats());
}

/// Of one worker: operands, and later, in the same place, filters on their way out.
std::size_t tiled_weights::scratch_bytes() const {
    const std::size_t packed =
        bytes_of_walk([this](memory_walk &memory) { return lay_out(memory); });
    return std::max(packed, taps_inside_ ? stage_bytes() : 0);
}

std::size_t tiled_weights::partials_bytes() const {
    return bytes_of_walk([this](memory_walk &memory) { return lay_out_partials(memory); });
}

/// Filters that write_filters puts together at a time.
std::size_t tiled_weights::stage_bytes() const {
    return static_cast<std::size_t>(
        round_up_to(4 * out_rows_ * panel_width() * static_cast<dim>(tap_patch_.size()), 64));
}

dim tiled_weights::partial_floats() const {
    return p_.groups * panels() * static_cast<dim>(tap_patch_.size()) * c_rows_ * panel_width();
}

float *tiled_weights::c_of(float *partial, dim group, dim panel, dim tap, dim row) const {
    const dim taps = static_cast<dim>(tap_patch_.size());
    return partial + (((group * panels() + panel) * taps + tap) * c_rows_ + row) * panel_width();
}

std::size_t tiled_weights::workspace() const {
    if (tasks_ == 0) return 0;
    return partials_bytes() + scratch_bytes() * static_cast<std::size_t>(workers_);
}

void tiled_weights::execute(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    const sum_walk all = start(data, workspace, threads);
    for_each_task(threads.limited(workers_), tasks_, [&](int worker, dim index) {
        const dim part = index / all.cut.groups;
        all.run(worker, part, index % all.cut.groups, all.cut.begin(part), all.cut.begin(part + 1));
    });
    all.finish(threads);
}

bool tiled_weights::joins() const {
    return tasks_ > 0;
}

sum_walk tiled_weights::start(
    const conv::buffers &data, char *workspace, const executor & /*threads*/) const {
    taps_.write_zeros(p_, data);
    memory_walk walk(tasks_ == 0 ? nullptr : workspace);
    float *partials = lay_out_partials(walk);
    char *memory = walk.take<char>(static_cast<dim>(scratch_bytes()) * workers_);
    return {sums(), workers_, true,
        [this, &data, partials, memory](int worker, dim part, dim group, dim first, dim last) {
            memory_walk mine(memory + static_cast<std::size_t>(worker) * scratch_bytes());
            scratch s = lay_out(mine);
            const kernel_session session(kernels_);
            run_tiles(data, s, partials, part * sums().groups + group, first, last);
        },
        [this, &data, partials, memory](const executor &pool) {
            if (tasks_ > 0) write_out(data, partials, memory, pool);
        }};
}

work_list tiled_weights::work() const {
    work_list list;
    list.macs_per_second = nominal_speed(kernels_);
    list.stages.push_back({"tiles", tasks_, workers_, [this](dim index, dim) {
                               task_cost sum;
                               const dim part = index / sums().groups, first = sums().begin(part),
                                         last = sums().begin(part + 1);
                               for_each_tile(index, first, last, [&](const task &t, dim) {
                                   const task_cost one = cost_of(t);
                                   sum.macs += one.macs;
                                   sum.read += one.read;
                               });
                               return sum;
                           }});
    if (tasks_ == 0) return list;
    const auto floats = static_cast<double>(partial_floats());
    const auto weights = floats * static_cast<double>(size_of(p_.out_type));
    const double slices = static_cast<double>(out_slices());
    list.stages.push_back(
        {"sum of parts", out_slices(), workers_, [this, floats, weights, slices](dim, dim) {
             return task_cost{
                 0, 4 * floats * static_cast<double>(parts_) / slices, weights / slices};
         }});
    list.parts = parts_;
    list.parts_bytes = 4 * floats * static_cast<double>(parts_);
    return list;
}

task_cost tiled_weights::cost_of(const task &t) const {
    double pairs =
        static_cast<double>(t.last_tap - t.first_tap) / static_cast<double>(tap_patch_.size());
    pairs *= static_cast<double>(t.length[2]) * static_cast<double>(walk_[2].phases[0].taps.size());
    for (int a = 0; a < 2; ++a)
        pairs *= inside_pairs(walk_[a], walk_[a].phases[0], t.t0[a], t.length[a]);
    dim src = 0;
    for_each_patch_row(walk_, patch_, tile_, t.t0, t.length,
        [&](const patch_row &row) { src += row.hi - row.lo; });
    const dim dst = t.length[0] * t.length[1] * t.length[2],
              size = static_cast<dim>(size_of(p_.type));
    return {pairs * static_cast<double>(t.rows * round_up_to(t.columns, kernels_.lanes)),
        static_cast<double>(
            size * (t.rows * (rows_.is_src ? src : dst) + t.columns * (rows_.is_src ? dst : src))),
        0};
}

void tiled_weights::run_tiles(
    const conv::buffers &data, scratch &s, float *partials, dim index, dim first, dim last) const {
    if (kernels_.tiles()) clear_slack(s);
    for_each_tile(index, first, last, [&](task &t, dim tile) {
        t.partial = partials + t.part * partial_floats();
        if (tile + 1 < last)
            plan_ahead(data, s, t, place(index, tile + 1));
        else if (index + 1 < tasks_)
            plan_ahead(data, s, t, place(index + 1, sums().begin((index + 1) / sums().groups)));
        run_tile(data, s, t, tile == sums().begin(t.part));
    });
}

/// Memory would be waited for when a tile is packed, or read: it is asked for while the one before
/// is multiplied.
void tiled_weights::plan_ahead(
    const conv::buffers &data, scratch &s, const task &t, const task &next) const {
    if (kernels_.tiles()) return;
    const side &src = rows_.is_src ? rows_ : columns_, &dst = rows_.is_src ? columns_ : rows_;
    const auto range = [&](const side &of) {
        return channel_range{next.n,
            next.group * of.channels + (of.is_rows ? next.first_row : next.first_column),
            of.is_rows ? next.rows : next.columns};
    };
    const dim blocks = div_up(t.rows, kernels_.max_m[vectors_]) * div_up(t.columns, panel_width())
                       * (t.last_tap - t.first_tap)
                       * div_up(t.length[0] * order_of(t.length).runs, most_runs);
    s.ahead = {
        patch_box(data.src, p_.type, src.strides, range(src), walk_, patch_, tile_, next).lists(),
        tile_box(data.dst, p_.type, dst.strides, range(dst), walk_, next).lists(), blocks};
}

tiled_weights::task tiled_weights::place(dim index, dim tile) const {
    task t{};
    const dim taps = static_cast<dim>(tap_patch_.size()), tap_block = index % tap_blocks_;
    t.first_tap = taps * tap_block / tap_blocks_;
    t.last_tap = taps * (tap_block + 1) / tap_blocks_;
    index /= tap_blocks_;
    t.first_row = index % rows_.blocks * rows_.block;
    t.rows = std::min(rows_.block, rows_.channels - t.first_row);
    index /= rows_.blocks;
    t.first_column = index % columns_.blocks * columns_.block;
    t.columns = std::min(columns_.block, columns_.channels - t.first_column);
    index /= columns_.blocks;
    t.group = index % p_.groups;
    t.part = index / p_.groups;
    t.n = place_tile(walk_, tile_, tiles_, tile, t);
    return t;
}

template <typename Body>
void tiled_weights::for_each_tile(dim index, dim first, dim last, Body &&body) const {
    for (dim tile = first; tile < last; ++tile) {
        task t = place(index, tile);
        body(t, tile);
    }
}

/// What a kernel may read behind a patch is multiplied by zeros, so it must not be infinite.
void tiled_weights::clear_slack(const scratch &s) const {
    const dim panel = 4 * panel_width() * positions(columns_),
              slack = 4 * panel_width() * patch_slack;
    for (dim part = 0; part < kernels_.parts; ++part)
        for (dim j = 0; j * panel_width() < padded(columns_, columns_.block); ++j)
            std::memset(s.columns + part * part_bytes(columns_) + (j + 1) * panel - slack, 0,
                static_cast<std::size_t>(slack));
}

void tiled_weights::run_tile(
    const conv::buffers &data, scratch &s, const task &t, bool first) const {
    const value_range row_range = prepare(data, rows_, t, s.rows);
    const value_range column_range = prepare(data, columns_, t, s.columns);
    // A padded position of src must contribute nothing, but 0 · ∞ is NaN.
    const value_range &dst_range = rows_.is_src ? column_range : row_range;
    const bool careful = dst_range.nonfinite && t.padded,
               held = !exact_ || kernels_.limits.allow(row_range, column_range);
    if ((careful || !held) && (t.rows > rows_.unit || t.columns > columns_.unit)) {
        run_units(data, s, t, first);
    } else if (!held) {
        scratch other{s.exact, s.exact + exact_->packed_bytes(exact_->rows_),
            s.exact + exact_->packed_bytes(exact_->rows_) + exact_->packed_bytes(exact_->columns_),
            {}};
        exact_->run_tile(data, other, t, first);
    } else if (careful) {
        multiply_careful(data, t, first);
    } else {
        multiply(data, s, t, first);
    }
}

/// Values that the format cannot hold: each unit of the block decides for itself, so that how many
/// there are in a block, which threads decide, does not show in the result.
void tiled_weights::run_units(
    const conv::buffers &data, scratch &s, const task &t, bool first) const {
    task unit = t;
    for (dim row = 0; row < t.rows; row += rows_.unit)
        for (dim column = 0; column < t.columns; column += columns_.unit) {
            unit.first_row = t.first_row + row;
            unit.rows = std::min(rows_.unit, t.rows - row);
            unit.first_column = t.first_column + column;
            unit.columns = std::min(columns_.unit, t.columns - column);
            run_tile(data, s, unit, first);
        }
}

/// Whether the product reads this side from the tensor itself.
bool tiled_weights::reads_input(const side &s, const task &t) const {
    return s.as_stored && !(s.is_src && t.padded) && t.length[2] % kernels_.k_per_unit == 0;
}

/// Makes one side ready, and tells what its values are like as far as it matters.
value_range tiled_weights::prepare(
    const conv::buffers &data, const side &s, const task &t, char *out) const {
    if (!reads_input(s, t)) return pack(data, s, t, out);
    value_range range;
    if (kernels_.k_per_unit == 1 && (s.is_src || !t.padded)) return range;
    // What lies side by side are channels, or positions of planes.
    const bool planes = s.strides.c != 1;
    const dim channels = s.is_rows ? t.rows : t.columns, along = planes ? t.length[2] : channels,
              rows = planes ? channels : t.length[2];
    for (dim d = 0; d < t.length[0]; ++d)
        for (dim h = 0; h < t.length[1]; ++h)
            range.merge(kernels_.scan({first_element(data, s, t)
                                           + static_cast<dim>(size_of(p_.type))
                                                 * row_offset(s, t, d, h),
                p_.type, 1, planes ? s.strides.c : s.strides.x[2], along, rows, 0, rows, nullptr}));
    return range;
}

/// The task's first channel of image n.
const char *tiled_weights::first_element(
    const conv::buffers &data, const side &s, const task &t) const {
    const dim channel = t.group * s.channels + (s.is_rows ? t.first_row : t.first_column);
    return static_cast<const char *>(s.is_src ? data.src : data.dst)
           + static_cast<dim>(size_of(p_.type)) * (t.n * s.strides.n + channel * s.strides.c);
}

/// Elements from there to the first position of row (d, h) of the tile, for the tap at offset 0.
dim tiled_weights::row_offset(const side &s, const task &t, dim d, dim h) const {
    const dim position[3] = {t.t0[0] + d, t.t0[1] + h, t.t0[2]};
    dim offset = 0;
    for (std::size_t a = 0; a < 3; ++a)
        offset += position[a] * (s.is_src ? walk_[a].in_step : 1) * s.strides.x[a];
    return offset;
}

/// Calls pack_row(input offset, x stride, position, count, clip of the row, offset to the partner's
/// row, clip of the partner) for each row of the patch.
template <typename Pack>
void tiled_weights::for_each_src_row(const task &t, Pack &&pack_row) const {
    const conv::data_strides &strides = (rows_.is_src ? rows_ : columns_).strides;
    const order o = order_of(t.length);
    const dim xs = strides.x[2] * walk_[2].in_step;
    // amx multiplies gaps and remainders by zeros: everything must be packed, nothing left over.
    const dim(&length)[3] = kernels_.tiles() ? tile_ : t.length;
    for_each_patch_row(walk_, patch_, tile_, t.t0, length, [&](const patch_row &row) {
        const row_range here{row.lo, row.hi};
        if (by_rows_) {
            const dim below = row.in[1] + o.half * walk_[1].in_step;
            const bool inside = row.in[0] >= 0 && row.in[0] < walk_[0].in_length && below >= 0
                                && below < walk_[1].in_length;
            row_range there{0, 0};
            if (inside)
                clip(
                    row.in[2], walk_[2].in_step, row.count, walk_[2].in_length, there.lo, there.hi);
            pack_row(row.offset(strides), xs, row.at, row.count, here,
                o.half * walk_[1].in_step * strides.x[1], there);
            return;
        }
        if (neighbours_) {
            pack_row(row.offset(strides), 2 * xs, row.at, o.half, {0, div_up(row.hi, 2)}, xs,
                {0, row.hi / 2});
            return;
        }
        const dim distance = kernels_.k_per_unit > 1 ? o.half : 0;
        const dim count = kernels_.tiles() ? row.count : row.count - t.length[2] + o.half;
        pack_row(row.offset(strides), xs, row.at, count, here, distance * xs,
            {row.lo - distance, row.hi - distance});
    });
}

template <typename Pack>
void tiled_weights::for_each_dst_row(const task &t, Pack &&pack_row) const {
    const conv::data_strides &strides = (rows_.is_src ? columns_ : rows_).strides;
    const order o = order_of(t.length);
    const dim xs = strides.x[2];
    const dim pairs = 16 * o.k;  // amx: whole units
    for (dim d = 0; d < t.length[0]; ++d)
        for (dim h = 0; h < (by_rows_ ? o.half : t.length[1]); ++h) {
            const dim offset =
                (t.t0[0] + d) * strides.x[0] + (t.t0[1] + h) * strides.x[1] + t.t0[2] * xs;
            if (by_rows_) {
                const dim pitch = patch_[2].row, at = h * pitch;
                const bool pair = h + o.half < t.length[1];
                pack_row(offset, xs, d * o.plane_pitch + at, h + 1 < o.half ? pitch : pairs - at,
                    {0, t.length[2]}, o.half * strides.x[1], {0, pair ? t.length[2] : 0});
                continue;
            }
            // The partner of a last odd position is zero.
            if (neighbours_) {
                pack_row(offset, 2 * xs, d * o.plane_pitch + h * o.run_pitch, o.half, {0, o.half},
                    xs, {0, t.length[2] / 2});
                continue;
            }
            const dim distance = kernels_.k_per_unit > 1 ? o.half : 0;
            pack_row(offset, xs, d * o.plane_pitch + h * o.run_pitch,
                kernels_.tiles() ? pairs : o.half, {0, o.half}, distance * xs,
                {0, t.length[2] - distance});
        }
}

/// Packs one side's channels of the task for one tile.
value_range tiled_weights::pack(
    const conv::buffers &data, const side &s, const task &t, char *out) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    const dim channels = s.is_rows ? t.rows : t.columns;
    const dim block = s.is_rows ? padded(s, s.block) : panel_width();
    const dim panel_pitch = 4 * block * positions(s), part_pitch = part_bytes(s);
    const char *in = first_element(data, s, t);
    value_range range;
    const auto pack_row = [&](dim offset, dim xs, dim at, dim count, row_range here, dim partner,
                              row_range there) {
        pack_args args{
            in + size * offset, p_.type, s.strides.c, xs, channels, count, here.lo, here.hi, out};
        const pair_row pair{in + size * (offset + partner), there.lo, there.hi};
        if (kernels_.tiles() && s.is_rows) {
            args.out += 4 * at;
            range.merge(kernels_.pack_rows(args, pair, 4 * positions(s), part_pitch));
        } else {
            args.out += 4 * block * at;
            range.merge(kernels_.pack_positions(args, pair, block, panel_pitch, part_pitch));
        }
    };
    if (s.is_src)
        for_each_src_row(t, pack_row);
    else
        for_each_dst_row(t, pack_row);
    return range;
}

/// Where one operand's units are: unit k of run r under a tap is at base + run[r] + shift + k·step.
struct tiled_weights::operand {
    const char *base;
    dim step;          // bytes from one k unit to the next
    dim panel;         // columns: bytes from panel to panel
    const dim *shift;  // per tap, in bytes; null: the same for all taps
    dim run[most_runs];
};

void tiled_weights::describe_operand(const conv::buffers &data, const scratch &s, const side &d,
    const task &t, dim run0, dim runs, operand &o) const {
    const order of = order_of(t.length);
    const dim size = static_cast<dim>(size_of(p_.type));
    const bool is_rows = d.is_rows, direct = reads_input(d, t);
    const dim block =
        kernels_.tiles() && is_rows ? 4 : 4 * (is_rows ? padded(d, d.block) : panel_width());
    o.base = direct ? first_element(data, d, t) : is_rows ? s.rows : s.columns;
    o.step = direct              ? 4 * d.strides.x[2] * (d.is_src ? walk_[2].in_step : 1)
             : !kernels_.tiles() ? block
             : is_rows           ? 64
                                 : 16 * block;
    o.panel = direct ? 4 * panel_width() : block * positions(d);
    o.shift = d.is_src ? (direct    ? tap_input_
                          : is_rows ? tap_rows_
                                    : tap_columns_)
                             .data()
                       : nullptr;
    for (dim r = 0; r < runs; ++r) {
        const dim plane = (run0 + r) / of.runs, row = (run0 + r) % of.runs;
        o.run[r] = direct     ? size * row_offset(d, t, plane, row)
                   : d.is_src ? block * (plane * patch_[1].length + row) * patch_[2].row
                              : block * (plane * of.plane_pitch + row * of.run_pitch);
    }
}

/// Of each row only the positions whose src is not padding: with large dilations that is half of
/// them. (Pairs of positions lie half a row apart, so that one of them is seldom padding alone.)
void tiled_weights::skip_padding(const axis_tap &tap, const task &t, product_args &args) const {
    dim lo, hi;
    clip(t.t0[2] * walk_[2].in_step + tap.off, walk_[2].in_step, t.length[2], walk_[2].in_length,
        lo, hi);
    args.k = hi - lo;
    args.a += lo * args.a_step;
    args.b += lo * args.b_step;
}

void tiled_weights::multiply(
    const conv::buffers &data, scratch &s, const task &t, bool first) const {
    const order of = order_of(t.length);
    const dim all_runs = t.length[0] * of.runs;
    operand rows, columns;
    product_args args{};
    args.ldc = panel_width();
    args.a_m = reads_input(rows_, t) ? static_cast<dim>(size_of(p_.type)) * rows_.strides.c : 4;
    args.k = of.k;
    args.a_row = 4 * positions(rows_);
    args.a_tile = 16 * args.a_row;
    args.b_row = 4 * panel_width();
    args.b_tile = 64;
    args.a_part = part_bytes(rows_);
    args.b_part = part_bytes(columns_);
    const auto &kd = walk_[0].phases[0].taps, &kh = walk_[1].phases[0].taps;
    const std::size_t widths = walk_[2].phases[0].taps.size();
    dim row_run[most_runs], column_run[most_runs];
    args.a_run = row_run;
    args.b_run = column_run;
    for (dim run0 = 0; run0 < all_runs; run0 += most_runs) {
        const dim runs = std::min(most_runs, all_runs - run0);
        describe_operand(data, s, rows_, t, run0, runs, rows);
        describe_operand(data, s, columns_, t, run0, runs, columns);
        args.a_step = rows.step;
        args.b_step = columns.step;
        args.accumulate = !first || run0 > 0;
        const dim first_panel = t.first_column / panel_width();
        for (dim j = 0; j * panel_width() < t.columns; ++j) {
            const int vectors = static_cast<int>(
                std::min<dim>(vectors_, div_up(t.columns - j * panel_width(), kernels_.lanes)));
            for (auto tap = static_cast<std::size_t>(t.first_tap);
                 tap < static_cast<std::size_t>(t.last_tap); ++tap) {
                // Rows of src that lie in the padding would add zeros.
                const axis_tap &tap_d = kd[tap / widths / kh.size()],
                               &tap_h = kh[tap / widths % kh.size()];
                args.runs = 0;
                for (dim r = 0; r < runs; ++r) {
                    const dim d = (run0 + r) / of.runs, h = (run0 + r) % of.runs;
                    const dim x = (t.t0[0] + d) * walk_[0].in_step + tap_d.off;
                    const dim y = (t.t0[1] + h) * walk_[1].in_step + tap_h.off;
                    if (t.padded && (x < 0 || x >= walk_[0].in_length)) continue;
                    if (t.padded && !by_rows_ && (y < 0 || y >= walk_[1].in_length)) continue;
                    row_run[args.runs] = rows.run[r];
                    column_run[args.runs++] = columns.run[r];
                }
                args.a = rows.base + (rows.shift != nullptr ? rows.shift[tap] : 0);
                args.b = columns.base + j * columns.panel
                         + (columns.shift != nullptr ? columns.shift[tap] : 0);
                if (t.padded && kernels_.format == operand_format::fma)
                    skip_padding(walk_[2].phases[0].taps[tap % widths], t, args);
                args.c =
                    c_of(t.partial, t.group, first_panel + j, static_cast<dim>(tap), t.first_row);
                multiply_run(kernels_, args, t.rows, vectors, {.others = &s.ahead});
            }
        }
    }
}

/// The plain sum over taps inside src only, straight from the tensors: for infinities and NaNs in
/// dst beside padding. Slow, and rare.
void tiled_weights::multiply_careful(const conv::buffers &data, const task &t, bool first) const {
    dim tap = -1;
    for (const axis_tap &kd : walk_[0].phases[0].taps)
        for (const axis_tap &kh : walk_[1].phases[0].taps)
            for (const axis_tap &kw : walk_[2].phases[0].taps) {
                if (++tap < t.first_tap || tap >= t.last_tap) continue;
                const axis_tap *taps[3] = {&kd, &kh, &kw};
                for (dim i = t.first_row; i < t.first_row + t.rows; ++i)
                    for (dim j = t.first_column; j < t.first_column + t.columns; ++j) {
                        float *c =
                            c_of(t.partial, t.group, j / panel_width(), tap, i) + j % panel_width();
                        *c = (first ? 0 : *c)
                             + careful_sum(p_, walk_, taps, data, t.n, t.group,
                                 rows_.is_src ? i : j, rows_.is_src ? j : i, t.t0, t.length);
                    }
            }
}

}  // namespace convgrad::cpu
