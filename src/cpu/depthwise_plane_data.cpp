// For each task (some planes of an image, or of several, × a tile of positions):
//   the input is copied to f32, planes side by side                                copy_in
//   results of all rows, a pair of vectors of columns at a time                    run_phase
//   they leave at once (one plane a row) or through a buffer                       store
#include <algorithm>
#include <memory>

#include "cpu/depthwise_planes.hpp"
#include "cpu/element.hpp"
#include "cpu/tasks.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

constexpr dim copy_bytes = 24 << 10;     // of a task, in L1
constexpr dim volume_bytes = 192 << 10;  // in L2, where planes are read several times
constexpr dim tasks_per_thread = 4;
constexpr dim least_lanes = 2048;  // of a task

}  // namespace

struct plane_data::scratch {
    float *weights, *bias, *copies, *c, *line;
    dim held = -1;  // first group whose weights and bias are here
    bool nonfinite = false;
    bool cleared = false;
};

plane_data::plane_data(
    const conv::problem &p, const kernel_set &kernels, int threads, std::size_t workspace_limit)
    : plane_driver(p, kernels), multiplier_(p.oc), copies_(roles_.forward ? 1 : p.oc) {
    if (p.mb == 0 || p.groups == 0 || p.oc == 0 || count_taps(walk_) == 0
        || count_positions(walk_) == 0)
        return;  // fill_unreached does what there is to do
    const bool volume = p_.x[0].kernel > 1;
    choose_layout(volume ? volume_bytes : copy_bytes, copies_);
    // Results do not depend on depth and height of a tile, so threads may decide. Its width decides
    // which results are summed with care, and does not.
    while (threads > 1 && task_count() < tasks_per_thread * threads
           && layout_.tile[0] * layout_.tile[1] > 1
           && layout_.tile[0] * layout_.tile[1] * layout_.lanes > least_lanes)
        shrink();
    list_taps();
    while (scratch_bytes() > workspace_limit && shrink()) list_taps();
    check_workspace("depthwise convolution", scratch_bytes(), workspace_limit);
    tasks_ = task_count();
    workers_ = static_cast<int>(std::min<dim>(
        {std::max(threads, 1), tasks_, static_cast<dim>(workspace_limit / scratch_bytes())}));
}

void plane_data::list_taps() {
    const plane_layout &l = layout_;
    phases_.clear();
    block_floats_ = c_floats_ = 0;
    for (const axis_phase &d : walk_[0].phases)
        for (const axis_phase &h : walk_[1].phases)
            for (std::size_t w = 0; w < walk_[2].phases.size(); ++w) {
                phase f{&d, &h, &walk_[2].phases[w], chain_taps(walk_[1], h, 4 * l.row, pair_), {},
                    block_floats_, c_floats_};
                for (dim m = 0; m < copies_; ++m)
                    for (const dim start : l.patch.start[w])
                        for (const axis_tap &tap : d.taps) {
                            f.lines.push_back(
                                {4 * (m * l.copy_floats() + start + tap.off * l.plane_floats()),
                                    block_floats_ - f.weights, -div_down(tap.off, walk_[0].in_step),
                                    -div_down(tap.off - walk_[0].in_length, walk_[0].in_step)});
                            block_floats_ += static_cast<dim>(f.chains.k.size()) * pair_;
                        }
                phases_.push_back(std::move(f));
                if (!direct()) c_floats_ += l.tile[0] * l.tile[1] * c_row();
            }
}

/// A row of the output, whose phases lie apart in the results; whole vectors are read.
dim plane_data::line_floats() const {
    return direct() ? pair_ : round_up_to(layout_.tile[2] * walk_[2].out_step + pair_, 16);
}

std::size_t plane_data::workspace() const {
    return tasks_ == 0 ? 0 : scratch_bytes() * static_cast<std::size_t>(workers_);
}

plane_data::scratch plane_data::lay_out(memory_walk &memory) const {
    const dim sets = roles_.forward ? multiplier_ : 1;
    scratch s{};
    s.weights = memory.take<float>(sets * weight_blocks() * block_floats_);
    s.bias = memory.take<float>(sets * weight_blocks() * pair_);
    s.copies = memory.take<float>(copies_ * layout_.copy_floats());
    s.c = memory.take<float>(c_floats_);
    s.line = memory.take<float>(layout_.tile[1] * line_floats());
    s.held = -1;
    return s;
}

std::size_t plane_data::scratch_bytes() const {
    return bytes_of_walk([this](memory_walk &memory) { return lay_out(memory); });
}

void plane_data::execute(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    const data_walk all = start(data, workspace, threads);
    for_each_task(threads.limited(workers_), tasks_, [&](int worker, dim index) {
        const dim tile = index % all.units, block = index / all.units;
        all.run(worker, {tile, tile + 1, block, block + 1});
    });
}

data_walk plane_data::start(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    fill_unreached(p_, roles_, walk_, kernels_, tasks_ == 0, data, threads);
    if (tasks_ == 0) return {};
    // They change with every task: what a worker holds serves its next one.
    const auto workers = std::make_shared<std::vector<scratch>>();
    memory_walk memory(workspace);
    for (int w = 0; w < workers_; ++w) workers->push_back(lay_out(memory));
    return {tile_count(), layout_.blocks, workers_,
        [this, &data, workers](int worker, const walk_piece &piece) {
            scratch &mine = (*workers)[static_cast<std::size_t>(worker)];
            for (dim block = piece.first_block; block < piece.last_block; ++block)
                for (dim tile = piece.first; tile < piece.last; ++tile)
                    run_task(mine, data, make_task(block * tile_count() + tile));
        },
        [this, &data](const walk_piece &piece) {
            for (dim block = piece.first_block; block < piece.last_block; ++block)
                for (dim tile = piece.first; tile < piece.last; ++tile)
                    expect_task(data, make_task(block * tile_count() + tile));
        }};
}

void plane_data::expect_task(const conv::buffers &data, const plane_task &t) const {
    for (const bool write : {false, true}) {
        tensor_box box = fresh_box(walk_, t.t0, t.length, write);
        const dim each = write ? roles_.out_c : roles_.in_c;
        box.n = t.n;
        box.channel = t.group * each;
        box.channels = t.planes * each;
        expect_box(write ? roles_.output(data) : roles_.input(data), p_.type,
            write ? roles_.out : roles_.in, box, write);
    }
}

/// [set][pair][phase][line][tap][lane]; a set per output channel of a group in the forward pass.
void plane_data::pack_weights(scratch &s, const conv::buffers &data, const plane_task &t) const {
    const plane_layout &l = layout_;
    const dim sets = roles_.forward ? multiplier_ : 1, blocks = weight_blocks();
    float watch = 0;
    const auto spread = [&](float *to, dim each, dim plane, float value) {
        const dim first = plane * l.pitch;
        const dim last = l.planes == 1 ? pair_ : std::min(first + l.pitch, c_row());
        for (dim f = first; f < last;) {
            const dim block = f / pair_, end = std::min(last, (block + 1) * pair_);
            float *lanes = to + block * (each - pair_);
            for (; f < end; ++f) lanes[f] = value;
        }
    };
    for (dim plane = 0; plane < t.planes; ++plane)
        for (dim set = 0; set < sets; ++set) {
            const dim group = t.group + plane,
                      out = roles_.forward ? group * multiplier_ + set : group;
            if (p_.bias)
                spread(s.bias + set * blocks * pair_, pair_, plane,
                    load_float(data.bias, p_.type, out * p_.bias_stride));
            float *to = s.weights + set * blocks * block_floats_;
            for (const phase &f : phases_)
                for (dim m = 0; m < copies_; ++m)
                    for (const axis_tap &kw : f.width->taps)
                        for (const axis_tap &kd : f.depth->taps)
                            for (const dim kh : f.chains.k) {
                                const dim at = group * p_.weights.g + (set + m) * p_.weights.o
                                               + kd.k * p_.weights.k[0] + kh * p_.weights.k[1]
                                               + kw.k * p_.weights.k[2];
                                const float value = load_float(data.weights, p_.type, at);
                                watch += value * 0;
                                spread(to, block_floats_, plane, value);
                                to += pair_;
                            }
        }
    s.nonfinite = watch != watch;
    s.held = t.group;
}

void plane_data::run_task(scratch &s, const conv::buffers &data, const plane_task &t) const {
    if (!s.cleared) std::fill(s.copies, s.copies + copies_ * layout_.copy_floats(), 0.0F);
    s.cleared = true;
    if (s.held != t.group) pack_weights(s, data, t);
    // A padded tap must contribute nothing, but 0 · ∞ is NaN.
    if (s.nonfinite && touches_padding(walk_[2], t.t0[2], t.length[2]))
        return run_careful(s, data, t);
    for (dim m = 0; m < copies_; ++m)
        static_cast<void>(copy_in(t, roles_.input(data), roles_.in, t.group * copies_ + m, copies_,
            s.copies + m * layout_.copy_floats()));
    for (dim m = 0; m < (roles_.forward ? multiplier_ : 1); ++m) {
        for (const phase &f : phases_) run_phase(s, data, t, f, m);
        if (!direct()) store(s, data, t, m);
    }
}

void plane_data::run_phase(
    const scratch &s, const conv::buffers &data, const plane_task &t, const phase &f, dim m) const {
    const plane_layout &l = layout_;
    const dim depths = std::min(t.length[0], f.depth->count - t.t0[0]);
    const dim end = std::min(t.t0[1] + t.length[1], f.height->count);
    const dim columns = std::min(t.length[2], f.width->count - t.t0[2]);
    if (depths <= 0 || end <= t.t0[1] || columns <= 0) return;
    depthwise_args args{};
    args.in_type = data_type::f32;
    args.lines = f.lines.data();
    args.line_count = static_cast<dim>(f.lines.size());
    args.chain_count = f.chains.chains;
    args.weights = s.weights + m * weight_blocks() * block_floats_ + f.weights;
    args.weights_block = l.planes == 1 ? 0 : block_floats_;
    args.bias = p_.bias ? s.bias + m * weight_blocks() * pair_ : nullptr;
    args.bias_block = l.planes == 1 ? 0 : pair_;
    args.rows = depths;
    args.first_row = t.t0[0];
    args.in_row = 4 * walk_[0].in_step * l.plane_floats();
    args.slot = 4 * f.chains.slot * l.row;
    const dim size = static_cast<dim>(size_of(p_.type)), spread = f.chains.spread;
    const auto at = [&](const conv::data_strides &st, dim row) {
        return size
               * (t.n * st.n + (t.group * roles_.out_c + m) * st.c
                   + (f.depth->first + t.t0[0] * walk_[0].out_step) * st.x[0]
                   + (f.height->first + row * walk_[1].out_step) * st.x[1] + t.t0[2] * st.x[2]);
    };
    for (dim c = 0; c < spread; ++c) {
        const dim u = std::max<dim>(0, div_up(t.t0[1] - c, spread));
        args.positions = div_up(end - c, spread) - u;
        if (args.positions <= 0) continue;
        args.chains = f.chains.of_class(c);
        args.first_position = u;
        const dim row = c + u * spread;
        args.in = static_cast<const char *>(static_cast<const void *>(s.copies))
                  + start_bytes(t, u * f.chains.slot);
        if (direct()) {
            args.elements = columns;
            args.out_type = p_.type;
            args.out = static_cast<char *>(roles_.output(data)) + at(roles_.out, row);
            args.out_row = size * walk_[0].out_step * roles_.out.x[0];
            args.out_position = size * spread * walk_[1].out_step * roles_.out.x[1];
            args.add =
                p_.add ? static_cast<const char *>(data.add) + at(p_.add_strides, row) : nullptr;
            args.add_row = size * walk_[0].out_step * p_.add_strides.x[0];
            args.add_position = size * spread * walk_[1].out_step * p_.add_strides.x[1];
            args.accumulate = p_.accumulate;
            args.relu = p_.relu;
        } else {
            args.elements = l.planes == 1 ? round_up_to(columns, pair_) : c_row();
            args.out_type = data_type::f32;
            args.out =
                static_cast<char *>(static_cast<void *>(s.c + f.c + (row - t.t0[1]) * c_row()));
            args.out_row = 4 * l.tile[1] * c_row();
            args.out_position = 4 * spread * c_row();
        }
        if (flat())
            run_flat(args);
        else
            kernels_.depthwise(args);
    }
}

/// One row of one plane: its pairs of vectors take the place of rows as positions, so that several
/// are in flight.
void plane_data::run_flat(depthwise_args args) const {
    const dim whole = args.elements / pair_, rest = args.elements % pair_;
    const dim size = static_cast<dim>(size_of(args.out_type));
    tap_chain chain = *args.chains;
    chain.lo = 0;
    chain.hi = whole + 1;
    args.chains = &chain;
    args.slot = 4 * pair_;
    args.out_position = args.add_position = size * pair_;
    args.first_position = 0;
    if (whole > 0) {
        args.positions = whole;
        args.elements = pair_;
        kernels_.depthwise(args);
    }
    if (rest == 0) return;
    args.positions = 1;
    args.elements = rest;
    args.in += whole * args.slot;
    args.out += whole * args.out_position;
    if (args.add != nullptr) args.add += whole * args.add_position;
    kernels_.depthwise(args);
}

/// Results of all phases from the buffer to the output. The bias is in them. Columns of several
/// phases are put together first if they fill the row.
void plane_data::store(
    const scratch &s, const conv::buffers &data, const plane_task &t, dim m) const {
    const plane_layout &l = layout_;
    const dim size = static_cast<dim>(size_of(p_.type)), step = walk_[2].out_step;
    const auto columns = static_cast<dim>(walk_[2].phases.size());
    const bool whole = columns == step;
    for (std::size_t i = 0; i < phases_.size();
         i += static_cast<std::size_t>(whole ? columns : 1)) {
        const phase &f = phases_[i];
        const dim rows = std::min(t.length[1], f.height->count - t.t0[1]);
        const dim depths = std::min(t.length[0], f.depth->count - t.t0[0]);
        const dim first = (whole ? 0 : f.width->first) + t.t0[2] * step;
        const dim length = whole ? std::min(step * t.length[2], walk_[2].out_length - first)
                                 : std::min(t.length[2], f.width->count - t.t0[2]);
        if (depths <= 0 || rows <= 0 || length <= 0) continue;
        plane_store_args args{};
        args.in_depth = l.tile[1] * c_row();
        args.in_row = c_row();
        args.second = whole && step == 2 ? phases_[i + 1].c - f.c : 0;
        args.depths = depths;
        args.rows = rows;
        args.count = length;
        args.type = p_.type;
        args.out_depth = size * walk_[0].out_step * roles_.out.x[0];
        args.add_depth = size * walk_[0].out_step * p_.add_strides.x[0];
        args.out_row = size * walk_[1].out_step * roles_.out.x[1];
        args.add_row = size * walk_[1].out_step * p_.add_strides.x[1];
        args.accumulate = p_.accumulate;
        args.relu = p_.relu;
        for (dim plane = 0; plane < t.planes; ++plane) {
            const auto at = [&](const conv::data_strides &st) {
                return size
                       * (t.n * st.n + ((t.group + plane) * roles_.out_c + m) * st.c
                           + (f.depth->first + t.t0[0] * walk_[0].out_step) * st.x[0]
                           + (f.height->first + t.t0[1] * walk_[1].out_step) * st.x[1]
                           + first * st.x[2]);
            };
            args.in = s.c + f.c + plane * l.pitch;
            args.out = static_cast<char *>(roles_.output(data)) + at(roles_.out);
            args.add = p_.add ? static_cast<const char *>(data.add) + at(p_.add_strides) : nullptr;
            args.stream =
                streams_ && on_lines(args.out, args.out_row, 0) && args.out_depth % line_bytes == 0;
            if (whole && step <= 2)
                kernels_.narrow_rows(args);
            else
                store_rows(s, args, i, whole);
        }
    }
}

/// The same for steps that vectors do not interleave.
void plane_data::store_rows(
    const scratch &s, const plane_store_args &all, std::size_t first_phase, bool whole) const {
    const dim step = walk_[2].out_step, pitch = line_floats();
    for (dim d = 0; d < all.depths; ++d) {
        plane_store_args args = all;
        args.depths = 1;
        args.out += d * all.out_depth;
        if (args.add != nullptr) args.add += d * all.add_depth;
        for (dim r = 0; r < all.rows; ++r) {
            const dim from = d * all.in_depth + r * all.in_row;
            if (!whole) {
                kernels_.store({all.in + from, 0, 1, 1, all.count, args.out + r * all.out_row,
                    p_.type, 0, roles_.out.x[2] * step, nullptr,
                    args.add == nullptr ? nullptr : args.add + r * all.add_row, 0,
                    p_.add_strides.x[2] * step, p_.accumulate, p_.relu});
                continue;
            }
            for (dim w = 0; w < step; ++w) {
                const phase &f = phases_[first_phase + static_cast<std::size_t>(w)];
                const float *in = all.in + f.c - phases_[first_phase].c + from;
                float *line = s.line + r * pitch + f.width->first;
                for (dim x = f.width->first; x < all.count; x += step, line += step) *line = *in++;
            }
        }
        if (!whole) continue;
        args.in = s.line;
        args.in_row = pitch;
        kernels_.narrow_rows(args);
    }
}

/// Tap by tap from the tensors: rare, and slow.
void plane_data::run_careful(
    const scratch &s, const conv::buffers &data, const plane_task &t) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    for (const phase &f : phases_)
        for (dim channel = 0; channel < t.planes * roles_.out_c; ++channel) {
            const dim group = t.group + channel / roles_.out_c, o = channel % roles_.out_c;
            const conv_phase axes{{f.depth, f.height, f.width}, 0, 0};
            const dim lane = layout_.planes == 1 ? 0 : channel / roles_.out_c * layout_.pitch;
            dim y[3];
            for (y[0] = t.t0[0]; y[0] < std::min(t.t0[0] + t.length[0], f.depth->count); ++y[0])
                for (y[1] = t.t0[1]; y[1] < std::min(t.t0[1] + t.length[1], f.height->count);
                     ++y[1])
                    for (y[2] = t.t0[2]; y[2] < std::min(t.t0[2] + t.length[2], f.width->count);
                         ++y[2]) {
                        const float sum =
                            careful_sum(p_, roles_, walk_, axes, data, t.n, group, o, y);
                        const auto at = [&](const conv::data_strides &st) {
                            return size
                                   * (t.n * st.n + (group * roles_.out_c + o) * st.c
                                       + (f.depth->first + y[0] * walk_[0].out_step) * st.x[0]
                                       + (f.height->first + y[1] * walk_[1].out_step) * st.x[1]
                                       + (f.width->first + y[2] * walk_[2].out_step) * st.x[2]);
                        };
                        const float *bias =
                            s.bias + (roles_.forward ? o : 0) * weight_blocks() * pair_ + lane;
                        kernels_.store({&sum, 1, 1, 1, 1,
                            static_cast<char *>(roles_.output(data)) + at(roles_.out), p_.type, 1,
                            1, p_.bias ? bias : nullptr,
                            p_.add ? static_cast<const char *>(data.add) + at(p_.add_strides)
                                   : nullptr,
                            1, 1, p_.accumulate, p_.relu});
                    }
        }
}

task_cost plane_data::cost_of(const plane_task &t) const {
    double pairs = 0, outputs = 0;
    for (const phase &f : phases_) {
        const dim depths = std::min(t.length[0], f.depth->count - t.t0[0]);
        const dim rows = std::min(t.length[1], f.height->count - t.t0[1]);
        const dim columns = std::min(t.length[2], f.width->count - t.t0[2]);
        if (depths <= 0 || rows <= 0 || columns <= 0) continue;
        pairs += static_cast<double>(columns * static_cast<dim>(f.width->taps.size()))
                 * inside_pairs(walk_[0], *f.depth, t.t0[0], depths)
                 * inside_pairs(walk_[1], *f.height, t.t0[1], rows);
        outputs += static_cast<double>(depths * rows * columns);
    }
    double share = 1;
    for (std::size_t a = 0; a < 3; ++a)
        share *= static_cast<double>(walk_[a].in_length * t.length[a])
                 / static_cast<double>(walk_[a].longest);
    const auto size = static_cast<double>(size_of(p_.type)), planes = static_cast<double>(t.planes);
    return {planes * static_cast<double>(multiplier_) * pairs,
        size * planes * static_cast<double>(roles_.in_c) * share,
        size * planes * static_cast<double>(roles_.out_c) * outputs};
}

work_list plane_data::work() const {
    work_list list;
    list.macs_per_second = nominal_speed(kernels_);
    list.stages.push_back(unreached_stage(p_, roles_, walk_, tasks_ == 0, workers_));
    if (tasks_ == 0) return list;
    list.stages.push_back(
        {"planes", tasks_, workers_, [this](dim index, dim) { return cost_of(make_task(index)); }});
    return list;
}

std::string plane_data::describe() const {
    if (tasks_ == 0) return "nothing to sum";
    const auto n = [](dim v) { return std::to_string(v); };
    return "vectors along columns, " + n(layout_.planes) + " planes a row, tile "
           + n(layout_.tile[0]) + "x" + n(layout_.tile[1]) + "x" + n(layout_.tile[2]) + ", tasks "
           + n(tasks_);
}

}  // namespace convgrad::cpu
