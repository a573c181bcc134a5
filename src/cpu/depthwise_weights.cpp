// The weights gradient of depthwise problems in NXC. Batch and rows are cut into units, and the
// units into parts_ runs, by the problem alone. Each task (a part × a block of channels) keeps one
// sum per tap and channel; then the parts are added in order and leave with one rounding.
#include <algorithm>

#include "conv/simplify.hpp"
#include "cpu/depthwise.hpp"
#include "cpu/tasks.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

constexpr dim unit_bytes = 24 << 10;  // both operands of a unit and a block of channels, in L1
constexpr dim sums_bytes = 12 << 10;  // of a task, in L1
constexpr dim part_positions = 256;   // at least, so that adding the parts costs little
constexpr dim partials_most = 8 << 20;

}  // namespace

depthwise_weights::depthwise_weights(
    const conv::problem &p, const kernel_set &kernels, int threads, std::size_t workspace_limit)
    : p_(p), kernels_(kernels), threads_(std::max(threads, 1)) {
    if (p_.x[2].kernel == 1 && p_.x[1].kernel > 1) conv::swap_axes(p_, 1, 2);
    for (std::size_t a = 0; a < 3; ++a) walk_[a] = walk_forward(p_.x[a]);
    taps_ = gradient_taps(p_, walk_);
    if (p.mb == 0 || p.groups == 0 || taps_.kept.empty()) return;
    pair_ = 2 * kernels.lanes;
    blocks_ = div_up(p.groups, pair_);
    const dim size = static_cast<dim>(size_of(p.type));
    width_ = chain_taps(walk_[2], walk_[2].phases[0], size * p_.src.x[2], pair_);
    merged_ = merge_columns(walk_[2], width_, p_.src.x[2], p_.dst.x[2], p.groups, pair_, size);
    const dim line = static_cast<dim>(width_.k.size()) * pair_;
    lines_ = make_lines(walk_[0].phases[0], size * p_.src.x[0], walk_[1], walk_[1].phases[0],
        size * p_.src.x[1], line);
    for (const line_list::indices &tap : lines_.taps)
        for (const dim k : width_.k)
            order_.push_back(
                tap.k[0] * p_.weights.k[0] + tap.k[1] * p_.weights.k[1] + k * p_.weights.k[2]);
    block_floats_ = static_cast<dim>(lines_.lines.size()) * line;
    const dim row_bytes =
        (merged_.some() ? p.groups : pair_) * size * (p_.x[2].dst + p_.x[2].src * p_.x[1].stride);
    rows_ = std::clamp<dim>(unit_bytes / row_bytes, 1, p_.x[1].dst);
    row_tiles_ = div_up(p_.x[1].dst, rows_);
    rows_ = div_up(p_.x[1].dst, row_tiles_);
    row_tiles_ = div_up(p_.x[1].dst, rows_);
    units_ = p_.mb * p_.x[0].dst * row_tiles_;
    ahead_ = worth_fetching_ahead(p_);
    const dim positions = p_.mb * p_.x[0].dst * p_.x[1].dst * p_.x[2].dst;
    const double skew = choose_groups();
    parts_ = fair_parts(units_, block_groups_, skew,
        std::min(positions / part_positions, partials_most / (4 * part_floats())),
        cut_threads(p_, kernels_));
    while (parts_ > 1 && workspace() > workspace_limit) --parts_;
    check_workspace("depthwise convolution", workspace(), workspace_limit);
}

/// Groups of blocks whose sums fit into L1, cut further where that keeps threads busy without
/// partial sums. Returns the largest in terms of the mean.
double depthwise_weights::choose_groups() {
    const dim fewest =
        div_up(blocks_, std::clamp<dim>(sums_bytes / (4 * block_floats_), 1, blocks_));
    const auto skew = [this](dim groups) {
        return static_cast<double>(groups * div_up(blocks_, groups)) / static_cast<double>(blocks_);
    };
    block_groups_ = fewest;
    const int threads = cut_threads(p_, kernels_);
    for (dim groups = fewest; groups <= blocks_; ++groups)
        if (fair_share(groups, skew(groups), threads) >= fair_enough) {
            block_groups_ = groups;
            break;
        }
    task_blocks_ = div_up(blocks_, block_groups_);
    return skew(block_groups_);
}

std::size_t depthwise_weights::workspace() const {
    return static_cast<std::size_t>(4 * parts_ * part_floats());
}

dim depthwise_weights::channels_of(dim block) const {
    return std::min(pair_, p_.groups - block * pair_);
}

/// Whether a block's sums are those of one vector; positions that go together have pairs.
bool depthwise_weights::one_vector(dim block) const {
    return merged_.each == 1 && channels_of(block) <= kernels_.lanes;
}

depthwise_weights::unit depthwise_weights::make_unit(dim index) const {
    unit u{};
    u.row = index % row_tiles_ * rows_;
    u.rows = std::min(rows_, p_.x[1].dst - u.row);
    index /= row_tiles_;
    u.depth = index % p_.x[0].dst;
    u.n = index / p_.x[0].dst;
    return u;
}

void depthwise_weights::execute(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    if (parts_ == 0) return taps_.write_zeros(p_, data);
    const sum_walk all = start(data, workspace, threads);
    for_each_task(threads.limited(threads_), parts_ * block_groups_, [&](int worker, dim index) {
        const dim part = index / block_groups_, group = index % block_groups_;
        all.run(worker, part, group, all.cut.begin(part), all.cut.begin(part + 1));
        if (parts_ > 1) return;  // alone sums are complete: no thread waits for another's
        float *sums = static_cast<float *>(static_cast<void *>(workspace));
        for (dim block = first_block(group); block < first_block(group + 1); ++block)
            write_block(data, sums, block);
    });
    if (parts_ > 1) all.finish(threads);
}

void depthwise_weights::execute_alone(const conv::buffers &data, char *workspace) const {
    taps_.write_zeros(p_, data);
    if (parts_ == 0) return;
    float *all = static_cast<float *>(static_cast<void *>(workspace));
    for (dim part = 0; part < parts_; ++part)
        for (dim group = 0; group < block_groups_; ++group)
            run_units(data, all, part, group, sums().begin(part), sums().begin(part + 1));
    for (dim block = 0; block < blocks_; ++block) write_block(data, all, block);
}

sum_walk depthwise_weights::start(
    const conv::buffers &data, char *workspace, const executor & /*threads*/) const {
    taps_.write_zeros(p_, data);
    float *all = static_cast<float *>(static_cast<void *>(workspace));
    return {sums(), threads_, true,
        [this, &data, all](int, dim part, dim group, dim first, dim last) {
            run_units(data, all, part, group, first, last);
        },
        [this, &data, all](const executor &pool) {
            for_each_task(pool.limited(threads_), blocks_,
                [&](int, dim block) { write_block(data, all, block); });
        },
        [this, &data](dim first_group, dim last_group, dim first, dim last) {
            for (dim i = first; i < last; ++i)
                expect_unit(data, make_unit(i), first_block(first_group), first_block(last_group));
        }};
}

void depthwise_weights::expect_unit(
    const conv::buffers &data, const unit &u, dim block, dim last_block) const {
    const dim t0[3] = {u.depth, u.row, 0}, length[3] = {1, u.rows, walk_[2].longest};
    tensor_box box = fresh_box(walk_, t0, length, false);
    box.n = u.n;
    box.channel = block * pair_;
    box.channels = std::min(last_block * pair_, p_.groups) - box.channel;
    expect_box(data.src, p_.type, p_.src, box, false);
}

void depthwise_weights::run_units(const conv::buffers &data, float *sums, dim part, dim group,
    dim first_unit, dim last_unit) const {
    const dim first = first_block(group), last = first_block(group + 1);
    float *mine = sums + part * part_floats();
    if (first_unit == units_ * part / parts_)
        std::fill(mine + first * block_floats_, mine + last * block_floats_, 0.0F);
    depthwise_gradient_args args = make_args();
    for (dim i = first_unit; i < last_unit; ++i) {
        const unit u = make_unit(i);
        if (i == first_unit || p_.x[0].dst > 1) {
            dim first_line, last_line;
            lines_.at_outer(walk_[0], u.depth, first_line, last_line);
            args.lines = lines_.lines.data() + first_line;
            args.line_count = last_line - first_line;
        }
        args.rows = u.rows;
        args.first_row = u.row;
        for (dim block = first; block < last; ++block) {
            args.sums = mine + block * block_floats_;
            run_unit(data, args, u, block);
        }
    }
}

/// What all units have in common.
depthwise_gradient_args depthwise_weights::make_args() const {
    const dim size = static_cast<dim>(size_of(p_.type));
    depthwise_gradient_args args{};
    args.type = p_.type;
    args.chain_count = width_.chains;
    args.in_row = size * walk_[1].in_step * p_.src.x[1];
    args.dst_row = size * p_.dst.x[1];
    args.slot = size * width_.slot * p_.src.x[2];
    args.fresh = size * lines_.furthest(p_.src.x[0], p_.src.x[1]);
    args.fresh_row = size * p_.src.x[1];
    args.fresh_rows = ahead_ ? walk_[1].in_step : 0;
    args.dst_position = size * width_.spread * p_.dst.x[2];
    return args;
}

void depthwise_weights::run_unit(
    const conv::buffers &data, depthwise_gradient_args &args, const unit &u, dim block) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    args.elements = channels_of(block);
    args.vector = one_vector(block);
    args.in = static_cast<const char *>(data.src)
              + size * (u.n * p_.src.n + block * pair_ + u.depth * walk_[0].in_step * p_.src.x[0])
              + u.row * args.in_row;
    args.dst = static_cast<const char *>(data.dst)
               + size * (u.n * p_.dst.n + block * pair_ + u.depth * p_.dst.x[0])
               + u.row * args.dst_row;
    if (!merged_.some()) return run_columns(args, 0, width_.count);
    run_columns(args, 0, merged_.begin);
    run_merged(args);
    run_columns(args, merged_.end, width_.count);
}

/// Columns [begin, end) of a unit, in classes as the taps are.
void depthwise_weights::run_columns(depthwise_gradient_args args, dim begin, dim end) const {
    const dim position = static_cast<dim>(size_of(p_.type)) * p_.dst.x[2], spread = width_.spread;
    const char *in = args.in, *dst = args.dst;
    for (dim c = 0; c < spread; ++c) {
        const dim u = std::max<dim>(0, div_up(begin - c, spread));
        args.positions = div_up(end - c, spread) - u;
        if (args.positions <= 0) continue;
        args.chains = width_.of_class(c);
        args.first_position = u;
        args.in = in + u * args.slot;
        args.dst = dst + (c + u * spread) * position;
        kernels_.depthwise_gradient(args);
    }
}

/// Several positions in a pair, and a rest of them. Each has sums of its own.
void depthwise_weights::run_merged(depthwise_gradient_args args) const {
    const dim position = static_cast<dim>(size_of(p_.type)) * p_.groups;
    const dim whole = (merged_.end - merged_.begin) / merged_.each,
              rest = (merged_.end - merged_.begin) % merged_.each;
    args.chains = merged_.chains.data();
    args.chain_count = static_cast<dim>(merged_.chains.size());
    args.first_position = 0;
    args.slot = args.dst_position = merged_.each * position;
    args.in += merged_.begin * position;
    args.dst += merged_.begin * position;
    args.positions = whole;
    args.elements = merged_.each * p_.groups;
    if (whole > 0) kernels_.depthwise_gradient(args);
    if (rest == 0) return;
    args.in += whole * args.slot;
    args.dst += whole * args.slot;
    args.positions = 1;
    args.elements = rest * p_.groups;
    kernels_.depthwise_gradient(args);
}

/// A pair's elements in memory order, those of one channel added up; in `values` if they are not.
const float *depthwise_weights::in_order(
    const float *pair, dim block, float (&values)[max_pair]) const {
    if (merged_.each == 1 && (p_.type != data_type::bf16 || one_vector(block))) return pair;
    const dim lanes = kernels_.lanes, step = p_.type == data_type::bf16 ? 2 : 1,
              second = step == 2 ? 1 : lanes;  // depthwise_slot(), two at a time
    for (dim i = 0; i < lanes; ++i) {
        values[step * i] = pair[i];
        values[step * i + second] = pair[lanes + i];
    }
    for (dim i = p_.groups; i < merged_.each * p_.groups; ++i) values[i % p_.groups] += values[i];
    return values;
}

void depthwise_weights::write_block(const conv::buffers &data, float *sums, dim block) const {
    float *sum = sums + block * block_floats_;
    for (dim part = 1; part < parts_; ++part) {
        const float *other = sum + part * part_floats();
        for (dim i = 0; i < block_floats_; ++i) sum[i] += other[i];
    }
    const dim size = static_cast<dim>(size_of(p_.out_type));
    const dim channels = channels_of(block);
    float values[max_pair];
    for (std::size_t tap = 0; tap < order_.size(); ++tap, sum += pair_) {
        store_args args{};
        args.c = in_order(sum, block, values);
        args.c_cs = 1;
        args.channels = channels;
        args.count = 1;
        args.out =
            static_cast<char *>(data.weights) + size * (order_[tap] + block * pair_ * p_.weights.g);
        args.type = p_.out_type;
        args.cs = p_.weights.g;
        args.accumulate = p_.accumulate;
        kernels_.store(args);
    }
}

work_list depthwise_weights::work() const {
    work_list list;
    list.macs_per_second = nominal_speed(kernels_);
    if (parts_ == 0) return list;
    list.parts = parts_;
    list.parts_bytes = 4 * static_cast<double>(parts_ * part_floats());
    list.stages.push_back(
        {"parts", parts_ * block_groups_, threads_, [this](dim index, dim) {
             const dim part = index / block_groups_, group = index % block_groups_;
             double pairs = 0, rows = 0;
             for (dim i = units_ * part / parts_; i < units_ * (part + 1) / parts_; ++i) {
                 const unit u = make_unit(i);
                 pairs += inside_pairs(walk_[0], walk_[0].phases[0], u.depth, 1)
                          * inside_pairs(walk_[1], walk_[1].phases[0], u.row, u.rows);
                 rows += static_cast<double>(u.rows);
             }
             pairs *= inside_pairs(walk_[2], walk_[2].phases[0], 0, p_.x[2].dst);
             const auto blocks = static_cast<double>(first_block(group + 1) - first_block(group));
             const double channels = static_cast<double>(pair_) * blocks,
                          size = static_cast<double>(size_of(p_.type));
             const double src = static_cast<double>(p_.x[0].src * p_.x[1].src * p_.x[2].src)
                                / static_cast<double>(p_.x[0].dst * p_.x[1].dst);
             return task_cost{channels * pairs,
                 channels * size * rows * (src + static_cast<double>(p_.x[2].dst)),
                 4 * static_cast<double>(block_floats_) * blocks};
         }});
    list.stages.push_back({"sum of parts", blocks_, threads_, [this](dim, dim) {
                               return task_cost{0, 4 * static_cast<double>(parts_ * block_floats_),
                                   4 * static_cast<double>(block_floats_)};
                           }});
    return list;
}

std::string depthwise_weights::describe() const {
    if (parts_ == 0) return "nothing to sum";
    return "in place, vectors along channels, pairs of " + std::to_string(pair_) + ", parts "
           + std::to_string(parts_) + ", blocks " + std::to_string(block_groups_) + " x "
           + std::to_string(task_blocks_);
}

}  // namespace convgrad::cpu
