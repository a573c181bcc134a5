#include "cpu/sliced.hpp"

#include <algorithm>
#include <limits>

#include "conv/taps.hpp"
#include "cpu/cost_model.hpp"
#include "cpu/element.hpp"
#include "cpu/fits.hpp"
#include "cpu/sliced_cost.hpp"
#include "cpu/tasks.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

constexpr dim piece_bytes = 256 << 10;  // of slices, in L2
constexpr dim tasks_per_thread = 8;
constexpr dim partials_most = 8 << 20;
constexpr dim row_positions = 16;         // that are interleaved before they leave
constexpr double most_weights = 1 << 20;  // that a worker holds
constexpr double most_elements = 0x1p30, most_images = 0x1p24;  // sizes do not overflow

dim positions_of(const conv::problem &p, dim conv::axis::*length) {
    return p.x[0].*length * (p.x[1].*length) * (p.x[2].*length);
}

/// Elements from each position to the next; 0: they do not lie at equal distances.
dim step_of(const conv::data_strides &s, const conv::problem &p, dim conv::axis::*length) {
    dim step = 0, next = 0;
    for (std::size_t a = 3; a-- > 0;) {
        if (p.x[a].*length == 1) continue;
        if (step == 0) step = next = s.x[a];
        if (s.x[a] != next) return 0;
        next *= p.x[a].*length;
    }
    return step == 0 ? 1 : step;
}

bool has_slices(
    const conv::data_strides &s, const conv::problem &p, dim channels, dim conv::axis::*length) {
    const dim step = step_of(s, p, length);
    return step == 1 || (step > 1 && (s.c == 1 || channels * p.groups == 1));
}

template <typename T>
void spread_values(const T *from, dim stride, dim count, float *to, dim block) {
    for (dim i = 0; i < count; ++i) to[i] = conv::to_float(from[i * stride]);
    std::fill(to + count, to + block, 0.0F);
}

/// `count` values, `stride` apart from index `at` on, as f32; zeros up to `block`.
void load_lanes(
    const void *from, data_type type, dim at, dim stride, dim count, float *to, dim block) {
    if (type == data_type::f32)
        spread_values(static_cast<const float *>(from) + at, stride, count, to, block);
    if (type == data_type::bf16)
        spread_values(static_cast<const bf16 *>(from) + at, stride, count, to, block);
    if (type == data_type::f16)
        spread_values(static_cast<const f16 *>(from) + at, stride, count, to, block);
}

}  // namespace

bool fits_sliced(const problem_sizes &s, std::string *why) {
    const conv::problem &p = s.p;
    const bool data = p.what != conv::pass::backward_weights;
    if (data && (p.add || p.accumulate)) return refuse(why, "results that are added to others");
    if (s.images > most_images || s.groups * s.ic * s.src_positions > most_elements
        || s.groups * s.oc * s.dst_positions > most_elements)
        return refuse(why, "large images, or too many");
    if (s.groups * s.ic * s.oc * s.all_taps > most_weights) return refuse(why, "many weights");
    if (p.mb == 0 || p.groups == 0 || p.ic == 0 || p.oc == 0
        || positions_of(p, &conv::axis::src) == 0 || positions_of(p, &conv::axis::dst) == 0)
        return refuse(why, "nothing to sum");
    if (!has_slices(p.src, p, p.ic, &conv::axis::src)
        || !has_slices(p.dst, p, p.oc, &conv::axis::dst))
        return refuse(why, "neither planes nor channels without gaps");
    if (p.groups == 1 && !images_fit(p)) return refuse(why, "one group, and images with gaps");
    return true;
}

conv::problem slice_problem(const conv::problem &p, slice_lanes along, dim lanes, dim items) {
    conv::problem q = p;
    q.type = q.out_type = data_type::f32;
    q.mb = items;
    q.groups = lanes;
    q.ic = q.oc = 1;
    const auto place = [&](conv::data_strides &s, dim conv::axis::*length) {
        s.c = 1;
        dim next = lanes;
        for (std::size_t a = 3; a-- > 0; next *= p.x[a].*length)
            s.x[a] = along == slice_lanes::groups ? next : s.x[a] * lanes;
        s.n = along == slice_lanes::groups ? next : 0;
    };
    place(q.src, &conv::axis::src);
    place(q.dst, &conv::axis::dst);
    q.weights = {};
    q.weights.g = q.bias_stride = 1;
    dim next = lanes;
    for (std::size_t a = 3; a-- > 0; next *= p.x[a].kernel) q.weights.k[a] = next;
    q.diff_bias = conv::bias_gradient::none;
    q.relu = q.constant_weights = false;
    if (p.what == conv::pass::backward_weights) q.accumulate = true;  // until all pieces are in
    return q;
}

conv::problem sum_problem(
    const conv::problem &p, slice_lanes along, dim lanes, dim items, const slice_pitches &pitch) {
    conv::problem q = slice_problem(p, along, lanes, items);
    if (p.what == conv::pass::backward_data) {  // taps meet slices from the last on
        q.x[0] = {1, p.oc, p.oc, 1, 1, p.oc - 1};
        q.dst.x[0] = pitch.in;
        q.weights.k[0] = -pitch.weights;
    } else {
        q.x[0] = {p.ic, 1, p.ic, 1, 1, 0};
        q.src.x[0] = pitch.in;
        q.weights.k[0] = pitch.weights;
    }
    return q;
}

bool sums_slices(const conv::problem &p) {
    return p.x[0] == conv::axis{};
}

bool images_fit(const conv::problem &p) {
    const auto dense = [&](const conv::data_strides &s, dim channels, dim conv::axis::*length) {
        const dim all = p.groups * channels, positions = positions_of(p, length),
                  step = step_of(s, p, length);
        return step != 0 && (positions - 1) * step + (all - 1) * s.c + 1 == positions * all;
    };
    return dense(p.src, p.ic, &conv::axis::src) && dense(p.dst, p.oc, &conv::axis::dst);
}

sliced_groups::sliced_groups(
    const conv::problem &p, const kernel_set &kernels, int threads, std::size_t workspace_limit)
    : p_(p), kernels_(kernels), along_(choose_slices(problem_sizes(p), kernels).along),
      taps_(positions_of(p, &conv::axis::kernel)) {
    const dim lanes = kernels.lanes, all = by_groups() ? p.groups : p.mb;
    block_ = std::min(2 * lanes, round_up_to(all, lanes));
    src_ = make_tensor(true);
    dst_ = make_tensor(false);
    // Half as many lanes where that keeps an image in the cache.
    if (!by_groups() && block_ > lanes && 4 * block_ * (src_.count + dst_.count) > 2 * piece_bytes)
        block_ = lanes;
    const auto choose = [&] {
        choose_pieces(std::max(threads, 1));
        choose_cuts(threads);
    };
    choose();
    if (!gradient() && block_ > lanes && threads > 1 && tasks() < tasks_per_thread * threads) {
        block_ = lanes;  // bits are those of each lane
        choose();
    }
    settle();
    // Whether a limit is enough must not depend on threads: it is for the smallest pieces.
    while (sums_bytes() + scratch_bytes() > workspace_limit && shrink()) settle();
    check_workspace("convolution", sums_bytes() + scratch_bytes(), workspace_limit);
    workers_ = static_cast<int>(std::min<dim>({std::max(threads, 1), tasks(),
        static_cast<dim>((workspace_limit - sums_bytes()) / scratch_bytes())}));
}

sliced_tensor sliced_groups::make_tensor(bool src) const {
    const conv::data_strides &s = src ? p_.src : p_.dst;
    const auto length = src ? &conv::axis::src : &conv::axis::dst;
    sliced_tensor t{};
    t.channels = src ? p_.ic : p_.oc;
    t.positions = positions_of(p_, length);
    t.step = step_of(s, p_, length);
    t.slice = s.c;
    t.lane = by_groups() ? t.channels * s.c : s.n;
    t.item = by_groups() ? s.n : t.channels * s.c;
    t.count = t.positions * t.channels * p_.groups;
    t.side_by_side = t.step != 1;
    return t;
}

/// Results of data passes do not depend on the pieces, so threads may decide; sums do.
void sliced_groups::choose_pieces(int threads) {
    const int cut = cut_threads(p_, kernels_);
    if (by_groups()) blocks_ = div_up(p_.groups, block_);
    const dim most = std::max<dim>(1, partials_most / (4 * block_floats() * blocks_));
    if (!by_groups()) {
        items_ = p_.groups;
        pieces_ = div_up(p_.mb, block_);
        parts_ = gradient() ? fair_parts(pieces_, 1, 1, std::min(most, pieces_), cut) : pieces_;
        return;
    }
    const dim image =
        4 * block_ * (src_.positions * src_.channels + dst_.positions * dst_.channels);
    dim wanted = threads > 1 ? div_up(tasks_per_thread * threads, blocks_) : 1;
    if (gradient()) wanted = fair_parts(p_.mb, blocks_, 1, std::min(most, p_.mb), cut);
    const dim fewest = div_up(p_.mb, std::clamp<dim>(piece_bytes / image, 1, p_.mb));
    items_ = div_up(p_.mb, std::clamp(wanted, fewest, p_.mb));
    pieces_ = div_up(p_.mb, items_);
    parts_ = gradient() ? std::min(wanted, pieces_) : pieces_;
}

/// Threads that would have nothing to do share the slices of a piece, if these leave one by one.
void sliced_groups::choose_cuts(int threads) {
    const sliced_tensor &out = p_.what == conv::pass::backward_data ? src_ : dst_;
    slices_ = sets() * out.channels;
    if (threads > 1 && (gradient() || !out.side_by_side))
        cuts_ = std::min(slices_, div_up(tasks_per_thread * threads, blocks_ * parts_));
}

/// Pieces of data passes, as far as that goes.
bool sliced_groups::shrink() {
    if (gradient() || (items_ == 1 && block_ == kernels_.lanes)) return false;
    if (!by_groups() && block_ == kernels_.lanes) return false;
    if (by_groups() && items_ > 1)
        items_ = 1;
    else
        block_ = kernels_.lanes;
    if (by_groups()) {
        blocks_ = div_up(p_.groups, block_);
        pieces_ = p_.mb;
    } else {
        pieces_ = div_up(p_.mb, block_);
    }
    parts_ = pieces_;
    return true;
}

/// Where slices lie, and their drivers. Planes of results leave one after the other from the same
/// place.
void sliced_groups::settle() {
    for (sliced_tensor *t : {&src_, &dst_}) {
        const bool result = !gradient() && (t == &dst_) == (p_.what == conv::pass::forward);
        t->staged_item = by_groups() ? t->positions * block_ : t->item * block_;
        t->staged_slice = by_groups() ? items_ * t->staged_item : t->slice * block_;
        if (result && by_groups() && !t->side_by_side) t->staged_slice = 0;
    }
    inner_bytes_ = 0;
    inner_[0] = make_inner(by_groups() ? items_ : 1);
    if (by_groups() && p_.mb % items_ > 0) inner_[1] = make_inner(p_.mb % items_);
    for (const inner &one : inner_) {
        for (const auto *data : {one.first.get(), one.more.get()})
            if (data != nullptr) inner_bytes_ = std::max(inner_bytes_, data->workspace());
        if (one.weights) inner_bytes_ = std::max(inner_bytes_, one.weights->workspace());
    }
}

sliced_groups::inner sliced_groups::make_inner(dim items) const {
    // All memory is counted together.
    constexpr std::size_t any = std::numeric_limits<std::size_t>::max();
    const bool backward = p_.what == conv::pass::backward_data;
    conv::problem q =
        sums_slices(p_) ? sum_problem(p_, along_, block_, items,
            {(backward ? dst_ : src_).staged_slice, (backward ? p_.ic : 1) * taps_ * block_})
                        : slice_problem(p_, along_, block_, items);
    if (gradient())
        return {nullptr, nullptr, std::make_unique<const depthwise_weights>(q, kernels_, 1, any)};
    inner made;
    made.first = std::make_unique<const depthwise_data>(q, kernels_, 1, any);
    if (sums_slices(p_)) return made;
    q.bias = false;
    q.accumulate = true;
    made.more = std::make_unique<const depthwise_data>(q, kernels_, 1, any);
    return made;
}

sliced_groups::piece sliced_groups::make_piece(dim block, dim index) const {
    if (!by_groups()) {
        const dim lane = index * block_;
        return {lane, std::min(block_, p_.mb - lane), 0, p_.groups};
    }
    const dim lane = block * block_, item = index * items_;
    return {lane, std::min(block_, p_.groups - lane), item, std::min(items_, p_.mb - item)};
}

sliced_groups::scratch sliced_groups::lay_out(memory_walk &memory) const {
    const auto floats = [&](const sliced_tensor &t) {
        if (!by_groups()) return t.count * block_;
        return (t.staged_slice == 0 ? 1 : t.channels) * items_ * t.staged_item;
    };
    scratch s{};
    s.src = memory.take_lines<float>(floats(src_));
    s.dst = memory.take_lines<float>(floats(dst_));
    if (!gradient()) {
        const dim out = p_.what == conv::pass::forward ? p_.oc : p_.ic;
        s.weights = memory.take_lines<float>(block_floats());
        s.bias = memory.take_lines<float>(p_.bias ? sets() * out * block_ : 0);
        s.row = memory.take_lines<float>(row_positions * most_shuffled * block_);
    }
    s.inner = memory.take_lines<char>(static_cast<dim>(inner_bytes_));
    return s;
}

std::size_t sliced_groups::scratch_bytes() const {
    return bytes_of_walk([this](memory_walk &memory) { return lay_out(memory); });
}

float *sliced_groups::lay_out_sums(memory_walk &memory) const {
    return memory.take_lines<float>(gradient() ? parts_ * blocks_ * block_floats() : 0);
}

std::size_t sliced_groups::sums_bytes() const {
    return bytes_of_walk([this](memory_walk &memory) { return lay_out_sums(memory); });
}

std::size_t sliced_groups::workspace() const {
    return sums_bytes() + scratch_bytes() * static_cast<std::size_t>(workers_);
}

/// Slices of a piece, in f32. Lanes that do not exist are zeros: they are computed too.
void sliced_groups::stage(
    const sliced_tensor &t, const void *from, const piece &part, float *to) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    pack_args args{};
    args.type = p_.type;
    args.cs = t.step;
    args.xs = t.lane;
    args.channels = t.positions;
    args.count = block_;
    args.hi = part.lanes;
    const char *in = static_cast<const char *>(from) + size * part.lane * t.lane;
    const auto pack = [&](dim at, float *out, dim pitch) {
        args.in = in + size * at;
        args.out = static_cast<char *>(static_cast<void *>(out));
        static_cast<void>(kernels_.pack_channels(args, 4 * pitch, 0));
    };
    if (!by_groups()) {  // whole images, in the order of their memory
        args.cs = 1;
        args.channels = t.count;
        return pack(0, to, block_);
    }
    const bool apart = t.side_by_side && t.channels > most_shuffled;
    if (apart) {  // the channels of one position are transposed at a time
        args.cs = 1;
        args.channels = t.channels;
    }
    for (dim n = 0; n < part.items; ++n) {
        const dim at = (part.item + n) * t.item;
        float *out = to + n * t.staged_item;
        if (apart)
            for (dim x = 0; x < t.positions; ++x)
                pack(at + x * t.step, out + x * block_, t.staged_slice);
        else
            for (dim i = 0; i < t.channels; ++i)
                pack(at + i * t.slice, out + i * t.staged_slice, block_);
    }
}

/// Results of a piece. Planes leave one by one: channel `o` of set `set`.
void sliced_groups::leave(
    const sliced_tensor &t, const scratch &s, const piece &part, void *to, dim set, dim o) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    const float *from = &t == &src_ ? s.src : s.dst;
    store_args args{};
    args.type = p_.type;
    args.relu = p_.relu;
    args.c_cs = 1;
    args.c_xs = block_;
    args.channels = part.lanes;
    args.cs = t.lane;
    args.xs = t.step;
    args.count = t.positions;
    char *out = static_cast<char *>(to) + size * part.lane * t.lane;
    if (!by_groups()) {  // a plane, or all
        args.c = from + set * t.staged_item + o * t.staged_slice;
        args.xs = 1;
        if (t.side_by_side) args.count = t.count;
        args.out = out + size * (set * t.item + o * t.slice);
        return kernels_.store(args);
    }
    for (dim n = 0; n < part.items; ++n) {
        args.c = from + n * t.staged_item;
        args.out = out + size * ((part.item + n) * t.item + o * t.slice);
        if (t.side_by_side && t.channels > 1)
            leave_interleaved(t, s, args);
        else
            kernels_.store(args);
    }
}

/// Few channels of some positions are interleaved first, many are transposed on their way.
void sliced_groups::leave_interleaved(
    const sliced_tensor &t, const scratch &s, store_args args) const {
    const dim size = static_cast<dim>(size_of(p_.type)), lanes = args.channels;
    const float *from = args.c;
    char *out = static_cast<char *>(args.out);
    args.cs = 1;
    if (t.channels > most_shuffled) {
        args.channels = t.channels;
        args.c_cs = t.staged_slice;
        args.c_xs = 1;
        args.count = lanes;
        args.xs = t.channels;
        for (dim x = 0; x < t.positions; ++x) {
            args.c = from + x * block_;
            args.out = out + size * x * t.step;
            kernels_.store(args);
        }
        return;
    }
    args.c = s.row;
    args.channels = t.channels * lanes;
    args.c_xs = t.channels * block_;
    for (dim x = 0; x < t.positions; x += row_positions) {
        args.count = std::min(row_positions, t.positions - x);
        const void *in = from + x * block_;
        void *row = s.row;
        kernels_.transpose({static_cast<const char *>(in), 4 * t.staged_slice, t.channels,
            args.count * block_, 4, static_cast<char *>(row), 4 * t.channels});
        args.out = out + size * x * t.step;
        kernels_.store(args);
    }
}

void sliced_groups::hold_weights(
    const conv::buffers &data, dim block, const piece &part, scratch &s) const {
    if (s.held == block) return;
    s.held = block;
    const conv::weights_strides &w = p_.weights;
    const dim first = by_groups() ? part.lane : 0, lane = by_groups() ? w.g : 0,
              count = by_groups() ? part.lanes : block_;
    for (dim set = 0; set < sets(); ++set)
        for (dim o = 0; o < p_.oc; ++o)
            for (dim i = 0; i < p_.ic; ++i)
                conv::for_each_tap(p_, [&](dim tap, dim at) {
                    load_lanes(data.weights, p_.type, (first + set) * w.g + o * w.o + i * w.i + at,
                        lane, count, s.weights + weights_at(set, o, i) + tap * block_, block_);
                });
    if (!p_.bias) return;
    const dim out = p_.what == conv::pass::forward ? p_.oc : p_.ic;
    for (dim set = 0; set < sets(); ++set)
        for (dim o = 0; o < out; ++o)
            load_lanes(data.bias, p_.type, ((first + set) * out + o) * p_.bias_stride,
                by_groups() ? out * p_.bias_stride : 0, count, s.bias + (set * out + o) * block_,
                block_);
}

void sliced_groups::run_piece(
    scratch &s, const conv::buffers &data, dim block, dim index, dim cut) const {
    const piece part = make_piece(block, index);
    hold_weights(data, block, part, s);
    const bool forward = p_.what == conv::pass::forward;
    const sliced_tensor &in = forward ? src_ : dst_, &out = forward ? dst_ : src_;
    stage(in, forward ? data.src : data.dst, part, forward ? s.src : s.dst);
    void *results = forward ? data.dst : data.src;
    const executor alone(nullptr, 1);
    const dim calls = sums_slices(p_) ? 1 : in.channels;
    for (dim j = first_slice(cut); j < first_slice(cut + 1); ++j) {
        const dim set = j / out.channels, o = j % out.channels;
        for (dim i = 0; i < calls; ++i) {
            conv::buffers slices;
            slices.src = s.src + set * src_.staged_item + (forward ? i : o) * src_.staged_slice;
            slices.dst = s.dst + set * dst_.staged_item + (forward ? o : i) * dst_.staged_slice;
            const dim from = forward || calls > 1 ? i : in.channels - 1;
            slices.weights = s.weights + weights_at(set, forward ? o : from, forward ? from : o);
            slices.bias = p_.bias ? s.bias + j * block_ : nullptr;
            const inner &run = inner_of(part);
            (i == 0 ? run.first : run.more)->execute(slices, s.inner, alone);
        }
        if (!out.side_by_side) leave(out, s, part, results, set, o);
    }
    if (out.side_by_side) leave(out, s, part, results, 0, 0);
}

/// Some pieces of a block, one after the other.
void sliced_groups::sum_part(
    const scratch &s, const conv::buffers &data, dim block, dim part, dim cut, float *sums) const {
    const dim each = p_.ic * taps_ * block_;
    std::fill(sums + first_slice(cut) * each, sums + first_slice(cut + 1) * each, 0.0F);
    const dim calls = sums_slices(p_) ? 1 : p_.ic;
    for (dim index = pieces_ * part / parts_; index < pieces_ * (part + 1) / parts_; ++index) {
        const piece now = make_piece(block, index);
        stage(src_, data.src, now, s.src);
        stage(dst_, data.dst, now, s.dst);
        for (dim j = first_slice(cut); j < first_slice(cut + 1); ++j)
            for (dim i = 0; i < calls; ++i) {
                const dim set = j / p_.oc, o = j % p_.oc;
                conv::buffers slices;
                slices.src = s.src + set * src_.staged_item + i * src_.staged_slice;
                slices.dst = s.dst + set * dst_.staged_item + o * dst_.staged_slice;
                slices.weights = sums + weights_at(set, o, i);
                inner_of(now).weights->execute_alone(slices, s.inner);
            }
    }
}

/// Adds the parts in order, and images up; sums leave with one rounding.
void sliced_groups::write_block(const conv::buffers &data, float *results, dim block) const {
    float *sums = results + block * parts_ * block_floats();
    for (dim part = 1; part < parts_; ++part)
        for (dim i = 0; i < block_floats(); ++i) sums[i] += sums[part * block_floats() + i];
    const dim size = static_cast<dim>(size_of(p_.out_type));
    dim first = block * block_, lanes = std::min(block_, p_.groups - first), each = block_;
    if (!by_groups()) {
        for (dim i = 0; i < block_floats(); i += block_) {
            float sum = sums[i];
            for (dim lane = 1; lane < block_; ++lane) sum += sums[i + lane];
            sums[i / block_] = sum;
        }
        first = 0;
        lanes = p_.groups;
        each = 1;
    }
    store_args args{};
    args.type = p_.out_type;
    args.accumulate = p_.accumulate;
    args.channels = lanes;
    args.c_cs = by_groups() ? 1 : p_.oc * p_.ic * taps_;
    args.cs = p_.weights.g;
    args.count = p_.oc;
    args.c_xs = p_.ic * taps_ * each;
    args.xs = p_.weights.o;
    for (dim i = 0; i < p_.ic; ++i)
        conv::for_each_tap(p_, [&](dim tap, dim at) {
            args.c = sums + (i * taps_ + tap) * each;
            args.out = static_cast<char *>(data.weights)
                       + size * (first * p_.weights.g + i * p_.weights.i + at);
            kernels_.store(args);
        });
}

void sliced_groups::execute(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    memory_walk memory(workspace);
    float *results = lay_out_sums(memory);
    char *rest = workspace + sums_bytes();
    const auto bytes = scratch_bytes();
    const executor mine = threads.limited(workers_);
    std::vector<dim> held(static_cast<std::size_t>(workers_), -1);
    for_each_task(mine, tasks(), [&](int worker, dim index) {
        memory_walk own(rest + bytes * static_cast<std::size_t>(worker));
        scratch s = lay_out(own);
        const dim cut = index % cuts_, run = index / cuts_, block = run / parts_,
                  part = run % parts_;
        if (gradient()) return sum_part(s, data, block, part, cut, results + run * block_floats());
        s.held = held[static_cast<std::size_t>(worker)];
        run_piece(s, data, block, part, cut);
        held[static_cast<std::size_t>(worker)] = s.held;
    });
    if (gradient())
        for_each_task(mine, blocks_, [&](int, dim block) { write_block(data, results, block); });
}

/// What a task costs, as modelled.
task_cost sliced_groups::cost_of(dim index) const {
    const dim part = index / cuts_ % parts_;
    const dim first = pieces_ * part / parts_, last = pieces_ * (part + 1) / parts_;
    const auto images = static_cast<double>(
        by_groups() ? std::min(last * items_, p_.mb) - first * items_ : (last - first) * block_);
    const auto size = static_cast<double>(size_of(p_.type)),
               groups = static_cast<double>(by_groups() ? block_ : p_.groups),
               src = images * groups * static_cast<double>(src_.positions * src_.channels),
               dst = images * groups * static_cast<double>(dst_.positions * dst_.channels);
    const auto cuts = static_cast<double>(cuts_);
    const double macs = dst * static_cast<double>(taps_ * p_.ic) / cuts;
    if (gradient())
        return {macs, size * (src + dst), 4 * static_cast<double>(block_floats()) / cuts};
    if (p_.what == conv::pass::forward) return {macs, size * src, size * dst / cuts};
    return {macs, size * dst, size * src / cuts};
}

work_list sliced_groups::work() const {
    work_list list;
    list.macs_per_second = nominal_speed(kernels_);
    list.stages.push_back(
        {"blocks of slices", tasks(), workers_, [this](dim index, dim) { return cost_of(index); }});
    if (!gradient()) return list;
    list.parts = parts_;
    const double each = 4 * static_cast<double>(block_floats());
    list.parts_bytes = each * static_cast<double>(parts_ * blocks_);
    list.stages.push_back({"sum of parts", blocks_, workers_, [each, parts = parts_](dim, dim) {
                               return task_cost{0, each * static_cast<double>(parts), each};
                           }});
    return list;
}

std::string sliced_groups::describe() const {
    const auto n = [](dim v) { return std::to_string(v); };
    return "slices along " + std::string(by_groups() ? "groups" : "images") + ", " + n(block_)
           + " lanes, " + (by_groups() ? n(items_) + " images at a time, " : "") + "parts "
           + n(gradient() ? parts_ : 1) + ", tasks " + n(tasks());
}

}  // namespace convgrad::cpu
