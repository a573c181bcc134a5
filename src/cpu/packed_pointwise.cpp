// For each task (an image × a group × a range of positions):
//   units of all its positions are made, channels that are paired by one load each    pack_unit
//   for each block of output channels:
//     out[channel][positions] = Σ weights[channel][unit] · patch[unit][positions]     multiply
// two vectors of positions at a time. With channels as rows of C no lane is empty, whatever their
// number, and nothing is transposed: tiles have channels along vectors, 24 of them in 32 lanes.
//
// Which kernels take a position depends on the values of its unit alone, so that the cut, which
// threads decide, does not show.
#include "cpu/packed_pointwise.hpp"

#include <algorithm>
#include <vector>

#include "cpu/element.hpp"
#include "cpu/tasks.hpp"
#include "cpu/tiled.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

constexpr int vectors = 2;             // of positions: 14 × 2 blocks of C load least
constexpr dim patch_most = 256 << 10;  // bytes of a task's patch: stays in L2 beside weights
constexpr dim unit_steps = 4;          // of a unit: rows of 256 bytes are read at a time

}  // namespace

struct packed_pointwise::task : pointwise_range {
    const conv::buffers *data;
};

packed_pointwise::packed_pointwise(const conv::problem &p, const kernel_set &kernels,
    const kernel_set *exact, int threads, std::size_t workspace_limit)
    : p_(p), kernels_(kernels), roles_(p), direct_(!p.bias && !p.add && !p.relu && !p.accumulate) {
    const dim positions = p.x[2].src;
    const dim fits = patch_most / (4 * k_units()) / step();
    unit_ = std::clamp<dim>(fits, 1, unit_steps) * step();
    const dim units = std::max<dim>(fits * step() / unit_, 1);
    // As few ranges as keep the threads at hand busy: each reads all weights.
    const int wanted = std::min(threads, cut_threads(p, kernels));
    double best = -1;
    for (dim each = units; each > 0; --each) {
        const dim tiles = div_up(positions, each * unit_);
        const dim tile = round_up_to(div_up(positions, tiles), unit_);
        const double skew = static_cast<double>(tiles * tile) / static_cast<double>(positions);
        const double share = fair_share_on(tiles * p.mb * p.groups, skew, wanted);
        if (share <= best) continue;
        best = share;
        cut_.set_tile(p, tile);
        if (share >= fair_enough) break;
    }
    if (exact != nullptr) exact_.reset(new packed_pointwise(*this, *exact));
    const std::size_t bytes = scratch_bytes();
    check_workspace("convolution", bytes, workspace_limit);
    cut_.workers = static_cast<int>(std::min<dim>(
        {std::max(threads, 1), cut_.tasks, static_cast<dim>(workspace_limit / bytes)}));
}

packed_pointwise::packed_pointwise(const packed_pointwise &like, const kernel_set &kernels)
    : p_(like.p_), kernels_(kernels), roles_(like.roles_), direct_(false), unit_(like.unit_) {
    cut_.tile = unit_;
}

packed_pointwise::scratch packed_pointwise::lay_out(memory_walk &memory) const {
    scratch s;
    s.weights = memory.take_lines<char>(4 * k_units() * roles_.out_c);
    s.patch = memory.take_lines<char>(cut_.tile / unit_ * k_units() * k_pitch());
    s.ranges = memory.take_lines<value_range>(cut_.tile / unit_);
    s.c = memory.take_lines<float>(kernels_.max_m[vectors] * step());
    s.bias = memory.take_lines<float>(roles_.out_c);
    if (exact_) s.exact = memory.take_lines<char>(static_cast<dim>(exact_->scratch_bytes()));
    return s;
}

std::size_t packed_pointwise::scratch_bytes() const {
    return bytes_of_walk([this](memory_walk &memory) { return lay_out(memory); });
}

std::size_t packed_pointwise::workspace() const {
    return scratch_bytes() * static_cast<std::size_t>(cut_.workers);
}

dim packed_pointwise::step() const {
    return dim{vectors} * kernels_.lanes;
}

dim packed_pointwise::k_units() const {
    return div_up(roles_.in_c, kernels_.k_per_unit);
}

/// Rows that are a multiple of 1 KiB apart would compete for the same sets of L1.
dim packed_pointwise::k_pitch() const {
    return 4 * round_up_to(unit_, step()) + line_bytes;
}

dim packed_pointwise::blocks() const {
    return div_up(roles_.out_c, kernels_.max_m[vectors]);
}

packed_pointwise::channel_block packed_pointwise::block(dim b) const {
    const dim first = roles_.out_c * b / blocks();
    return {first, roles_.out_c * (b + 1) / blocks() - first};
}

packed_pointwise::task packed_pointwise::make_task(const conv::buffers &data, dim index) const {
    return {cut_.range(p_, index), &data};
}

work_list packed_pointwise::work() const {
    return cut_.work(p_, kernels_);
}

void packed_pointwise::execute(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    cut_.execute(start(data, workspace, threads), threads);
}

data_walk packed_pointwise::start(
    const conv::buffers &data, char *workspace, const executor & /*threads*/) const {
    std::vector<scratch> workers;
    memory_walk memory(workspace);
    for (int w = 0; w < cut_.workers; ++w) workers.push_back(lay_out(memory));
    return cut_.walk(p_, std::move(workers),
        [this, &data](scratch &s, dim index) { run_task(s, make_task(data, index)); });
}

const char *packed_pointwise::input_of(const task &t) const {
    return static_cast<const char *>(roles_.input(*t.data))
           + 2 * (t.n * roles_.in.n + t.group * roles_.in_c * roles_.in.c + t.x0);
}

void packed_pointwise::run_task(scratch &s, const task &t) const {
    if (s.held != t.group) {
        s.held = t.group;
        pack_weights(s, t);
    }
    const dim units = div_up(t.count, unit_);
    value_range all;
    bool allowed = true;
    for (dim u = 0; u < units; ++u) {
        s.ranges[u] = pack_unit(s, t, u * unit_);
        all.merge(s.ranges[u]);
        allowed = allowed && (!exact_ || kernels_.limits.allow(s.ranges[u], s.weights_range));
    }
    plan_ahead(s, t);
    if (allowed) return multiply(s, t, 0, t.count, all);
    for (dim u = 0; u < units; ++u) {
        const dim first = u * unit_, last = std::min(first + unit_, t.count);
        if (kernels_.limits.allow(s.ranges[u], s.weights_range)) {
            multiply(s, t, first, last, s.ranges[u]);
            continue;
        }
        memory_walk memory(s.exact);
        scratch other = exact_->lay_out(memory);
        task unit = t;
        unit.x0 += first;
        unit.count = last - first;
        unit.next = -1;
        exact_->run_task(other, unit);
    }
}

/// What the next task packs is asked for while this one is multiplied.
void packed_pointwise::plan_ahead(scratch &s, const task &t) const {
    s.ahead = {};
    if (t.next < 0) return;
    const task next = make_task(*t.data, t.next);
    s.ahead = {fetch_lists(input_of(next), 2 * next.count,
                   {{{roles_.in_c, 2 * roles_.in.c}, {1, 0}, {1, 0}, {1, 0}}}),
        {}, blocks() * div_up(t.count, step())};
}

value_range packed_pointwise::pack_unit(const scratch &s, const task &t, dim first) const {
    const dim count = std::min(unit_, t.count - first);
    const pack_args args{input_of(t) + 2 * first, p_.type, roles_.in.c, 1, roles_.in_c,
        round_up_to(count, kernels_.lanes), 0, count,
        s.patch + first / unit_ * k_units() * k_pitch()};
    return kernels_.pack_channels(args, k_pitch(), 0);
}

/// Each block in one piece, as in pointwise_data.
void packed_pointwise::pack_weights(scratch &s, const task &t) const {
    const char *weights = static_cast<const char *>(t.data->weights) + 2 * t.group * p_.weights.g;
    s.weights_range = {};
    for (dim b = 0; b < blocks(); ++b) {
        const channel_block rows = block(b);
        const pack_args args{weights + 2 * rows.first * roles_.weights_out, p_.type,
            roles_.weights_in, roles_.weights_out, roles_.in_c, rows.count, 0, rows.count,
            s.weights + 4 * rows.first * k_units()};
        s.weights_range.merge(kernels_.pack_channels(args, 4 * rows.count, 0));
    }
    for (dim o = 0; p_.bias && o < roles_.out_c; ++o)
        s.bias[o] =
            load_float(t.data->bias, p_.type, (t.group * roles_.out_c + o) * p_.bias_stride);
}

void packed_pointwise::multiply(
    scratch &s, const task &t, dim first, dim last, const value_range &range) const {
    static constexpr dim start = 0;
    product_args args{};
    args.a_m = 4;
    args.a_run = args.b_run = &start;
    args.runs = 1;
    args.k = k_units();
    args.b_step = k_pitch();
    args.normal = format_limits::normal_sums(range, s.weights_range);
    args.ld_out = roles_.out.c;
    args.ldc = step();
    args.c = s.c;
    const dim size = static_cast<dim>(size_of(p_.type));
    for (dim b = 0; b < blocks(); ++b) {
        const channel_block rows = block(b);
        args.a = s.weights + 4 * rows.first * args.k;
        args.a_step = 4 * rows.count;
        char *out = static_cast<char *>(roles_.output(*t.data))
                    + size
                          * (t.n * roles_.out.n
                              + (t.group * roles_.out_c + rows.first) * roles_.out.c + t.x0);
        for (dim x = first; x < last; x += step()) {
            const dim count = std::min(step(), last - x), rest = count % kernels_.lanes;
            args.b = s.patch + x / unit_ * args.k * args.b_step + 4 * (x % unit_);
            s.ahead.fill(args);
            if (direct_) {
                args.out = reinterpret_cast<std::uint16_t *>(out + size * x);
                args.last = rest;
                args.stream = streams_ && count == step()
                              && on_lines(args.out, size * args.ld_out, size * count);
                if (!args.stream)
                    args.fetch[1] = {out + size * (x + step()), size * args.ld_out, rows.count};
            }
            kernels_.product(args, static_cast<int>(rows.count),
                static_cast<int>(div_up(count, kernels_.lanes)));
            if (!direct_) store(s, t, rows, x, count);
        }
    }
}

void packed_pointwise::store(
    const scratch &s, const task &t, const channel_block &rows, dim x, dim count) const {
    store_args args = results_of(p_, roles_, *t.data, t, rows, x);
    args.c = s.c;
    args.c_cs = step();
    args.count = count;
    args.bias = p_.bias ? s.bias + rows.first : nullptr;
    args.stream = streams_ && stores_lines(args);
    kernels_.store(args);
}

std::string packed_pointwise::describe() const {
    return "tile " + std::to_string(cut_.tile) + " in units of " + std::to_string(unit_)
           + ", vectors along positions, " + std::to_string(roles_.in_c) + " to "
           + std::to_string(roles_.out_c) + " channels, results where they lie, tasks "
           + std::to_string(cut_.tasks);
}

}  // namespace convgrad::cpu
