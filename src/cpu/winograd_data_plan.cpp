// Blocks of the Winograd driver for forward and backward data: by the problem alone.
#include <algorithm>

#include "cpu/winograd_data.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

constexpr dim filter_chunk = 64;             // channels: their taps stay in L1 and L2
constexpr dim block_bytes = 512 << 10;       // V and M of a block of tiles
constexpr dim cached_filters = 4 << 20;      // beyond, blocks are larger: each reads all filters
constexpr dim streamed_results = 600 << 10;  // M of a block of tiles where they are not kept
constexpr dim near_tiles = 768 << 10;        // V of a block that stays in a core's cache
constexpr dim near_results = 768 << 10;      // M of panels that are multiplied together
constexpr dim most_shared = 96 << 20;        // of V of all tiles

constexpr double of_data = winograd_point_of_data, of_filters = winograd_point_of_filters;

}  // namespace

winograd_data::winograd_data(const conv::problem &p, const kernel_set &kernels, winograd_tile tile)
    : p_(orient_for(p, tile)), kernels_(kernels), winograd_(*find_winograd(kernels.set)),
      transforms_(*winograd_.find(taps_for(p_), tile)), tile_(tile), roles_(p_), map_(p_, tile),
      taps_(map_.taps[0] * map_.taps[1]), in_c_(map_.sources * roles_.in_c),
      in_padded_(round_up_to(in_c_, kernels.lanes)), panels_(div_up(roles_.out_c, panel())),
      chunk_(std::min(filter_chunk, in_padded_)) {}

winograd_data::winograd_data(const conv::problem &p, const kernel_set &kernels, winograd_tile tile,
    int threads, std::size_t workspace_limit)
    : winograd_data(p, kernels, tile) {
    // No result depends on how tiles and panels are cut, so they are cut for the threads there are.
    const int most = std::min(std::max(threads, 1), cut_threads(p_, kernels_));
    if (!stream_filters(threads)) choose_blocks(most);
    choose_chunks(most);
    fit_workspace(threads, workspace_limit);
}

/// Blocks of at most `tiles` tiles.
void winograd_data::set_tiles(dim tiles) {
    blocks_ = div_up(map_.count, std::max<dim>(tiles, 1));
    block_ = div_up(map_.count, blocks_);
    blocks_ = div_up(map_.count, block_);
    choose_rows();
    v_point_ = round_up_to(block_, rows_) * in_padded_ + apart;
    m_point_ = round_up_to(block_, rows_) * panel() + apart;
    panel_blocks_ = div_up(panels_, panels_each_);
    together_ = !share_u_ || 4 * v_floats() <= near_tiles
                    ? 1
                    : std::clamp<dim>(near_results / (4 * m_floats()), 1, panels_each_);
    u_point_ = share_u_ ? all_filters_point() : chunk_ * panel() + apart;
    tasks_ = sets() * panel_blocks_ * blocks_;
}

/// Rows of a product: tiles that all have a point go in few products of many rows.
void winograd_data::choose_rows() {
    rows_ = div_up(block_, div_up(block_, winograd_.most_rows));
    const winograd_map::block tiles = tiles_of(0);
    if (map_.points_of(tiles) == map_.points * tiles.tiles) return;
    dim best = 0;
    for (dim rows = winograd_.most_rows; rows > winograd_.most_rows / 2; --rows) {
        constexpr dim overhead = 4;  // a product takes as long as one with so many rows more
        dim cost = 0;
        for (dim q = 0; q < map_.points; ++q) {
            const auto [begin, end] = map_.slots(tiles, q);
            if (begin < end) cost += end - begin + overhead * (div_up(end, rows) - begin / rows);
        }
        if (best == 0 || cost < best) best = cost, rows_ = std::min(rows, block_);
    }
}

/// The largest block of tiles in terms of their mean. Few blocks: those with the edges of a map
/// have fewer points.
double winograd_data::skew() const {
    constexpr dim few = 16;
    if (blocks_ > few)
        return static_cast<double>(blocks_ * block_) / static_cast<double>(map_.count);
    dim most = 0;
    for (dim b = 0; b < blocks_; ++b) most = std::max(most, map_.points_of(tiles_of(b)));
    return static_cast<double>(blocks_ * most) / static_cast<double>(map_.all_points());
}

void winograd_data::choose_blocks(int threads) {
    const dim most_rows = winograd_.most_rows;
    const dim filters = 4 * map_.points * in_c_ * roles_.out_c;
    const dim least = (filters > cached_filters ? 4 : 2) * most_rows;
    const dim wanted = std::max(least, block_bytes / (4 * map_.points * (in_padded_ + panel())));
    panels_each_ = panels_;
    const dim first = div_up(map_.count, wanted);
    const auto share_of = [&](dim n) {
        set_tiles(div_up(map_.count, n));
        return fair_share(tasks_, skew(), threads);
    };
    for (dim n = first; n <= 4 * first + 2 && map_.count / n >= most_rows; ++n) {
        double best = share_of(n);
        if (best < fair_enough) continue;
        // A few blocks more may be a whole number for each thread (61 tasks, 64 threads).
        dim found = n;
        for (dim more = n + 1; more <= n + 4 && map_.count / more >= most_rows; ++more)
            if (const double share = share_of(more); share > best) best = share, found = more;
        set_tiles(div_up(map_.count, found));
        return;
    }
    set_tiles(wanted);
    if (!share_panels(threads)) {
        share_v_ = false;
        panels_each_ = panels_;
        set_tiles(wanted);
    }
}

/// Many channels: transformed filters, four times as large as they were, would come from memory. A
/// task with many tiles makes those of its panels itself. False: that leaves threads without work.
/// (No result depends on the choice.)
bool winograd_data::stream_filters(int threads) {
    const auto filters = static_cast<double>(4 * map_.points * in_c_ * roles_.out_c);
    if (!streams_filters(filters, 0)) return false;
    share_u_ = false;
    share_v_ = true;
    panels_each_ = 1;
    set_tiles(streamed_results / (4 * map_.points * panel()));
    const dim transforms = sets() * blocks_ * (in_c_ / least_input_chunk());
    if (streams_filters(filters, static_cast<double>(shared_v_bytes())) && transforms >= 2 * threads
        && fair_share_on(tasks_, skew(), threads) >= fair_enough) {
        share_v_ = !(keep_v_ = keeps_tiles(threads));
        return true;
    }
    share_u_ = true;
    share_v_ = false;
    return false;
}

/// Few threads transform the tiles of their tasks for themselves rather than read what others have
/// written, see winograd_weights::choose_shares().
bool winograd_data::keeps_tiles(int threads) const {
    const double makers =
        std::max(1.0, static_cast<double>(threads) / static_cast<double>(sets() * blocks_));
    return (makers - 1) * of_data <= most_transformed_again * static_cast<double>(roles_.out_c);
}

/// Filters, and tiles that tasks share, are transformed before the tasks by all threads.
void winograd_data::choose_chunks(int threads) {
    const auto cut = [&](dim &chunk, dim times, dim least) {
        while (chunk > least && fair_share(times * div_up(in_c_, chunk), 1, threads) < fair_enough)
            chunk = round_up_to(chunk / 2, least);
    };
    input_chunk_ = round_up_to(chunk_, least_input_chunk());
    if (share_u_) cut(chunk_, sets() * panels_, least_chunk);
    cut(input_chunk_, sets() * blocks_, least_input_chunk());
}

/// Few tiles: they are transformed once, and threads share panels too. False: that takes too much
/// memory.
bool winograd_data::share_panels(int threads) {
    share_v_ = true;
    if (shared_v_bytes() > most_shared) return false;
    const dim tiles = block_;
    dim best_blocks = blocks_, best_panels = 1;
    double best = 0;
    for (dim n = blocks_; n <= 4 * div_up(map_.count, tiles); ++n)
        for (dim each = panels_; each >= 1; --each) {
            panels_each_ = each;
            set_tiles(div_up(map_.count, n));
            const double uneven =
                static_cast<double>(panel_blocks_ * each) / static_cast<double>(panels_);
            const double share = fair_share(tasks_, skew() * uneven, threads);
            if (share <= best) continue;
            best = share, best_blocks = n, best_panels = each;
            if (share < fair_enough) continue;
            return true;
        }
    panels_each_ = best_panels;
    set_tiles(div_up(map_.count, best_blocks));
    return true;
}

/// Fewer workers first; then filters are transformed anew for each block; then smaller blocks.
void winograd_data::fit_workspace(int threads, std::size_t limit) {
    const auto least = [&] { return shared_bytes() + scratch_bytes(); };
    if (least() > limit && share_v_) {
        share_v_ = false;
        panels_each_ = panels_;
        set_tiles(block_);
    }
    if (least() > limit) {
        share_u_ = false;
        chunk_ = std::min(filter_chunk, in_padded_);  // whole chains of products
        set_tiles(block_);
    }
    while (least() > limit && block_ > 1) set_tiles(block_ / 2);
    check_workspace("convolution", least(), limit);
    const std::size_t each = scratch_bytes(), rest = limit - shared_bytes();
    workers_ = static_cast<int>(std::min<dim>(
        {std::max(threads, 1), std::max<dim>(tasks_, 1), static_cast<dim>(rest / each)}));
}

task_cost winograd_data::cost_of(const task &t, bool has_tiles) const {
    const auto tiles = static_cast<double>(t.tiles.tiles),
               points = static_cast<double>(map_.points),
               values = static_cast<double>(map_.points_of(t.tiles));
    const auto in = static_cast<double>(in_c_),
               out = static_cast<double>(std::min(t.panels * panel(), roles_.out_c));
    const auto size = static_cast<double>(size_of(p_.type));
    const double input = has_tiles ? 0 : in;
    return {values * (in * out + of_data * (input + out))
                + (share_u_ ? 0 : of_filters * points * in * out),
        size * static_cast<double>(map_.rows * map_.columns) * tiles * input,
        size * static_cast<double>(map_.rows * map_.columns) * tiles * out};
}

work_list winograd_data::work() const {
    work_list list;
    list.macs_per_second = nominal_speed(kernels_);
    const auto points = static_cast<double>(map_.points),
               size = static_cast<double>(size_of(p_.type));
    if (share_u_)
        list.stages.push_back(
            {"filters", sets() * panels_ * filter_chunks(), workers_, [=, this](dim index, dim) {
                 const auto weights =
                     static_cast<double>(chunk_channels(index % filter_chunks())
                                         * panel_channels(index / filter_chunks() % panels_));
                 return task_cost{
                     of_filters * points * weights, static_cast<double>(taps_) * size * weights, 0};
             }});
    if (share_v_)
        list.stages.push_back(
            {"input", sets() * blocks_ * input_chunks(), workers_, [=, this](dim index, dim) {
                 const winograd_map::block tiles = tiles_of(index / input_chunks() % blocks_);
                 const auto channels = static_cast<double>(
                     std::min(input_chunk_, in_c_ - index % input_chunks() * input_chunk_));
                 return task_cost{of_data * channels * static_cast<double>(map_.points_of(tiles)),
                     size * channels * static_cast<double>(map_.rows * map_.columns * tiles.tiles),
                     0};
             }});
    list.stages.push_back(
        {"tiles", tasks_, workers_, [this](dim index, dim before) {
             const task t = make_task(index);
             const auto same_tiles = [&](const task &last) {
                 return last.set == t.set && last.block == t.block;
             };
             return cost_of(
                 t, share_v_ || (keep_v_ && before >= 0 && same_tiles(make_task(before))));
         }});
    return list;
}

std::string winograd_data::describe() const {
    const auto n = [](dim v) { return std::to_string(v); };
    return "tiles " + n(map_.rows) + "x" + n(map_.columns) + " of " + n(map_.points) + " points, "
           + n(block_) + " tiles and " + n(panels_each_) + " of " + n(panels_)
           + " panels a task, filters transformed " + (share_u_ ? "once" : "by each task")
           + (p_.constant_weights
                   ? ", or kept so (" + n(static_cast<dim>(prepared_bytes())) + " bytes)"
                   : "")
           + (share_v_   ? ", tiles before the tasks"
               : keep_v_ ? ", tiles by each worker"
                         : "")
           + ", tasks " + n(tasks_);
}

}  // namespace convgrad::cpu
