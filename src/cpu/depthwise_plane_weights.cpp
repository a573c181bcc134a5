// The weights gradient of depthwise problems in NCX. Batch and positions are cut into tiles, and
// the tiles into parts_ runs, by the problem alone. Each task (a part × some planes) copies both
// operands of a tile to f32, dst with zeros in the gaps, keeps a vector of sums per tap, and adds
// its lanes at the end; then the parts are added in order and leave with one rounding.
#include <algorithm>
#include <memory>

#include "cpu/depthwise_planes.hpp"
#include "cpu/element.hpp"
#include "cpu/tasks.hpp"
#include "cpu/tiled.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

constexpr dim copy_bytes = 16 << 10;     // of each operand, in L1
constexpr dim volume_bytes = 128 << 10;  // in L2, where planes are read several times
constexpr dim tasks_wanted = 256;
constexpr dim partials_most = 8 << 20;

}  // namespace

struct plane_weights::scratch {
    float *src, *dst, *sums;
    bool cleared = false;
};

plane_weights::plane_weights(
    const conv::problem &p, const kernel_set &kernels, int threads, std::size_t workspace_limit)
    : plane_driver(p, kernels) {
    kept_ = gradient_taps(p_, walk_);
    if (p.mb == 0 || p.groups == 0 || p.oc == 0 || kept_.kept.empty()) return;
    choose_layout(p_.x[0].kernel > 1 ? volume_bytes : copy_bytes, 1);
    const auto settle_all = [&] {
        const plane_layout &l = layout_;
        chains_ = chain_taps(walk_[1], walk_[1].phases[0], 4 * l.row, pair_);
        lines_.clear();
        order_.clear();
        for (std::size_t w = 0; w < walk_[2].phases[0].taps.size(); ++w)
            for (const axis_tap &tap : walk_[0].phases[0].taps) {
                lines_.push_back({4 * (l.patch.start[0][w] + tap.off * l.plane_floats()),
                    static_cast<dim>(order_.size()) * pair_, -div_down(tap.off, walk_[0].in_step),
                    -div_down(tap.off - walk_[0].in_length, walk_[0].in_step)});
                for (const dim k : chains_.k)
                    order_.push_back(tap.k * p_.weights.k[0] + k * p_.weights.k[1]
                                     + walk_[2].phases[0].taps[w].k * p_.weights.k[2]);
            }
        dst_floats_ = l.tile[0] * l.tile[1] * dst_row() + pair_;
        tiles_all_ = tile_count();
        parts_ = std::clamp<dim>(
            std::min(div_up(tasks_wanted, l.blocks), partials_most / (4 * part_floats())), 1,
            tiles_all_);
    };
    settle_all();
    while (results_bytes() + scratch_bytes() > workspace_limit && parts_ > 1) --parts_;
    while (results_bytes() + scratch_bytes() > workspace_limit && shrink()) {
        settle_all();
        parts_ = 1;
    }
    check_workspace("depthwise convolution", results_bytes() + scratch_bytes(), workspace_limit);
    workers_ = static_cast<int>(std::min<dim>({std::max(threads, 1), parts_ * layout_.blocks,
        static_cast<dim>((workspace_limit - results_bytes()) / scratch_bytes())}));
}

dim plane_weights::sum_blocks() const {
    return layout_.planes == 1 ? 1 : div_up(layout_.lanes, pair_);
}

float *plane_weights::lay_out_results(memory_walk &memory) const {
    return memory.take_lines<float>(parts_ * part_floats());
}

plane_weights::scratch plane_weights::lay_out(memory_walk &memory) const {
    scratch s{};
    s.src = memory.take<float>(layout_.copy_floats());
    s.dst = memory.take<float>(dst_floats_);
    s.sums = memory.take<float>(p_.oc * sum_blocks() * taps() * pair_);
    return s;
}

std::size_t plane_weights::results_bytes() const {
    return bytes_of_walk([this](memory_walk &memory) { return lay_out_results(memory); });
}

std::size_t plane_weights::scratch_bytes() const {
    return bytes_of_walk([this](memory_walk &memory) { return lay_out(memory); });
}

std::size_t plane_weights::workspace() const {
    if (parts_ == 0) return 0;
    return results_bytes() + scratch_bytes() * static_cast<std::size_t>(workers_);
}

void plane_weights::execute(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    if (parts_ == 0) return kept_.write_zeros(p_, data);
    const sum_walk all = start(data, workspace, threads);
    for_each_task(threads.limited(workers_), parts_ * layout_.blocks, [&](int worker, dim index) {
        const dim part = index / layout_.blocks;
        all.run(worker, part, index % layout_.blocks, all.cut.begin(part), all.cut.begin(part + 1));
    });
    all.finish(threads);
}

sum_walk plane_weights::start(
    const conv::buffers &data, char *workspace, const executor & /*threads*/) const {
    kept_.write_zeros(p_, data);
    memory_walk memory(workspace);
    float *results = lay_out_results(memory);
    const auto workers = std::make_shared<std::vector<scratch>>();
    for (int w = 0; w < workers_; ++w) workers->push_back(lay_out(memory));
    return {sums(), workers_, false,
        [this, &data, workers, results](int worker, dim part, dim block, dim first, dim last) {
            run_tiles((*workers)[static_cast<std::size_t>(worker)], data, results, part, block,
                first, last);
        },
        [this, &data, results](const executor &pool) {
            for_each_task(pool.limited(workers_), layout_.blocks,
                [&](int, dim block) { write_block(data, results, block); });
        },
        [this, &data](dim first_block, dim last_block, dim first, dim last) {
            for (dim block = first_block; block < last_block; ++block)
                for (dim tile = first; tile < last; ++tile) {
                    const plane_task t = make_task(block * tiles_all_ + tile);
                    tensor_box box = fresh_box(walk_, t.t0, t.length, false);
                    box.n = t.n;
                    box.channel = t.group;
                    box.channels = t.planes;
                    expect_box(data.src, p_.type, p_.src, box, false);
                }
        }};
}

/// Some tiles of a part; the first ones clear its sums, the last ones fold them.
void plane_weights::run_tiles(scratch &s, const conv::buffers &data, float *results, dim part,
    dim block, dim first, dim last) const {
    const plane_task any = make_task(block * tiles_all_);
    float *mine = results + part * part_floats() + any.group * p_.oc * taps();
    if (first == sums().begin(part)) {
        std::fill_n(s.sums, p_.oc * sum_blocks() * taps() * pair_, 0.0F);
        std::fill_n(mine, any.planes * p_.oc * taps(), 0.0F);
    }
    for (dim tile = first; tile < last; ++tile)
        add_tile(s, data, make_task(block * tiles_all_ + tile), mine);
    if (last == sums().begin(part + 1)) fold(s, any.planes, mine);
}

void plane_weights::add_tile(
    scratch &s, const conv::buffers &data, const plane_task &t, float *results) const {
    const plane_layout &l = layout_;
    if (!s.cleared) {
        std::fill_n(s.src, l.copy_floats(), 0.0F);
        std::fill_n(s.dst, dst_floats_, 0.0F);
        s.cleared = true;
    }
    bool all_finite = true;
    const bool finite_src = copy_in(t, data.src, p_.src, t.group, 1, s.src);
    const dim size = static_cast<dim>(size_of(p_.type)), row = dst_row();
    for (dim m = 0; m < p_.oc; ++m) {
        bool finite = finite_src;
        for (dim plane = 0; finite && plane < t.planes; ++plane) {
            float *to = s.dst + plane * l.pitch;
            finite &= kernels_.widen_rows(
                {static_cast<const char *>(data.dst)
                        + size
                              * (t.n * p_.dst.n + ((t.group + plane) * p_.oc + m) * p_.dst.c
                                  + t.t0[0] * p_.dst.x[0] + t.t0[1] * p_.dst.x[1] + t.t0[2]),
                    p_.type, size * p_.dst.x[0], size * p_.dst.x[1], t.length[0], t.length[1],
                    t.length[2], 1, to, l.tile[1] * row, row, true});
            for (dim d = 0; t.length[2] < l.tile[2] && d < t.length[0]; ++d)
                for (dim y = 0; y < t.length[1]; ++y) {
                    float *line = to + (d * l.tile[1] + y) * row;
                    std::fill(line + t.length[2], line + l.tile[2], 0.0F);
                }
        }
        // Zeros stand for padding and fill gaps; what they are multiplied by must be finite.
        if (finite) {
            add_products(s, t, s.sums + m * sum_blocks() * taps() * pair_);
        } else {
            add_careful(data, t, m, results);
            all_finite = false;
        }
    }
    s.cleared = all_finite;  // nothing that is not finite stays where a later tile has gaps
}

void plane_weights::add_products(const scratch &s, const plane_task &t, float *sums) const {
    const plane_layout &l = layout_;
    const dim row = dst_row(), spread = chains_.spread;
    depthwise_gradient_args args{};
    args.type = data_type::f32;
    args.lines = lines_.data();
    args.line_count = static_cast<dim>(lines_.size());
    args.chain_count = chains_.chains;
    args.elements = pair_;
    args.rows = t.length[0];
    args.first_row = t.t0[0];
    args.in_row = 4 * walk_[0].in_step * l.plane_floats();
    args.dst_row = 4 * l.tile[1] * row;
    args.slot = 4 * chains_.slot * l.row;
    args.dst_position = 4 * spread * row;
    const auto bytes = [](const float *p) {
        return static_cast<const char *>(static_cast<const void *>(p));
    };
    for (dim c = 0; c < spread; ++c) {
        const dim u = std::max<dim>(0, div_up(t.t0[1] - c, spread));
        args.positions = div_up(t.t0[1] + t.length[1] - c, spread) - u;
        if (args.positions <= 0) continue;
        args.chains = chains_.of_class(c);
        args.first_position = u;
        if (flat()) {  // pairs of vectors take the place of rows
            tap_chain chain = *args.chains;
            chain.lo = 0;
            chain.hi = args.positions = div_up(l.lanes, pair_);
            args.chains = &chain;
            args.first_position = 0;
            args.slot = args.dst_position = 4 * pair_;
            args.in = bytes(s.src) + start_bytes(t, 0);
            args.dst = bytes(s.dst);
            args.sums = sums;
            kernels_.depthwise_gradient(args);
            return;
        }
        for (dim block = 0; block < div_up(l.lanes, pair_); ++block) {
            args.in = bytes(s.src) + start_bytes(t, u * chains_.slot) + 4 * block * pair_;
            args.dst = bytes(s.dst + (c + u * spread - t.t0[1]) * row + block * pair_);
            args.sums = sums + (l.planes == 1 ? 0 : block) * taps() * pair_;
            kernels_.depthwise_gradient(args);
        }
    }
}

/// Tap by tap from the tensors: rare, and slow.
void plane_weights::add_careful(
    const conv::buffers &data, const plane_task &t, dim m, float *results) const {
    const auto tap_of = [](const axis_phase &phase, dim k) {
        return &*std::find_if(
            phase.taps.begin(), phase.taps.end(), [&](const axis_tap &tap) { return tap.k == k; });
    };
    for (dim plane = 0; plane < t.planes; ++plane) {
        float *to = results + (plane * p_.oc + m) * taps();
        for (const axis_tap &kw : walk_[2].phases[0].taps)
            for (const axis_tap &kd : walk_[0].phases[0].taps)
                for (const dim kh : chains_.k) {
                    const axis_tap *at[3] = {&kd, tap_of(walk_[1].phases[0], kh), &kw};
                    *to++ += careful_sum(
                        p_, walk_, at, data, t.n, t.group + plane, 0, m, t.t0, t.length);
                }
    }
}

/// Adds the lanes of each plane.
void plane_weights::fold(const scratch &s, dim planes, float *results) const {
    const plane_layout &l = layout_;
    for (dim plane = 0; plane < planes; ++plane)
        for (dim m = 0; m < p_.oc; ++m)
            for (dim tap = 0; tap < taps(); ++tap) {
                const float *sums = s.sums + (m * sum_blocks() * taps() + tap) * pair_;
                const dim first = plane * l.pitch, last = l.planes == 1 ? pair_ : first + l.tile[2];
                float sum[8] = {};  // one after the other, each addition would wait for the last
                for (dim f = first; f < last;) {
                    const dim block = f / pair_, end = std::min(last, (block + 1) * pair_);
                    const float *lanes = sums + block * (taps() - 1) * pair_;
                    for (; f + 8 <= end; f += 8)
                        for (dim i = 0; i < 8; ++i) sum[i] += lanes[f + i];
                    for (dim i = 0; f < end; ++f, ++i) sum[i] += lanes[f];
                }
                results[(plane * p_.oc + m) * taps() + tap] +=
                    ((sum[0] + sum[4]) + (sum[2] + sum[6]))
                    + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
            }
}

void plane_weights::write_block(const conv::buffers &data, float *results, dim block) const {
    const plane_task t = make_task(block * tiles_all_);
    for (dim plane = t.group; plane < t.group + t.planes; ++plane)
        for (dim m = 0; m < p_.oc; ++m)
            for (dim tap = 0; tap < taps(); ++tap) {
                const float *one = results + (plane * p_.oc + m) * taps() + tap;
                float sum = one[0];
                for (dim part = 1; part < parts_; ++part) sum += one[part * part_floats()];
                store_rounded(data.weights, p_.out_type,
                    plane * p_.weights.g + m * p_.weights.o + order_[static_cast<std::size_t>(tap)],
                    static_cast<double>(sum), p_.accumulate);
            }
}

work_list plane_weights::work() const {
    work_list list;
    list.macs_per_second = nominal_speed(kernels_);
    if (parts_ == 0) return list;
    list.parts = parts_;
    list.parts_bytes = 4 * static_cast<double>(parts_ * part_floats());
    list.stages.push_back({"parts", parts_ * layout_.blocks, workers_,
        [this](dim index, dim) {
            const dim block = index % layout_.blocks, part = index / layout_.blocks;
            task_cost cost{0, 0, static_cast<double>(4 * layout_.planes * p_.oc * taps())};
            const auto size = static_cast<double>(size_of(p_.type)), m = static_cast<double>(p_.oc);
            for (dim i = tiles_all_ * part / parts_; i < tiles_all_ * (part + 1) / parts_; ++i) {
                const plane_task t = make_task(block * tiles_all_ + i);
                double share = 1, outputs = 1;
                for (std::size_t a = 0; a < 3; ++a) {
                    const auto length = static_cast<double>(t.length[a]);
                    share *= static_cast<double>(walk_[a].in_length) * length
                             / static_cast<double>(walk_[a].longest);
                    outputs *= length;
                }
                const auto planes = static_cast<double>(t.planes);
                cost.macs += planes * m * outputs * static_cast<double>(taps());
                cost.read += size * planes * (share + m * outputs);
            }
            return cost;
        }});
    list.stages.push_back({"sum of parts", layout_.blocks, workers_, [this](dim, dim) {
                               const auto each =
                                   static_cast<double>(4 * layout_.planes * p_.oc * taps());
                               return task_cost{0, each * static_cast<double>(parts_), each};
                           }});
    return list;
}

std::string plane_weights::describe() const {
    if (parts_ == 0) return "nothing to sum";
    const auto n = [](dim v) { return std::to_string(v); };
    return "vectors along columns, " + n(layout_.planes) + " planes a row, tile "
           + n(layout_.tile[0]) + "x" + n(layout_.tile[1]) + "x" + n(layout_.tile[2]) + ", parts "
           + n(parts_) + ", tasks " + n(parts_ * layout_.blocks);
}

}  // namespace convgrad::cpu
