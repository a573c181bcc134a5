// Tiles go in blocks, by the problem alone. For each block
//   V[point][channel][tile] = Bᵀ · src · B,  Y[point][channel][tile] = A · dst · Aᵀ      transform
//   sums[point][ic][oc] += Σ_tiles V · Y                                                  multiply
// and after the last
//   gradient = Gᵀ · sums · G, of which the taps take the place of the points         combine
//   leaves with one rounding                                                              write
// Where all tiles are one block a task may have a range of channels at all points and combine them
// at once (multiply_all). Where the sums of all points stay in a core's cache, tasks are parts of
// the tiles instead, each with all of the above for itself (sum_part), and the parts' gradients are
// added (add_parts). A gradient that is not finite is summed once more without transforms,
// before anything is written; groups are separate problems.
#include "cpu/winograd_weights.hpp"

#include <algorithm>
#include <atomic>
#include <vector>

#include "cpu/tasks.hpp"
#include "cpu/tiled.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

constexpr dim chain_tiles = 32;       // of one chain of roundings
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
constexpr dim apart = 48;  // floats: points must not fall on the same sets of caches
/// Multiply-adds that a point of a transform takes as long as.
constexpr double of_data = 10, of_filters = 14;

conv::problem one_group(conv::problem p) {
    p.groups = 1;
    return p;
}

}  // namespace

struct winograd_weights::memory {
    float *v, *y;
    float *sums;  // [point or tap][panel][input channel][panel]
    float *stage;
    int *infinite;  // not zero: a result is not finite
    char *scratch;  // of all workers
    std::size_t scratch_each;

    [[nodiscard]] void *of(int worker) const {
        return scratch + static_cast<std::size_t>(worker) * scratch_each;
    }
    [[nodiscard]] float *floats_of(int worker) const { return static_cast<float *>(of(worker)); }
};

// --- blocks -------------------------------------------------------------------------------------

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
    fit_workspace(threads, workspace_limit);
}

void winograd_weights::set_block(dim tiles) {
    blocks_ = div_up(map_.count, std::max<dim>(tiles, 1));
    block_ = div_up(map_.count, blocks_);
    blocks_ = div_up(map_.count, block_);
    v_point_ = block_ * ic_padded_ + apart;
    y_point_ = block_ * panels_ * panel() + apart;
    sum_point_ = panels_ * ic_padded_ * panel() + apart;
    all_points_ = blocks_ == 1;
    choose_tasks();
}

void winograd_weights::choose_tasks() {
    const dim lanes = kernels_.lanes;
    const int threads = cut_threads(whole_, kernels_);
    const auto fair = [&](dim tasks, dim step, dim length) {
        const double skew =
            static_cast<double>(round_up_to(length, step)) / static_cast<double>(length);
        return fair_share(groups_each_ * tasks, skew, threads) >= fair_enough;
    };
    const dim most = all_points_ ? own_bytes_most / (4 * map_.points * panel()) : 256;
    range_ = std::clamp(most / lanes * lanes, lanes, ic_padded_);
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

dim winograd_weights::stage_floats() const {
    return round_up_to(winograd_stage_floats(map_, kernels_, segment_), 16);
}

/// Of a group: tiles and sums, or the sums of all parts.
winograd_weights::memory winograd_weights::lay_out_group(memory_walk &walk) const {
    memory m{};
    if (parts_ > 0) {
        m.sums = walk.take<float>(parts_ * part_floats());
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

std::size_t winograd_weights::group_bytes() const {
    return bytes_of_walk([this](memory_walk &walk) { return lay_out_group(walk); });
}

/// What one stage after the other uses.
std::size_t winograd_weights::scratch_bytes() const {
    const dim sums = parts_ == 0 && all_points_ ? map_.points * own_point_ : 0,
              taps = taps_inside_ ? filter_taps_ * (write_rows_ + 1) * panel() : 0;
    const auto floats = static_cast<std::size_t>(4 * std::max({stage_floats(), sums, taps}));
    if (parts_ == 0) return floats;
    return std::max(
        floats, bytes_of_walk([this](memory_walk &walk) { return lay_out_part(walk); }));
}

std::size_t winograd_weights::own_bytes(int workers) const {
    return static_cast<std::size_t>(groups_each_) * group_bytes()
           + static_cast<std::size_t>(workers) * scratch_bytes();
}

void winograd_weights::fit_workspace(int threads, std::size_t limit) {
    while (own_bytes(1) > limit && groups_each_ > 1) --groups_each_;
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

// --- execution ----------------------------------------------------------------------------------

conv::buffers winograd_weights::buffers_of(const conv::buffers &data, dim group) const {
    const dim size = static_cast<dim>(size_of(p_.type)),
              out_size = static_cast<dim>(size_of(p_.out_type));
    conv::buffers part = data;
    part.src = static_cast<char *>(data.src) + size * group * p_.ic * p_.src.c;
    part.dst = static_cast<char *>(data.dst) + size * group * p_.oc * p_.dst.c;
    part.weights = static_cast<char *>(data.weights) + out_size * group * p_.weights.g;
    return part;
}

void winograd_weights::execute(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    for (dim g = 0; g < groups_; g += groups_each_)
        sum_groups(data, workspace, g, std::min(g + groups_each_, groups_), threads);
}

void winograd_weights::sum_groups(const conv::buffers &data, char *workspace, dim first, dim last,
    const executor &threads) const {
    const executor workers = threads.limited(workers_);
    const std::size_t each = group_bytes(), scratch_each = scratch_bytes();
    const auto memory_of = [&](dim i) {
        memory_walk walk(workspace + static_cast<std::size_t>(i) * each);
        memory m = lay_out_group(walk);
        m.scratch = workspace + static_cast<std::size_t>(groups_each_) * each;
        m.scratch_each = scratch_each;
        return m;
    };
    /// Tasks of all groups.
    const auto run = [&](dim tasks, const auto &body) {
        for_each_task(workers, (last - first) * tasks, [&](int worker, dim index) {
            const dim i = index / tasks;
            body(worker, buffers_of(data, first + i), memory_of(i), index % tasks);
        });
    };
    for (dim i = 0; i < last - first; ++i) *memory_of(i).infinite = 0;
    if (parts_ > 0)
        run(parts_, [&](int worker, const conv::buffers &part, const memory &m, dim index) {
            sum_part(part, m, worker, index);
        });
    for (dim block = 0; block < blocks_ && parts_ == 0; ++block) {
        run(transform_tasks(),
            [&](int worker, const conv::buffers &part, const memory &m, dim index) {
                transform_segment(part, m, block, worker, index);
            });
        run(product_tasks(), [&](int worker, const conv::buffers &, const memory &m, dim index) {
            if (all_points_)
                multiply_all(m, worker, index);
            else
                multiply(m, block, index);
        });
    }
    if (parts_ > 1)
        run(taps_ * combine_tasks(),
            [&](int, const conv::buffers &, const memory &m, dim index) { add_parts(m, index); });
    if (!all_points_ && parts_ == 0)
        run(combine_tasks(),
            [&](int, const conv::buffers &, const memory &m, dim index) { combine(m, index); });
    bool finite = true;
    for (dim i = 0; i < last - first; ++i) finite = finite && *memory_of(i).infinite == 0;
    run(write_tasks(), [&](int worker, const conv::buffers &part, const memory &m, dim index) {
        if (*m.infinite == 0) write(part, m, worker, index);
    });
    if (finite) return;
    std::vector<dim> again;  // their memory is about to be used for other things
    for (dim i = 0; i < last - first; ++i)
        if (*memory_of(i).infinite != 0) again.push_back(first + i);
    for (const dim g : again) direct_.execute(buffers_of(data, g), workspace, threads);
}

/// A segment of a block, some channels of src or of dst.
void winograd_weights::transform_segment(
    const conv::buffers &data, const memory &m, dim block, int worker, dim index) const {
    const winograd_map::block tiles = tiles_of(block);
    const dim first = std::min(index % segments() * segment_, tiles.tiles);
    transform(data, m, map_.part_of(tiles, first, std::min(segment_, tiles.tiles - first)),
        index / segments(), m.floats_of(worker));
}

/// Tiles of one part, a block at a time.
void winograd_weights::sum_part(
    const conv::buffers &data, const memory &m, int worker, dim part) const {
    memory_walk walk(m.of(worker));
    const memory own = lay_out_part(walk);
    const dim begin = part * part_tiles_, end = std::min(map_.count, begin + part_tiles_);
    for (dim at = begin; at < end; at += block_) {
        const winograd_map::block tiles = map_.block_at(at, std::min(block_, end - at));
        for (dim chunk = 0; chunk < src_chunks() + dst_chunks(); ++chunk)
            transform(data, own, tiles, chunk, own.stage);
        for (dim point = 0; point < map_.points; ++point)
            for (dim index = 0; index < panels_; ++index)
                product(own, tiles, point, index, 0,
                    own.sums + point * sum_point_ + index * ic_padded_ * panel(), at > begin);
    }
    note(m, transforms_.filter_gradients({own.sums, m.sums + part * part_floats(),
                panels_ * ic_padded_ * panel() / kernels_.lanes, sum_point_, sum_point_}));
}

/// To the first, in their order: one tap.
void winograd_weights::add_parts(const memory &m, dim index) const {
    const dim tap = index % taps_, at = index / taps_ % panels_,
              first = index / taps_ / panels_ * write_rows_;
    const dim count = std::min(write_rows_, rows_ - first) * panel();
    float *sums = m.sums + tap * sum_point_ + (at * ic_padded_ + first) * panel();
    for (dim part = 1; part < parts_; ++part)
        for (dim i = 0; i < count; ++i) sums[i] += sums[part * part_floats() + i];
    float none = 0;  // stays so unless a sum is not finite
    for (dim i = 0; i < count; ++i) none += sums[i] * 0;
    note(m, none == 0);
}

/// Some channels of src or of dst, of tiles with slots of a block.
void winograd_weights::transform(const conv::buffers &data, const memory &m,
    const winograd_map::block &some, dim chunk, float *stage) const {
    const bool src = chunk < src_chunks();
    const dim which = src ? chunk / source_chunks() * joined_ : 0;
    const dim channel = first_channel(chunk), channels = channels_from(chunk, channel);
    const dim lanes = kernels_.lanes, size = static_cast<dim>(size_of(p_.type));
    map_.for_each_run(some, segment_, [&](const winograd_map::run &run) {
        const winograd_map::place place = map_.place_of(run.map, 0, which);
        const winograd_kernels::tile_transforms &with = map_.transforms(transforms_, run.what);
        if (src) {
            float *out = m.v + (which * p_.ic + channel) * block_ + run.slot * lanes;
            transform_run(kernels_, with.input,
                map_.source_at(place, run.what, data.src, p_.type, p_.src), run, channel, channels,
                stage, {out, v_point_, lanes, block_ * lanes, p_.ic * block_});
            return;
        }
        const winograd_source source{bytes_at(data.dst) + size * place.of_results(p_.dst), p_.type,
            map_.result_strides(p_.dst), {place.out[0], place.out[1]}, {}, map_.rows_of(run.what),
            map_.columns_of(run.what), map_.columns};
        for (dim c = channel; c < channel + channels; c += panel())
            transform_run(kernels_, with.gradient, source, run, c,
                std::min(panel(), channel + channels - c), stage,
                {m.y + c * block_ + run.slot * panel(), y_point_, panel(), lanes});
    });
}

/// C[input channel][panel] of `range` for one point, over those tiles of a block that have it.
void winograd_weights::product(const memory &m, const winograd_map::block &tiles, dim point,
    dim index, dim range, float *c, bool accumulate) const {
    const dim lanes = kernels_.lanes, rows = winograd_.gradient_rows;
    const dim first = range * range_, last = std::min(first + range_, ic_padded_);
    const auto [begin, end] = map_.slots(tiles, point);
    if (begin == end) {
        if (!accumulate) std::fill_n(c, (last - first) * panel(), 0.0F);
        return;
    }
    winograd_product_args args{};
    args.b = m.y + point * y_point_ + (index * block_ + begin) * panel();
    args.last = end - begin;
    args.chain = chain_tiles;
    args.accumulate = accumulate;
    const int vectors = panel_channels(index) > lanes ? 2 : 1;
    for (dim i = first; vectors == 1 && !accumulate && i < last; ++i)
        std::fill_n(c + (i - first) * panel() + lanes, lanes, 0.0F);
    for (dim i = first; i < last; i += rows) {
        // The taps of the layer take nothing from there.
        if (map_.lacks_taps() && map_.vanishes(0, i / p_.ic, point)) {
            if (!accumulate) std::fill_n(c + (i - first) * panel(), rows * panel(), 0.0F);
            continue;
        }
        args.a = m.v + point * v_point_ + i / lanes * lanes * block_ + i % lanes + begin * lanes;
        args.c = c + (i - first) * panel();
        winograd_.gradient(args, vectors);
    }
}

void winograd_weights::multiply(const memory &m, dim block, dim index) const {
    const dim range = index % ranges(), at = index / ranges() % panels_,
              point = index / ranges() / panels_;
    product(m, tiles_of(block), point, at, range,
        m.sums + point * sum_point_ + (at * ic_padded_ + range * range_) * panel(), block > 0);
}

void winograd_weights::multiply_all(const memory &m, int worker, dim index) const {
    const dim range = index % ranges(), at = index / ranges();
    const dim first = range * range_, count = std::min(range_, ic_padded_ - first);
    float *own = m.floats_of(worker);
    for (dim point = 0; point < map_.points; ++point)
        product(m, tiles_of(0), point, at, range, own + point * own_point_, false);
    note(m, transforms_.filter_gradients({own, m.sums + (at * ic_padded_ + first) * panel(),
                count * panel() / kernels_.lanes, sum_point_, own_point_}));
}

void winograd_weights::note(const memory &m, bool finite) const {
    if (!finite) std::atomic_ref(*m.infinite).store(1, std::memory_order_relaxed);
}

void winograd_weights::combine(const memory &m, dim index) const {
    const dim at = index % panels_, first = index / panels_ * write_rows_;
    const dim count = std::min(write_rows_, rows_ - first);
    float *sums = m.sums + (at * ic_padded_ + first) * panel();
    note(m, transforms_.filter_gradients(
                {sums, sums, count * panel() / kernels_.lanes, sum_point_, sum_point_}));
}

void winograd_weights::write(
    const conv::buffers &data, const memory &m, int worker, dim index) const {
    const dim at = index % panels_, first = index / panels_ * write_rows_;
    if (taps_inside_) return write_filters(data, m, first, at, m.floats_of(worker));
    const dim size = static_cast<dim>(size_of(p_.out_type));
    const dim rows = std::min(write_rows_, rows_ - first), source = first / p_.ic;
    float *sums = m.sums + (at * ic_padded_ + first) * panel();
    for (dim tap = 0; tap < taps_; ++tap)
        if (!map_.meets(source, tap / map_.taps[1], tap % map_.taps[1]))
            std::fill_n(sums + tap * sum_point_, rows * panel(), 0.0F);
    store_args args{};
    args.type = p_.out_type;
    args.accumulate = p_.accumulate;
    args.out = static_cast<char *>(data.weights)
               + size
                     * (at * panel() * p_.weights.o + first % p_.ic * p_.weights.i
                         + map_.first_weight(p_.weights, 0, source));
    args.c_cs = 1;
    args.c_xs = panel();
    args.channels = panel_channels(at);
    args.count = rows;
    args.cs = p_.weights.o;
    args.xs = p_.weights.i;
    auto *out = static_cast<char *>(args.out);
    for (dim tap = 0; tap < taps_; ++tap) {
        const dim row = tap / map_.taps[1], column = tap % map_.taps[1];
        if (!map_.has(source, row, column)) continue;
        args.c = sums + tap * sum_point_;
        args.out = out + size * map_.tap_weight(p_.weights, row, column);
        kernels_.store(args);
    }
}

/// Whole filters, whose taps lie side by side, and as many as follow each other.
void winograd_weights::write_filters(
    const conv::buffers &data, const memory &m, dim first, dim at, float *stage) const {
    const dim taps = filter_taps_, size = static_cast<dim>(size_of(p_.out_type));
    const bool inputs_inside = p_.weights.i == taps;
    const dim rows = std::min(write_rows_, p_.ic - first), channels = panel_channels(at),
              inside = inputs_inside ? rows : channels;
    float *taps_first = stage + taps * rows * panel();  // [tap][channel]
    for (dim i = 0; i < rows; ++i) {
        for (dim source = 0; source < map_.sources; ++source)
            for (dim tap = 0; tap < taps_; ++tap) {
                const dim row = tap / map_.taps[1], column = tap % map_.taps[1];
                if (!map_.has(source, row, column)) continue;
                float *to = taps_first
                            + (map_.first_weight(p_.weights, 0, source)
                                  + map_.tap_weight(p_.weights, row, column))
                                  * panel();
                if (map_.meets(source, row, column))
                    std::copy_n(m.sums + tap * sum_point_
                                    + (at * ic_padded_ + source * p_.ic + first + i) * panel(),
                        panel(), to);
                else
                    std::fill_n(to, panel(), 0.0F);
            }
        kernels_.transpose({bytes_at(taps_first), 4 * panel(), taps, channels, 4,
            static_cast<char *>(
                static_cast<void *>(stage + i * taps * (inputs_inside ? 1 : inside))),
            4 * taps * (inputs_inside ? inside : 1)});
    }
    store_args args{};
    args.type = p_.out_type;
    args.accumulate = p_.accumulate;
    args.out = static_cast<char *>(data.weights)
               + size * (at * panel() * p_.weights.o + first * p_.weights.i);
    args.c = stage;
    args.c_cs = taps * inside;
    args.c_xs = args.xs = 1;
    args.channels = inputs_inside ? channels : rows;
    args.count = taps * inside;
    args.cs = inputs_inside ? p_.weights.o : p_.weights.i;
    kernels_.store(args);
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

work_list winograd_weights::work() const {
    work_list list;
    list.macs_per_second = nominal_speed(kernels_);
    const dim batches = div_up(groups_, groups_each_);
    const auto times = static_cast<double>(blocks_ * batches);
    const auto points = static_cast<double>(map_.points),
               size = static_cast<double>(size_of(p_.type)),
               area = static_cast<double>(map_.rows * map_.columns);
    if (parts_ > 0) {
        add_part_stages(list);
        return list;
    }
    list.stages.push_back(
        {"tiles", groups_each_ * transform_tasks(), workers_, [=, this](dim index, dim) {
             index %= transform_tasks();
             const dim part = index / segments(), segment = index % segments();
             const dim sources = part < src_chunks() ? joined_ : 1;
             const auto elements =
                 times
                 * static_cast<double>(
                     sources * channels_from(part, first_channel(part))
                     * (std::min(block_, (segment + 1) * segment_) - segment * segment_));
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
                0, 0};
        }});
    list.stages.push_back({"gradient", groups_each_ * write_tasks(), workers_,
        [=, this](dim, dim) {
            const auto sums = static_cast<double>(batches * std::min(write_rows_, rows_) * panel());
            return task_cost{all_points_ ? 0 : of_filters * points * sums, 0,
                written_taps() * sums * static_cast<double>(size_of(p_.out_type))};
        }});
    return list;
}

std::string winograd_weights::describe() const {
    const auto n = [](dim v) { return std::to_string(v); };
    const std::string text = "tiles " + n(map_.rows) + "x" + n(map_.columns) + " of "
                             + n(map_.points) + " points, " + n(block_) + " of " + n(map_.count)
                             + " tiles at a time, ";
    if (parts_ > 0) return text + n(parts_) + " parts of " + n(part_tiles_) + " tiles";
    return text + "products of " + n(range_) + " to " + n(panel()) + " channels, tasks "
           + n(product_tasks());
}

}  // namespace convgrad::cpu
