#include "cpu/turned.hpp"

#include <algorithm>
#include <cstdint>

#include "conv/taps.hpp"
#include "cpu/cost_counts.hpp"
#include "cpu/cost_model.hpp"
#include "cpu/fits.hpp"
#include "cpu/tasks.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

constexpr dim piece_bytes = 96 << 10;  // of each tensor, in L2
constexpr dim tasks_per_thread = 8;
constexpr dim partials_most = 8 << 20;
constexpr double nominal_cache = 32 << 20;    // the last one
constexpr dim most_positions = dim{1} << 24;  // and taps: sizes do not overflow

dim positions_of(const conv::problem &p, dim conv::axis::*length) {
    return p.x[0].*length * (p.x[1].*length) * (p.x[2].*length);
}

bool dense_planes(const conv::data_strides &s, const conv::problem &p, dim conv::axis::*length) {
    const dim row = p.x[2].*length;
    return s.x[2] == 1 && (p.x[1].*length == 1 || s.x[1] == row)
           && (p.x[0].*length == 1 || s.x[0] == row * (p.x[1].*length));
}

/// Strides of images with `channels` channels side by side.
conv::data_strides side_by_side(const conv::problem &p, dim channels, dim conv::axis::*length) {
    conv::data_strides s;
    s.c = 1;
    dim next = channels;
    for (std::size_t a = 3; a-- > 0; next *= p.x[a].*length) s.x[a] = next;
    s.n = next;
    return s;
}

/// What is computed of a piece: all channels of a block, whether they exist or not.
conv::problem turned_problem(const conv::problem &p, dim channels, dim images) {
    conv::problem q = p;
    q.mb = images;
    q.groups = channels;
    q.src = side_by_side(p, channels, &conv::axis::src);
    q.dst = side_by_side(p, channels, &conv::axis::dst);
    q.weights.g = q.bias_stride = 1;
    dim next = channels;
    for (std::size_t a = 3; a-- > 0; next *= p.x[a].kernel) q.weights.k[a] = next;
    q.diff_bias = conv::bias_gradient::none;
    if (p.what == conv::pass::backward_weights) {  // sums stay f32 until all images are in
        q.out_type = data_type::f32;
        q.accumulate = true;
    }
    return q;
}

/// Channels of a block: a pair of vectors, or one.
dim block_of(const conv::problem &p, const kernel_set &k) {
    return std::min<dim>(2 * k.lanes, round_up_to(p.groups, k.lanes));
}

/// `count` elements, `step` apart, side by side.
template <typename T>
void copy_elements(const void *from, dim at, dim step, dim count, char *to) {
    const T *in = static_cast<const T *>(from) + at;
    T *out = static_cast<T *>(static_cast<void *>(to));
    for (dim i = 0; i < count; ++i) out[i] = in[i * step];
}

}  // namespace

bool fits_turned(const conv::problem &p, std::string *why) {
    if (p.ic != 1 || p.oc != 1) return refuse(why, "more than one channel per group");
    if (!dense_planes(p.src, p, &conv::axis::src) || !dense_planes(p.dst, p, &conv::axis::dst))
        return refuse(why, "no planes without gaps");
    const bool data = p.what != conv::pass::backward_weights;
    if (data && (p.add || p.accumulate)) return refuse(why, "results that are added to others");
    for (const auto length : {&conv::axis::src, &conv::axis::dst, &conv::axis::kernel})
        if (number(p.x[0].*length) * number(p.x[1].*length) * number(p.x[2].*length)
            > number(most_positions))
            return refuse(why, "large planes or filters");
    if (p.mb == 0 || p.groups == 0 || positions_of(p, &conv::axis::src) == 0
        || positions_of(p, &conv::axis::dst) == 0)
        return refuse(why, "nothing to sum");
    return true;
}

prediction predict_turned(const problem_sizes &s, const kernel_set &k) {
    const problem_sizes turned(turned_problem(s.p, s.p.groups, s.p.mb));
    prediction cost = predict_depthwise(turned, k);
    // Blocks of lanes × lanes elements, shuffled `lanes` at a time, and what a piece costs.
    const double lanes = number(k.lanes), pair = 2 * lanes;
    const double block_seconds = lanes * 1e-9, piece_seconds = 0.1e-6;
    cost.seconds += s.images * parts_of(s.groups, lanes)
                        * (parts_of(s.src_positions, lanes) + parts_of(s.dst_positions, lanes))
                        * block_seconds
                    + s.images * parts_of(s.groups, pair) * piece_seconds;
    // Planes of a block that leave L2 before they are used, and results before they leave.
    constexpr double kept = 2560 << 10, again = 0.025e-9;
    const double bytes = s.size * (s.src_positions + s.dst_positions);
    if (!s.weights && number(block_of(s.p, k)) * bytes > kept)
        cost.seconds += s.maps * bytes * again;
    // The drivers of planes write results that exceed the caches past them.
    constexpr double byte_seconds = 0.03e-9;
    const double written = s.maps * s.out_positions * s.size;
    if (!s.weights && written > nominal_cache / 2) cost.seconds += written * byte_seconds;
    cost.bytes = 2 * number(piece_bytes);
    cost.pieces = s.images * parts_of(s.groups, pair);
    return cost;
}

turned_planes::turned_planes(
    const conv::problem &p, const kernel_set &kernels, int threads, std::size_t workspace_limit)
    : p_(p), kernels_(kernels), src_positions_(positions_of(p, &conv::axis::src)),
      dst_positions_(positions_of(p, &conv::axis::dst)),
      taps_(positions_of(p, &conv::axis::kernel)), block_(block_of(p, kernels)),
      blocks_(div_up(p.groups, block_)) {
    choose_pieces(std::max(threads, 1));
    inner_[0] = make_inner(images_, workspace_limit);
    if (p.mb % images_ > 0) inner_[1] = make_inner(p.mb % images_, workspace_limit);
    for (const inner &one : inner_) {
        if (one.data) inner_bytes_ = std::max(inner_bytes_, one.data->workspace());
        if (one.weights) inner_bytes_ = std::max(inner_bytes_, one.weights->workspace());
    }
    check_workspace("depthwise convolution", results_bytes() + scratch_bytes(), workspace_limit);
    workers_ = static_cast<int>(std::min<dim>({std::max(threads, 1), tasks(),
        static_cast<dim>((workspace_limit - results_bytes()) / scratch_bytes())}));
}

/// Results of data passes do not depend on the pieces, so threads may decide; sums do.
void turned_planes::choose_pieces(int threads) {
    const dim image =
        block_ * static_cast<dim>(size_of(p_.type)) * std::max(src_positions_, dst_positions_);
    dim wanted = threads > 1 ? div_up(tasks_per_thread * threads, blocks_) : 1;
    if (gradient()) {
        const dim most = std::clamp<dim>(partials_most / (4 * blocks_ * block_floats()), 1, p_.mb);
        const int cut = cut_threads(p_, kernels_);
        wanted = fair_parts(p_.mb, blocks_, 1, most, cut);
        if (share_of_parts(wanted, p_.mb, blocks_, 1, cut) < fair_enough) wanted = most;
    }
    const dim fewest = div_up(p_.mb, std::clamp<dim>(piece_bytes / image, 1, p_.mb));
    images_ = div_up(p_.mb, std::clamp(wanted, fewest, p_.mb));
    pieces_ = div_up(p_.mb, images_);
    parts_ = gradient() ? std::min(wanted, pieces_) : pieces_;
}

turned_planes::inner turned_planes::make_inner(dim images, std::size_t workspace_limit) const {
    const conv::problem q = turned_problem(p_, block_, images);
    if (gradient())
        return {
            nullptr, std::make_unique<const depthwise_weights>(q, kernels_, 1, workspace_limit)};
    return {std::make_unique<const depthwise_data>(q, kernels_, 1, workspace_limit), nullptr};
}

turned_planes::piece turned_planes::make_piece(dim block, dim index) const {
    const dim channel = block * block_, image = index * images_;
    return {
        channel, std::min(block_, p_.groups - channel), image, std::min(images_, p_.mb - image)};
}

turned_planes::scratch turned_planes::lay_out(memory_walk &memory) const {
    const dim row = images_ * block_ * static_cast<dim>(size_of(p_.type));
    scratch s{};
    s.src = memory.take_lines<char>(row * src_positions_);
    s.dst = memory.take_lines<char>(row * dst_positions_);
    s.weights = memory.take_lines<char>(4 * taps_ * block_);
    s.bias = memory.take_lines<char>(4 * block_);
    s.inner = memory.take_lines<char>(static_cast<dim>(inner_bytes_));
    return s;
}

std::size_t turned_planes::scratch_bytes() const {
    return bytes_of_walk([this](memory_walk &memory) { return lay_out(memory); });
}

float *turned_planes::lay_out_results(memory_walk &memory) const {
    return memory.take_lines<float>(gradient() ? parts_ * blocks_ * block_floats() : 0);
}

std::size_t turned_planes::results_bytes() const {
    return bytes_of_walk([this](memory_walk &memory) { return lay_out_results(memory); });
}

std::size_t turned_planes::workspace() const {
    return results_bytes() + scratch_bytes() * static_cast<std::size_t>(workers_);
}

void turned_planes::turn_in(
    const void *in, const conv::data_strides &s, dim positions, const piece &part, char *to) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    const char *from =
        static_cast<const char *>(in) + size * (part.image * s.n + part.channel * s.c);
    for (dim n = 0; n < part.images; ++n)
        kernels_.transpose({from + n * size * s.n, size * s.c, part.channels, positions, size,
            to + n * size * positions * block_, size * block_});
}

void turned_planes::turn_out(const char *from, dim positions, const piece &part, void *out,
    const conv::data_strides &s) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    char *to = static_cast<char *>(out) + size * (part.image * s.n + part.channel * s.c);
    for (dim n = 0; n < part.images; ++n)
        kernels_.transpose({from + n * size * positions * block_, size * block_, positions,
            part.channels, size, to + n * size * s.n, size * s.c});
}

/// Channels that do not exist get zeros.
void turned_planes::copy_weights(
    const conv::buffers &data, const piece &part, const scratch &to) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    const auto copy = [&](const void *from, dim at, dim step, char *row) {
        (size == 4 ? copy_elements<std::uint32_t> : copy_elements<std::uint16_t>)(from, at, step,
            part.channels, row);
        std::fill(row + size * part.channels, row + size * block_, char{0});
    };
    conv::for_each_tap(p_, [&](dim index, dim at) {
        copy(data.weights, part.channel * p_.weights.g + at, p_.weights.g,
            to.weights + index * size * block_);
    });
    if (p_.bias) copy(data.bias, part.channel * p_.bias_stride, p_.bias_stride, to.bias);
}

void turned_planes::run_piece(
    const scratch &mine, const conv::buffers &data, const piece &part) const {
    conv::buffers turned;
    turned.src = mine.src;
    turned.dst = mine.dst;
    turned.weights = mine.weights;
    turned.bias = mine.bias;
    copy_weights(data, part, mine);
    const executor alone(nullptr, 1);
    if (p_.what == conv::pass::forward) {
        turn_in(data.src, p_.src, src_positions_, part, mine.src);
        inner_of(part).data->execute(turned, mine.inner, alone);
        turn_out(mine.dst, dst_positions_, part, data.dst, p_.dst);
    } else {
        turn_in(data.dst, p_.dst, dst_positions_, part, mine.dst);
        inner_of(part).data->execute(turned, mine.inner, alone);
        turn_out(mine.src, src_positions_, part, data.src, p_.src);
    }
}

/// Some pieces of a block, one after the other.
void turned_planes::sum_part(
    const scratch &mine, const conv::buffers &data, dim block, dim part, float *sums) const {
    std::fill_n(sums, block_floats(), 0.0F);
    conv::buffers turned;
    turned.src = mine.src;
    turned.dst = mine.dst;
    turned.weights = sums;
    for (dim i = pieces_ * part / parts_; i < pieces_ * (part + 1) / parts_; ++i) {
        const piece now = make_piece(block, i);
        turn_in(data.src, p_.src, src_positions_, now, mine.src);
        turn_in(data.dst, p_.dst, dst_positions_, now, mine.dst);
        inner_of(now).weights->execute_alone(turned, mine.inner);
    }
}

/// Adds the parts in order; they leave with one rounding.
void turned_planes::write_block(const conv::buffers &data, float *results, dim block) const {
    float *sums = results + block * parts_ * block_floats();
    for (dim part = 1; part < parts_; ++part)
        for (dim i = 0; i < block_floats(); ++i) sums[i] += sums[part * block_floats() + i];
    const piece any = make_piece(block, 0);
    const dim size = static_cast<dim>(size_of(p_.out_type));
    store_args args{};
    args.c_cs = 1;
    args.channels = any.channels;
    args.count = 1;
    args.type = p_.out_type;
    args.cs = p_.weights.g;
    args.accumulate = p_.accumulate;
    conv::for_each_tap(p_, [&](dim index, dim at) {
        args.c = sums + index * block_;
        args.out = static_cast<char *>(data.weights) + size * (any.channel * p_.weights.g + at);
        kernels_.store(args);
    });
}

void turned_planes::execute(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    memory_walk memory(workspace);
    float *results = lay_out_results(memory);
    char *rest = workspace + results_bytes();
    const auto bytes = scratch_bytes();
    // Channels that do not exist are computed too: their memory has values, and keeps them.
    if (p_.groups % block_ != 0)
        std::fill_n(rest, bytes * static_cast<std::size_t>(workers_), char{0});
    const executor mine = threads.limited(workers_);
    for_each_task(mine, tasks(), [&](int worker, dim index) {
        memory_walk own(rest + bytes * static_cast<std::size_t>(worker));
        const scratch s = lay_out(own);
        const dim block = index / parts_, part = index % parts_;
        if (gradient())
            sum_part(s, data, block, part, results + index * block_floats());
        else
            run_piece(s, data, make_piece(block, part));
    });
    if (gradient())
        for_each_task(mine, blocks_, [&](int, dim block) { write_block(data, results, block); });
}

/// What a task costs, as modelled.
task_cost turned_planes::cost_of(dim index) const {
    const dim part = index % parts_;
    const dim first = pieces_ * part / parts_ * images_,
              last = std::min(pieces_ * (part + 1) / parts_ * images_, p_.mb);
    const auto size = static_cast<double>(size_of(p_.type)),
               maps = static_cast<double>(block_ * (last - first)),
               src = static_cast<double>(src_positions_), dst = static_cast<double>(dst_positions_),
               taps = static_cast<double>(taps_);
    const double macs = maps * taps * dst;
    if (gradient())
        return {macs, size * maps * (src + dst), 4 * static_cast<double>(block_floats())};
    if (p_.what == conv::pass::forward) return {macs, size * maps * src, size * maps * dst};
    return {macs, size * maps * dst, size * maps * src};
}

work_list turned_planes::work() const {
    work_list list;
    list.macs_per_second = nominal_speed(kernels_);
    list.stages.push_back({"blocks of channels", tasks(), workers_,
        [this](dim index, dim) { return cost_of(index); }});
    if (!gradient()) return list;
    list.parts = parts_;
    const double each = 4 * static_cast<double>(block_floats());
    list.parts_bytes = each * static_cast<double>(parts_ * blocks_);
    list.stages.push_back({"sum of parts", blocks_, workers_, [each, parts = parts_](dim, dim) {
                               return task_cost{0, each * static_cast<double>(parts), each};
                           }});
    return list;
}

std::string turned_planes::describe() const {
    const auto n = [](dim v) { return std::to_string(v); };
    return "blocks of " + n(block_) + " channels turned, " + n(images_)
           + " images at a time, parts " + n(gradient() ? parts_ : 1) + ", tasks " + n(tasks());
}

}  // namespace convgrad::cpu
