// The batch and the output positions are cut into tiles, and the tiles into parts_ runs, by the
// problem alone. For each task (a part × a block of groups), for each of its tiles: both operands
// are packed with positions side by side and rows at the same pitch, dst with zeros in the gaps, so
// that a tile is one long dot product per weight; or only src is, and dst is read where it lies,
// row by row. Then the parts are added in order and leave with one rounding.
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

constexpr dim partials_most = 6 << 20;
constexpr dim most_columns = 4;  // of a block of dot products

char *bytes_of(float *p) {
    return static_cast<char *>(static_cast<void *>(p));
}

}  // namespace

struct narrow_weights::task : tile_place {
    const conv::buffers *data;
    float *partial;
    dim part, n, first_group, groups;
    dim first_channel, last_channel;  // of a group's dst
    bool first;

    [[nodiscard]] dim channels() const { return last_channel - first_channel; }
    /// Blocks of them.
    [[nodiscard]] dim columns() const { return div_up(channels(), most_columns); }
};

struct narrow_weights::scratch {
    float *src;
    float *dst;              // null: read in place
    dim *src_run, *dst_run;  // floats from a channel's first to each run of the tile
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
    const narrow_cut sizes = cut_narrow_weights(problem_sizes(p), kernels);
    dst_ = sizes.dst;
    groups_ = static_cast<dim>(sizes.groups);
    cuts_ = static_cast<dim>(sizes.cuts);
    auto positions = static_cast<dim>(sizes.positions);
    const auto choose = [&] {
        choose_tile(walk_, positions, tile_);
        if (in_place() && tile_[2] < walk_[2].longest)
            tile_[2] = round_up_to(tile_[2], kernels_.lanes);
        settle();
    };
    const auto cut = [&](dim most) {
        positions = most;
        choose();
        return choose_parts(workspace_limit);
    };
    double share = cut(positions);
    // Few tiles are not shared out evenly: smaller ones, where that helps.
    constexpr double fair = 0.9;
    const dim least = in_place() ? shortest_in_place : 1;
    for (int tries = 0; tries < 2 && share < fair && positions >= 2 * least; ++tries) {
        const dim before = positions;
        const double finer = cut(before / 2);
        if (finer <= share) {
            cut(before);
            break;
        }
        share = finer;
    }
    while (partials_bytes() + scratch_bytes() > workspace_limit && (groups_ > 1 || positions > 1)) {
        if (groups_ > 1)
            groups_ = div_up(groups_, 2);
        else
            positions /= 2;
        choose();
    }
    parts_ = std::min(parts_, tiles_all_);
    check_workspace("weights gradient", partials_bytes() + scratch_bytes(), workspace_limit);
    tasks_ = parts_ * blocks();
    workers_ = static_cast<int>(std::min<dim>({std::max(threads, 1), tasks_,
        static_cast<dim>((workspace_limit - partials_bytes()) / scratch_bytes())}));
}

void narrow_weights::settle() {
    dim positions = 1;
    for (int a = 0; a < 3; ++a) {
        patch_[a] = a == 2 && whole_rows() ? patch_of_taps(walk_[a], tile_[a])
                                           : make_patch(walk_[a], tile_[a]);
        positions *= patch_[a].length;
        tiles_[a] = div_up(walk_[a].longest, tile_[a]);
    }
    src_pitch_ = round_up_to(positions, 16);
    plane_pitch_ = round_up_to((tile_[1] - 1) * patch_[2].row + tile_[2], kernels_.lanes);
    dst_pitch_ = round_up_to(tile_[0] * plane_pitch_, 16);
    const std::vector<dim> at_taps = list_phases(walk_, patch_, p_.weights, p_.src).patch;
    row_at_.clear();
    for (dim i = 0; i < p_.ic; ++i)
        for (const dim at : at_taps) row_at_.push_back(i * src_pitch_ + at);
    for (inside_[0] = 0; inside_[0] < walk_[2].longest; ++inside_[0])
        if (!touches_padding(walk_[2], inside_[0], 1)) break;
    for (inside_[1] = walk_[2].longest; inside_[1] > inside_[0]; --inside_[1])
        if (!touches_padding(walk_[2], inside_[1] - 1, 1)) break;
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
    parts_ =
        fair_parts(tiles_all_, blocks(), skew, partials_most / std::max<dim>(bytes, 1), threads);
    while (parts_ > 1 && partials_bytes() + scratch_bytes() > workspace_limit) --parts_;
    return share_of_parts(parts_, tiles_all_, blocks(), skew, threads);
}

float *narrow_weights::lay_out_partials(memory_walk &memory) const {
    return memory.take_lines<float>(parts_ * partial_floats());
}

narrow_weights::scratch narrow_weights::lay_out(memory_walk &memory) const {
    scratch s{};
    s.dst = in_place() ? nullptr : memory.take<float>(groups_ * p_.oc * dst_pitch_);
    s.src_run = memory.take<dim>(tile_[0] * tile_[1]);
    s.dst_run = memory.take<dim>(tile_[0] * tile_[1]);
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
        float *partial = partials + index / blocks() * partial_floats();
        run_task(s, data, partial, index, false);
        // A zero that met an infinity, if there was one, made NaN of a sum.
        if (in_place() && !all_finite(partial, index)) run_task(s, data, partial, index, true);
    });
    write_out(data, partials, threads);
}

void narrow_weights::run_task(
    scratch &s, const conv::buffers &data, float *partial, dim index, bool careful) const {
    for_each_tile(index, [&](task &t, dim tile) {
        t.data = &data;
        t.partial = partial;
        task next = tile + 1 < part_end(t.part) ? place(index, tile + 1)
                                                : first_of(std::min(index + 1, tasks_ - 1));
        next.data = &data;
        run_tile(s, t, next, careful);
    });
}

/// Whether a task's sums are.
bool narrow_weights::all_finite(const float *partial, dim index) const {
    const task t = first_of(index);
    const dim rows = t.groups * group_floats() / p_.oc;
    return !kernels_
                .scan({partial + t.first_group * group_floats() + t.first_channel, data_type::f32,
                    1, p_.oc, t.channels(), rows, 0, rows, nullptr})
                .nonfinite;
}

narrow_weights::task narrow_weights::place(dim index, dim tile) const {
    task t{};
    const dim cut = index % cuts_;
    t.first_group = index / cuts_ % group_blocks_ * groups_;
    t.groups = std::min(groups_, p_.groups - t.first_group);
    t.first_channel = p_.oc * cut / cuts_;
    t.last_channel = p_.oc * (cut + 1) / cuts_;
    t.part = index / blocks();
    t.n = place_tile(walk_, tile_, tiles_, tile, t);
    t.first = tile == part_end(t.part - 1);
    return t;
}

narrow_weights::task narrow_weights::first_of(dim index) const {
    return place(index, part_end(index / blocks() - 1));
}

template <typename Body>
void narrow_weights::for_each_tile(dim index, Body &&body) const {
    const dim part = index / blocks();
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
    list.stages.push_back({"sum of parts", p_.groups * p_.ic, workers_, [this](dim, dim) {
                               const auto floats = static_cast<double>(group_floats() / p_.ic);
                               return task_cost{0, 4 * floats * static_cast<double>(parts_),
                                   floats * static_cast<double>(size_of(p_.out_type))};
                           }});
    return list;
}

task_cost narrow_weights::cost_of(const task &t) const {
    dim src = 0;
    for_each_patch_row(walk_, patch_, tile_, t.t0, t.length,
        [&](const patch_row &row) { src += row.hi - row.lo; });
    const dim dst = t.length[0] * t.length[1] * t.length[2];
    const dim runs = t.length[0] * (t.length[1] / rows_of_run(t));
    const dim all = runs * round_up_to(run_length(t), kernels_.lanes);
    return {static_cast<double>(all) * static_cast<double>(t.groups * group_floats())
                * static_cast<double>(t.channels()) / static_cast<double>(p_.oc),
        static_cast<double>(
            static_cast<dim>(size_of(p_.type)) * t.groups * (src * p_.ic + dst * t.channels())),
        0};
}

/// Memory would be waited for when a tile is packed: it is asked for while the one before is
/// multiplied.
void narrow_weights::plan_ahead(scratch &s, const task &t, const task &next) const {
    s.next_src = patch_box(next.data->src, p_.type, p_.src,
        {next.n, next.first_group * p_.ic, next.groups * p_.ic}, walk_, patch_, tile_, next);
    s.next_dst = tile_box(next.data->dst, p_.type, p_.dst, dst_channels(next), walk_, next);
    const dim blocks = t.groups * t.columns() * row_blocks(div_up(t.channels(), t.columns()));
    s.src_step = div_up(s.next_src.lines(), blocks);
    s.dst_step = div_up(s.next_dst.lines(), blocks);
}

void narrow_weights::run_tile(scratch &s, const task &t, const task &next, bool careful) const {
    // Zeros stand for padding and fill gaps; what they are multiplied by must be finite.
    if (!pack(s, t) || (careful && t.padded && !finite_at_padding(t))) {
        multiply_careful(t);
        return;
    }
    if (ahead_) plan_ahead(s, t, next);
    const dim runs = list_runs(s, t);
    for (dim g = 0; g < t.groups; ++g) multiply(s, t, g, runs);
}

/// Of dst, in a task.
channel_range narrow_weights::dst_channels(const task &t) const {
    return {t.n, t.first_group * p_.oc + t.first_channel, (t.groups - 1) * p_.oc + t.channels()};
}

/// Blocks of rows for so many columns.
dim narrow_weights::row_blocks(dim columns) const {
    return div_up(p_.ic * static_cast<dim>(taps_.kept.size()), kernels_.max_dot[columns]);
}

/// False if zeros may meet a value that is infinite or NaN.
bool narrow_weights::pack(const scratch &s, const task &t) const {
    const bool finite = !pack_src(s, t).nonfinite;
    // In place there are no gaps: what src holds meets its own dst alone.
    return in_place() || (!pack_dst(s, t).nonfinite && finite);
}

value_range narrow_weights::pack_src(const scratch &s, const task &t) const {
    const dim size = static_cast<dim>(size_of(p_.type)), channels = t.groups * p_.ic;
    const char *src = static_cast<const char *>(t.data->src)
                      + size * (t.n * p_.src.n + t.first_group * p_.ic * p_.src.c);
    value_range range;
    // The whole patch, so that nothing of an earlier tile is left in it.
    for_each_patch_row(walk_, patch_, tile_, t.t0, tile_, [&](const patch_row &row) {
        range.merge(kernels_.pack_channels(
            {src + size * row.offset(p_.src), p_.type, p_.src.c, p_.src.x[2] * walk_[2].in_step,
                channels, row.count, row.lo, row.hi, bytes_of(s.src + row.at)},
            4 * src_pitch_, 0));
    });
    const dim positions = patch_[0].length * patch_[1].length * patch_[2].length;
    for (dim c = 0; c < channels; ++c)
        std::fill(s.src + c * src_pitch_ + positions, s.src + (c + 1) * src_pitch_, 0.0F);
    std::fill_n(s.src + channels * src_pitch_, patch_slack, 0.0F);
    return range;
}

value_range narrow_weights::pack_dst(const scratch &s, const task &t) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    const char *dst = static_cast<const char *>(t.data->dst)
                      + size * (t.n * p_.dst.n + t.first_group * p_.oc * p_.dst.c);
    const dim pitch = patch_[2].row, whole = round_up_to(run_length(t), kernels_.lanes);
    value_range range;
    for (dim d = 0; d < t.length[0]; ++d)
        for (dim h = 0; h < t.length[1]; ++h) {
            const dim count = h + 1 < t.length[1] ? pitch : whole - h * pitch;
            range.merge(kernels_.pack_channels(
                {dst + size * row_offset(t, d, h), p_.type, p_.dst.c, p_.dst.x[2], t.groups * p_.oc,
                    count, 0, t.length[2], bytes_of(s.dst + d * plane_pitch_ + h * pitch)},
                4 * dst_pitch_, 0));
        }
    return range;
}

/// From a map of dst to a row of the tile.
dim narrow_weights::row_offset(const task &t, dim d, dim h) const {
    return (t.t0[0] + d) * p_.dst.x[0] + (t.t0[1] + h) * p_.dst.x[1] + t.t0[2] * p_.dst.x[2];
}

/// The same in place.
const float *narrow_weights::first_dst(const task &t) const {
    return static_cast<const float *>(t.data->dst) + t.n * p_.dst.n
           + t.first_group * p_.oc * p_.dst.c;
}

/// Whether dst is finite where some tap lies outside src.
bool narrow_weights::finite_at_padding(const task &t) const {
    const auto finite = [&](dim offset, dim columns) {
        const dim channels = t.groups * p_.oc;
        return !kernels_
                    .scan({first_dst(t) + offset, p_.type, 1, p_.dst.c, columns, channels, 0,
                        channels, nullptr})
                    .nonfinite;
    };
    const dim left = std::clamp<dim>(inside_[0] - t.t0[2], 0, t.length[2]);
    const dim right = std::clamp<dim>(inside_[1] - t.t0[2], left, t.length[2]);
    for (dim d = 0; d < t.length[0]; ++d)
        for (dim h = 0; h < t.length[1]; ++h) {
            const dim row = row_offset(t, d, h);
            const bool all = touches_padding(walk_[0], t.t0[0] + d, 1)
                             || touches_padding(walk_[1], t.t0[1] + h, 1);
            if (all && !finite(row, t.length[2])) return false;
            if (!all && left > 0 && !finite(row, left)) return false;
            if (!all && right < t.length[2] && !finite(row + right, t.length[2] - right))
                return false;
        }
    return true;
}

/// A run is a row, or all rows of a plane: packed with gaps, or with none in dst.
dim narrow_weights::rows_of_run(const task &t) const {
    return dst_ == dst_reading::packed || whole_rows() ? t.length[1] : 1;
}
dim narrow_weights::run_length(const task &t) const {
    return (rows_of_run(t) - 1) * patch_[2].row + t.length[2];
}

/// Where the runs of a tile lie, and how many there are.
dim narrow_weights::list_runs(const scratch &s, const task &t) const {
    dim run = 0;
    for (dim d = 0; d < t.length[0]; ++d)
        for (dim h = 0; h < t.length[1]; h += rows_of_run(t), ++run) {
            s.src_run[run] = patch_index(patch_, d, h, 0);
            s.dst_run[run] = in_place() ? row_offset(t, d, h) : d * plane_pitch_;
        }
    return run;
}

void narrow_weights::multiply(scratch &s, const task &t, dim group, dim runs) const {
    const auto rows = static_cast<dim>(row_at_.size());
    const float *a[9], *b[4];
    const dim count = in_place() ? run_length(t) : round_up_to(run_length(t), kernels_.lanes);
    dot_args args{a, b, s.src_run, s.dst_run, runs, count, nullptr, p_.oc, !t.first};
    float *c = t.partial + (t.first_group + group) * group_floats();
    const float *src = s.src + group * p_.ic * src_pitch_;
    const float *dst = in_place() ? first_dst(t) : s.dst;
    const dim dst_channel = in_place() ? p_.dst.c : dst_pitch_;
    const dim channels = t.channels(), columns = t.columns();
    for (dim j = 0; j < columns; ++j) {
        const dim o0 = t.first_channel + channels * j / columns,
                  o1 = t.first_channel + channels * (j + 1) / columns;
        for (dim o = o0; o < o1; ++o) b[o - o0] = dst + (group * p_.oc + o) * dst_channel;
        const dim blocks = row_blocks(o1 - o0);
        for (dim i = 0; i < blocks; ++i) {
            const dim r0 = rows * i / blocks, r1 = rows * (i + 1) / blocks;
            for (dim r = r0; r < r1; ++r) a[r - r0] = src + row_at_[static_cast<std::size_t>(r)];
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
                        for (dim o = t.first_channel; o < t.last_channel; ++o) {
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
    for_each_task(threads, p_.groups * p_.ic, [&](int, dim index) {
        const dim g = index / p_.ic, i = index % p_.ic;
        for (dim r = i * taps; r < (i + 1) * taps; ++r)
            for (dim o = 0; o < p_.oc; ++o) {
                const float *c = partials + g * group_floats() + r * p_.oc + o;
                float sum = c[0];
                for (dim part = 1; part < parts_; ++part) sum += c[part * partial_floats()];
                store_rounded(data.weights, p_.out_type,
                    g * p_.weights.g + o * p_.weights.o + i * p_.weights.i
                        + taps_.kept[static_cast<std::size_t>(r % taps)],
                    static_cast<double>(sum), p_.accumulate);
            }
    });
}

std::string narrow_weights::describe() const {
    if (tasks_ == 0) return "nothing to sum";
    const auto n = [](dim v) { return std::to_string(v); };
    return "tile " + n(tile_[0]) + "x" + n(tile_[1]) + "x" + n(tile_[2])
           + (whole_rows()  ? ", planes of dst in place"
               : in_place() ? ", rows of dst in place"
                            : "")
           + ", vectors along positions, " + n(groups_) + " groups a task, "
           + (cuts_ > 1 ? "dst's channels in " + n(cuts_) + ", " : "") + "parts " + n(parts_)
           + ", tasks " + n(tasks_);
}

}  // namespace convgrad::cpu
