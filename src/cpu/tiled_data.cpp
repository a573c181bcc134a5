// Execution of the dense driver for forward and backward data. Start reading at execute(); the
// choice of blocks is in tiled_search.cpp, what follows from it in tiled_layout.cpp, packing in
// tiled_data_pack.cpp.
//
// For each task (a tile of positions × a block of output channels):
//   for each chunk of reduced channels:
//     the input patch that the tile needs is packed, padding as zeros           pack_patch
//     C[position][channel] += Σ_taps patch(tap) · weights(tap)                  multiply
//   after the last chunk, C leaves with bias, add, ReLU and one rounding        store_rows
//
// The order in which an output element is summed (chunks, taps, channels) depends on the problem
// only, never on tiles or threads.
#include <algorithm>
#include <utility>

#include "cpu/box_lines.hpp"
#include "cpu/tasks.hpp"
#include "cpu/tiled_data_parts.hpp"

namespace convgrad::cpu {

tiled_data::tiled_data(const conv::problem &p, const kernel_set &kernels, const kernel_set *exact,
    int threads, std::size_t workspace_limit)
    : tiled_data(find_tiled_layouts(p, kernels, exact, threads, workspace_limit)) {}

tiled_data::tiled_data(tiled_layouts found) : tiled_layout(std::move(found.own)) {
    if (found.exact) exact_.reset(new tiled_data({std::move(*found.exact), nullptr}));
}

/// C of a phase and panel. What needs only one chunk leaves before the next panel comes.
float *tiled_data::c_of(const scratch &s, std::size_t ph, dim j) const {
    const dim index = chunks_ == 1 ? 0 : static_cast<dim>(ph) * panels_per_block_ + j;
    return s.c + index * rows_ * panel_width();
}

tiled_data::scratch tiled_data::make_scratch(char *memory) const {
    memory_walk walk(memory);
    scratch s{};
    static_cast<worker_memory &>(s) = lay_out(walk);
    return s;
}

std::size_t tiled_data::workspace() const {
    return tasks_ == 0 ? 0 : shared_bytes() + scratch_bytes() * static_cast<std::size_t>(workers_);
}

tiled_data::task tiled_data::make_task(const conv::buffers &data, dim index) const {
    task t{};
    t.data = &data;
    index = place_tile(walk_, tile_, tiles_, index, t);
    const dim image_groups = div_up(p_.mb, images_per_task_);
    t.n = index % image_groups * images_per_task_;
    t.images = std::min(images_per_task_, p_.mb - t.n);
    index /= image_groups;
    t.first_panel = index % blocks_ * panels_per_block_;
    t.panels = std::min(panels_per_block_, panels_ - t.first_panel);
    t.group = index / blocks_;
    return t;
}

void tiled_data::execute(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    const data_walk all = start(data, workspace, threads);
    for_each_task(threads.limited(workers_), tasks_, [&](int worker, dim index) {
        const dim unit = index % all.units, block = index / all.units;
        all.run(worker, {unit, unit + 1, block, block + 1});
    });
}

/// Stacked images are not gone through in the order of memory.
bool tiled_data::joins() const {
    return tasks_ > 0 && !stacked_;
}

data_walk tiled_data::start(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    fill_unreached(p_, roles_, walk_, kernels_, tasks_ == 0, data, threads);
    std::vector<scratch> workers;
    memory_walk all(workspace);
    const shared_memory shared = tasks_ > 0 ? lay_out_shared(all) : shared_memory{};
    for (int w = 0; w < workers_ && tasks_ > 0; ++w) {
        workers.push_back(make_scratch(all.take<char>(static_cast<dim>(scratch_bytes()))));
        workers.back().shared = shared;
    }
    if (share_weights_) pack_shared(data, workers, threads);
    // `workers` changes with every task: what a worker holds serves its next one.
    const auto held = std::make_shared<std::vector<scratch>>(std::move(workers));
    const dim blocks = p_.groups * blocks_, units = tasks_ / std::max<dim>(blocks, 1);
    return {
        units, blocks, workers_, [this, &data, held, units](int worker, const walk_piece &piece) {
            const kernel_session session(kernels_);
            for (dim block = piece.first_block; block < piece.last_block; ++block)
                for (dim unit = piece.first; unit < piece.last; ++unit) {
                    const dim index = block * units + unit;
                    task t = make_task(data, index);
                    t.next = index + 1 < tasks_ ? index + 1 : -1;
                    for (dim i = 0; i < t.images; ++i, ++t.n)
                        run_task((*held)[static_cast<std::size_t>(worker)], t);
                }
        }};
}

work_list tiled_data::work() const {
    work_list list;
    list.macs_per_second = nominal_speed(kernels_);
    list.stages.push_back(unreached_stage(p_, roles_, walk_, tasks_ == 0, workers_));
    list.stages.push_back({"tiles", tasks_, workers_, [this](dim index, dim before) {
                               const conv::buffers none;
                               const task t = make_task(none, index),
                                          last = make_task(none, std::max<dim>(before, 0));
                               const bool held = keep_weights_ && before >= 0
                                                 && last.first_panel == t.first_panel
                                                 && last.group == t.group;
                               return cost_of(t, held || share_weights_);
                           }});
    if (!share_weights_) return list;
    const double piece = static_cast<double>(size_of(p_.type)) * static_cast<double>(taps_)
                         * static_cast<double>(std::min(piece_channels, roles_.in_c))
                         * static_cast<double>(panel_width());
    list.stages.push_back({"weights", shared_pieces(), workers_, [piece](dim, dim) {
                               return task_cost{0, piece, piece};
                           }});
    return list;
}

task_cost tiled_data::cost_of(const task &t, bool weights_held) const {
    const dim columns =
        std::min(roles_.out_c - t.first_panel * panel_width(), t.panels * panel_width());
    const auto size = static_cast<double>(size_of(p_.type)), images = static_cast<double>(t.images);
    const auto in_c = static_cast<double>(roles_.in_c), out_c = static_cast<double>(columns);
    double pairs = 0, outputs = 0;
    dim inputs = 0;
    for (const conv_phase &f : taps_of_.phases) {
        dim length[3];
        if (!phase_length(f, t, length)) continue;
        pairs += inside_pairs(walk_[0], *f.axis[0], t.t0[0], length[0])
                 * inside_pairs(walk_[1], *f.axis[1], t.t0[1], length[1])
                 * static_cast<double>(length[2] * static_cast<dim>(f.axis[2]->taps.size()));
        outputs += static_cast<double>(length[0] * length[1] * length[2]);
    }
    for_each_patch_row(walk_, patch_, tile_, t.t0, t.length,
        [&](const patch_row &row) { inputs += row.hi - row.lo; });
    const double weights = weights_held ? 0 : static_cast<double>(taps_) * in_c * out_c;
    return {images * pairs * in_c * static_cast<double>(round_up_to(columns, kernels_.lanes)),
        size * (images * static_cast<double>(inputs) * in_c + weights),
        size * images * outputs * out_c};
}

void tiled_data::run_task(scratch &s, const task &t) const {
    const dim panel = t.group * panels_ + t.first_panel;
    if (!keep_weights_) s.weights_range = {};
    if (s.held_panel != panel || s.held_panels != t.panels) {
        s.held_panel = panel;
        s.held_panels = t.panels;
        s.weights_range = {};
        load_bias(s, t);
        if (share_weights_)
            s.weights_range = shared_range(s, t);
        else if (keep_weights_)
            pack_weights(s, t, 0, chunks_);
    }
    bool small = t.panels <= unit_panels_;
    for (int a = 0; a < 3; ++a) small = small && t.length[a] <= unit_[a];
    for (dim chunk = 0; chunk < chunks_; ++chunk) {
        plan_ahead(s, t, chunk);
        const path taken = run_chunk(s, t, chunk);
        if (taken == path::plain) continue;
        if (!small) {
            run_units(s, t);
        } else if (taken == path::exact) {
            scratch other = exact_->make_scratch(s.exact);
            exact_->run_task(other, t);
        } else {
            multiply_careful(s, t);
        }
        return;
    }
}

/// Memory would be waited for when a patch is packed: it is asked for while the one before is
/// multiplied, the next chunk or the next task's first. Pixels follow each other as they are
/// packed: the hardware sees that.
void tiled_data::plan_ahead(scratch &s, const task &t, dim chunk) const {
    s.ahead = {};
    if (kernels_.tiles() || pixels_ || row_block_ > 0) return;
    // It must not push out what is used meanwhile (3×3, 512 channels: 0.92 times as fast).
    const dim held = panels_per_block_ * panel_bytes(kept_units());
    if (held + 2 * packed_patch_bytes() + 4 * c_floats() > static_cast<dim>(cache_sizes().l2))
        return;
    const bool last = chunk + 1 == chunks_;
    if (last && t.next < 0) return;
    const task next = last ? make_task(*t.data, t.next) : t;
    const dim first = last ? 0 : (chunk + 1) * k_chunk_;
    const dim rows = flat_ ? t.length[0] : t.length[0] * t.length[1];
    const dim blocks = static_cast<dim>(taps_of_.phases.size()) * t.panels * rows
                       * div_up(t.length[2], kernels_.max_m[vectors_]);
    const channel_range channels{
        next.n, next.group * roles_.in_c + first, std::min(k_chunk_, roles_.in_c - first)};
    s.ahead = {
        patch_box(roles_.input(*t.data), p_.type, roles_.in, channels, walk_, patch_, tile_, next)
            .lists(),
        {}, blocks};
}

/// Values that need another path: each unit of the task decides for itself and starts again, so
/// that how many make a task, which threads decide, does not show in the result.
void tiled_data::run_units(scratch &s, const task &t) const {
    task unit = t;
    const dim units[3] = {div_up(t.length[0], unit_[0]), div_up(t.length[1], unit_[1]),
        div_up(t.length[2], unit_[2])};
    for (dim panel = 0; panel < t.panels; panel += unit_panels_)
        for (dim index = 0; index < units[0] * units[1] * units[2]; ++index) {
            unit.first_panel = t.first_panel + panel;
            unit.panels = std::min(unit_panels_, t.panels - panel);
            unit.padded = false;
            dim rest = index;
            for (int a = 2; a >= 0; --a) {
                const dim first = rest % units[a] * unit_[a];
                rest /= units[a];
                unit.t0[a] = t.t0[a] + first;
                unit.length[a] = std::min(unit_[a], t.length[a] - first);
                unit.padded = unit.padded || touches_padding(walk_[a], unit.t0[a], unit.length[a]);
            }
            run_task(s, unit);
        }
}

/// Whether the input itself is A.
bool tiled_data::reads(const task &t) const {
    return read_input_ && !t.padded && (!kernels_.tiles() || t.length[2] >= tile_block);
}

/// Packs and multiplies one chunk, unless its values need another path.
tiled_data::path tiled_data::run_chunk(scratch &s, const task &t, dim chunk) const {
    if (!keep_weights_) pack_weights(s, t, chunk, 1);
    const bool direct = reads(t);
    const value_range range = !direct  ? pack_patch(s, t, chunk)
                              : exact_ ? scan_input(t, chunk)
                                       : value_range{};
    if (exact_ && !kernels_.limits.allow(range, s.weights_range)) return path::exact;
    if (chunk == 0) s.input_range = {};
    s.input_range.merge(range);
    // A padded tap must contribute nothing, but 0 · ∞ is NaN.
    if (s.weights_range.nonfinite && t.padded) return path::careful;
    if (row_block_ > 0)
        multiply_rows(s, t);
    else
        multiply(s, t, chunk);
    return path::plain;
}

/// Calls body(d, h, rows, count) for each run of positions side by side: a row, all rows of a
/// plane, or (merged) as many as meet the same taps.
template <typename Body>
void tiled_data::for_each_run(
    const conv_phase &f, const task &t, const dim (&length)[3], bool merged, Body &&body) const {
    for (dim d = 0; d < length[0]; ++d)
        for (dim h = 0, rows = 1; h < length[1]; h += rows) {
            if (flat_) rows = length[1];
            if (merged) rows = same_taps(walk_[1], *f.axis[1], t.t0[1] + h, length[1] - h);
            body(d, h, rows, (rows - 1) * row_pitch_ + length[2]);
        }
}

/// Whether it costs less to go through a row of `count` columns in pieces, each with the taps that
/// meet the input there: with large dilations much of a row lies beside the input.
bool tiled_data::worth_cutting(const conv_phase &f, const task &t, dim count) const {
    if (!t.padded || flat_) return false;
    const auto cost = [&](dim rows) {
        const dim blocks = div_up(rows, kernels_.max_m[vectors_]);
        return static_cast<double>(blocks) * step_cost(kernels_, div_up(rows, blocks), vectors_);
    };
    const double pieces = cost_of_pieces(walk_[2], *f.axis[2], t.t0[2], count, cost);
    return pieces < 0.95 * cost(count) * static_cast<double>(f.axis[2]->taps.size());
}

/// What all products have in common; `direct`: A is the input itself.
product_args tiled_data::product_form(bool direct) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    product_args args{};
    args.a_step = !direct ? unit_step_ : kernels_.tiles() ? dim{kernels_.unit_bytes} : 4;
    args.a_m = direct ? size * roles_.in.x[2] * walk_[2].in_step : position_bytes_;
    args.a_part = patch_positions_ * kernels_.unit_bytes;
    args.a_row = kernels_.tiles() ? args.a_m : 64;
    args.a_tile = amx_tile_rows * args.a_row;
    args.a_ends = direct;
    args.b_step = panel_width() * kernels_.column_bytes;
    args.b_part = args.b_step / kernels_.parts;
    args.b_tile = amx_tile_bytes;
    return args;
}

void tiled_data::multiply(scratch &s, const task &t, dim chunk) const {
    const dim chunk_units = units(chunk_channels(chunk)), size = static_cast<dim>(size_of(p_.type));
    const bool direct = reads(t);
    const char *in =
        direct ? static_cast<const char *>(roles_.input(*t.data)) + in_offset(t, chunk) : s.patch;
    char *out = static_cast<char *>(roles_.output(*t.data));
    product_args args = product_form(direct);
    args.k = chunk_units;
    args.normal = format_limits::normal_sums(s.input_range, s.weights_range);
    const auto &taps = direct ? tap_input_ : tap_patch_;
    const bool pointwise = taps_ == 1 && walk_[2].in_step == 1;
    const bool float_output = p_.type == data_type::f32;
    for (std::size_t ph = 0; ph < taps_of_.phases.size(); ++ph) {
        const conv_phase &f = taps_of_.phases[ph];
        dim length[3];
        if (!phase_length(f, t, length)) continue;
        const dim *packed = tap_packed_[chunk == chunks_ - 1 ? 1 : 0].data();
        args.a_run = t.padded ? s.runs : taps.data() + f.first_tap;
        args.b_run = t.padded ? s.runs + taps_ : packed + f.first_tap;
        args.runs = f.taps;
        const bool cut = worth_cutting(f, t, length[2]);
        for (dim j = 0; j < t.panels; ++j) {
            const dim panel = t.first_panel + j;
            const bool leaves = stores_itself(panel) && (float_output || chunk == chunks_ - 1);
            const bool to_output = leaves && float_output;
            float *c = c_of(s, ph, j);
            const dim missing = missing_columns(panel);
            args.last = leaves && missing > 0 ? kernels_.lanes - missing : 0;
            args.ld_out = roles_.out.x[2] * walk_[2].out_step;
            args.ldc = to_output ? args.ld_out : panel_width();
            args.accumulate = chunk > 0 || (to_output && p_.accumulate);
            args.b = packed_panel(s, t, chunk, j);
            for_each_run(f, t, length, stacked_ && !leaves, [&](dim d, dim h, dim rows, dim count) {
                void *place =
                    out + size * out_position(roles_.out, f, t, panel * panel_width(), d, h);
                args.c = to_output ? static_cast<float *>(place)
                                   : c + (d * plane_pitch_ + h * row_pitch_) * panel_width();
                args.out = leaves && !to_output ? static_cast<std::uint16_t *>(place) : nullptr;
                args.stream = streams_ && leaves && args.last == 0 && chunks_ == 1
                              && on_lines(place, size * args.ld_out, size * panel_width());
                args.a = in
                         + (direct ? size
                                         * ((t.t0[0] + d) * walk_[0].in_step * roles_.in.x[0]
                                             + (t.t0[1] + h) * walk_[1].in_step * roles_.in.x[1]
                                             + t.t0[2] * walk_[2].in_step * roles_.in.x[2])
                                   : (d * patch_[1].length + h) * patch_[2].row * position_bytes_);
                for (dim x = 0, piece = count; x < count; x += piece) {
                    if (cut) piece = same_taps(walk_[2], *f.axis[2], t.t0[2] + x, count - x);
                    if (t.padded)
                        args.runs = list_runs(walk_, f, t, {d, h, rows, x, cut ? piece : length[2]},
                            {taps.data(), packed}, {s.runs, s.runs + taps_});
                    multiply_run(kernels_, args, piece, static_cast<int>(panel_vectors(panel)),
                        {.a = direct && pointwise && j == 0,
                            .ahead = exact_ ? count : 0,
                            .c = leaves && pointwise && !args.stream,
                            .others = direct ? nullptr : &s.ahead},
                        direct ? direct_rows_ : any_height);
                    args.a += piece * args.a_m;
                    args.c += piece * args.ldc;
                    if (args.out != nullptr) args.out += piece * args.ld_out;
                }
                if (chunk == chunks_ - 1 && !leaves && !stacked_)
                    store_rows(s, t, ph, j, d, h, rows);
            });
            if (chunk == chunks_ - 1 && !leaves && stacked_) store_images(s, t, ph, j);
        }
    }
}

/// Pointwise layers: a few positions at a time, several panels, so that C stays in L1 and results
/// leave in the order of memory. With a panel at a time every other line of the output would be
/// written.
void tiled_data::multiply_rows(const scratch &s, const task &t) const {
    const dim width = row_panels_ * panel_width();
    const bool direct = reads(t);
    const conv_phase &f = taps_of_.phases[0];
    product_args args = product_form(direct);
    const dim step = args.a_m;
    args.k = units(roles_.in_c);
    args.a_run = (direct ? tap_input_ : tap_patch_).data();
    args.b_run = tap_packed_[1].data();
    args.runs = 1;
    args.ldc = width;
    const char *in =
        direct ? static_cast<const char *>(roles_.input(*t.data)) + in_offset(t, 0) + t.t0[2] * step
               : s.patch;
    for (dim x = 0; x < t.length[2]; x += row_block_) {
        const dim count = std::min(row_block_, t.length[2] - x);
        // Too few for tiles in the input itself: some that have left already come again.
        const dim again = direct && kernels_.tiles() ? std::max<dim>(0, tile_block - count) : 0;
        for (dim j = 0; j < t.panels; ++j) {
            const dim among = j % row_panels_;
            args.a = in + (x - again) * step;
            args.b = packed_panel(s, t, 0, j);
            args.c = s.c + among * panel_width();
            multiply_run(kernels_, args, again + count,
                static_cast<int>(panel_vectors(t.first_panel + j)), {},
                direct ? direct_rows_ : any_height);
            if (among == row_panels_ - 1 || j == t.panels - 1)
                store_positions(s, t, f, {x, count, j - among, s.c + again * width});
        }
    }
}

/// Positions of multiply_rows leave, all channels of the block.
void tiled_data::store_positions(
    const scratch &s, const task &t, const conv_phase &f, const row_piece &rows) const {
    const dim x = rows.x;
    const dim size = static_cast<dim>(size_of(p_.type)), width = row_panels_ * panel_width();
    const dim column = (t.first_panel + rows.panel) * panel_width();
    store_args args = store_form();
    args.c_xs = width;
    args.channels = std::min(width, roles_.out_c - column);
    args.bias = p_.bias ? s.bias + rows.panel * panel_width() : nullptr;
    args.count = rows.count;
    args.c = rows.c;
    args.out = static_cast<char *>(roles_.output(*t.data))
               + size * (out_position(roles_.out, f, t, column, 0, 0) + x * args.xs);
    args.stream = streams_ && stores_lines(args);
    if (p_.add)
        args.add = static_cast<const char *>(t.data->add)
                   + size * (out_position(p_.add_strides, f, t, column, 0, 0) + x * args.add_xs);
    kernels_.store(args);
}

void tiled_data::multiply_careful(const scratch &s, const task &t) const {
    for (std::size_t ph = 0; ph < taps_of_.phases.size(); ++ph) {
        const conv_phase &f = taps_of_.phases[ph];
        dim length[3], y[3];
        if (!phase_length(f, t, length)) continue;
        for (dim j = 0; j < t.panels; ++j) {
            const dim column = (t.first_panel + j) * panel_width();
            const dim columns = std::min(panel_width(), roles_.out_c - column);
            for (y[0] = 0; y[0] < length[0]; ++y[0])
                for (y[1] = 0; y[1] < length[1]; ++y[1])
                    for (y[2] = 0; y[2] < length[2]; ++y[2]) {
                        float *c =
                            c_of(s, ph, j)
                            + (y[0] * plane_pitch_ + y[1] * row_pitch_ + y[2]) * panel_width();
                        const dim at[3] = {t.t0[0] + y[0], t.t0[1] + y[1], t.t0[2] + y[2]};
                        for (dim o = 0; o < columns; ++o)
                            c[o] = careful_sum(
                                p_, roles_, walk_, f, *t.data, t.n, t.group, column + o, at);
                    }
            if (stacked_)
                store_images(s, t, ph, j);
            else
                for (dim d = 0; d < length[0]; ++d) store_rows(s, t, ph, j, d, 0, length[1]);
        }
    }
}

/// Elements from a tensor's start to channel `column` of row (d, h) of a phase in a tile.
dim tiled_data::out_position(const conv::data_strides &strides, const conv_phase &f, const task &t,
    dim column, dim d, dim h) const {
    return t.n * strides.n + (t.group * roles_.out_c + column) * strides.c
           + (f.axis[0]->first + (t.t0[0] + d) * walk_[0].out_step) * strides.x[0]
           + (f.axis[1]->first + (t.t0[1] + h) * walk_[1].out_step) * strides.x[1]
           + (f.axis[2]->first + t.t0[2] * walk_[2].out_step) * strides.x[2];
}

/// What all stores have in common.
store_args tiled_data::store_form() const {
    store_args args{};
    args.type = p_.type;
    args.c_cs = 1;
    args.cs = roles_.out.c;
    args.xs = roles_.out.x[2] * walk_[2].out_step;
    args.add_cs = p_.add_strides.c;
    args.add_xs = p_.add_strides.x[2] * walk_[2].out_step;
    args.accumulate = p_.accumulate;
    args.relu = p_.relu;
    return args;
}

/// Rows [h, h + rows) of plane d of a phase and panel leave.
void tiled_data::store_rows(
    const scratch &s, const task &t, std::size_t ph, dim j, dim d, dim h, dim rows) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    const dim column = (t.first_panel + j) * panel_width();
    const conv_phase &f = taps_of_.phases[ph];
    store_args args = store_form();
    args.c_xs = panel_width();
    args.channels = std::min(panel_width(), roles_.out_c - column);
    args.bias = p_.bias ? s.bias + j * panel_width() : nullptr;
    args.count = std::min(t.length[2], f.axis[2]->count - t.t0[2]);
    for (const dim end = h + rows; h < end; ++h) {
        args.c = c_of(s, ph, j) + (d * plane_pitch_ + h * row_pitch_) * panel_width();
        args.out = static_cast<char *>(roles_.output(*t.data))
                   + size * out_position(roles_.out, f, t, column, d, h);
        args.stream = streams_ && stores_lines(args);
        if (p_.add)
            args.add = static_cast<const char *>(t.data->add)
                       + size * out_position(p_.add_strides, f, t, column, d, h);
        kernels_.store(args);
    }
}

}  // namespace convgrad::cpu
