// The batch and the output positions are cut into tiles, and the tiles into parts_ runs, by the
// problem alone. For each task (a part × a group), for each of its tiles:
//   the rows of src that the tile needs are copied as f32, channels side by side, padding as zeros
//   (in dot2 each position paired with one of the row's second half)
//   C[tap of depth and height][tap of the row, channel][column] += Σ_positions src · dst
// Then the parts are added in order and leave with one rounding. A tile is small, so that dst stays
// in L1 while all taps pass over it.
#include "cpu/folded_weights.hpp"

#include <algorithm>

#include "cpu/box_lines.hpp"
#include "cpu/element.hpp"
#include "cpu/fits.hpp"
#include "cpu/folded_rows.hpp"
#include "cpu/streaming.hpp"
#include "cpu/tasks.hpp"
#include "cpu/tiled.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

constexpr dim dst_target = 32 << 10;  // of a tile
constexpr dim partials_most = 6 << 20;
constexpr dim most_width = 64;  // of a panel, any instruction set

/// Whether tensors come from memory, or what is asked for costs little beside so many products; of
/// small ones asking takes longer than waiting for the last cache (3 channels, 3×3: 1.02 to 1.07
/// times).
bool worth_fetching(const conv::problem &p) {
    constexpr dim many = 64;  // products of a position and output channel
    const tensor_bytes bytes = bytes_of_data(p);
    return p.ic * p.x[0].kernel * p.x[1].kernel * p.x[2].kernel >= many
           || bytes.src + bytes.dst
                  > static_cast<double>(stream_above().load(std::memory_order_relaxed));
}

}  // namespace

struct folded_weights::task : tile_place {
    const conv::buffers *data;
    float *partial;  // of the group
    dim group, first, last;
    dim n;
    bool start;
};

struct folded_weights::scratch {
    char *src;
    char *dst;
    char *row;  // a row of src as stored
    dim *runs;  // two lists
    char *exact;
    fetch_ahead ahead;  // of both tensors, what the next tile needs
};

bool fits_folded_weights(const conv::problem &p, std::string *why) {
    if (p.what != conv::pass::backward_weights) return refuse(why, "not a weights gradient");
    if (p.x[2].dilation > 1 && p.x[2].kernel > 1) return refuse(why, "taps along a row lie apart");
    return true;
}

folded_weights::folded_weights(const conv::problem &p, const kernel_set &kernels,
    const kernel_set *exact, int threads, std::size_t workspace_limit)
    : p_(p), kernels_(kernels) {
    for (std::size_t a = 0; a < 3; ++a) walk_[a] = walk_forward(p.x[a]);
    taps_ = gradient_taps(p, walk_);
    if (p.mb == 0 || p.groups == 0 || p.ic == 0 || p.oc == 0 || taps_.kept.empty()) return;
    const auto &along = walk_[2].phases[0].taps;
    low_ = along.front().off;
    span_ = along.back().off - low_ + 1;
    runs_ = static_cast<dim>(walk_[0].phases[0].taps.size() * walk_[1].phases[0].taps.size());
    rows_ = span_ * p.ic;
    const dim columns = div_up(p.oc, kernels.lanes);
    vectors_ = static_cast<int>(div_up(columns, div_up(columns, widest_vectors(kernels))));
    panels_ = div_up(p.oc, panel_width());
    dim positions =
        std::max<dim>(32, dst_target * kernels.k_per_unit / (4 * panels_ * panel_width()));
    const auto cut = [&] {
        choose_tile(walk_, positions, tile_);
        settle();
        if (exact != nullptr) exact_.reset(new folded_weights(*this, *exact));
    };
    cut();
    choose_parts(workspace_limit);
    while (partials_bytes() + scratch_bytes() > workspace_limit && positions > 1) {
        positions /= 2;
        cut();
    }
    check_workspace("weights gradient", partials_bytes() + scratch_bytes(), workspace_limit);
    tasks_ = parts_ * p.groups;
    workers_ = static_cast<int>(std::min<dim>({std::max(threads, 1), tasks_,
        static_cast<dim>((workspace_limit - partials_bytes()) / scratch_bytes())}));
}

folded_weights::folded_weights(const folded_weights &like, const kernel_set &kernels)
    : p_(like.p_), kernels_(kernels), taps_(like.taps_), low_(like.low_), span_(like.span_),
      runs_(like.runs_), rows_(like.rows_), vectors_(like.vectors_), panels_(like.panels_) {
    for (int a = 0; a < 3; ++a) {
        walk_[a] = like.walk_[a];
        tile_[a] = like.tile_[a];
    }
    settle();
}

void folded_weights::settle() {
    for (int a = 0; a < 3; ++a) {
        patch_[a] = make_patch(walk_[a], tile_[a]);
        tiles_[a] = div_up(walk_[a].longest, tile_[a]);
    }
    row_bytes_ = round_up_to(4 * row_positions(tile_[2]) * p_.ic + 64, 64);
    as_stored_ = kernels_.k_per_unit == 1 && p_.type == data_type::f32 && p_.dst.c == 1
                 && p_.oc % kernels_.lanes == 0;
    tiles_all_ = p_.mb * tiles_[0] * tiles_[1] * tiles_[2];
    fetches_ = worth_fetching(p_);
}

void folded_weights::choose_parts(std::size_t workspace_limit) {
    const dim bytes = 4 * partial_floats();
    parts_ = fair_parts(tiles_all_, p_.groups, 1, partials_most / bytes, cut_threads(p_, kernels_));
    while (parts_ > 1 && partials_bytes() + scratch_bytes() > workspace_limit) --parts_;
}

dim folded_weights::panel_vectors(dim panel) const {
    return std::min<dim>(vectors_, div_up(p_.oc - panel * panel_width(), kernels_.lanes));
}

dim folded_weights::group_floats() const {
    return panels_ * runs_ * rows_ * panel_width();
}

/// Positions of src that a row of `length` output positions needs. In dot2 the row's second half
/// meets its first in pairs, which have as many positions as one half needs.
dim folded_weights::row_positions(dim length) const {
    return (units(length) - 1) * walk_[2].in_step + span_;
}

/// All that the pairs are made of.
dim folded_weights::raw_positions(dim length) const {
    return row_positions(length) + (kernels_.k_per_unit - 1) * units(length) * walk_[2].in_step;
}

dim folded_weights::dst_row_bytes() const {
    return 4 * panel_width() * units(tile_[2]);
}

dim folded_weights::dst_bytes() const {
    return as_stored_ ? 0 : panels_ * tile_[0] * tile_[1] * dst_row_bytes();
}

dim folded_weights::raw_bytes() const {
    return round_up_to(static_cast<dim>(size_of(p_.type)) * raw_positions(tile_[2]) * p_.ic, 64);
}

float *folded_weights::lay_out_partials(memory_walk &memory) const {
    return memory.take<float>(parts_ * partial_floats());
}

folded_weights::scratch folded_weights::lay_out(memory_walk &memory) const {
    scratch s{};
    s.src = memory.take<char>(patch_[0].length * patch_[1].length * row_bytes_);
    s.dst = memory.take<char>(dst_bytes());
    s.row = memory.take<char>(raw_bytes());
    s.runs = memory.take_lines<dim>(2 * tile_[0] * tile_[1]);
    if (exact_) s.exact = memory.take<char>(static_cast<dim>(exact_->scratch_bytes()));
    return s;
}

std::size_t folded_weights::partials_bytes() const {
    return bytes_of_walk([this](memory_walk &memory) { return lay_out_partials(memory); });
}

std::size_t folded_weights::scratch_bytes() const {
    return bytes_of_walk([this](memory_walk &memory) { return lay_out(memory); });
}

std::size_t folded_weights::workspace() const {
    if (tasks_ == 0) return 0;
    return partials_bytes() + scratch_bytes() * static_cast<std::size_t>(workers_);
}

folded_weights::task folded_weights::make_task(
    const conv::buffers &data, float *partials, dim index) const {
    task t{};
    t.data = &data;
    t.group = index % p_.groups;
    const dim part = index / p_.groups;
    if (partials != nullptr)
        t.partial = partials + part * partial_floats() + t.group * group_floats();
    t.first = tiles_all_ * part / parts_;
    t.last = tiles_all_ * (part + 1) / parts_;
    return t;
}

void folded_weights::set_tile(task &t, dim tile) const {
    t.start = tile == t.first;
    t.n = place_tile(walk_, tile_, tiles_, tile, t);
}

void folded_weights::execute(
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
        task t = make_task(data, partials, index);
        for (dim tile = t.first; tile < t.last; ++tile) {
            set_tile(t, tile);
            plan_ahead(s, t, tile + 1);
            run_tile(s, t);
        }
    });
    write_out(data, partials, threads);
}

/// Memory would be waited for when a tile is packed or looked at: it is asked for while the one
/// before is multiplied.
void folded_weights::plan_ahead(scratch &s, const task &t, dim tile) const {
    s.ahead = {};
    if (!fetches_ || kernels_.tiles() || tile >= t.last) return;
    task next = t;
    set_tile(next, tile);
    const dim blocks = runs_ * panels_ * div_up(rows_, kernels_.max_m[vectors_]);
    s.ahead = {patch_box(t.data->src, p_.type, p_.src, {next.n, t.group * p_.ic, p_.ic}, walk_,
                   patch_, tile_, next)
                   .lists(),
        tile_box(t.data->dst, p_.type, p_.dst, {next.n, t.group * p_.oc, p_.oc}, walk_, next)
            .lists(),
        blocks};
}

void folded_weights::run_tile(scratch &s, const task &t) const {
    const value_range dst = prepare_dst(s, t);
    // A padded position of src must contribute nothing, but 0 · ∞ is NaN.
    if (!exact_ && dst.nonfinite && t.padded) {
        multiply_careful(t);
        return;
    }
    const value_range src = pack_src(s, t);
    if (exact_ && !kernels_.limits.allow(src, dst)) {
        memory_walk memory(s.exact);
        scratch other = exact_->lay_out(memory);
        exact_->run_tile(other, t);
        return;
    }
    multiply(s, t);
}

value_range folded_weights::pack_src(const scratch &s, const task &t) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    const char *in = static_cast<const char *>(t.data->src)
                     + size * (t.n * p_.src.n + t.group * p_.ic * p_.src.c);
    value_range range;
    for_each_input_row(walk_, patch_, tile_, t, p_.src,
        [&](dim offset, dim row) { range.merge(pack_row(s, t, in + size * offset, row)); });
    return range;
}

value_range folded_weights::pack_row(
    const scratch &s, const task &t, const char *in, dim row) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    const dim first = t.t0[2] * walk_[2].in_step + low_;
    const dim count = raw_positions(t.length[2]);
    dim lo, hi;
    clip(first, 1, count, walk_[2].in_length, lo, hi);
    char *out = s.src + row * row_bytes_;
    const row_of_channels from{
        in + size * (first + lo) * p_.src.x[2], size, p_.ic, p_.src.c, p_.src.x[2], hi - lo};
    const bool as_stored = from.side_by_side();
    value_range range;
    if (kernels_.k_per_unit == 1) {
        if (!as_stored) gather_row(kernels_, from, s.row);
        clear(out, 4 * lo * p_.ic);
        if (hi > lo)
            range = kernels_.pack_pixels({as_stored ? from.in : s.row, p_.type, 1, 0,
                                             (hi - lo) * p_.ic, 1, 0, 1, out + 4 * lo * p_.ic},
                64);
        clear(out + 4 * hi * p_.ic, 4 * (count - hi) * p_.ic);
        return range;
    }
    const bool whole = as_stored && lo == 0 && hi == count;
    if (!whole) {
        clear(s.row, size * lo * p_.ic);
        gather_row(kernels_, from, s.row + size * lo * p_.ic);
        clear(s.row + size * hi * p_.ic, size * (count - hi) * p_.ic);
    }
    const char *raw = whole ? from.in : s.row;
    const dim elements = row_positions(t.length[2]) * p_.ic;
    return kernels_.pack_positions({raw, p_.type, 1, elements, elements, 1, 0, 1, out},
        {raw + size * units(t.length[2]) * walk_[2].in_step * p_.ic, 0, 1},
        round_up_to(elements, kernels_.lanes), 0, 0);
}

/// Packs dst, or looks whether it has infinities where that matters.
value_range folded_weights::prepare_dst(const scratch &s, const task &t) const {
    value_range range;
    if (as_stored_ && !t.padded) return range;
    const dim size = static_cast<dim>(size_of(p_.type));
    const dim row = dst_row_bytes(), panel = row * tile_[0] * tile_[1], k = units(t.length[2]);
    for (dim d = 0; d < t.length[0]; ++d)
        for (dim h = 0; h < t.length[1]; ++h) {
            const char *in =
                static_cast<const char *>(t.data->dst)
                + size
                      * (t.n * p_.dst.n + t.group * p_.oc * p_.dst.c + (t.t0[0] + d) * p_.dst.x[0]
                          + (t.t0[1] + h) * p_.dst.x[1] + t.t0[2] * p_.dst.x[2]);
            const pack_args args{in, p_.type, p_.dst.c, p_.dst.x[2], p_.oc, k, 0, k,
                s.dst + (d * tile_[1] + h) * row};
            const pair_row pair{in + size * k * p_.dst.x[2], 0, t.length[2] - k};
            range.merge(as_stored_ ? kernels_.scan(args)
                                   : kernels_.pack_positions(args, pair, panel_width(), panel, 0));
        }
    return range;
}

void folded_weights::multiply(scratch &s, const task &t) const {
    const auto &kd = walk_[0].phases[0].taps, &kh = walk_[1].phases[0].taps;
    const dim row = dst_row_bytes(), panel_bytes = row * tile_[0] * tile_[1];
    const char *dst = s.dst;
    if (as_stored_)
        dst = static_cast<const char *>(t.data->dst)
              + 4 * (t.n * p_.dst.n + t.group * p_.oc + t.t0[2] * p_.dst.x[2]);
    product_args args{};
    args.a = s.src;
    args.a_run = s.runs;
    args.b_run = s.runs + tile_[0] * tile_[1];
    args.k = units(t.length[2]);
    args.a_m = 4;
    args.a_step = 4 * walk_[2].in_step * p_.ic;
    args.b_step = as_stored_ ? 4 * p_.dst.x[2] : 4 * panel_width();
    args.ldc = panel_width();
    args.accumulate = !t.start;
    dim run = 0;
    for (std::size_t i = 0; i < kd.size(); ++i)
        for (std::size_t j = 0; j < kh.size(); ++j, ++run) {
            args.runs = 0;
            for (dim d = 0; d < t.length[0]; ++d)
                for (dim h = 0; h < t.length[1]; ++h) {
                    const dim x[2] = {(t.t0[0] + d) * walk_[0].in_step + kd[i].off,
                        (t.t0[1] + h) * walk_[1].in_step + kh[j].off};
                    if (x[0] < 0 || x[0] >= walk_[0].in_length || x[1] < 0
                        || x[1] >= walk_[1].in_length)
                        continue;
                    s.runs[args.runs] = row_bytes_
                                        * ((patch_[0].start[0][i] + d) * patch_[1].length
                                            + patch_[1].start[0][j] + h);
                    s.runs[tile_[0] * tile_[1] + args.runs++] =
                        as_stored_ ? 4 * ((t.t0[0] + d) * p_.dst.x[0] + (t.t0[1] + h) * p_.dst.x[1])
                                   : (d * tile_[1] + h) * row;
                }
            if (args.runs == 0 && args.accumulate) continue;
            for (dim panel = 0; panel < panels_; ++panel) {
                args.b = dst + panel * (as_stored_ ? 4 * panel_width() : panel_bytes);
                args.c = t.partial + c_at(panel, run, 0);
                multiply_run(kernels_, args, rows_, static_cast<int>(panel_vectors(panel)),
                    {.others = &s.ahead});
            }
        }
}

void folded_weights::multiply_careful(const task &t) const {
    const auto &kd = walk_[0].phases[0].taps, &kh = walk_[1].phases[0].taps;
    if (t.start) std::fill_n(t.partial, group_floats(), 0.0F);
    dim run = 0;
    for (std::size_t i = 0; i < kd.size(); ++i)
        for (std::size_t j = 0; j < kh.size(); ++j, ++run)
            for (const axis_tap &kw : walk_[2].phases[0].taps) {
                const axis_tap *at[3] = {&kd[i], &kh[j], &kw};
                for (dim c = 0; c < p_.ic; ++c)
                    for (dim o = 0; o < p_.oc; ++o)
                        t.partial[c_at(o / panel_width(), run, (kw.off - low_) * p_.ic + c)
                                  + o % panel_width()] +=
                            careful_sum(p_, walk_, at, *t.data, t.n, t.group, c, o, t.t0, t.length);
            }
}

void folded_weights::write_out(
    const conv::buffers &data, const float *partials, const executor &threads) const {
    const auto &kd = walk_[0].phases[0].taps, &kh = walk_[1].phases[0].taps;
    for_each_task(threads, p_.groups * runs_, [&](int, dim index) {
        const dim group = index / runs_, run = index % runs_;
        const dim offset = group * p_.weights.g
                           + kd[static_cast<std::size_t>(run) / kh.size()].k * p_.weights.k[0]
                           + kh[static_cast<std::size_t>(run) % kh.size()].k * p_.weights.k[1];
        float sum[most_width];
        for (const axis_tap &kw : walk_[2].phases[0].taps)
            for (dim i = 0; i < p_.ic; ++i)
                for (dim panel = 0; panel < panels_; ++panel) {
                    const float *c = partials + group * group_floats()
                                     + c_at(panel, run, (kw.off - low_) * p_.ic + i);
                    const dim first = panel * panel_width();
                    const dim columns = std::min(panel_width(), p_.oc - first);
                    std::copy_n(c, columns, sum);
                    for (dim part = 1; part < parts_; ++part)
                        for (dim o = 0; o < columns; ++o) sum[o] += c[part * partial_floats() + o];
                    const dim at =
                        offset + kw.k * p_.weights.k[2] + i * p_.weights.i + first * p_.weights.o;
                    if (!p_.accumulate) {
                        store_args args{};
                        args.c = sum;
                        args.c_xs = 1;
                        args.channels = 1;
                        args.count = columns;
                        args.out = static_cast<char *>(data.weights)
                                   + static_cast<dim>(size_of(p_.out_type)) * at;
                        args.type = p_.out_type;
                        args.xs = p_.weights.o;
                        kernels_.store(args);
                        continue;
                    }
                    for (dim o = 0; o < columns; ++o)
                        store_rounded(data.weights, p_.out_type, at + o * p_.weights.o,
                            static_cast<double>(sum[o]), true);
                }
    });
}

work_list folded_weights::work() const {
    work_list list;
    list.macs_per_second = nominal_speed(kernels_);
    list.parts = parts_;
    list.parts_bytes = parts_ > 1 ? 4.0 * static_cast<double>(parts_ * partial_floats()) : 0;
    const auto size = static_cast<double>(size_of(p_.type));
    list.stages.push_back({"tiles", tasks_, workers_,
        [this, size](dim index, dim) {
            task_cost cost;
            const conv::buffers none;
            task t = make_task(none, nullptr, index);
            for (dim tile = t.first; tile < t.last; ++tile) {
                set_tile(t, tile);
                double pairs = static_cast<double>(t.length[2]),
                       inputs = static_cast<double>(p_.ic);
                for (int a = 0; a < 2; ++a)
                    pairs *= inside_pairs(walk_[a], walk_[a].phases[0], t.t0[a], t.length[a]);
                for (int a = 0; a < 3; ++a)
                    inputs *= static_cast<double>(std::min(walk_[a].in_length,
                        (t.length[a] - 1) * walk_[a].in_step
                            + static_cast<dim>(walk_[a].phases[0].taps.size())));
                const auto positions = static_cast<double>(t.length[0] * t.length[1] * t.length[2]);
                cost.macs += pairs * static_cast<double>(rows_ * panels_ * panel_width());
                cost.read += size * (inputs + positions * static_cast<double>(p_.oc));
            }
            return cost;
        }});
    list.stages.push_back(
        {"sum of parts", tasks_ == 0 ? 0 : p_.groups * runs_, workers_, [this](dim, dim) {
             const auto weights = static_cast<double>(rows_ * p_.oc);
             return task_cost{weights * static_cast<double>(parts_),
                 4 * weights * static_cast<double>(parts_),
                 weights * static_cast<double>(size_of(p_.out_type))};
         }});
    return list;
}

std::string folded_weights::describe() const {
    if (tasks_ == 0) return "nothing to sum";
    const auto n = [](dim v) { return std::to_string(v); };
    return "tile " + n(tile_[0]) + "x" + n(tile_[1]) + "x" + n(tile_[2])
           + ", taps of a row and channels folded to " + n(rows_) + ", panel " + n(panel_width())
           + ", parts " + n(parts_) + ", tasks " + n(tasks_);
}

}  // namespace convgrad::cpu
