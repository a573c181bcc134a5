// Execution of folded_data; the choice of blocks is in folded_data_plan.cpp.
//
// For each task (a block of groups × a tile of positions of one image):
//   the rows of input that the tile needs are copied, channels side by side, padding as zeros (for
//   the matrix engine: each position with all that it reads along the row)           pack_patch
//   for each row of positions:
//     C[position][channel] = Σ_taps-of-depth-and-height Σ_k row · weights            multiply_row
//     C leaves with bias, add, ReLU and one rounding                                 store
#include "cpu/folded_data.hpp"

#include <algorithm>
#include <cstring>

#include "cpu/element.hpp"
#include "cpu/folded_rows.hpp"
#include "cpu/tasks.hpp"
#include "cpu/tiled.hpp"

namespace convgrad::cpu {

struct folded_data::task : group_place {
    const conv::buffers *data;
    dim inner[2];  // positions of a row, from and up to, that are multiplied from the input itself
};

struct folded_data::scratch {
    char *weights;
    char *patch;  // gathered weights, before they are packed
    char *row;    // a row of the input with padding, as stored
    float *c;
    float *bias;
    dim *runs;  // three lists: in the patch, in the weights, in the input
    char *exact;
    dim held = -1;  // first group whose weights and bias are here
    value_range weights_range;
};

folded_data::scratch folded_data::lay_out(memory_walk &memory) const {
    dim most_runs = 0;
    for (const phase &f : phases_) most_runs = std::max(most_runs, f.runs);
    const dim raw = ((tile_[2] - 1) * walk_[2].in_step + span_) * in_block();
    scratch s{};
    s.weights = memory.take_lines<char>(panels_ * packed_bytes());
    s.patch = memory.take<char>(patch_bytes());
    s.row = memory.take_lines<char>(raw * static_cast<dim>(size_of(p_.type)) + 64);
    s.c = memory.take<float>(c_floats());
    s.bias = memory.take_lines<float>(panels_ * panel_width());
    s.runs = memory.take_lines<dim>(3 * most_runs);
    if (exact_) s.exact = memory.take<char>(static_cast<dim>(exact_->scratch_bytes()));
    return s;
}

std::size_t folded_data::scratch_bytes() const {
    return bytes_of_walk([this](memory_walk &memory) { return lay_out(memory); });
}

folded_data::scratch folded_data::make_scratch(char *memory) const {
    memory_walk walk(memory);
    return lay_out(walk);
}

std::size_t folded_data::workspace() const {
    return tasks_ == 0 ? 0 : scratch_bytes() * static_cast<std::size_t>(workers_);
}

void folded_data::execute(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    fill_unreached(p_, roles_, walk_, kernels_, tasks_ == 0, data, threads);
    if (tasks_ == 0) return;
    std::vector<scratch> workers;
    for (int w = 0; w < workers_; ++w)
        workers.push_back(make_scratch(workspace + static_cast<std::size_t>(w) * scratch_bytes()));
    for_each_task(threads.limited(workers_), tasks_, [&](int worker, dim index) {
        task t = make_task(data, index);
        const kernel_session session(kernels_);
        for (dim i = 0; i < t.images; ++i, ++t.n)
            run_task(workers[static_cast<std::size_t>(worker)], t);
    });
}

folded_data::task folded_data::make_task(const conv::buffers &data, dim index) const {
    task t{};
    t.data = &data;
    index = place_tile(walk_, tile_, tiles_, index, t);
    place_groups(p_, groups_, images_per_task_, index, t);
    find_inner(t);
    return t;
}

/// Positions whose taps all lie inside the input; those beside them in whole blocks of the kernel.
void folded_data::find_inner(task &t) const {
    if (!read_input_) return;
    const dim step = walk_[2].in_step, length = t.length[2], most = kernels_.max_m[vectors_];
    const dim before = std::max<dim>(0, div_up(std::max<dim>(0, -low_), step) - t.t0[2]);
    const dim room = walk_[2].in_length - low_ - span_;
    const dim last = room < 0 ? 0 : room / step + 1 - t.t0[2];
    const dim lo = round_up_to(before, most);
    const dim hi = length - round_up_to(std::max<dim>(0, length - last), most);
    if (lo < hi) t.inner[0] = lo, t.inner[1] = hi;
}

work_list folded_data::work() const {
    work_list list;
    list.macs_per_second = nominal_speed(kernels_);
    list.stages.push_back(unreached_stage(p_, roles_, walk_, tasks_ == 0, workers_));
    list.stages.push_back(
        {"tiles", tasks_, workers_, [this](dim index, dim before) {
             const conv::buffers none;
             const task t = make_task(none, index);
             task_cost cost = cost_of(t);
             if (before < 0 || make_task(none, before).first_group != t.first_group)
                 cost.read += static_cast<double>(panels_ * packed_bytes());
             return cost;
         }});
    return list;
}

task_cost folded_data::cost_of(const task &t) const {
    const auto real = [](dim v) { return static_cast<double>(v); };
    const double size = real(static_cast<dim>(size_of(p_.type)));
    double macs = 0, outputs = 0, inputs = 0;
    for (const phase &f : phases_) {
        dim length[3];
        if (!phase_length(f, t, length)) continue;
        const double rows = inside_pairs(walk_[0], *f.axis[0], t.t0[0], length[0])
                            * inside_pairs(walk_[1], *f.axis[1], t.t0[1], length[1]);
        macs += rows * real(length[2] * f.units * kernels_.k_per_unit * panels_ * panel_width());
        outputs += real(length[0] * length[1] * length[2]);
    }
    for (int a = 0; a < 3; ++a) {
        const dim reach = (t.length[a] - 1) * walk_[a].in_step
                          + (a == 2 ? span_ : patch_[a].length - (tile_[a] - 1) * walk_[a].in_step);
        const double part = real(std::min(reach, walk_[a].in_length));
        inputs = a == 0 ? part : inputs * part;
    }
    const auto each = real(t.images);
    return {each * macs, each * size * inputs * real(t.groups * roles_.in_c),
        each * size * outputs * real(t.groups * roles_.out_c)};
}

void folded_data::run_task(scratch &s, const task &t) const {
    if (s.held != t.first_group) {
        s.held = t.first_group;
        const dim first = t.first_group * roles_.out_c;
        for (dim c = 0; p_.bias && c < t.groups * roles_.out_c; ++c)
            s.bias[c] = load_float(t.data->bias, p_.type, (first + c) * p_.bias_stride);
        pack_weights(s, t);
    }
    const value_range range = pack_patch(s, t);
    if (exact_ && !kernels_.limits.allow(range, s.weights_range)) {
        scratch other = exact_->make_scratch(s.exact);
        exact_->run_task(other, t);
        return;
    }
    // A padded tap and another group's weights must contribute nothing, but 0 · ∞ is NaN.
    if ((s.weights_range.nonfinite && t.padded) || (groups_ > 1 && range.nonfinite))
        multiply_careful(s, t);
    else
        multiply(s, t);
}

/// The weights of one phase in the order [run][k][column], zeros between groups.
void folded_data::gather_weights(const scratch &s, const task &t, const phase &f) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    const dim columns = t.groups * roles_.out_c, taps = static_cast<dim>(f.axis[2]->taps.size());
    if (t.groups > 1) clear(s.patch, size * f.runs * f.k * columns);
    const bool ascending = f.axis[2]->taps.front().off == f.low;
    char *out = s.patch;
    for (const axis_tap &kd : f.axis[0]->taps)
        for (const axis_tap &kh : f.axis[1]->taps)
            for (dim j = 0; j < taps; ++j) {
                const auto at = static_cast<std::size_t>(ascending ? j : taps - 1 - j);
                const dim tap = kd.k * p_.weights.k[0] + kh.k * p_.weights.k[1]
                                + f.axis[2]->taps[at].k * p_.weights.k[2];
                for (dim c = 0; c < t.groups * roles_.in_c; ++c, out += size * columns) {
                    const dim group = c / roles_.in_c, i = c % roles_.in_c;
                    const char *in = static_cast<const char *>(t.data->weights)
                                     + size
                                           * ((t.first_group + group) * p_.weights.g + tap
                                               + i * roles_.weights_in);
                    copy_elements(size, in, size * roles_.weights_out,
                        out + size * group * roles_.out_c, size, roles_.out_c);
                }
            }
}

void folded_data::pack_weights(scratch &s, const task &t) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    const dim columns = t.groups * roles_.out_c;
    const dim k_pitch = panel_width() * kernels_.column_bytes;
    std::vector<dim> run_in;
    s.weights_range = {};
    for (const phase &f : phases_) {
        gather_weights(s, t, f);
        const dim k = f.k / groups_ * t.groups;
        run_in.clear();
        for (dim run = 0; run < f.runs; ++run) run_in.push_back(run * k * columns);
        for (dim panel = 0; panel * panel_width() < columns; ++panel) {
            const dim column = panel * panel_width();
            const pack_args args{s.patch + size * column, p_.type, columns, 1, k,
                std::min(panel_width(), columns - column), 0, 0,
                s.weights + panel * packed_bytes() + f.packed};
            s.weights_range.merge(kernels_.pack_weights(args, run_in.data(), f.runs,
                static_cast<int>(panel_vectors(panel, columns)), f.units * k_pitch, k_pitch));
        }
    }
}

value_range folded_data::pack_patch(const scratch &s, const task &t) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    const char *in = static_cast<const char *>(roles_.input(*t.data))
                     + size * (t.n * roles_.in.n + t.first_group * roles_.in_c * roles_.in.c);
    value_range range;
    for_each_input_row(walk_, patch_, tile_, t, roles_.in, [&](dim offset, dim row) {
        if (t.inner[1] > 0)
            pack_ends(s, t, in + size * offset, row);
        else
            range.merge(pack_row(s, t, in + size * offset, row));
    });
    return range;
}

/// What positions need that are not multiplied from the input itself, of f32 as stored.
void folded_data::pack_ends(const scratch &s, const task &t, const char *in, dim row) const {
    const dim step = walk_[2].in_step, position = 4 * in_block();
    const dim first = t.t0[2] * step + low_;
    const dim count = (t.length[2] - 1) * step + span_;
    char *out = s.patch + row * row_bytes_;
    const auto copy = [&](dim from, dim to) {
        dim lo, hi;
        clip(first + from, 1, to - from, walk_[2].in_length, lo, hi);
        char *at = out + from * position;
        clear(at, lo * position);
        if (hi > lo)
            std::memcpy(at + lo * position, in + (first + from + lo) * position,
                static_cast<std::size_t>((hi - lo) * position));
        clear(at + hi * position, (to - from - hi) * position);
    };
    if (t.inner[0] > 0) copy(0, (t.inner[0] - 1) * step + span_);
    if (t.inner[1] < t.length[2]) copy(t.inner[1] * step, count);
}

value_range folded_data::pack_row(const scratch &s, const task &t, const char *in, dim row) const {
    const dim size = static_cast<dim>(size_of(p_.type)), channels = t.groups * roles_.in_c;
    const dim first = t.t0[2] * walk_[2].in_step + low_;
    const dim count = (t.length[2] - 1) * walk_[2].in_step + span_;
    dim lo, hi;
    clip(first, 1, count, walk_[2].in_length, lo, hi);
    char *out = s.patch + row * row_bytes_;
    const row_of_channels from{in + size * (first + lo) * roles_.in.x[2], size, channels,
        roles_.in.c, roles_.in.x[2], hi - lo};
    value_range range;
    if (!kernels_.tiles()) {
        const bool as_stored = from.side_by_side();
        if (!as_stored) gather_row(kernels_, from, s.row);
        clear(out, lo * channels * element_);
        if (hi > lo)
            range = kernels_.pack_pixels(
                {as_stored ? from.in : s.row, p_.type, 1, 0, (hi - lo) * channels, 1, 0, 1,
                    out + lo * channels * element_},
                64);
        clear(out + hi * channels * element_, (count - hi) * channels * element_ + 2);
        return range;
    }
    clear(s.row, size * lo * channels);
    gather_row(kernels_, from, s.row + size * lo * channels);
    clear(s.row + size * hi * channels, size * (count - hi) * channels);
    const dim part_pitch = round_up_to(tile_[2], 32) * 64;
    for (const phase &f : phases_) {
        if (f.at[0] != 0 || f.at[1] != 0) break;
        const dim length = std::min(t.length[2], f.axis[2]->count - t.t0[2]);
        if (length <= 0) continue;
        range.merge(kernels_.pack_channels(
            {s.row + size * (f.low - low_) * channels, p_.type, 1, walk_[2].in_step * channels,
                f.k / groups_ * t.groups, length, 0, length, out + f.patch},
            kernels_.parts * part_pitch, part_pitch));
    }
    return range;
}

/// The taps along depth and height that lie inside the input for row y of the tile, as offsets in
/// the patch and in the packed weights.
dim folded_data::list_runs(
    const scratch &s, const phase &f, const task &t, const dim (&y)[2]) const {
    const dim b_run = f.units * panel_width() * kernels_.column_bytes;
    dim runs = 0, all = 0;
    for (std::size_t d = 0; d < f.axis[0]->taps.size(); ++d)
        for (std::size_t h = 0; h < f.axis[1]->taps.size(); ++h, ++all) {
            const dim x[2] = {(t.t0[0] + y[0]) * walk_[0].in_step + f.axis[0]->taps[d].off,
                (t.t0[1] + y[1]) * walk_[1].in_step + f.axis[1]->taps[h].off};
            if (x[0] < 0 || x[0] >= walk_[0].in_length || x[1] < 0 || x[1] >= walk_[1].in_length)
                continue;
            s.runs[runs] = row_bytes_
                           * ((patch_[0].start[f.at[0]][d] + y[0]) * patch_[1].length
                               + patch_[1].start[f.at[1]][h] + y[1]);
            s.runs[2 * f.runs + runs] = 4 * (x[0] * roles_.in.x[0] + x[1] * roles_.in.x[1]);
            s.runs[f.runs + runs++] = all * b_run;
        }
    return runs;
}

void folded_data::multiply(const scratch &s, const task &t) const {
    for (const phase &f : phases_) {
        dim length[3], y[2];
        if (!phase_length(f, t, length)) continue;
        for (y[0] = 0; y[0] < length[0]; ++y[0])
            for (y[1] = 0; y[1] < length[1]; ++y[1])
                multiply_row(s, t, f, list_runs(s, f, t, y), y, length[2]);
    }
}

void folded_data::multiply_row(
    const scratch &s, const task &t, const phase &f, dim runs, const dim (&y)[2], dim count) const {
    const dim columns = t.groups * roles_.out_c, channels = t.groups * roles_.in_c;
    const dim part_pitch = round_up_to(tile_[2], 32) * 64;
    product_args args{};
    args.runs = runs;
    args.a_run = s.runs;
    args.b_run = s.runs + f.runs;
    args.k = div_up(f.k / groups_ * t.groups, kernels_.k_per_unit);
    args.a_m = kernels_.tiles() ? 64 : walk_[2].in_step * channels * element_;
    args.a_step = kernels_.tiles() ? kernels_.parts * part_pitch : 4;
    args.a_part = part_pitch;
    args.a_tile = 1024;
    args.b_step = panel_width() * kernels_.column_bytes;
    args.b_part = args.b_step / kernels_.parts;
    args.b_tile = 1024;
    const char *in = s.patch + (kernels_.tiles() ? f.patch : (f.low - low_) * channels * element_);
    for (dim x = 0; x < count; x += piece_) {
        const dim width = std::min(piece_, count - x), at[3] = {y[0], y[1], x};
        args.a = in + x * args.a_m;
        for (dim panel = 0; panel * panel_width() < columns; ++panel) {
            product_args here = args;
            here.b = s.weights + panel * packed_bytes() + f.packed;
            here.c = s.c + panel * round_up_to(piece_, 32) * panel_width();
            here.ldc = panel_width();
            if (stores_itself(t, panel))
                to_output(
                    here, t, panel, out_position(roles_.out, f, t, panel * panel_width(), at));
            multiply_piece(
                t, f, here, x, width, static_cast<int>(panel_vectors(panel, columns)), s);
        }
        store(s, t, f, at, width, false);
    }
}

/// Positions [x, x + count) of a row: those inside from the input itself.
void folded_data::multiply_piece(const task &t, const phase &f, product_args args, dim x, dim count,
    int vectors, const scratch &s) const {
    if (t.inner[1] == 0) return multiply_run(kernels_, args, count, vectors);
    const char *patch = args.a - x * args.a_m;
    const char *input = static_cast<const char *>(roles_.input(*t.data))
                        + 4
                              * (t.n * roles_.in.n + t.first_group * roles_.in_c * roles_.in.c
                                  + f.low * roles_.in.x[2])
                        + t.t0[2] * args.a_m;
    const dim ends[3] = {t.inner[0], t.inner[1], t.length[2]}, last = x + count;
    for (int i = 0; i < 3 && x < last; ++i) {
        const dim piece = std::min(ends[i], last) - x;
        if (piece <= 0) continue;
        args.a = (i == 1 ? input : patch) + x * args.a_m;
        args.a_run = i == 1 ? s.runs + 2 * f.runs : s.runs;
        multiply_run(kernels_, args, piece, vectors);
        args.c += piece * args.ldc;
        x += piece;
    }
}

void folded_data::multiply_careful(const scratch &s, const task &t) const {
    const dim columns = t.groups * roles_.out_c;
    for (const phase &f : phases_) {
        dim length[3], y[3];
        if (!phase_length(f, t, length)) continue;
        const conv_phase whole{{f.axis[0], f.axis[1], f.axis[2]}, 0, 0};
        for (y[0] = 0; y[0] < length[0]; ++y[0])
            for (y[1] = 0; y[1] < length[1]; ++y[1])
                for (y[2] = 0; y[2] < length[2]; ++y[2]) {
                    const dim at[3] = {t.t0[0] + y[0], t.t0[1] + y[1], t.t0[2] + y[2]};
                    for (dim o = 0; o < columns; ++o)
                        s.c[o / panel_width() * round_up_to(piece_, 32) * panel_width()
                            + o % panel_width()] = careful_sum(p_, roles_, walk_, whole, *t.data,
                            t.n, t.first_group + o / roles_.out_c, o % roles_.out_c, at);
                    store(s, t, f, y, 1, true);
                }
    }
}

/// Columns of a panel's last vector that are missing.
dim folded_data::missing_columns(const task &t, dim panel) const {
    const dim columns = t.groups * roles_.out_c;
    return std::max<dim>(
        0, panel_vectors(panel, columns) * kernels_.lanes - (columns - panel * panel_width()));
}

bool folded_data::stores_itself(const task &t, dim panel) const {
    return write_output_ && (missing_columns(t, panel) == 0 || !p_.accumulate);
}

/// The product leaves its results, of which element `place` of the output is the first, itself.
void folded_data::to_output(product_args &args, const task &t, dim panel, dim place) const {
    const dim size = static_cast<dim>(size_of(p_.type)), missing = missing_columns(t, panel);
    char *out = static_cast<char *>(roles_.output(*t.data)) + size * place;
    args.last = missing > 0 ? kernels_.lanes - missing : 0;
    args.ld_out = roles_.out.x[2] * walk_[2].out_step;
    args.stream =
        streams_ && missing == 0 && on_lines(out, size * args.ld_out, size * panel_width());
    if (p_.type != data_type::f32) {
        args.out = reinterpret_cast<std::uint16_t *>(out);
        return;
    }
    args.c = reinterpret_cast<float *>(out);
    args.ldc = args.ld_out;
    args.accumulate = p_.accumulate;
}

/// Elements from a tensor's start to channel `column` of position y of a phase in a tile.
dim folded_data::out_position(const conv::data_strides &strides, const phase &f, const task &t,
    dim column, const dim (&y)[3]) const {
    dim at = t.n * strides.n + (t.first_group * roles_.out_c + column) * strides.c;
    for (std::size_t a = 0; a < 3; ++a)
        at += (f.axis[a]->first + (t.t0[a] + y[a]) * walk_[a].out_step) * strides.x[a];
    return at;
}

void folded_data::store(const scratch &s, const task &t, const phase &f, const dim (&y)[3],
    dim count, bool all_panels) const {
    const dim size = static_cast<dim>(size_of(p_.type)), columns = t.groups * roles_.out_c;
    store_args args{};
    args.type = p_.type;
    args.c_cs = 1;
    args.c_xs = panel_width();
    args.cs = roles_.out.c;
    args.xs = roles_.out.x[2] * walk_[2].out_step;
    args.add_cs = p_.add_strides.c;
    args.add_xs = p_.add_strides.x[2] * walk_[2].out_step;
    args.accumulate = p_.accumulate;
    args.relu = p_.relu;
    args.count = count;
    for (dim panel = 0; panel * panel_width() < columns; ++panel) {
        if (!all_panels && stores_itself(t, panel)) continue;
        const dim column = panel * panel_width();
        args.c = s.c + panel * round_up_to(piece_, 32) * panel_width();
        args.channels = std::min(panel_width(), columns - column);
        args.bias = p_.bias ? s.bias + column : nullptr;
        args.out = static_cast<char *>(roles_.output(*t.data))
                   + size * out_position(roles_.out, f, t, column, y);
        args.stream = streams_ && stores_lines(args);
        if (p_.add)
            args.add = static_cast<const char *>(t.data->add)
                       + size * out_position(p_.add_strides, f, t, column, y);
        kernels_.store(args);
    }
}

}  // namespace convgrad::cpu
