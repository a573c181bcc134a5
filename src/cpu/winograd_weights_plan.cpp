// Blocks, parts and shares of the Winograd driver for the weights gradient, its memory and its
// work.
#include <algorithm>

#include "cpu/tiled.hpp"
#include "cpu/winograd_weights.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

constexpr dim block_bytes = 6 << 20;  // of V and Y: they stay in the last cache
constexpr dim one_block_bytes = 24 << 20;
constexpr dim own_bytes_most = 320 << 10;  // of a task's sums: they stay in L2
constexpr dim part_bytes = 1664 << 10;     // of V, Y and sums of a part: about L2,
constexpr dim part_sums = 896 << 10;       // where sums stay, while tiles pass
constexpr dim least_part = 32;             // tiles
// Parts keep their tiles to themselves: blocks that all threads share cost as much again where the
// threads share no cache, so that parts may be shared out worse than others.
constexpr double fair_part = 0.5;
constexpr dim most_segment = 14, least_segment = 4;  // tiles of a transform
constexpr dim most_write_rows = 16;                  // input channels, of one plane
constexpr dim most_taps_inside = 64;                 // of filters that are written as a whole
constexpr dim apart = 48;        // floats: points must not fall on the same sets of caches
constexpr dim most_range = 256;  // input channels of a product
constexpr dim least_near = 32;   // of those that stay in a core's cache
constexpr int least_lanes = 16;  // of vectors for which threads have shares
constexpr double of_data = winograd_point_of_data, of_filters = winograd_point_of_filters;
constexpr double of_halves = 14, of_planes = 20;  // in 16 bits, and from planes

conv::problem one_group(conv::problem p) {
    p.groups = 1;
    return p;
}

}  // namespace

winograd_weights::winograd_weights(const conv::problem &p, const kernel_set &kernels,
    winograd_tile tile, std::size_t workspace_limit, int threads)
    : p_(one_group(orient_for(p, tile))), whole_(p), groups_(p.groups), kernels_(kernels),
      winograd_(*find_winograd(kernels.set)), transforms_(*winograd_.find(taps_for(p_), tile)),
      map_(p_, tile), taps_(map_.taps[0] * map_.taps[1]), rows_(map_.sources * p.ic),
      ic_padded_(round_up_to(rows_, kernels.lanes)), panels_(div_up(p.oc, panel())),
      chunk_(std::min<dim>(64, std::max(ic_padded_, panels_ * panel()))),
      joined_(map_.joined_sources(p_.src)),
      src_chunk_(round_up_to(div_up(chunk_, joined_), kernels.lanes)),
      write_rows_(
          map_.sources > 1 && p.ic % most_write_rows != 0 ? dim{kernels.lanes} : most_write_rows),
      filter_taps_(p.x[0].kernel * p.x[1].kernel * p.x[2].kernel),
      taps_inside_(taps_side_by_side(p) && filter_taps_ <= most_taps_inside),
      direct_(p_, kernels, nullptr, threads, workspace_limit) {}

winograd_weights::winograd_weights(const conv::problem &p, const kernel_set &kernels,
    winograd_tile tile, int threads, std::size_t workspace_limit)
    : winograd_weights(p, kernels, tile, workspace_limit, threads) {
    choose_block();
    choose_shares(threads);
    fit_workspace(threads, workspace_limit);
}

void winograd_weights::set_block(dim tiles) {
    blocks_ = div_up(map_.count, std::max<dim>(tiles, 1));
    block_ = div_up(map_.count, blocks_);
    blocks_ = div_up(map_.count, block_);
    v_point_ = block_ * ic_padded_ + apart;
    y_point_ = block_ * panels_ * panel() + apart;
    sum_point_ = panels_ * ic_padded_ * panel() + apart;
    shares_ = 0;
    all_points_ = blocks_ == 1;
    choose_tasks();
}

dim winograd_weights::largest_range() const {
    const dim lanes = kernels_.lanes;
    dim most = most_range;
    if (all_points_) {
        most = own_bytes_most / (4 * map_.points * panel());
        // Rows that stay are read once, panels of Y for each range: the wider is read less often.
        const dim near = near_rows / (4 * map_.points * block_);
        if (near >= least_near) most = std::min(most, near);
    }
    return std::clamp(most / lanes * lanes, lanes, ic_padded_);
}

void winograd_weights::choose_tasks() {
    const dim lanes = kernels_.lanes;
    const int threads = cut_threads(whole_, kernels_);
    const auto fair = [&](dim tasks, dim step, dim length) {
        const double skew =
            static_cast<double>(round_up_to(length, step)) / static_cast<double>(length);
        return fair_share(groups_each_ * tasks, skew, threads) >= fair_enough;
    };
    range_ = largest_range();
    while (range_ > lanes && !fair(product_tasks(), range_, ic_padded_)) range_ -= lanes;
    segment_ = std::min(block_, most_segment);
    while (segment_ > least_segment && !fair(transform_tasks(), segment_, block_)) --segment_;
    own_point_ = range_ * panel() + apart;
}

/// Groups at a time, so that they keep all threads busy together.
void winograd_weights::choose_groups() {
    const int threads = cut_threads(whole_, kernels_);
    const dim most = std::clamp<dim>(one_block_bytes / static_cast<dim>(group_bytes()), 1, groups_);
    while (
        groups_each_ < most && fair_share(groups_each_ * product_tasks(), 1, threads) < fair_enough)
        ++groups_each_;
    groups_each_ = div_up(groups_, div_up(groups_, groups_each_));
    choose_tasks();
    if (fair_share(groups_each_ * product_tasks(), 1, threads) >= fair_enough) return;
    all_points_ = false;  // few channels: points are shared out too
    choose_tasks();
}

/// False: the sums are too large for a core, or there are too few tiles for parts.
bool winograd_weights::choose_parts() {
    const dim channels = ic_padded_ + panels_ * panel();
    const dim sums = 4 * map_.points * ic_padded_ * panels_ * panel();
    const dim tiles = std::min(map_.count, chain_tiles);
    if (sums > part_sums || sums + 4 * map_.points * tiles * channels > part_bytes) return false;
    const int threads = cut_threads(whole_, kernels_);
    const dim most = std::max<dim>(1, map_.count / least_part);
    const dim parts = fair_parts(map_.count, groups_, 1, most, threads);
    part_tiles_ = div_up(map_.count, parts);
    set_block(div_up(part_tiles_, div_up(part_tiles_, chain_tiles)));
    parts_ = div_up(map_.count, part_tiles_);
    all_points_ = false;
    range_ = ic_padded_;
    segment_ = std::min(block_, most_segment);
    groups_each_ = std::clamp<dim>(one_block_bytes / static_cast<dim>(group_bytes()), 1, groups_);
    groups_each_ = div_up(groups_, div_up(groups_, groups_each_));
    const double skew = static_cast<double>(parts_ * part_tiles_) / static_cast<double>(map_.count);
    if (fair_share(groups_each_ * parts_, skew, threads) >= fair_part) return true;
    parts_ = 0;
    groups_each_ = 1;
    return false;
}

void winograd_weights::choose_block() {
    if (choose_parts()) return;
    const dim each = 4 * map_.points * (ic_padded_ + panels_ * panel());
    if (map_.count * each <= one_block_bytes)
        set_block(map_.count);
    else
        set_block(round_up_to(std::max(block_bytes / each, 2 * chain_tiles), chain_tiles));
    choose_groups();
}

/// The first row of a chunk of src, or where rows end.
dim winograd_weights::row_of(dim chunk) const {
    if (chunk == src_chunks()) return ic_padded_;
    return chunk / source_chunks() * joined_ * p_.ic + first_channel(chunk);
}

winograd_weights::share winograd_weights::share_at(dim index) const {
    const auto cut = [&](dim units, bool shared, dim at) {
        return shared ? units * (index + at) / shares_ : units * at;
    };
    share s{};
    s.first_chunk = cut(src_chunks(), shares_of_rows_, 0);
    s.last_chunk = cut(src_chunks(), shares_of_rows_, 1);
    s.first_row = row_of(s.first_chunk);
    s.last_row = row_of(s.last_chunk);
    s.first_panel = cut(panels_, !shares_of_rows_, 0);
    s.last_panel = cut(panels_, !shares_of_rows_, 1);
    return s;
}

/// False, and nothing is changed: some thread would have far less to do than others.
bool winograd_weights::try_shares(dim shares, bool of_rows, int threads) {
    // Chunks of sources that are transformed together are rows here and there.
    if (of_rows && joined_ > 1) return false;
    const dim chunk = src_chunk_;
    if (of_rows && map_.sources == 1)
        src_chunk_ = round_up_to(
            div_up(ic_padded_, shares * div_up(ic_padded_, shares * chunk)), kernels_.lanes);
    shares_ = shares;
    shares_of_rows_ = of_rows;
    dim rows = 0, panels = 0;
    for (dim i = 0; i < shares; ++i) {
        const share s = share_at(i);
        rows = std::max(rows, s.last_row - s.first_row);
        panels = std::max(panels, s.last_panel - s.first_panel);
    }
    const double skew =
        static_cast<double>(rows * panels * shares) / static_cast<double>(ic_padded_ * panels_);
    if (fair_share_on(groups_each_ * shares, skew, threads) < fair_enough) {
        shares_ = 0;
        src_chunk_ = chunk;
        return false;
    }
    all_points_ = blocks_ == 1;
    range_ = std::min(largest_range(), rows);
    segment_ = std::min(block_, most_segment);
    v_point_ = block_ * rows + apart;
    y_point_ = block_ * panels * panel() + apart;
    own_point_ = range_ * panel() + apart;
    return true;
}

/// Two threads, or a few, do not share tiles: each transforms what it needs, and the larger of both
/// sides is shared out. No sum depends on it. (A line that another core has read last is written
/// at a third of the speed where the cores share no cache; transforms took three times as long.)
/// Shorter vectors multiply for longer, beside which tiles of their own cost more than they bring
/// where cores do share one (AVX2, 256 channels on 14×14: 0.83).
void winograd_weights::choose_shares(int threads) {
    threads = std::min(threads, cut_threads(whole_, kernels_));
    if (parts_ > 0 || threads < 2 || kernels_.lanes < least_lanes) return;
    const dim each = groups_each_;
    groups_each_ = std::clamp<dim>(one_block_bytes / (4 * map_.points * sum_point_), 1, groups_);
    groups_each_ = div_up(groups_, div_up(groups_, groups_each_));
    if (groups_ >= threads && try_shares(1, false, threads)) return;
    groups_each_ = 1;
    const auto rows = static_cast<double>(ic_padded_), out = static_cast<double>(panels_ * panel());
    const bool of_rows = rows > out;
    const auto again = [&](bool shares_rows) {
        const conv::data_strides &of = shares_rows ? p_.dst : p_.src;
        const double point = of.c != 1                   ? of_planes
                             : p_.type == data_type::f32 ? of_data
                                                         : of_halves;
        return (threads - 1) * point / (shares_rows ? rows : out);
    };
    for (const bool some : {of_rows, !of_rows})
        if (again(some) <= most_transformed_again && try_shares(threads, some, threads)) return;
    groups_each_ = each;
}

/// Filters whose taps lie side by side, on their way out.
dim winograd_weights::filter_floats() const {
    return taps_inside_ ? filter_taps_ * (write_rows_ + 1) * panel() : 0;
}

dim winograd_weights::stage_floats() const {
    return round_up_to(winograd_stage_floats(map_, kernels_, segment_), 16);
}

/// Of a group: tiles and sums, or the sums of all parts.
winograd_weights::memory winograd_weights::lay_out_group(memory_walk &walk) const {
    memory m{};
    if (parts_ > 0) {
        m.sums = walk.take<float>(parts_ * part_floats());
    } else if (shares_ > 0) {
        m.sums = walk.take<float>(sum_floats());
    } else {
        m.v = walk.take<float>(v_floats());
        m.y = walk.take<float>(y_floats());
        m.sums = walk.take<float>(sum_floats());
    }
    m.infinite = walk.take_lines<int>(1);
    return m;
}

winograd_weights::memory winograd_weights::lay_out_part(memory_walk &walk) const {
    memory m{};
    m.v = walk.take<float>(v_floats());
    m.y = walk.take<float>(y_floats());
    m.sums = walk.take<float>(map_.points * sum_point_);
    m.stage = walk.take<float>(stage_floats());
    return m;
}

winograd_weights::memory winograd_weights::lay_out_share(memory_walk &walk) const {
    memory m{};
    m.v = walk.take<float>(v_floats());
    m.y = walk.take<float>(y_floats());
    m.sums = walk.take<float>(all_sums_floats());
    m.stage = walk.take<float>(std::max(stage_floats(), filter_floats()));
    return m;
}

std::size_t winograd_weights::group_bytes() const {
    return bytes_of_walk([this](memory_walk &walk) { return lay_out_group(walk); });
}

/// What one stage after the other uses.
std::size_t winograd_weights::scratch_bytes() const {
    const auto floats =
        static_cast<std::size_t>(4 * std::max(stage_floats(), all_sums_floats() + filter_floats()));
    if (parts_ == 0 && shares_ == 0) return floats;
    return std::max(floats, bytes_of_walk([this](memory_walk &walk) {
        return parts_ > 0 ? lay_out_part(walk) : lay_out_share(walk);
    }));
}

std::size_t winograd_weights::own_bytes(int workers) const {
    return static_cast<std::size_t>(groups_each_) * group_bytes()
           + static_cast<std::size_t>(workers) * scratch_bytes();
}

void winograd_weights::fit_workspace(int threads, std::size_t limit) {
    while (own_bytes(1) > limit && groups_each_ > 1) --groups_each_;
    if (shares_ > 0 && own_bytes(threads) > limit) {
        groups_each_ = 1;
        set_block(block_);
        choose_groups();
        while (own_bytes(1) > limit && groups_each_ > 1) --groups_each_;
    }
    if (own_bytes(1) > limit && parts_ > 0) {
        parts_ = 0;
        set_block(block_);
    }
    while (own_bytes(1) > limit && block_ > 1) set_block(block_ / 2);
    check_workspace("weights gradient", own_bytes(1), limit);
    const std::size_t each = scratch_bytes();
    workers_ = static_cast<int>(
        std::min<dim>(std::max(threads, 1), static_cast<dim>((limit - own_bytes(0)) / each)));
}

std::size_t winograd_weights::workspace() const {
    return std::max(own_bytes(workers_), direct_.workspace());
}

void winograd_weights::add_part_stages(work_list &list) const {
    const auto batches = static_cast<double>(div_up(groups_, groups_each_)),
               in = static_cast<double>(ic_padded_), out = static_cast<double>(panels_ * panel()),
               size = static_cast<double>(size_of(p_.type)),
               area = static_cast<double>(map_.rows * map_.columns);
    list.parts = parts_;
    list.parts_bytes =
        4 * static_cast<double>(taps_) * in * out * static_cast<double>(groups_ * parts_);
    list.stages.push_back(
        {"parts", groups_each_ * parts_, workers_, [=, this](dim index, dim) {
             const dim first = index % parts_ * part_tiles_;
             const dim count = std::min(part_tiles_, map_.count - first);
             const auto points = static_cast<double>(map_.points_of(map_.block_at(first, count)));
             return task_cost{batches
                                  * (points * (in * out + of_data * (in + out))
                                      + of_filters * static_cast<double>(map_.points) * in * out),
                 batches * size * area * static_cast<double>(count) * (in + out),
                 batches * 4 * static_cast<double>(taps_) * in * out};
         }});
    const auto sums = batches * static_cast<double>(std::min(write_rows_, rows_) * panel());
    if (parts_ > 1)
        list.stages.push_back(
            {"sum of parts", taps_ * groups_each_ * combine_tasks(), workers_, [=, this](dim, dim) {
                 return task_cost{0, 4 * sums * static_cast<double>(parts_), 4 * sums};
             }});
    list.stages.push_back(
        {"gradient", groups_each_ * write_tasks(), workers_, [=, this](dim, dim) {
             return task_cost{
                 0, 0, written_taps() * sums * static_cast<double>(size_of(p_.out_type))};
         }});
}

void winograd_weights::add_share_stage(work_list &list) const {
    const auto batches = static_cast<double>(div_up(groups_, groups_each_)),
               size = static_cast<double>(size_of(p_.type)),
               out_size = written_taps() * static_cast<double>(size_of(p_.out_type)),
               area = static_cast<double>(map_.rows * map_.columns * map_.count),
               points = static_cast<double>(map_.all_points());
    list.stages.push_back(
        {"shares", groups_each_ * shares_, workers_, [=, this](dim index, dim) {
             const share s = share_at(index % shares_);
             const auto in = static_cast<double>(s.last_row - s.first_row),
                        out = static_cast<double>((s.last_panel - s.first_panel) * panel());
             return task_cost{batches
                                  * (points * (in * out + of_data * (in + out))
                                      + of_filters * static_cast<double>(map_.points) * in * out),
                 batches * size * area * (in + out),
                 leaves_at_once() ? batches * out_size * in * out : 0};
         }});
    if (leaves_at_once()) return;
    const auto sums = batches * static_cast<double>(std::min(write_rows_, rows_) * panel());
    list.stages.push_back({"gradient", groups_each_ * write_tasks(), workers_, [=](dim, dim) {
                               return task_cost{0, 0, out_size * sums};
                           }});
}

work_list winograd_weights::work() const {
    work_list list;
    list.macs_per_second = nominal_speed(kernels_);
    const dim batches = div_up(groups_, groups_each_);
    const auto times = static_cast<double>(blocks_ * batches);
    const auto points = static_cast<double>(map_.points),
               size = static_cast<double>(size_of(p_.type)),
               out_size = written_taps() * static_cast<double>(size_of(p_.out_type)),
               area = static_cast<double>(map_.rows * map_.columns);
    if (parts_ > 0) {
        add_part_stages(list);
        return list;
    }
    if (shares_ > 0) {
        add_share_stage(list);
        return list;
    }
    list.stages.push_back(
        {"tiles", groups_each_ * transform_tasks(), workers_, [=, this](dim index, dim) {
             index %= transform_tasks();
             const dim part = index / segments(), segment = index % segments();
             const dim channels = part < src_chunks()
                                      ? joined_ * src_channels(part)
                                      : std::min(chunk_, p_.oc - (part - src_chunks()) * chunk_);
             const auto elements =
                 times
                 * static_cast<double>(
                     channels * (std::min(block_, (segment + 1) * segment_) - segment * segment_));
             return task_cost{of_data * points * elements, size * area * elements, 0};
         }});
    list.stages.push_back({"products", groups_each_ * product_tasks(), workers_,
        [=, this](dim index, dim) {
            const dim first = index % ranges() * range_;
            const auto sums = static_cast<double>(std::min(range_, ic_padded_ - first) * panel());
            const double all = all_points_ ? points : 1;
            return task_cost{
                times * all * sums * static_cast<double>(block_)
                    + (all_points_ ? static_cast<double>(batches) * of_filters * points * sums : 0),
                0, all_points_ && leaves_at_once() ? times * out_size * sums : 0};
        }});
    if (all_points_ && leaves_at_once()) return list;
    list.stages.push_back({"gradient", groups_each_ * write_tasks(), workers_,
        [=, this](dim, dim) {
            const auto sums = static_cast<double>(batches * std::min(write_rows_, rows_) * panel());
            return task_cost{all_points_ ? 0 : of_filters * points * sums, 0, out_size * sums};
        }});
    return list;
}

std::string winograd_weights::describe() const {
    const auto n = [](dim v) { return std::to_string(v); };
    const std::string text = "tiles " + n(map_.rows) + "x" + n(map_.columns) + " of "
                             + n(map_.points) + " points, " + n(block_) + " of " + n(map_.count)
                             + " tiles at a time, ";
    if (parts_ > 0) return text + n(parts_) + " parts of " + n(part_tiles_) + " tiles";
    if (shares_ > 0)
        return text + n(groups_each_ * shares_) + " shares of the "
               + (shares_ == 1       ? "groups"
                   : shares_of_rows_ ? "input channels"
                                     : "output channels")
               + ", each with tiles of its own";
    return text + "products of " + n(range_) + " to " + n(panel()) + " channels, tasks "
           + n(product_tasks());
}

}  // namespace convgrad::cpu
