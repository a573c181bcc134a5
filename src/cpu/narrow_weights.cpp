// The batch and the output positions are cut into tiles, and the tiles into parts_ runs, by the
// problem alone. For each task (a part × a block of groups), for each of its tiles: both operands
// are packed with positions side by side and rows at the same pitch, dst with zeros in the gaps, so
// that a tile is one long dot product per weight. Then the parts are added in order and leave with
// one rounding.
#include "cpu/narrow_weights.hpp"

#include <algorithm>
#include <cstring>

#include "cpu/box_lines.hpp"
#include "cpu/element.hpp"
#include "cpu/tasks.hpp"
#include "cpu/tiled.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

constexpr dim tile_bytes = 256 << 10;  // both operands of a task
constexpr dim channels_wanted = 64;    // so that NXC data is read in whole cache lines
constexpr dim partials_most = 6 << 20;
constexpr dim most_planes = 64;
constexpr dim most_columns = 4;  // of a block of dot products

}  // namespace

struct narrow_weights::task : tile_place {
    const conv::buffers *data;
    float *partial;
    dim part, n, first_group, groups;
    bool first;
};

struct narrow_weights::scratch {
    float *src;
    float *dst;
    // What is asked for while a tile is multiplied, so many lines with each block of weights.
    box_lines next_src, next_dst;
    dim src_step = 0, dst_step = 0;

    void ask() {
        next_src.read(src_step);
        next_dst.read(dst_step);
    }
};

narrow_weights::narrow_weights(
    const conv::problem &p, const kernel_set &kernels, int threads, std::size_t workspace_limit)
    : p_(p), kernels_(kernels) {
    for (std::size_t a = 0; a < 3; ++a) walk_[a] = walk_forward(p.x[a]);
    taps_ = gradient_taps(p, walk_);
    if (p.mb == 0 || p.groups == 0 || p.ic == 0 || p.oc == 0 || taps_.kept.empty()) return;
    groups_ = std::clamp<dim>(channels_wanted / std::max(p.ic, p.oc), 1, p.groups);
    dim target = tile_bytes;
    const auto choose = [&] {
        choose_tile(walk_, std::max<dim>(1, target / (4 * groups_ * (p.ic + p.oc))), tile_);
        tile_[0] = std::min(tile_[0], most_planes);
        settle();
    };
    const auto cut = [&](dim bytes) {
        target = bytes;
        choose();
        return choose_parts(workspace_limit);
    };
    double share = cut(target);
    // Few tiles are not shared out evenly: smaller ones, where that helps.
    constexpr double fair = 0.9;
    for (int tries = 0; tries < 2 && share < fair; ++tries) {
        const dim before = target;
        const double finer = cut(before / 2);
        if (finer <= share) {
            cut(before);
            break;
        }
        share = finer;
    }
    while (partials_bytes() + scratch_bytes() > workspace_limit
           && (groups_ > 1 || tile_[0] * tile_[1] * tile_[2] > 1)) {
        groups_ = div_up(groups_, 2);
        target /= 2;
        choose();
    }
    parts_ = std::min(parts_, tiles_all_);
    check_workspace("weights gradient", partials_bytes() + scratch_bytes(), workspace_limit);
    tasks_ = parts_ * group_blocks_;
    workers_ = static_cast<int>(std::min<dim>({std::max(threads, 1), tasks_,
        static_cast<dim>((workspace_limit - partials_bytes()) / scratch_bytes())}));
}

void narrow_weights::settle() {
    dim positions = 1;
    for (int a = 0; a < 3; ++a) {
        patch_[a] = make_patch(walk_[a], tile_[a]);
        positions *= patch_[a].length;
        tiles_[a] = div_up(walk_[a].longest, tile_[a]);
    }
    src_pitch_ = round_up_to(positions, 16);
    plane_pitch_ = round_up_to((tile_[1] - 1) * patch_[2].length + tile_[2], kernels_.lanes);
    dst_pitch_ = round_up_to(tile_[0] * plane_pitch_, 16);
    tap_patch_ = list_phases(walk_, patch_, p_.weights, p_.src).patch;
    tiles_all_ = p_.mb * tiles_[0] * tiles_[1] * tiles_[2];
    group_blocks_ = div_up(p_.groups, groups_);
    ahead_ = worth_asking(p_);
}

/// Returns how evenly the parts keep threads busy.
double narrow_weights::choose_parts(std::size_t workspace_limit) {
    const dim bytes = 4 * partial_floats();
    const double skew =
        static_cast<double>(group_blocks_ * groups_) / static_cast<double>(p_.groups);
    const int threads = cut_threads(p_, kernels_);
    parts_ = fair_parts(
        tiles_all_, group_blocks_, skew, partials_most / std::max<dim>(bytes, 1), threads);
    while (parts_ > 1 && partials_bytes() + scratch_bytes() > workspace_limit) --parts_;
    return share_of_parts(parts_, tiles_all_, group_blocks_, skew, threads);
}

float *narrow_weights::lay_out_partials(memory_walk &memory) const {
    return memory.take_lines<float>(parts_ * partial_floats());
}

narrow_weights::scratch narrow_weights::lay_out(memory_walk &memory) const {
    scratch s{};
    s.dst = memory.take<float>(groups_ * p_.oc * dst_pitch_);
    s.src = memory.take<float>(groups_ * p_.ic * src_pitch_ + patch_slack);
    return s;
}

std::size_t narrow_weights::partials_bytes() const {
    return bytes_of_walk([this](memory_walk &memory) { return lay_out_partials(memory); });
}

std::size_t narrow_weights::scratch_bytes() const {
    return bytes_of_walk([this](memory_walk &memory) { return lay_out(memory); });
}

std::size_t narrow_weights::workspace() const {
    if (tasks_ == 0) return 0;
    return partials_bytes() + scratch_bytes() * static_cast<std::size_t>(workers_);
}

void narrow_weights::execute(
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
        for_each_tile(index, [&](task &t, dim tile) {
            t.data = &data;
            t.partial = partials + t.part * partial_floats();
            task next = tile + 1 < part_end(t.part) ? place(index, tile + 1)
                                                    : first_of(std::min(index + 1, tasks_ - 1));
            next.data = &data;
            run_tile(s, t, next);
        });
    });
    write_out(data, partials, threads);
}

narrow_weights::task narrow_weights::place(dim index, dim tile) const {
    task t{};
    t.first_group = index % group_blocks_ * groups_;
    t.groups = std::min(groups_, p_.groups - t.first_group);
    t.part = index / group_blocks_;
    t.n = place_tile(walk_, tile_, tiles_, tile, t);
    t.first = tile == part_end(t.part - 1);
    return t;
}

narrow_weights::task narrow_weights::first_of(dim index) const {
    return place(index, part_end(index / group_blocks_ - 1));
}

template <typename Body>
void narrow_weights::for_each_tile(dim index, Body &&body) const {
    const dim part = index / group_blocks_;
    for (dim tile = part_end(part - 1); tile < part_end(part); ++tile) {
        task t = place(index, tile);
        body(t, tile);
    }
}

work_list narrow_weights::work() const {
    work_list list;
    list.macs_per_second = nominal_speed(kernels_);
    list.stages.push_back({"tiles", tasks_, workers_, [this](dim index, dim) {
                               task_cost sum;
                               for_each_tile(index, [&](const task &t, dim) {
                                   const task_cost one = cost_of(t);
                                   sum.macs += one.macs;
                                   sum.read += one.read;
                               });
                               return sum;
                           }});
    if (tasks_ == 0) return list;
    list.parts = parts_;
    list.parts_bytes = 4 * static_cast<double>(parts_ * partial_floats());
    list.stages.push_back({"sum of parts", p_.groups, workers_, [this](dim, dim) {
                               const auto floats = static_cast<double>(group_floats());
                               return task_cost{0, 4 * floats * static_cast<double>(parts_),
                                   floats * static_cast<double>(size_of(p_.out_type))};
                           }});
    return list;
}

task_cost narrow_weights::cost_of(const task &t) const {
    dim src = 0;
    for_each_patch_row(walk_, patch_, tile_, t.t0, t.length,
        [&](const patch_row &row) { src += row.hi - row.lo; });
    const dim row = round_up_to((t.length[1] - 1) * patch_[2].length + t.length[2], kernels_.lanes);
    const dim dst = t.length[0] * t.length[1] * t.length[2];
    return {static_cast<double>(t.length[0] * row) * static_cast<double>(t.groups * group_floats()),
        static_cast<double>(
            static_cast<dim>(size_of(p_.type)) * t.groups * (src * p_.ic + dst * p_.oc)),
        0};
}

/// Memory would be waited for when a tile is packed: it is asked for while the one before is
/// multiplied.
void narrow_weights::plan_ahead(scratch &s, const task &t, const task &next) const {
    s.next_src = patch_box(next.data->src, p_.type, p_.src,
        {next.n, next.first_group * p_.ic, next.groups * p_.ic}, walk_, patch_, tile_, next);
    s.next_dst = tile_box(next.data->dst, p_.type, p_.dst,
        {next.n, next.first_group * p_.oc, next.groups * p_.oc}, walk_, next);
    const dim blocks = t.groups * column_blocks() * row_blocks(div_up(p_.oc, column_blocks()));
    s.src_step = div_up(s.next_src.lines(), blocks);
    s.dst_step = div_up(s.next_dst.lines(), blocks);
}

void narrow_weights::run_tile(scratch &s, const task &t, const task &next) const {
    // Zeros stand for padding and fill gaps; what they are multiplied by must be finite.
    if (!pack(s, t)) {
        multiply_careful(t);
        return;
    }
    if (ahead_) plan_ahead(s, t, next);
    for (dim g = 0; g < t.groups; ++g) multiply(s, t, g);
}

/// Blocks of columns, and blocks of rows for one of them.
dim narrow_weights::column_blocks() const {
    return div_up(p_.oc, most_columns);
}
dim narrow_weights::row_blocks(dim columns) const {
    return div_up(p_.ic * static_cast<dim>(taps_.kept.size()), kernels_.max_dot[columns]);
}

/// False if some value is infinite or NaN.
bool narrow_weights::pack(const scratch &s, const task &t) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    const auto bytes = [](float *p) { return static_cast<char *>(static_cast<void *>(p)); };
    value_range range;
    const dim src_channels = t.groups * p_.ic, dst_channels = t.groups * p_.oc;
    const char *src = static_cast<const char *>(t.data->src)
                      + size * (t.n * p_.src.n + t.first_group * p_.ic * p_.src.c);
    // The whole patch, so that nothing of an earlier tile is left in it.
    for_each_patch_row(walk_, patch_, tile_, t.t0, tile_, [&](const patch_row &row) {
        range.merge(kernels_.pack_channels(
            {src + size * row.offset(p_.src), p_.type, p_.src.c, p_.src.x[2] * walk_[2].in_step,
                src_channels, row.count, row.lo, row.hi, bytes(s.src + row.at)},
            4 * src_pitch_, 0));
    });
    const dim positions = patch_[0].length * patch_[1].length * patch_[2].length;
    for (dim c = 0; c < src_channels; ++c)
        std::fill(s.src + c * src_pitch_ + positions, s.src + (c + 1) * src_pitch_, 0.0F);
    std::fill_n(s.src + src_channels * src_pitch_, patch_slack, 0.0F);

    const char *dst = static_cast<const char *>(t.data->dst)
                      + size * (t.n * p_.dst.n + t.first_group * p_.oc * p_.dst.c);
    const dim pitch = patch_[2].length;
    const dim whole = round_up_to((t.length[1] - 1) * pitch + t.length[2], kernels_.lanes);
    for (dim d = 0; d < t.length[0]; ++d)
        for (dim h = 0; h < t.length[1]; ++h) {
            const dim offset =
                (t.t0[0] + d) * p_.dst.x[0] + (t.t0[1] + h) * p_.dst.x[1] + t.t0[2] * p_.dst.x[2];
            const dim count = h + 1 < t.length[1] ? pitch : whole - h * pitch;
            range.merge(kernels_.pack_channels(
                {dst + size * offset, p_.type, p_.dst.c, p_.dst.x[2], dst_channels, count, 0,
                    t.length[2], bytes(s.dst + d * plane_pitch_ + h * pitch)},
                4 * dst_pitch_, 0));
        }
    return !range.nonfinite;
}

void narrow_weights::multiply(scratch &s, const task &t, dim group) const {
    const dim taps = static_cast<dim>(taps_.kept.size()), rows = p_.ic * taps;
    dim src_run[most_planes], dst_run[most_planes];
    for (dim d = 0; d < t.length[0]; ++d) {
        src_run[d] = d * patch_[1].length * patch_[2].length;
        dst_run[d] = d * plane_pitch_;
    }
    const float *a[9], *b[4];
    dot_args args{a, b, src_run, dst_run, t.length[0],
        round_up_to((t.length[1] - 1) * patch_[2].length + t.length[2], kernels_.lanes), nullptr,
        p_.oc, !t.first};
    float *c = t.partial + (t.first_group + group) * group_floats();
    const dim columns = column_blocks();
    for (dim j = 0; j < columns; ++j) {
        const dim o0 = p_.oc * j / columns, o1 = p_.oc * (j + 1) / columns;
        for (dim o = o0; o < o1; ++o) b[o - o0] = s.dst + (group * p_.oc + o) * dst_pitch_;
        const dim blocks = row_blocks(o1 - o0);
        for (dim i = 0; i < blocks; ++i) {
            const dim r0 = rows * i / blocks, r1 = rows * (i + 1) / blocks;
            for (dim r = r0; r < r1; ++r)
                a[r - r0] = s.src + (group * p_.ic + r / taps) * src_pitch_
                            + tap_patch_[static_cast<std::size_t>(r % taps)];
            args.c = c + r0 * p_.oc + o0;
            s.ask();
            kernels_.dot(args, static_cast<int>(r1 - r0), static_cast<int>(o1 - o0));
        }
    }
}

void narrow_weights::multiply_careful(const task &t) const {
    const dim taps = static_cast<dim>(taps_.kept.size());
    for (dim g = t.first_group; g < t.first_group + t.groups; ++g)
        for (dim i = 0; i < p_.ic; ++i) {
            dim tap = 0;
            for (const axis_tap &kd : walk_[0].phases[0].taps)
                for (const axis_tap &kh : walk_[1].phases[0].taps)
                    for (const axis_tap &kw : walk_[2].phases[0].taps) {
                        const axis_tap *at[3] = {&kd, &kh, &kw};
                        for (dim o = 0; o < p_.oc; ++o) {
                            float &c = t.partial[g * group_floats() + (i * taps + tap) * p_.oc + o];
                            c = (t.first ? 0 : c)
                                + careful_sum(p_, walk_, at, *t.data, t.n, g, i, o, t.t0, t.length);
                        }
                        ++tap;
                    }
        }
}

void narrow_weights::write_out(
    const conv::buffers &data, const float *partials, const executor &threads) const {
    const dim taps = static_cast<dim>(taps_.kept.size());
    for_each_task(threads, p_.groups, [&](int, dim g) {
        for (dim r = 0; r < p_.ic * taps; ++r)
            for (dim o = 0; o < p_.oc; ++o) {
                const float *c = partials + g * group_floats() + r * p_.oc + o;
                float sum = c[0];
                for (dim part = 1; part < parts_; ++part) sum += c[part * partial_floats()];
                store_rounded(data.weights, p_.out_type,
                    g * p_.weights.g + o * p_.weights.o + r / taps * p_.weights.i
                        + taps_.kept[static_cast<std::size_t>(r % taps)],
                    static_cast<double>(sum), p_.accumulate);
            }
    });
}

std::string narrow_weights::describe() const {
    if (tasks_ == 0) return "nothing to sum";
    const auto n = [](dim v) { return std::to_string(v); };
    return "tile " + n(tile_[0]) + "x" + n(tile_[1]) + "x" + n(tile_[2])
           + ", vectors along positions, " + n(groups_) + " groups a task, parts " + n(parts_)
           + ", tasks " + n(tasks_);
}

}  // namespace convgrad::cpu
