// The batch and the output positions are cut into tiles, and the tiles into parts_ runs, by the
// problem alone. For each task (a part × a block of groups), for each of its tiles (in dot2: for
// each two, whose positions are paired): both operands are packed with channels side by side,
// padding as zeros, and
//   C[group][tap][output channel][input channel] += Σ_positions src · dst
// eight channels by eight, three taps of a row at a time. Then the parts are added in order and
// leave with one rounding.
#include "cpu/grouped_weights.hpp"

#include <algorithm>

#include "cpu/element.hpp"
#include "cpu/fits.hpp"
#include "cpu/tasks.hpp"
#include "cpu/tiled.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

constexpr dim tile_bytes = 128 << 10;  // both operands of a task
constexpr dim channels_wanted = 32;    // packed by whole vectors, read in whole cache lines
constexpr dim partials_most = 6 << 20;

}  // namespace

struct grouped_weights::tile : tile_place {
    dim n;
};

struct grouped_weights::task {
    const conv::buffers *data;
    float *partial;
    dim part, first_group, groups;
    bool first;  // of its part
    dim tiles;   // 2: positions of both are paired
    tile of[2];

    /// Positions of the longer tile.
    [[nodiscard]] dim length(int a) const {
        return tiles > 1 ? std::max(of[0].length[a], of[1].length[a]) : of[0].length[a];
    }
};

struct grouped_weights::scratch {
    char *src;
    char *dst;
    dim *rows;  // two lists
    char *exact;
    // What is asked for while a set is multiplied, so many lines with each block of weights.
    box_lines next[4];
    dim step[4] = {};

    void ask() {
        for (int i = 0; i < 4; ++i) next[i].read(step[i]);
    }
};

bool fits_grouped(const conv::problem &p, std::string *why) {
    if (p.what != conv::pass::backward_weights) return refuse(why, "not a weights gradient");
    if (p.ic % gradient_channels != 0 || p.oc % gradient_channels != 0)
        return refuse(why, "channels of a group are no multiple of ", gradient_channels);
    return true;
}

grouped_weights::grouped_weights(const conv::problem &p, const kernel_set &kernels,
    const kernel_set *exact, int threads, std::size_t workspace_limit)
    : p_(p), kernels_(kernels) {
    for (std::size_t a = 0; a < 3; ++a) walk_[a] = walk_forward(p.x[a]);
    taps_ = gradient_taps(p, walk_);
    if (p.mb == 0 || p.groups == 0 || p.ic == 0 || p.oc == 0 || taps_.kept.empty()) return;
    // An even number, so that what is packed is a multiple of sixteen channels.
    groups_ = 2 * div_up(channels_wanted, 2 * std::min(p.ic, p.oc));
    dim target = tile_bytes;
    const auto cut = [&] {
        choose_tile(walk_, std::max<dim>(1, target / (4 * groups_ * (p.ic + p.oc))), tile_);
        halve_maps();
        settle();
        if (exact != nullptr) exact_.reset(new grouped_weights(*this, *exact));
        return choose_parts(workspace_limit);
    };
    // Few tiles are not shared out evenly: smaller ones, where that helps.
    constexpr double fair = 0.9;
    const double share = cut();
    if (share < fair) {
        target /= 2;
        if (cut() <= share) {
            target *= 2;
            cut();
        }
    }
    while (partials_bytes() + scratch_bytes() > workspace_limit
           && tile_[0] * tile_[1] * tile_[2] > 1) {
        target /= 2;
        cut();
    }
    check_workspace("weights gradient", partials_bytes() + scratch_bytes(), workspace_limit);
    tasks_ = parts_ * group_blocks_;
    workers_ = static_cast<int>(std::min<dim>({std::max(threads, 1), tasks_,
        static_cast<dim>((workspace_limit - partials_bytes()) / scratch_bytes())}));
}

grouped_weights::grouped_weights(const grouped_weights &like, const kernel_set &kernels)
    : p_(like.p_), kernels_(kernels), taps_(like.taps_), groups_(like.groups_) {
    for (int a = 0; a < 3; ++a) {
        walk_[a] = like.walk_[a];
        tile_[a] = like.tile_[a];
    }
    settle();
}

/// Two halves of a map are paired rather than two maps, which would make half as many tasks, or one
/// map with nothing.
void grouped_weights::halve_maps() {
    if (kernels_.k_per_unit == 1) return;
    for (int a = 0; a < 3; ++a)
        if (tile_[a] < walk_[a].longest) return;
    for (dim &length : tile_)
        if (length > 1) {
            if (length % 2 == 0 || p_.mb == 1) length = div_up(length, 2);
            return;
        }
}

void grouped_weights::settle() {
    dim positions = 1;
    for (int a = 0; a < 3; ++a) {
        patch_[a] = make_patch(walk_[a], tile_[a]);
        positions *= patch_[a].length;
        tiles_[a] = div_up(walk_[a].longest, tile_[a]);
    }
    src_bytes_ = 4 * src_panel() * positions;
    dst_bytes_ = 4 * dst_panel() * tile_[0] * tile_[1] * tile_[2];
    tap_at_ = list_phases(walk_, patch_, p_.weights, p_.src).patch;
    for (dim &at : tap_at_) at *= 4 * src_panel();
    tiles_all_ = p_.mb * tiles_[0] * tiles_[1] * tiles_[2];
    sets_ = div_up(tiles_all_, kernels_.k_per_unit);
    group_blocks_ = div_up(p_.groups, groups_);
    ahead_ = worth_asking(p_);
}

/// Returns how evenly the parts keep threads busy.
double grouped_weights::choose_parts(std::size_t workspace_limit) {
    const dim bytes = 4 * partial_floats();
    const double skew =
        static_cast<double>(group_blocks_ * groups_) / static_cast<double>(p_.groups);
    const int threads = cut_threads(p_, kernels_);
    parts_ =
        fair_parts(sets_, group_blocks_, skew, partials_most / std::max<dim>(bytes, 1), threads);
    while (parts_ > 1 && partials_bytes() + scratch_bytes() > workspace_limit) --parts_;
    return share_of_parts(parts_, sets_, group_blocks_, skew, threads);
}

float *grouped_weights::lay_out_partials(memory_walk &memory) const {
    return memory.take_lines<float>(parts_ * partial_floats());
}

grouped_weights::scratch grouped_weights::lay_out(memory_walk &memory) const {
    scratch s{};
    s.src = memory.take<char>(src_bytes_);
    s.dst = memory.take<char>(dst_bytes_);
    s.rows = memory.take_lines<dim>(2 * tile_[0] * tile_[1]);
    if (exact_) s.exact = memory.take<char>(static_cast<dim>(exact_->scratch_bytes()));
    return s;
}

std::size_t grouped_weights::partials_bytes() const {
    return bytes_of_walk([this](memory_walk &memory) { return lay_out_partials(memory); });
}

std::size_t grouped_weights::scratch_bytes() const {
    return bytes_of_walk([this](memory_walk &memory) { return lay_out(memory); });
}

std::size_t grouped_weights::workspace() const {
    if (tasks_ == 0) return 0;
    return partials_bytes() + scratch_bytes() * static_cast<std::size_t>(workers_);
}

dim grouped_weights::weight_at(dim tap, dim i, dim o) const {
    constexpr dim c = gradient_channels;
    const dim block = i / c * (p_.oc / c) + o / c, taps = static_cast<dim>(taps_.kept.size());
    return ((block * taps + tap) * c + o % c) * c + i % c;
}

void grouped_weights::execute(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    taps_.write_zeros(p_, data);
    if (tasks_ == 0) return;
    memory_walk memory(workspace);
    float *partials = lay_out_partials(memory);
    const auto each = static_cast<dim>(scratch_bytes());
    char *workers = memory.take<char>(workers_ * each);
    for_each_task(threads.limited(workers_), tasks_, [&](int worker, dim index) {
        memory_walk mine(workers + worker * each);
        scratch s = lay_out(mine);
        for_each_set(index, [&](task &t, dim set) {
            t.data = &data;
            t.partial = partials + t.part * partial_floats();
            const dim after = std::min(index + 1, tasks_ - 1);
            task next = set + 1 < part_end(t.part)
                            ? place(index, set + 1)
                            : place(after, part_end(after / group_blocks_ - 1));
            next.data = &data;
            run_set(s, t, next);
        });
    });
    write_out(data, partials, threads);
}

grouped_weights::task grouped_weights::place(dim index, dim set) const {
    task t{};
    t.first_group = index % group_blocks_ * groups_;
    t.groups = std::min(groups_, p_.groups - t.first_group);
    t.part = index / group_blocks_;
    t.first = set == part_end(t.part - 1);
    const dim first = set * kernels_.k_per_unit;
    t.tiles = std::min<dim>(kernels_.k_per_unit, tiles_all_ - first);
    for (dim i = 0; i < t.tiles; ++i)
        t.of[i].n = place_tile(walk_, tile_, tiles_, first + i, t.of[i]);
    return t;
}

template <typename Body>
void grouped_weights::for_each_set(dim index, Body &&body) const {
    const dim part = index / group_blocks_;
    for (dim set = part_end(part - 1); set < part_end(part); ++set) {
        task t = place(index, set);
        body(t, set);
    }
}

/// Memory would be waited for when a set is packed: it is asked for while the one before is
/// multiplied.
void grouped_weights::plan_ahead(scratch &s, const task &t, const task &next) const {
    const dim rows =
        static_cast<dim>(walk_[0].phases[0].taps.size() * walk_[1].phases[0].taps.size());
    for (dim i = 0; i < 2; ++i) {
        s.next[2 * i] = s.next[2 * i + 1] = {};
        if (i >= next.tiles) continue;
        const tile &of = next.of[i];
        s.next[2 * i] = patch_box(next.data->src, p_.type, p_.src,
            {of.n, next.first_group * p_.ic, next.groups * p_.ic}, walk_, patch_, tile_, of);
        s.next[2 * i + 1] = tile_box(next.data->dst, p_.type, p_.dst,
            {of.n, next.first_group * p_.oc, next.groups * p_.oc}, walk_, of);
    }
    for (int i = 0; i < 4; ++i) s.step[i] = div_up(s.next[i].lines(), rows * t.groups);
}

void grouped_weights::run_set(scratch &s, const task &t, const task &next) const {
    const value_range dst = pack_dst(s, t);
    // A padded position of src must contribute nothing, but 0 · ∞ is NaN.
    if (!exact_ && dst.nonfinite && t.of[0].padded) return multiply_careful(t);
    const value_range src = pack_src(s, t);
    if (exact_ && !kernels_.limits.allow(src, dst)) return run_exactly(s, t);
    if (ahead_) plan_ahead(s, t, next);
    multiply(s, t);
}

/// Tile by tile.
void grouped_weights::run_exactly(const scratch &s, const task &t) const {
    memory_walk memory(s.exact);
    scratch mine = exact_->lay_out(memory);
    for (dim i = 0; i < t.tiles; ++i) {
        task one = t;
        one.tiles = 1;
        one.of[0] = t.of[i];
        one.first = t.first && i == 0;
        exact_->run_set(mine, one, one);
    }
}

/// The whole patch, so that nothing of an earlier tile is left in it.
value_range grouped_weights::pack_src(const scratch &s, const task &t) const {
    const dim size = static_cast<dim>(size_of(p_.type)), channels = t.groups * p_.ic;
    const char *src =
        static_cast<const char *>(t.data->src) + size * t.first_group * p_.ic * p_.src.c;
    const tile &one = t.of[0], &two = t.of[1];
    value_range range;
    for_each_patch_row(walk_, patch_, tile_, one.t0, tile_, [&](const patch_row &row) {
        pair_row pair{};
        if (t.tiles > 1) {
            patch_row other = row;
            for (int a = 0; a < 3; ++a) other.in[a] += (two.t0[a] - one.t0[a]) * walk_[a].in_step;
            pair.in = src + size * (two.n * p_.src.n + other.offset(p_.src));
            if (other.in[0] >= 0 && other.in[0] < walk_[0].in_length && other.in[1] >= 0
                && other.in[1] < walk_[1].in_length)
                clip(other.in[2], walk_[2].in_step, other.count, walk_[2].in_length, pair.lo,
                    pair.hi);
        }
        range.merge(kernels_.pack_positions(
            {src + size * (one.n * p_.src.n + row.offset(p_.src)), p_.type, p_.src.c,
                p_.src.x[2] * walk_[2].in_step, channels, row.count, row.lo, row.hi,
                s.src + 4 * row.at * src_panel()},
            pair, src_panel(), 0, 0));
    });
    return range;
}

value_range grouped_weights::pack_dst(const scratch &s, const task &t) const {
    const dim size = static_cast<dim>(size_of(p_.type)), channels = t.groups * p_.oc;
    const char *dst =
        static_cast<const char *>(t.data->dst) + size * t.first_group * p_.oc * p_.dst.c;
    value_range range;
    for (dim d = 0; d < t.length(0); ++d)
        for (dim h = 0; h < t.length(1); ++h) {
            pair_row rows[2] = {};
            for (dim i = 0; i < t.tiles; ++i) {
                const tile &of = t.of[i];
                rows[i].in = dst
                             + size
                                   * (of.n * p_.dst.n + (of.t0[0] + d) * p_.dst.x[0]
                                       + (of.t0[1] + h) * p_.dst.x[1] + of.t0[2] * p_.dst.x[2]);
                rows[i].hi = d < of.length[0] && h < of.length[1] ? of.length[2] : 0;
            }
            range.merge(kernels_.pack_positions(
                {rows[0].in, p_.type, p_.dst.c, p_.dst.x[2], channels, t.length(2), 0, rows[0].hi,
                    s.dst + 4 * (d * tile_[1] + h) * tile_[2] * dst_panel()},
                rows[1], dst_panel(), 0, 0));
        }
    return range;
}

/// Rows of positions that meet src in some tile; how many.
dim grouped_weights::list_rows(const scratch &s, const task &t, dim kd, dim kh) const {
    const dim in_row = 4 * patch_[2].length * src_panel(), out_row = 4 * tile_[2] * dst_panel();
    dim rows = 0;
    for (dim d = 0; d < t.length(0); ++d)
        for (dim h = 0; h < t.length(1); ++h) {
            bool meets = false;
            for (dim i = 0; i < t.tiles; ++i) {
                const dim x[2] = {(t.of[i].t0[0] + d) * walk_[0].in_step + kd,
                    (t.of[i].t0[1] + h) * walk_[1].in_step + kh};
                meets = meets
                        || (x[0] >= 0 && x[0] < walk_[0].in_length && x[1] >= 0
                            && x[1] < walk_[1].in_length);
            }
            s.rows[rows] = (d * patch_[1].length + h) * in_row;
            s.rows[tile_[0] * tile_[1] + rows] = (d * tile_[1] + h) * out_row;
            rows += meets ? 1 : 0;
        }
    return rows;
}

void grouped_weights::multiply(scratch &s, const task &t) const {
    constexpr dim c = gradient_channels;
    const dim along = static_cast<dim>(walk_[2].phases[0].taps.size());
    product_args args{};
    args.a_run = s.rows;
    args.b_run = s.rows + tile_[0] * tile_[1];
    args.k = t.length(2);
    args.a_step = 4 * src_panel();
    args.b_step = 4 * dst_panel();
    args.accumulate = !t.first;
    dim tap = 0;
    for (const axis_tap &kd : walk_[0].phases[0].taps)
        for (const axis_tap &kh : walk_[1].phases[0].taps) {
            args.runs = list_rows(s, t, kd.off, kh.off);
            for (dim g = 0; g < t.groups; ++g, s.ask()) {
                float *weights = t.partial + (t.first_group + g) * group_floats();
                for (dim i = 0; i < p_.ic; i += c)
                    for (dim o = 0; o < p_.oc; o += c)
                        for (dim k = 0; k < along; k += most_gradient_taps) {
                            args.a = s.src + 4 * (g * p_.ic + i);
                            args.b = s.dst + 4 * (g * p_.oc + o);
                            args.c = weights + weight_at(tap + k, i, o);
                            kernels_.group_gradient(args, tap_at_.data() + tap + k,
                                static_cast<int>(std::min(most_gradient_taps, along - k)));
                        }
            }
            tap += along;
        }
}

void grouped_weights::multiply_careful(const task &t) const {
    const tile &of = t.of[0];
    for (dim g = t.first_group; g < t.first_group + t.groups; ++g) {
        dim tap = 0;
        for (const axis_tap &kd : walk_[0].phases[0].taps)
            for (const axis_tap &kh : walk_[1].phases[0].taps)
                for (const axis_tap &kw : walk_[2].phases[0].taps) {
                    const axis_tap *at[3] = {&kd, &kh, &kw};
                    for (dim i = 0; i < p_.ic; ++i)
                        for (dim o = 0; o < p_.oc; ++o) {
                            float &c = t.partial[g * group_floats() + weight_at(tap, i, o)];
                            c = (t.first ? 0 : c)
                                + careful_sum(
                                    p_, walk_, at, *t.data, of.n, g, i, o, of.t0, of.length);
                        }
                    ++tap;
                }
    }
}

void grouped_weights::write_out(
    const conv::buffers &data, const float *partials, const executor &threads) const {
    constexpr dim c = gradient_channels;
    const dim taps = static_cast<dim>(taps_.kept.size()), blocks = p_.ic / c * (p_.oc / c);
    for_each_task(threads, p_.groups * blocks, [&](int, dim index) {
        const dim group = index / blocks, i = index % blocks / (p_.oc / c) * c,
                  o = index % blocks % (p_.oc / c) * c;
        for (dim tap = 0; tap < taps; ++tap) {
            const float *from = partials + group * group_floats() + weight_at(tap, i, o);
            float sum[c * c];
            std::copy_n(from, c * c, sum);
            for (dim part = 1; part < parts_; ++part)
                for (dim k = 0; k < c * c; ++k) sum[k] += from[part * partial_floats() + k];
            leave(data, sum,
                group * p_.weights.g + taps_.kept[static_cast<std::size_t>(tap)] + i * p_.weights.i
                    + o * p_.weights.o);
        }
    });
}

/// Eight channels by eight, [output][input], for where their first weight is.
void grouped_weights::leave(const conv::buffers &data, const float *sums, dim at) const {
    constexpr dim c = gradient_channels;
    if (p_.accumulate) {
        for (dim k = 0; k < c * c; ++k)
            store_rounded(data.weights, p_.out_type,
                at + k / c * p_.weights.o + k % c * p_.weights.i, static_cast<double>(sums[k]),
                true);
        return;
    }
    store_args args{};
    args.c = sums;
    args.c_cs = c;
    args.c_xs = 1;
    args.channels = args.count = c;
    args.out = static_cast<char *>(data.weights) + static_cast<dim>(size_of(p_.out_type)) * at;
    args.type = p_.out_type;
    args.cs = p_.weights.o;
    args.xs = p_.weights.i;
    kernels_.store(args);
}

task_cost grouped_weights::cost_of(const task &t) const {
    const auto size = static_cast<double>(size_of(p_.type));
    const auto units = static_cast<double>(t.length(0) * t.length(1) * t.length(2));
    const auto groups = static_cast<double>(t.groups);
    task_cost cost{units * groups * static_cast<double>(group_floats()), 0, 0};
    for (dim i = 0; i < t.tiles; ++i) {
        const tile &of = t.of[i];
        dim src = 0;
        for_each_patch_row(walk_, patch_, tile_, of.t0, of.length,
            [&](const patch_row &row) { src += row.hi - row.lo; });
        const dim dst = of.length[0] * of.length[1] * of.length[2];
        cost.read += size * groups * static_cast<double>(src * p_.ic + dst * p_.oc);
    }
    return cost;
}

work_list grouped_weights::work() const {
    work_list list;
    list.macs_per_second = nominal_speed(kernels_) / kernels_.k_per_unit;
    list.stages.push_back({"tiles", tasks_, workers_, [this](dim index, dim) {
                               task_cost sum;
                               for_each_set(index, [&](const task &t, dim) {
                                   const task_cost one = cost_of(t);
                                   sum.macs += one.macs;
                                   sum.read += one.read;
                               });
                               return sum;
                           }});
    if (tasks_ == 0) return list;
    list.parts = parts_;
    list.parts_bytes = parts_ > 1 ? 4 * static_cast<double>(parts_ * partial_floats()) : 0;
    const dim blocks = p_.ic / gradient_channels * (p_.oc / gradient_channels);
    list.stages.push_back({"sum of parts", p_.groups * blocks, workers_, [this, blocks](dim, dim) {
                               const auto floats = static_cast<double>(group_floats() / blocks);
                               return task_cost{0, 4 * floats * static_cast<double>(parts_),
                                   floats * static_cast<double>(size_of(p_.out_type))};
                           }});
    return list;
}

std::string grouped_weights::describe() const {
    if (tasks_ == 0) return "nothing to sum";
    const auto n = [](dim v) { return std::to_string(v); };
    return "tile " + n(tile_[0]) + "x" + n(tile_[1]) + "x" + n(tile_[2])
           + (kernels_.k_per_unit > 1 ? ", in pairs" : "") + ", eight channels by eight, "
           + n(groups_) + " groups a task, parts " + n(parts_) + ", tasks " + n(tasks_);
}

}  // namespace convgrad::cpu
