// For each task (a group × a tile of rows of positions of one image):
//   rows of input are copied once for each tap along a row, padding as zeros        pack_patch
//   for each row of positions, for each block of output channels:
//     out[channel][position] = Σ weights[k][channel] · patch[k][position]           multiply_block
// where k goes over depth, height, taps of a row and channels. Rows of taps that lie outside the
// input are left out. Through a buffer only where bias, add, ReLU or old contents follow.
//
// Beside channels along vectors (folded_data) nothing is transposed on the way out, which for
// planes took a quarter of the time of a first layer; a row is copied for all output channels
// together.
#include "cpu/shifted_data.hpp"

#include <algorithm>
#include <cmath>

#include "cpu/element.hpp"
#include "cpu/fits.hpp"
#include "cpu/tasks.hpp"
#include "cpu/tiled.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

constexpr int vectors = 2;             // of positions: 14 × 2 blocks of C load least
constexpr dim patch_most = 192 << 10;  // bytes of a task's: stays in L2
constexpr dim least_positions = 64;    // of a task that is cut for many threads
constexpr dim tasks_of_thread = 4;

}  // namespace

bool fits_shifted(const conv::problem &p, std::string *why) {
    if (p.what == conv::pass::backward_weights) return refuse(why, "a weights gradient");
    if (p.type != data_type::f32) return refuse(why, "not f32");
    if (data_roles(p).out.x[2] != 1) return refuse(why, "results do not lie side by side");
    for (const conv::axis &a : p.x)
        if (p.what == conv::pass::backward_data && a.stride != 1)
            return refuse(why, "a data gradient with a stride");
    return true;
}

struct shifted_data::scratch {
    float *weights;  // of a block of output channels [unit of k][channel], then the next
    float *patch;    // [row][unit of k of a row of taps][position]
    float *c;        // [channel of a block][position]
    float *bias;
    dim *runs;      // two lists: in the weights, in the patch
    dim held = -1;  // group whose weights and bias are here
    bool nonfinite = false;
};

struct shifted_data::task : tile_place {
    const conv::buffers *data;
    dim n, group;
};

shifted_data::shifted_data(
    const conv::problem &p, const kernel_set &kernels, int threads, std::size_t workspace_limit)
    : p_(p), kernels_(kernels), roles_(p), direct_(!p.bias && !p.add && !p.relu && !p.accumulate) {
    for (std::size_t a = 0; a < 3; ++a)
        walk_[a] = roles_.forward ? walk_forward(p.x[a]) : walk_backward(p.x[a]);
    if (p.mb == 0 || p.groups == 0 || roles_.in_c == 0 || roles_.out_c == 0
        || count_taps(walk_) == 0 || count_positions(walk_) == 0)
        return;  // fill_unreached does what there is to do
    list_taps();
    // No sum depends on its tile, so that this may depend on the threads.
    choose(std::min(threads, cut_threads(p, kernels)));
    settle();
    while (scratch_bytes() > workspace_limit && shrink()) settle();
    check_workspace("convolution", scratch_bytes(), workspace_limit);
    workers_ = static_cast<int>(std::min<dim>(
        {std::max(threads, 1), tasks_, static_cast<dim>(workspace_limit / scratch_bytes())}));
}

void shifted_data::list_taps() {
    for (int a = 0; a < 3; ++a) {
        for (const axis_tap &t : walk_[a].phases.front().taps) taps_[a].push_back({t.k, t.off, 0});
        std::ranges::sort(taps_[a], {}, &tap::off);
    }
}

void shifted_data::choose(int threads) {
    const dim each = 4 * row_units() * walk_[0].in_step * walk_[1].in_step;
    dim positions = std::max(step(), patch_most / each);
    if (threads > 1)
        positions = std::max(
            least_positions, std::min(positions, div_up(count_positions(walk_) * p_.mb * p_.groups,
                                                     tasks_of_thread * dim{threads})));
    choose_tile(walk_, positions, tile_);
    // Pieces of a row in whole steps.
    tile_[2] = std::min(round_up_to(tile_[2], step()), walk_[2].longest);
}

void shifted_data::settle() {
    for (int a = 0; a < 2; ++a) {
        patch_[a] = make_patch(walk_[a], tile_[a]);
        const std::vector<axis_tap> &listed = walk_[a].phases.front().taps;
        for (tap &t : taps_[a]) {
            const auto at = std::ranges::find(listed, t.k, &axis_tap::k) - listed.begin();
            t.at = patch_[a].start[0][static_cast<std::size_t>(at)];
        }
    }
    together_ = true;
    for (std::size_t i = 1; i < taps_[1].size(); ++i)
        together_ = together_ && taps_[1][i].at == taps_[1][i - 1].at + 1;
    // An odd number of lines: rows a multiple of 1 KiB apart would share few sets of L1.
    pitch_ = round_up_to(round_up_to(tile_[2], kernels_.lanes), line_bytes / 4);
    if (pitch_ % (2 * line_bytes / 4) == 0) pitch_ += line_bytes / 4;
    tasks_ = p_.groups * p_.mb;
    for (int a = 0; a < 3; ++a) tasks_ *= tiles_[a] = div_up(walk_[a].longest, tile_[a]);
}

bool shifted_data::shrink() {
    const dim positions = tile_[0] * tile_[1] * tile_[2];
    if (positions > 1) choose_tile(walk_, positions / 2, tile_);
    return positions > 1;
}

shifted_data::scratch shifted_data::lay_out(memory_walk &memory) const {
    scratch s{};
    s.weights = memory.take_lines<float>(blocks() * block_rows() * tap_rows() * row_units());
    s.patch = memory.take_lines<float>(patch_[0].length * patch_[1].length * row_units() * pitch_);
    s.c = memory.take_lines<float>(block_rows() * pitch_);
    s.bias = memory.take_lines<float>(roles_.out_c);
    s.runs = memory.take_lines<dim>(2 * tap_rows());
    return s;
}

std::size_t shifted_data::scratch_bytes() const {
    return bytes_of_walk([this](memory_walk &memory) { return lay_out(memory); });
}

std::size_t shifted_data::workspace() const {
    return tasks_ == 0 ? 0 : scratch_bytes() * static_cast<std::size_t>(workers_);
}

dim shifted_data::step() const {
    return dim{vectors} * kernels_.lanes;
}

dim shifted_data::row_units() const {
    return static_cast<dim>(taps_[2].size()) * roles_.in_c;
}

dim shifted_data::tap_rows() const {
    return static_cast<dim>(taps_[0].size() * taps_[1].size());
}

dim shifted_data::blocks() const {
    return div_up(roles_.out_c, kernels_.max_m[vectors]);
}

dim shifted_data::block_rows() const {
    return div_up(roles_.out_c, blocks());
}

shifted_data::channel_block shifted_data::block(dim b) const {
    const dim first = roles_.out_c * b / blocks();
    return {first, roles_.out_c * (b + 1) / blocks() - first};
}

void shifted_data::execute(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    fill_unreached(p_, roles_, walk_, kernels_, tasks_ == 0, data, threads);
    if (tasks_ == 0) return;
    std::vector<scratch> workers;
    memory_walk memory(workspace);
    for (int w = 0; w < workers_; ++w) workers.push_back(lay_out(memory));
    for_each_task(threads.limited(workers_), tasks_, [&](int worker, dim index) {
        run_task(workers[static_cast<std::size_t>(worker)], make_task(data, index));
    });
}

shifted_data::task shifted_data::make_task(const conv::buffers &data, dim index) const {
    task t{};
    t.data = &data;
    index = place_tile(walk_, tile_, tiles_, index, t);
    t.n = index % p_.mb;
    t.group = index / p_.mb;
    return t;
}

work_list shifted_data::work() const {
    work_list list;
    list.macs_per_second = nominal_speed(kernels_);
    list.stages.push_back(unreached_stage(p_, roles_, walk_, tasks_ == 0, workers_));
    list.stages.push_back(
        {"tiles", tasks_, workers_, [this](dim index, dim before) {
             const conv::buffers none;
             const task t = make_task(none, index);
             const dim rows = t.length[0] * t.length[1], k = tap_rows() * row_units();
             const bool held = before >= 0 && make_task(none, before).group == t.group;
             const dim met = rows * walk_[0].in_step * walk_[1].in_step * t.length[2]
                             * walk_[2].in_step * roles_.in_c;
             return task_cost{static_cast<double>(rows * round_up_to(t.length[2], kernels_.lanes)
                                                  * k * roles_.out_c),
                 4 * static_cast<double>(met + (held ? 0 : k * roles_.out_c)),
                 4 * static_cast<double>(rows * t.length[2] * roles_.out_c)};
         }});
    return list;
}

void shifted_data::run_task(scratch &s, const task &t) const {
    if (s.held != t.group) {
        s.held = t.group;
        pack_weights(s, t);
    }
    pack_patch(s, t);
    for (dim d = 0; d < t.length[0]; ++d)
        for (dim h = 0; h < t.length[1]; ++h) multiply_row(s, t, d, h);
}

void shifted_data::pack_weights(scratch &s, const task &t) const {
    s.nonfinite = false;
    const float *weights = static_cast<const float *>(t.data->weights) + t.group * p_.weights.g;
    float *to = s.weights;
    for (dim b = 0; b < blocks(); ++b) {
        const channel_block rows = block(b);
        for (const tap &d : taps_[0])
            for (const tap &h : taps_[1])
                for (const tap &w : taps_[2])
                    for (dim i = 0; i < roles_.in_c; ++i, to += block_rows()) {
                        const float *from = weights + d.k * p_.weights.k[0] + h.k * p_.weights.k[1]
                                            + w.k * p_.weights.k[2] + i * roles_.weights_in
                                            + rows.first * roles_.weights_out;
                        for (dim o = 0; o < rows.count; ++o) {
                            to[o] = from[o * roles_.weights_out];
                            s.nonfinite = s.nonfinite || !std::isfinite(to[o]);
                        }
                    }
    }
    for (dim o = 0; p_.bias && o < roles_.out_c; ++o)
        s.bias[o] =
            load_float(t.data->bias, p_.type, (t.group * roles_.out_c + o) * p_.bias_stride);
}

void shifted_data::pack_patch(const scratch &s, const task &t) const {
    const float *in = static_cast<const float *>(roles_.input(*t.data)) + t.n * roles_.in.n
                      + t.group * roles_.in_c * roles_.in.c;
    for_each_input_row(walk_, patch_, tile_, t, roles_.in,
        [&](dim offset, dim row) { pack_row(s, t, in + offset, row); });
}

void shifted_data::pack_row(const scratch &s, const task &t, const float *in, dim row) const {
    const dim step = walk_[2].in_step, count = t.length[2];
    float *out = s.patch + row * row_units() * pitch_;
    for (const tap &w : taps_[2]) {
        const dim first = t.t0[2] * step + w.off;
        pack_args args{in + first * roles_.in.x[2], p_.type, roles_.in.c, step * roles_.in.x[2],
            roles_.in_c, round_up_to(count, kernels_.lanes), 0, 0, reinterpret_cast<char *>(out)};
        clip(first, step, count, walk_[2].in_length, args.lo, args.hi);
        kernels_.pack_channels(args, 4 * pitch_, 0);
        out += roles_.in_c * pitch_;
    }
}

/// Rows of taps that lie inside the input for row (d, h) of a tile.
void shifted_data::list_runs(
    const scratch &s, const task &t, dim d, dim h, product_args &args) const {
    const auto inside = [&](int a, dim at, const tap &k) {
        const dim in = (t.t0[a] + at) * walk_[a].in_step + k.off;
        return in >= 0 && in < walk_[a].in_length;
    };
    const dim weights = 4 * row_units() * block_rows(), patch = 4 * row_units() * pitch_;
    dim *a_run = s.runs, *b_run = s.runs + tap_rows();
    args.a_run = a_run;
    args.b_run = b_run;
    args.runs = 0;
    args.k = row_units();
    dim row = 0;
    for (const tap &kd : taps_[0]) {
        dim met = 0;
        for (const tap &kh : taps_[1]) {
            if (inside(0, d, kd) && inside(1, h, kh) && (!together_ || met++ == 0)) {
                a_run[args.runs] = row * weights;
                b_run[args.runs++] = ((kd.at + d) * patch_[1].length + kh.at + h) * patch;
            }
            ++row;
        }
        if (met > 0) args.k = met * row_units();
    }
}

void shifted_data::multiply_row(const scratch &s, const task &t, dim d, dim h) const {
    product_args args{};
    list_runs(s, t, d, h, args);
    args.a_m = 4;
    args.a_step = 4 * block_rows();
    args.b_step = 4 * pitch_;
    for (dim b = 0; b < blocks(); ++b) multiply_block(s, t, args, b, d, h);
}

void shifted_data::multiply_block(
    const scratch &s, const task &t, product_args args, dim b, dim d, dim h) const {
    const channel_block rows = block(b);
    const dim count = t.length[2];
    const bool careful = s.nonfinite && t.padded, direct = direct_ && !careful;
    float *out = direct ? static_cast<float *>(roles_.output(*t.data))
                              + out_position(roles_.out, t, rows.first, d, h)
                        : s.c;
    args.ldc = direct ? roles_.out.c : pitch_;
    args.a = bytes_at(s.weights + b * block_rows() * tap_rows() * row_units());
    for (dim x = 0; x < count; x += step()) {
        const dim width = std::min(step(), count - x);
        args.b = bytes_at(s.patch + x);
        args.c = out + x;
        args.last = width % kernels_.lanes;
        args.stream = direct && streams_ && on_lines(args.c, 4 * args.ldc, 4 * width);
        const bool asks = direct && !args.stream && x + step() < count;
        args.fetch[0] = {new_lines(bytes_at(args.c + step())), 4 * args.ldc, asks ? rows.count : 0};
        kernels_.product(
            args, static_cast<int>(rows.count), static_cast<int>(div_up(width, kernels_.lanes)));
    }
    if (careful) sum_carefully(s, t, rows, d, h);
    if (!direct) store(s, t, rows, d, h);
}

/// A padded tap must contribute nothing, but 0 · ∞ is NaN.
void shifted_data::sum_carefully(
    const scratch &s, const task &t, const channel_block &rows, dim d, dim h) const {
    const conv_phase whole{{&walk_[0].phases[0], &walk_[1].phases[0], &walk_[2].phases[0]}, 0, 0};
    for (dim o = 0; o < rows.count; ++o)
        for (dim x = 0; x < t.length[2]; ++x) {
            const dim at[3] = {t.t0[0] + d, t.t0[1] + h, t.t0[2] + x};
            if (needs_care(p_, roles_, walk_, whole, *t.data, t.group, rows.first + o, at))
                s.c[o * pitch_ + x] = careful_sum(
                    p_, roles_, walk_, whole, *t.data, t.n, t.group, rows.first + o, at);
        }
}

void shifted_data::store(
    const scratch &s, const task &t, const channel_block &rows, dim d, dim h) const {
    store_args args =
        results_from(p_, roles_, *t.data, out_position(roles_.out, t, rows.first, d, h),
            out_position(p_.add_strides, t, rows.first, d, h));
    args.c = s.c;
    args.c_cs = pitch_;
    args.channels = rows.count;
    args.count = t.length[2];
    args.bias = p_.bias ? s.bias + rows.first : nullptr;
    args.stream = streams_ && stores_lines(args);
    kernels_.store(args);
}

/// Elements from a tensor's start to a channel of the first position of row (d, h) of a tile.
dim shifted_data::out_position(
    const conv::data_strides &strides, const task &t, dim channel, dim d, dim h) const {
    return t.n * strides.n + (t.group * roles_.out_c + channel) * strides.c
           + (walk_[0].phases[0].first + t.t0[0] + d) * strides.x[0]
           + (walk_[1].phases[0].first + t.t0[1] + h) * strides.x[1]
           + (walk_[2].phases[0].first + t.t0[2]) * strides.x[2];
}

std::string shifted_data::describe() const {
    if (tasks_ == 0) return "nothing to sum";
    const auto n = [](dim v) { return std::to_string(v); };
    return "tile " + n(tile_[0]) + "x" + n(tile_[1]) + "x" + n(tile_[2])
           + ", vectors along positions, rows copied for " + n(static_cast<dim>(taps_[2].size()))
           + " taps, sums of " + n(tap_rows() * row_units()) + ", "
           + (direct_ ? "results where they lie, " : "") + "tasks " + n(tasks_);
}

}  // namespace convgrad::cpu
