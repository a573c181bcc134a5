// For each task (an image × a group × a range of positions), for each block of output channels:
//   out[channel][positions] = Σ weights[channel][in channel] · in[in channel][positions]   multiply
// two vectors of positions at a time, straight from tensor to tensor. The range is read from memory
// for the first block and from L2 for the others; with all channels before the next positions every
// store would begin a line of another page (24 → 144 channels: 49 instead of 76 GFLOP/s). Through a
// buffer only where the last vector is not whole, or where bias, add or ReLU follow.
//
// Where the kernels can, the first block copies what it reads, and a range goes in stretches whose
// copy stays in L1 for the other blocks: blocks of few channels (AVX2's six) go through the input
// often, where each channel is a page of its own.
#include "cpu/pointwise.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include "cpu/element.hpp"
#include "cpu/fits.hpp"
#include "cpu/memory_walk.hpp"
#include "cpu/prefetch.hpp"
#include "cpu/tasks.hpp"
#include "cpu/tiled.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

constexpr int vectors = 2;              // of positions: 14 × 2 blocks of C load least
constexpr dim range_bytes = 256 << 10;  // of all reduced channels: stays in L2
constexpr dim copy_bytes = 16 << 10;    // in L1
// Copies pay (1.05 to 1.2 times the speed) where the input is read often and its channels are more
// pages than the first-level TLB holds; else they cost (24 ↔ 144 channels: 0.88 to 0.96).
constexpr dim few_blocks = 4, few_pages = 64;

dim step_of(const kernel_set &kernels) {
    return dim{vectors} * kernels.lanes;
}

/// Of one worker.
struct worker_memory {
    float *weights;  // of a block of output channels [reduced channel][channel], then the next
    float *in;       // [reduced channel][step]: positions of which the last vector is not whole
    float *copy;     // of a stretch of positions: a step [reduced channel][step], then the next
    float *c;        // [channel of a block][step]
    float *bias;
};

worker_memory lay_out(
    const data_roles &roles, const kernel_set &kernels, dim copied, memory_walk &memory) {
    worker_memory m{};
    m.weights = memory.take_lines<float>(roles.in_c * roles.out_c);
    m.in = memory.take<float>(roles.in_c * step_of(kernels));
    m.copy = memory.take_lines<float>(roles.in_c * copied);
    m.c = memory.take<float>(kernels.max_m[vectors] * step_of(kernels));
    m.bias = memory.take_lines<float>(roles.out_c);
    return m;
}

std::size_t scratch_bytes(const data_roles &roles, const kernel_set &kernels, dim copied) {
    return bytes_of_walk(
        [&](memory_walk &memory) { return lay_out(roles, kernels, copied, memory); });
}

}  // namespace

bool fits_pointwise(const conv::problem &p, const kernel_set &kernels, std::string *why) {
    const data_roles roles(p);
    if (p.what == conv::pass::backward_weights) return refuse(why, "a weights gradient");
    if (p.type != data_type::f32 && kernels.format == operand_format::fma)
        return refuse(why, "not f32");
    for (const conv::axis &a : p.x)
        if (a.kernel != 1 || a.stride != 1 || a.pad != 0 || a.src != a.dst)
            return refuse(why, "more than one tap, a stride or padding");
    if (p.x[0].src != 1 || p.x[1].src != 1 || roles.in.x[2] != 1 || roles.out.x[2] != 1)
        return refuse(why, "positions do not lie side by side");
    if (p.mb == 0 || p.groups == 0 || roles.in_c == 0 || roles.out_c == 0 || p.x[2].src == 0)
        return refuse(why, "nothing to sum");
    return true;
}

struct pointwise_data::scratch : worker_memory {
    dim held;           // group whose weights and bias are here
    fetch_ahead ahead;  // input of the next task
};

struct pointwise_data::task : pointwise_range {
    const conv::buffers *data;
    const float *in;  // channel 0 of the group
    float *out;
};

pointwise_data::pointwise_data(
    const conv::problem &p, const kernel_set &kernels, int threads, std::size_t workspace_limit)
    : p_(p), kernels_(kernels), roles_(p), buffered_(p.bias || p.add || p.relu) {
    const dim positions = p.x[2].src;
    const dim most = std::clamp<dim>(range_bytes / (4 * roles_.in_c) / step(), 2, 32) * step();
    // Short ranges read all weights for a few positions. No sum depends on its range, so that it
    // may depend on the threads.
    const int wanted = std::min(threads, cut_threads(p, kernels));
    dim tile = most;
    for (; tile > step(); tile -= step()) {
        const dim tiles = div_up(positions, tile);
        const double skew = static_cast<double>(tiles * tile) / static_cast<double>(positions);
        if (fair_share(tiles * p.mb * p.groups, skew, wanted) >= fair_enough) break;
    }
    cut_.set_tile(p, tile);
    copies_ = kernels.copies && blocks() > few_blocks && roles_.in_c > few_pages;
    stretch_ =
        copies_ ? std::clamp(copy_bytes / (4 * roles_.in_c) / step() * step(), step(), tile) : tile;
    bytes_ = scratch_bytes(roles_, kernels, copied());
    check_workspace("convolution", bytes_, workspace_limit);
    cut_.workers = static_cast<int>(std::min<dim>(
        {std::max(threads, 1), cut_.tasks, static_cast<dim>(workspace_limit / bytes_)}));
}

dim pointwise_data::step() const {
    return step_of(kernels_);
}

dim pointwise_data::copied() const {
    return copies_ ? round_up_to(stretch_, step()) : 0;
}

std::size_t pointwise_data::workspace() const {
    return bytes_ * static_cast<std::size_t>(cut_.workers);
}

pointwise_data::task pointwise_data::make_task(const conv::buffers &data, dim index) const {
    task t{cut_.range(p_, index), &data, nullptr, nullptr};
    t.in = input_of(t);
    t.out = static_cast<float *>(roles_.output(data)) + t.n * roles_.out.n
            + t.group * roles_.out_c * roles_.out.c + t.x0;
    return t;
}

work_list pointwise_data::work() const {
    return cut_.work(p_, kernels_);
}

void pointwise_data::execute(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    cut_.execute(start(data, workspace, threads), threads);
}

data_walk pointwise_data::start(
    const conv::buffers &data, char *workspace, const executor & /*threads*/) const {
    std::vector<scratch> workers;
    memory_walk memory(workspace);
    for (int w = 0; w < cut_.workers; ++w)
        workers.push_back({lay_out(roles_, kernels_, copied(), memory), -1, {}});
    return cut_.walk(p_, std::move(workers),
        [this, &data](scratch &s, dim index) { run_task(s, make_task(data, index)); });
}

const float *pointwise_data::input_of(const task &t) const {
    return static_cast<const float *>(roles_.input(*t.data)) + t.n * roles_.in.n
           + t.group * roles_.in_c * roles_.in.c + t.x0;
}

void pointwise_data::run_task(scratch &s, const task &t) const {
    if (s.held != t.group) {
        s.held = t.group;
        pack_weights(s, t);
    }
    const dim last = t.count % step();  // positions of a step that is not whole
    if (last % kernels_.lanes != 0)
        for (dim c = 0; c < roles_.in_c; ++c) {
            float *to = s.in + c * step();
            std::memcpy(
                to, t.in + c * roles_.in.c + t.count - last, static_cast<std::size_t>(4 * last));
            std::fill(to + last, to + step(), 0.0F);
        }
    for (dim first = 0; first < t.count; first += stretch_) {
        const stretch x{first, std::min(first + stretch_, t.count)};
        plan_ahead(s, t, x);
        for (dim b = 0; b < blocks(); ++b) multiply_block(s, t, block(b), x);
    }
}

void pointwise_data::multiply_block(
    scratch &s, const task &t, const channel_block &rows, const stretch &all) const {
    for (dim x = all.first; x < all.last; x += step()) {
        const dim count = std::min(step(), all.last - x);
        multiply(s, t, rows, all, x, count);
        if (buffered_ || count % kernels_.lanes != 0) store(s, t, rows, x, count);
    }
}

dim pointwise_data::blocks() const {
    return div_up(roles_.out_c, kernels_.max_m[vectors]);
}

pointwise_data::channel_block pointwise_data::block(dim b) const {
    const dim first = roles_.out_c * b / blocks();
    return {first, roles_.out_c * (b + 1) / blocks() - first};
}

/// Whether positions [x, x + count) go past the caches.
bool pointwise_data::streams(const task &t, dim x, dim count) const {
    return streams_ && on_lines(t.out + x, 4 * roles_.out.c, 4 * count);
}

/// Asks for what the step from position x on will need, and blocks after the first for some of
/// what the next stretch or task begins with.
void pointwise_data::expect_next(scratch &s, const task &t, const channel_block &rows,
    const stretch &all, dim x, product_args &args) const {
    if (rows.first > 0) s.ahead.fill(args);
    if (copies_ && x >= all.last) {
        const dim next = rows.first + rows.count;
        if (next < roles_.out_c)
            expect_results(
                t, {next, std::min(rows.count, roles_.out_c - next)}, all.first, all.last);
        return;
    }
    const dim count = std::min(step(), t.count - x);
    if (count <= 0) return;
    dim left = roles_.in_c;                          // k units
    const bool one_line = 4 * step() <= line_bytes;  // lists fetch two
    const bool writes = !streams(t, x, count);
    if (one_line) {
        expect_results(t, rows, x, x + count);
    } else if (writes) {
        args.fetch[1] = args.fetch[0];
        args.fetch[0] = {new_lines(bytes_at(t.out + rows.first * roles_.out.c + x)),
            4 * roles_.out.c, rows.count};
        left -= std::min(left, rows.count);
    }
    if (rows.first > 0 || copies_) return;  // all of it has been read, or asked for
    args.fetch[1] = {new_lines(bytes_at(t.in + x)), 4 * roles_.in.c, left};
    for (dim c = left; c < roles_.in_c; ++c)
        expect_read(bytes_at(t.in + c * roles_.in.c + x), 4 * count);
}

/// The first of the results at positions [x, last) will be written.
void pointwise_data::expect_results(
    const task &t, const channel_block &rows, dim x, dim last) const {
    const dim count = std::min(step(), last - x);
    if (streams(t, x, count)) return;
    for (dim c = rows.first; c < rows.first + rows.count; ++c)
        expect_write(bytes_at(t.out + c * roles_.out.c + x), 4 * count);
}

/// What is read next would be waited for: all of the next stretch where this one is copied, of
/// tasks in one piece the first step. With more output channels than that are read, results are
/// most of the traffic: it gained nothing there (0.98).
void pointwise_data::plan_ahead(scratch &s, const task &t, const stretch &all) const {
    s.ahead = {};
    if (blocks() == 1 || (!copies_ && roles_.in_c < roles_.out_c)) return;
    const bool inside = all.last < t.count;
    if (!inside && t.next < 0) return;
    const task next = inside ? t : make_task(*t.data, t.next);
    const dim first = inside ? all.last : 0;
    const dim count = std::min(copies_ ? stretch_ : step(), next.count - first);
    s.ahead = {fetch_lists(bytes_at(input_of(next) + first), 4 * count,
                   {{{roles_.in_c, 4 * roles_.in.c}, {1, 0}, {1, 0}, {1, 0}}}),
        {}, (blocks() - 1) * div_up(all.last - all.first, step())};
}

/// Each block in one piece: rows of all output channels would be 4 KiB apart for 1,024 of them, in
/// the same few lines of L1.
void pointwise_data::pack_weights(const scratch &s, const task &t) const {
    const float *weights = static_cast<const float *>(t.data->weights) + t.group * p_.weights.g;
    float *to = s.weights;
    for (dim b = 0; b < blocks(); ++b) {
        const channel_block rows = block(b);
        for (dim i = 0; i < roles_.in_c; ++i)
            for (dim o = rows.first; o < rows.first + rows.count; ++o)
                *to++ = weights[i * roles_.weights_in + o * roles_.weights_out];
    }
    for (dim o = 0; p_.bias && o < roles_.out_c; ++o)
        s.bias[o] =
            load_float(t.data->bias, p_.type, (t.group * roles_.out_c + o) * p_.bias_stride);
}

void pointwise_data::multiply(scratch &s, const task &t, const channel_block &rows,
    const stretch &all, dim x, dim count) const {
    static constexpr dim start = 0;
    const bool whole = count % kernels_.lanes == 0, direct = whole && !buffered_;
    const dim width = dim{kernels_.lanes} * div_up(count, kernels_.lanes);
    product_args args{};
    args.a = bytes_at(s.weights + rows.first * roles_.in_c);
    args.a_m = 4;
    args.a_step = 4 * rows.count;
    args.a_run = args.b_run = &start;
    args.runs = 1;
    args.k = roles_.in_c;
    args.b = bytes_at(whole ? t.in + x : s.in);
    args.b_step = 4 * (whole ? roles_.in.c : step());
    if (whole && copies_) {
        float *copy = s.copy + (x - all.first) * roles_.in_c;
        if (rows.first == 0) {
            args.copy = reinterpret_cast<char *>(copy);
        } else {
            args.b = bytes_at(copy);
            args.b_step = 4 * width;
        }
    }
    args.c = direct ? t.out + rows.first * roles_.out.c + x : s.c;
    args.ldc = direct ? roles_.out.c : step();
    args.accumulate = direct && p_.accumulate;
    args.stream = direct && streams(t, x, count);
    expect_next(s, t, rows, all, x + count, args);
    kernels_.product(args, static_cast<int>(rows.count), static_cast<int>(width / kernels_.lanes));
}

void pointwise_data::store(
    const scratch &s, const task &t, const channel_block &rows, dim x, dim count) const {
    store_args args = results_of(p_, roles_, *t.data, t, rows, x);
    args.c = s.c;
    args.c_cs = step();
    args.count = count;
    args.bias = p_.bias ? s.bias + rows.first : nullptr;
    args.stream = streams(t, x, count);
    kernels_.store(args);
}

std::string pointwise_data::describe() const {
    return "tile " + std::to_string(cut_.tile) + ", vectors along positions, "
           + std::to_string(roles_.in_c) + " to " + std::to_string(roles_.out_c)
           + " channels where they lie, tasks " + std::to_string(cut_.tasks);
}

}  // namespace convgrad::cpu
