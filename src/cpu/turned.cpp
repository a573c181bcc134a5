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
constexpr dim rows_bytes = 320 << 10;  // the same where images are cut
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

/// The first axis along which there is something to cut.
std::size_t cut_axis(const conv::problem &p) {
    std::size_t a = 0;
    while (a < 2 && p.x[a].src == 1 && p.x[a].dst == 1) ++a;
    return a;
}

/// How many ranges of rows an image may be cut into: rows that two of them read are at most half as
/// many as those that one writes.
dim most_ranges(const conv::problem &p) {
    const conv::axis &x = p.x[cut_axis(p)];
    const bool data = p.what == conv::pass::backward_data;
    const dim reach = (x.kernel - 1) * x.dilation + 1;
    const dim least = data ? std::max<dim>(2 * x.stride, 2 * (reach - 1))
                           : std::max<dim>(2, div_up(2 * (reach - x.stride), x.stride));
    return std::max<dim>(1, (data ? x.src : x.dst) / least);
}

/// What is computed of a piece: all channels of a block, whether they exist or not.
conv::problem turned_problem(
    const conv::problem &whole, dim channels, dim images, const conv::axis &rows) {
    conv::problem q = whole;
    q.x[cut_axis(whole)] = rows;
    q.mb = images;
    q.groups = channels;
    q.src = side_by_side(q, channels, &conv::axis::src);
    q.dst = side_by_side(q, channels, &conv::axis::dst);
    q.weights.g = q.bias_stride = 1;
    dim next = channels;
    for (std::size_t a = 3; a-- > 0; next *= q.x[a].kernel) q.weights.k[a] = next;
    q.diff_bias = conv::bias_gradient::none;
    if (q.what == conv::pass::backward_weights) {  // sums stay f32 until all images are in
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
    // All channels of all blocks are computed, whether they exist or not.
    const dim block = block_of(s.p, k), channels = round_up_to(s.p.groups, block);
    const conv::axis &rows = s.p.x[cut_axis(s.p)];
    const problem_sizes turned(turned_problem(s.p, channels, s.p.mb, rows));
    prediction cost = predict_depthwise(turned, k);
    // Blocks of lanes × lanes elements, shuffled `lanes` at a time, rows that two ranges read
    // twice, and what a piece costs.
    const double lanes = number(k.lanes), pair = 2 * lanes;
    const double block_seconds = lanes * 1e-9, piece_seconds = 0.1e-6;
    const double image = number(block) * s.size * std::max(s.src_positions, s.dst_positions);
    const double most = number(most_ranges(s.p)),
                 ranges = std::min(most, parts_of(image, number(rows_bytes)));
    const double again =
        (ranges - 1) * number((rows.kernel - 1) * rows.dilation) / number(rows.src);
    cost.seconds +=
        s.images * parts_of(s.groups, lanes)
            * (parts_of((1 + again) * s.src_positions, lanes) + parts_of(s.dst_positions, lanes))
            * block_seconds
        + s.images * parts_of(s.groups, pair) * ranges * piece_seconds;
    // Planes write long rows of results, past the caches where they exceed them (f32, 32 channels
    // 112×112, two threads: turned 1.5 times as long, 144 channels 56×56 0.97 to 1.15).
    constexpr double byte_seconds = 0.03e-9;
    const double written = s.maps * s.out_positions * s.size;
    if (!s.weights && written > nominal_cache * 3 / 8) cost.seconds += written * byte_seconds;
    cost.bytes = 2 * number(rows_bytes);
    cost.pieces = s.images * parts_of(s.groups, pair) * most;
    return cost;
}

turned_planes::turned_planes(
    const conv::problem &p, const kernel_set &kernels, int threads, std::size_t workspace_limit)
    : p_(p), kernels_(kernels), src_positions_(positions_of(p, &conv::axis::src)),
      dst_positions_(positions_of(p, &conv::axis::dst)),
      taps_(positions_of(p, &conv::axis::kernel)), block_(block_of(p, kernels)),
      blocks_(div_up(p.groups, block_)), axis_(cut_axis(p)) {
    choose_pieces(std::max(threads, 1));
    for (row_range &r : ranges_) r.plan = find_inner(images_, r.axis, workspace_limit);
    if (p.mb % images_ > 0)
        rest_plan_ = find_inner(p.mb % images_, ranges_[0].axis, workspace_limit);
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
    const dim most = most_ranges(p_), fewest = std::min(div_up(image, rows_bytes), most);
    dim wanted = threads > 1 ? div_up(tasks_per_thread * threads, blocks_) : 1;
    if (gradient())
        wanted = choose_parts(fewest, most);
    else
        cut_rows(std::clamp(div_up(wanted, p_.mb), fewest, most));
    const auto ranges = static_cast<dim>(ranges_.size());
    const dim groups = div_up(p_.mb, std::clamp<dim>(piece_bytes / image, 1, p_.mb));
    images_ = ranges > 1 ? 1 : div_up(p_.mb, std::clamp(wanted, groups, p_.mb));
    pieces_ = div_up(p_.mb, images_) * ranges;
    parts_ = gradient() ? std::min(wanted, pieces_) : pieces_;
}

/// Of a weights gradient, by the problem alone: as few ranges of rows as share the parts out well.
dim turned_planes::choose_parts(dim fewest, dim most) {
    constexpr double well = 0.8;
    const int cut = cut_threads(p_, kernels_);
    const dim limit = std::max<dim>(partials_most / (4 * blocks_ * block_floats()), 1);
    dim best_ranges = fewest, best_parts = 1;
    double best = 0;
    for (dim ranges = fewest; ranges <= most && best < well; ++ranges) {
        const dim units = p_.mb * ranges, all = std::min(limit, units);
        dim parts = fair_parts(units, blocks_, 1, all, cut);
        double share = share_of_parts(parts, units, blocks_, 1, cut);
        if (share < fair_enough) share = share_of_parts(parts = all, units, blocks_, 1, cut);
        if (share > best) best = share, best_ranges = ranges, best_parts = parts;
    }
    cut_rows(best_ranges);
    return best_parts;
}

/// Into so many ranges, or one where some would read nothing, or begin beyond what they read.
void turned_planes::cut_rows(dim ranges) {
    const conv::axis &x = p_.x[axis_];
    const dim length = forward_rows() ? x.dst : x.src, read = forward_rows() ? x.src : x.dst;
    const dim reach = (x.kernel - 1) * x.dilation;
    ranges_.clear();
    if (ranges == 1) return ranges_.push_back({0, length, 0, read, x, 0});
    for (dim i = 0; i < ranges; ++i) {
        row_range r{};
        r.out = length * i / ranges;
        r.out_rows = length * (i + 1) / ranges - r.out;
        const dim last = r.out + r.out_rows - 1;
        dim end;
        if (forward_rows()) {
            r.in = r.out * x.stride - x.pad;
            end = last * x.stride - x.pad + reach + 1;
        } else {
            r.in = -div_down(reach - r.out - x.pad, x.stride);
            end = div_down(last + x.pad, x.stride) + 1;
        }
        r.in = std::clamp<dim>(r.in, 0, read);
        r.in_rows = std::clamp<dim>(end, 0, read) - r.in;
        r.axis = x;
        r.axis.src = forward_rows() ? r.in_rows : r.out_rows;
        r.axis.dst = forward_rows() ? r.out_rows : r.in_rows;
        r.axis.pad =
            forward_rows() ? x.pad - r.out * x.stride + r.in : x.pad + r.out - r.in * x.stride;
        if (r.in_rows <= 0 || r.axis.pad < 0) return cut_rows(1);
        ranges_.push_back(r);
    }
}

std::size_t turned_planes::find_inner(
    dim images, const conv::axis &axis, std::size_t workspace_limit) {
    for (std::size_t i = 0; i < inner_.size(); ++i)
        if (inner_[i].images == images && inner_[i].axis == axis) return i;
    const conv::problem q = turned_problem(p_, block_, images, axis);
    inner made{images, axis, nullptr, nullptr};
    if (gradient())
        made.weights = std::make_unique<const depthwise_weights>(q, kernels_, 1, workspace_limit);
    else
        made.data = std::make_unique<const depthwise_data>(q, kernels_, 1, workspace_limit);
    inner_.push_back(std::move(made));
    return inner_.size() - 1;
}

turned_planes::piece turned_planes::make_piece(dim block, dim index) const {
    const auto ranges = static_cast<dim>(ranges_.size());
    const dim channel = block * block_, image = index / ranges * images_;
    return {channel, std::min(block_, p_.groups - channel), image, std::min(images_, p_.mb - image),
        index % ranges};
}

turned_planes::run turned_planes::src_run(const piece &part) const {
    const row_range &r = ranges_[static_cast<std::size_t>(part.range)];
    const dim each = src_positions_ / p_.x[axis_].src;
    return forward_rows() ? run{r.in * each, r.in_rows * each}
                          : run{r.out * each, r.out_rows * each};
}

turned_planes::run turned_planes::dst_run(const piece &part) const {
    const row_range &r = ranges_[static_cast<std::size_t>(part.range)];
    const dim each = dst_positions_ / p_.x[axis_].dst;
    return forward_rows() ? run{r.out * each, r.out_rows * each}
                          : run{r.in * each, r.in_rows * each};
}

turned_planes::scratch turned_planes::lay_out(memory_walk &memory) const {
    const dim row = images_ * block_ * static_cast<dim>(size_of(p_.type));
    scratch s{};
    dim src = 0, dst = 0;
    for (std::size_t i = 0; i < ranges_.size(); ++i) {
        const piece any{0, 0, 0, 0, static_cast<dim>(i)};
        src = std::max(src, src_run(any).count);
        dst = std::max(dst, dst_run(any).count);
    }
    s.src = memory.take_lines<char>(row * src);
    s.dst = memory.take_lines<char>(row * dst);
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

void turned_planes::turn_in(const void *in, const conv::data_strides &s, const run &positions,
    const piece &part, char *to) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    const char *from = static_cast<const char *>(in)
                       + size * (part.image * s.n + part.channel * s.c + positions.first);
    for (dim n = 0; n < part.images; ++n)
        kernels_.transpose({from + n * size * s.n, size * s.c, part.channels, positions.count, size,
            to + n * size * positions.count * block_, size * block_});
}

void turned_planes::turn_out(const char *from, const run &positions, const piece &part, void *out,
    const conv::data_strides &s) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    char *to =
        static_cast<char *>(out) + size * (part.image * s.n + part.channel * s.c + positions.first);
    for (dim n = 0; n < part.images; ++n)
        kernels_.transpose({from + n * size * positions.count * block_, size * block_,
            positions.count, part.channels, size, to + n * size * s.n, size * s.c});
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
        turn_in(data.src, p_.src, src_run(part), part, mine.src);
        inner_of(part).data->execute(turned, mine.inner, alone);
        turn_out(mine.dst, dst_run(part), part, data.dst, p_.dst);
    } else {
        turn_in(data.dst, p_.dst, dst_run(part), part, mine.dst);
        inner_of(part).data->execute(turned, mine.inner, alone);
        turn_out(mine.src, src_run(part), part, data.src, p_.src);
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
        turn_in(data.src, p_.src, src_run(now), now, mine.src);
        turn_in(data.dst, p_.dst, dst_run(now), now, mine.dst);
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
    dim src = 0, dst = 0;  // positions
    for (dim i = pieces_ * part / parts_; i < pieces_ * (part + 1) / parts_; ++i) {
        const piece now = make_piece(0, i);
        src += now.images * src_run(now).count;
        dst += now.images * dst_run(now).count;
    }
    const auto read = static_cast<double>(size_of(p_.type)) * static_cast<double>(block_ * src),
               met = static_cast<double>(size_of(p_.type)) * static_cast<double>(block_ * dst);
    const dim rows = p_.what == conv::pass::backward_data
                         ? div_up(src, p_.x[0].stride * p_.x[1].stride * p_.x[2].stride)
                         : dst;
    const double macs = static_cast<double>(block_ * taps_ * rows);
    if (gradient()) return {macs, read + met, 4 * static_cast<double>(block_floats())};
    if (p_.what == conv::pass::forward) return {macs, read, met};
    return {macs, met, read};
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
           + " images at a time, rows in " + n(static_cast<dim>(ranges_.size())) + " ranges, parts "
           + n(gradient() ? parts_ : 1) + ", tasks " + n(tasks());
}

}  // namespace convgrad::cpu
