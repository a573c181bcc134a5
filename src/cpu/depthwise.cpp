// For each task (an image × a tile of positions × some blocks of channels), for each block and
// phase: the kernel walks rows of positions, one pair of vectors of channels wide.
#include "cpu/depthwise.hpp"

#include <algorithm>

#include "conv/simplify.hpp"
#include "cpu/fits.hpp"
#include "cpu/tasks.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

// Of a task. Rows that it shares with the next come again from L2; with half as much 14×14 and
// smaller maps took 1.05 to 1.1 times as long, with twice as much nothing is faster.
constexpr dim tile_bytes = 512 << 10;
constexpr dim weights_bytes = 12 << 10;  // of a task, in L1
constexpr dim tasks_per_thread = 8;
constexpr dim alone_floats = 10 << 10;  // of weights, about 3 µs

}  // namespace

bool fits_depthwise(const conv::problem &p, std::string *why) {
    if (p.ic != 1 || p.oc != 1) return refuse(why, "more than one channel per group");
    if (p.src.c != 1 || p.dst.c != 1 || (p.add && p.add_strides.c != 1))
        return refuse(why, "channels do not lie side by side");
    return true;
}

depthwise_data::depthwise_data(
    const conv::problem &p, const kernel_set &kernels, int threads, std::size_t workspace_limit)
    : p_(p), kernels_(kernels), roles_(p) {
    // Results share what they read along the last axis.
    if (p_.x[2].kernel == 1 && p_.x[1].kernel > 1)
        conv::swap_axes(p_, 1, 2), roles_ = data_roles(p_);
    for (std::size_t a = 0; a < 3; ++a)
        walk_[a] = roles_.forward ? walk_forward(p_.x[a]) : walk_backward(p_.x[a]);
    if (p.mb == 0 || p.groups == 0 || count_taps(walk_) == 0 || count_positions(walk_) == 0)
        return;  // fill_unreached does what there is to do
    pair_ = 2 * kernels.lanes;
    blocks_ = div_up(p.groups, pair_);
    const dim size = static_cast<dim>(size_of(p.type));
    for (const axis_phase &f : walk_[2].phases)
        width_.push_back(chain_taps(walk_[2], f, size * roles_.in.x[2], pair_));
    if (!p.add || p_.add_strides.x[2] == roles_.out.x[2])
        merged_ = merge_columns(
            walk_[2], width_[0], roles_.in.x[2], roles_.out.x[2], p.groups, pair_, size);
    for (const axis_phase &d : walk_[0].phases)
        for (const axis_phase &h : walk_[1].phases)
            for (const chained_phase &w : width_) {
                const dim line = static_cast<dim>(w.k.size()) * pair_;
                phases_.push_back(
                    {make_lines(d, size * roles_.in.x[0], walk_[1], h, size * roles_.in.x[1], line),
                        &w, block_floats_});
                block_floats_ += static_cast<dim>(phases_.back().lines.lines.size()) * line;
            }
    choose_tasks(threads);
    check_workspace("depthwise convolution", workspace(), workspace_limit);
}

void depthwise_data::choose_tasks(int threads) {
    const dim size = static_cast<dim>(size_of(p_.type));
    const dim row_bytes =
        size * p_.groups
        * (walk_[1].in_step * walk_[2].in_length + walk_[1].out_step * walk_[2].out_length);
    rows_ = std::clamp<dim>(tile_bytes / row_bytes, 1, walk_[1].longest);
    columns_ = walk_[2].longest;
    task_blocks_ = std::clamp<dim>(weights_bytes / (4 * block_floats_), 1, blocks_);
    task_blocks_ = div_up(blocks_, div_up(blocks_, task_blocks_));
    const auto count = [&] {
        tiles_[0] = div_up(walk_[1].longest, rows_);
        tiles_[1] = div_up(walk_[2].longest, columns_);
        tiles_[2] = div_up(blocks_, task_blocks_);
        return p_.mb * walk_[0].longest * tiles_[0] * tiles_[1] * tiles_[2];
    };
    tasks_ = count();
    // Results do not depend on the tiles, so threads may decide.
    const dim wanted = threads > 1 ? tasks_per_thread * threads : 1;
    if (tasks_ < wanted) {
        task_blocks_ = std::max<dim>(1, task_blocks_ / div_up(wanted, tasks_));
        tasks_ = count();
    }
    if (tasks_ < wanted) {
        rows_ = std::max(std::min<dim>(rows_, 4), rows_ / div_up(wanted, tasks_));
        tasks_ = count();
    }
    if (tasks_ < wanted) {
        columns_ = std::min(
            columns_, round_up_to(std::max<dim>(64, columns_ / div_up(wanted, tasks_)), 8));
        tasks_ = count();
    }
    workers_ = static_cast<int>(std::min<dim>(std::max(threads, 1), tasks_));
    ahead_ = worth_fetching_ahead(p_);
}

depthwise_data::packed depthwise_data::lay_out(memory_walk &memory) const {
    packed all{};
    const dim sets = merged_.some() ? 2 : blocks_;  // of one block: for a position, and for several
    all.weights = memory.take<float>(sets * block_floats_);
    all.bias = memory.take<float>(sets * pair_);
    return all;
}

std::size_t depthwise_data::workspace() const {
    return bytes_of_walk([this](memory_walk &memory) { return lay_out(memory); });
}

depthwise_data::packed depthwise_data::prepare(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    fill_unreached(p_, roles_, walk_, kernels_, tasks_ == 0, data, threads);
    memory_walk memory(workspace);
    const packed to = lay_out(memory);
    // Few weights are converted sooner than threads are called together.
    const bool few = blocks_ * block_floats_ <= alone_floats;
    for_each_task(threads.limited(few ? 1 : workers_), blocks_,
        [&](int, dim block) { pack_weights(data, to, block); });
    return to;
}

void depthwise_data::execute(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    const packed from = prepare(data, workspace, threads);
    for_each_task(threads.limited(workers_), tasks_,
        [&](int, dim index) { run_task(data, from, make_task(index)); });
}

data_walk depthwise_data::start(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    const packed from = prepare(data, workspace, threads);
    return {p_.mb * walk_[0].longest * walk_[1].longest, blocks_, threads.threads(),
        [this, &data, from](int, const walk_piece &piece) { run_piece(data, from, piece); },
        [this, &data](const walk_piece &piece) { expect_piece(data, piece); }};
}

void depthwise_data::expect_piece(const conv::buffers &data, const walk_piece &piece) const {
    const dim height = walk_[1].longest, depth = walk_[0].longest;
    for (dim line = piece.first, rows; line < piece.last; line += rows) {
        const dim t0[3] = {line / height % depth, line % height, 0};
        rows = std::min(height - t0[1], piece.last - line);
        const dim length[3] = {1, rows, walk_[2].longest};
        for (const bool write : {false, true}) {
            tensor_box box = fresh_box(walk_, t0, length, write);
            box.n = line / height / depth;
            box.channel = piece.first_block * pair_;
            box.channels = std::min(piece.last_block * pair_, p_.groups) - box.channel;
            expect_box(write ? roles_.output(data) : roles_.input(data), p_.type,
                write ? roles_.out : roles_.in, box, write);
        }
    }
}

/// A unit is a row of positions.
void depthwise_data::run_piece(
    const conv::buffers &data, const packed &from, const walk_piece &piece) const {
    const dim height = walk_[1].longest, depth = walk_[0].longest;
    for (dim line = piece.first, rows; line < piece.last; line += rows) {
        task t{};
        t.row = line % height;
        t.depth = line / height % depth;
        t.n = line / height / depth;
        t.rows = rows = std::min(height - t.row, piece.last - line);
        t.columns = walk_[2].longest;
        for (t.block = piece.first_block; t.block < piece.last_block; t.block += t.blocks) {
            t.blocks = std::min(task_blocks_, piece.last_block - t.block);
            run_task(data, from, t);
        }
    }
}

/// [block][phase][line][tap][pair], in the kernel's order of elements.
void depthwise_data::pack_weights(const conv::buffers &data, const packed &all, dim block) const {
    const dim first = block * pair_, channels = std::min(pair_, p_.groups - first);
    float *to = all.weights + block * block_floats_;
    for (const phase &f : phases_)
        for (const line_list::indices &line : f.lines.taps)
            for (const dim k : f.width->k) {
                const dim at = line.k[0] * p_.weights.k[0] + line.k[1] * p_.weights.k[1]
                               + k * p_.weights.k[2] + first * p_.weights.g;
                load_pair(to, pair_, data.weights, p_.type, at, p_.weights.g, channels);
                if (merged_.some())
                    repeat_pair(to, to + block_floats_, pair_, p_.type, channels, merged_.each);
                to += pair_;
            }
    if (!p_.bias) return;
    load_pair(all.bias + first, pair_, data.bias, p_.type, first * p_.bias_stride, p_.bias_stride,
        channels);
    if (merged_.some())
        repeat_pair(all.bias, all.bias + pair_, pair_, p_.type, channels, merged_.each);
}

depthwise_data::task depthwise_data::make_task(dim index) const {
    task t{};
    t.block = index % tiles_[2] * task_blocks_;
    t.blocks = std::min(task_blocks_, blocks_ - t.block);
    index /= tiles_[2];
    t.column = index % tiles_[1] * columns_;
    t.columns = std::min(columns_, walk_[2].longest - t.column);
    index /= tiles_[1];
    t.row = index % tiles_[0] * rows_;
    t.rows = std::min(rows_, walk_[1].longest - t.row);
    index /= tiles_[0];
    t.depth = index % walk_[0].longest;
    t.n = index / walk_[0].longest;
    return t;
}

void depthwise_data::run_task(const conv::buffers &data, const packed &from, const task &t) const {
    depthwise_args args{};
    args.in_type = args.out_type = p_.type;
    const dim size = static_cast<dim>(size_of(p_.type));
    args.in_row = size * walk_[1].in_step * roles_.in.x[1];
    args.out_row = size * walk_[1].out_step * roles_.out.x[1];
    args.add_row = size * walk_[1].out_step * p_.add_strides.x[1];
    args.accumulate = p_.accumulate;
    args.relu = p_.relu;
    args.fresh_row = size * roles_.in.x[1];
    args.fresh_rows = ahead_ ? walk_[1].in_step : 0;
    args.out_fresh = args.out_row;
    args.weights_block = block_floats_;
    args.bias = p_.bias ? from.bias + t.block * pair_ : nullptr;
    args.bias_block = pair_;
    args.elements = std::min(t.blocks * pair_, p_.groups - t.block * pair_);
    for (const phase &f : phases_) {
        args.weights = from.weights + t.block * block_floats_ + f.weights;
        run_phase(data, args, f, t);
    }
}

void depthwise_data::run_phase(
    const conv::buffers &data, depthwise_args &args, const phase &f, const task &t) const {
    const axis_phase &d = *f.lines.outer, &h = *f.lines.inner;
    const chained_phase &w = *f.width;
    const dim row_end = std::min(t.row + t.rows, h.count),
              end = std::min(t.column + t.columns, w.count);
    if (t.depth >= d.count || t.row >= row_end) return;
    dim first_line, last_line;
    f.lines.at_outer(walk_[0], t.depth, first_line, last_line);
    args.lines = f.lines.lines.data() + first_line;
    args.line_count = last_line - first_line;
    args.rows = row_end - t.row;
    args.first_row = t.row;
    args.fresh =
        static_cast<dim>(size_of(p_.type)) * f.lines.furthest(roles_.in.x[0], roles_.in.x[1]);
    if (!merged_.some()) return run_columns(data, args, {f, t.column, end}, t);
    const dim first = std::clamp(merged_.begin, t.column, end),
              last = std::clamp(merged_.end, first, end);
    run_columns(data, args, {f, t.column, first}, t);
    if (first < last) run_merged(data, args, {f, first, last}, t);
    run_columns(data, args, {f, last, end}, t);
}

/// Where the task's columns from `column` on are read and written, `step` columns at a time; the
/// chains count from `residue`.
void depthwise_data::place(const conv::buffers &data, depthwise_args &args, const phase &f,
    const task &t, dim column, dim residue, dim step) const {
    const axis_phase &d = *f.lines.outer, &h = *f.lines.inner;
    const dim size = static_cast<dim>(size_of(p_.type)), channel = t.block * pair_;
    args.slot = size * step * walk_[2].in_step * roles_.in.x[2];
    args.out_position = size * step * walk_[2].out_step * roles_.out.x[2];
    args.add_position = size * step * walk_[2].out_step * p_.add_strides.x[2];
    args.in = static_cast<const char *>(roles_.input(data))
              + size * (t.n * roles_.in.n + channel + t.depth * walk_[0].in_step * roles_.in.x[0])
              + t.row * args.in_row + size * (column - residue) * walk_[2].in_step * roles_.in.x[2];
    const auto at = [&](const conv::data_strides &s) {
        return size
               * (t.n * s.n + channel + (d.first + t.depth * walk_[0].out_step) * s.x[0]
                   + (h.first + t.row * walk_[1].out_step) * s.x[1]
                   + (f.width->first + column * walk_[2].out_step) * s.x[2]);
    };
    args.out = static_cast<char *>(roles_.output(data)) + at(roles_.out);
    args.add = p_.add ? static_cast<const char *>(data.add) + at(p_.add_strides) : nullptr;
    args.stream = streams_ && on_lines(args.out, args.out_row, size * pair_)
                  && args.out_position % line_bytes == 0;
}

/// In classes of positions, as the taps are.
void depthwise_data::run_columns(
    const conv::buffers &data, depthwise_args &args, const columns &c, const task &t) const {
    const chained_phase &w = *c.f.width;
    args.chain_count = w.chains;
    for (dim residue = 0; residue < w.spread; ++residue) {
        const dim last = div_up(c.end - residue, w.spread);
        const dim u = std::max<dim>(0, div_up(c.begin - residue, w.spread));
        if (u >= last) continue;
        args.chains = w.of_class(residue);
        args.positions = last - u;
        args.first_position = u;
        place(data, args, c.f, t, residue + u * w.spread, residue, w.spread);
        kernels_.depthwise(args);
    }
}

/// Several positions in a pair, and a rest of them.
void depthwise_data::run_merged(
    const conv::buffers &data, depthwise_args args, const columns &c, const task &t) const {
    args.chains = merged_.chains.data();
    args.chain_count = static_cast<dim>(merged_.chains.size());
    args.first_position = 0;
    const float *weights = args.weights, *bias = args.bias;
    const dim whole = (c.end - c.begin) / merged_.each, rest = (c.end - c.begin) % merged_.each;
    for (const dim each : {merged_.each, rest}) {
        args.positions = each == merged_.each ? whole : 1;
        if (each == 0 || args.positions == 0) continue;
        const dim column = each == merged_.each ? c.begin : c.end - rest;
        args.elements = each * p_.groups;
        const bool ordered = args.elements > kernels_.lanes;
        args.weights = weights + (ordered ? block_floats_ : 0);
        if (p_.bias) args.bias = bias + (ordered ? pair_ : 0);
        place(data, args, c.f, t, column, 0, merged_.each);
        kernels_.depthwise(args);
    }
}

task_cost depthwise_data::cost_of(const task &t) const {
    double pairs = 0, outputs = 0;
    for (const phase &f : phases_) {
        const axis_phase &d = *f.lines.outer, &h = *f.lines.inner;
        const auto &w = walk_[2].phases[static_cast<std::size_t>(f.width - width_.data())];
        if (t.depth >= d.count) continue;
        pairs += inside_pairs(walk_[0], d, t.depth, 1) * inside_pairs(walk_[1], h, t.row, t.rows)
                 * inside_pairs(walk_[2], w, t.column, t.columns);
        outputs += static_cast<double>(std::max<dim>(0, std::min(t.rows, h.count - t.row)))
                   * static_cast<double>(std::max<dim>(0, std::min(t.columns, w.count - t.column)));
    }
    const auto size = static_cast<double>(size_of(p_.type));
    const auto channels = static_cast<double>(t.blocks * pair_);
    // An input position serves several results; it comes from memory once.
    double share = static_cast<double>(p_.mb);
    for (const axis_walk &walk : walk_) share *= static_cast<double>(walk.in_length);
    share /= static_cast<double>(p_.mb * walk_[0].longest * tiles_[0] * tiles_[1]);
    return {channels * pairs, size * channels * share, size * channels * outputs};
}

work_list depthwise_data::work() const {
    work_list list;
    list.macs_per_second = nominal_speed(kernels_);
    list.stages.push_back(unreached_stage(p_, roles_, walk_, tasks_ == 0, workers_));
    if (tasks_ == 0) return list;
    list.stages.push_back(
        {"weights to f32", blocks_, workers_, [this](dim, dim) {
             const auto count = static_cast<double>(block_floats_);
             return task_cost{0, count * static_cast<double>(size_of(p_.type)), 4 * count};
         }});
    list.stages.push_back(
        {"tiles", tasks_, workers_, [this](dim index, dim) { return cost_of(make_task(index)); }});
    return list;
}

std::string depthwise_data::describe() const {
    if (tasks_ == 0) return "nothing to sum";
    const auto n = [](dim v) { return std::to_string(v); };
    return "in place, vectors along channels, pairs of " + n(pair_) + ", tile " + n(rows_) + "x"
           + n(columns_) + " positions x " + n(task_blocks_) + " pairs, tasks " + n(tasks_);
}

}  // namespace convgrad::cpu
