// Tiles go in blocks, by the problem alone. For each block
//   V[point][channel][tile] = Bᵀ · src · B,  Y[point][channel][tile] = A · dst · Aᵀ      transform
//   sums[point][ic][oc] += Σ_tiles V · Y                                                  multiply
// and after the last
//   gradient = Gᵀ · sums · G, of which the taps take the place of the points         combine
//   leaves with one rounding                                                              leave
// Where all tiles are one block a task may have a range of channels at all points and combine them
// at once (multiply_all). Where the sums of all points stay in a core's cache, tasks are parts of
// the tiles instead, each with all of the above for itself (sum_part), and the parts' gradients are
// added (add_parts). A few threads have a share of the channels each, with tiles of their own
// (sum_share): of those that all shares need, each makes its own. A gradient that is not finite is
// summed once more without transforms, before anything is added to; groups are separate problems.
#include "cpu/winograd_weights.hpp"

#include <algorithm>
#include <atomic>
#include <vector>

#include "cpu/tasks.hpp"
#include "cpu/tiled.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {

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
    if (shares_ > 0)
        run(shares_, [&](int worker, const conv::buffers &part, const memory &m, dim index) {
            sum_share(part, m, worker, index);
        });
    const bool together = parts_ == 0 && shares_ == 0;
    for (dim block = 0; block < blocks_ && together; ++block) {
        run(transform_tasks(),
            [&](int worker, const conv::buffers &part, const memory &m, dim index) {
                transform_segment(part, m, block, worker, index);
            });
        run(product_tasks(), [&](int worker, const conv::buffers &part, memory m, dim index) {
            if (!all_points_) return multiply(m, block, index);
            const auto [at, row] = panel_and_range(index, panels_, ranges());
            m.stage = m.floats_of(worker) + all_sums_floats();
            multiply_all(part, m, m.floats_of(worker), at, row * range_,
                std::min((row + 1) * range_, ic_padded_));
        });
    }
    if (parts_ > 1)
        run(taps_ * combine_tasks(),
            [&](int, const conv::buffers &, const memory &m, dim index) { add_parts(m, index); });
    if (!all_points_ && together)
        run(combine_tasks(), [&](int worker, const conv::buffers &part, memory m, dim index) {
            const dim at = index % panels_, row = index / panels_ * write_rows_;
            m.stage = m.floats_of(worker);
            combine(part, m, m.sums + (at * ic_padded_ + row) * panel(), sum_point_, at, row,
                std::min(row + write_rows_, rows_));
        });
    bool finite = true;
    for (dim i = 0; i < last - first; ++i) finite = finite && *memory_of(i).infinite == 0;
    run(leaves_at_once() ? 0 : write_tasks(),
        [&](int worker, const conv::buffers &part, const memory &m, dim index) {
            if (*m.infinite != 0) return;
            // Tasks in turn have what the same worker summed up, where that was panel by panel.
            const dim of_panel = write_tasks() / panels_;
            const bool by_panels = shares_ > 0 && !shares_of_rows_;
            const dim at = by_panels ? index / of_panel : index % panels_,
                      row = (by_panels ? index % of_panel : index / panels_) * write_rows_;
            leave(part, m.sums + (at * ic_padded_ + row) * panel(), sum_point_, at, row,
                std::min(write_rows_, (taps_inside_ ? p_.ic : rows_) - row), m.floats_of(worker));
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
    const winograd_map::block some =
        map_.part_of(tiles, first, std::min(segment_, tiles.tiles - first));
    const dim chunk = index / segments(), dst = (chunk - src_chunks()) * chunk_;
    if (dst < 0)
        transform_src(data, m, some, chunk, m.floats_of(worker));
    else
        transform_dst(data, m, some, dst, std::min(dst + chunk_, p_.oc), m.floats_of(worker));
}

/// Tiles of one part, a block at a time.
void winograd_weights::sum_part(
    const conv::buffers &data, const memory &m, int worker, dim part) const {
    memory_walk walk(m.of(worker));
    const memory own = lay_out_part(walk);
    const dim begin = part * part_tiles_, end = std::min(map_.count, begin + part_tiles_);
    for (dim at = begin; at < end; at += block_) {
        const winograd_map::block tiles = map_.block_at(at, std::min(block_, end - at));
        for (dim chunk = 0; chunk < src_chunks(); ++chunk)
            transform_src(data, own, tiles, chunk, own.stage);
        transform_dst(data, own, tiles, 0, p_.oc, own.stage);
        for (dim point = 0; point < map_.points; ++point)
            for (dim index = 0; index < panels_; ++index)
                product(own, tiles, point, index, 0, ic_padded_,
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

/// The gradient of some channels, from tiles that no other task reads.
void winograd_weights::sum_share(
    const conv::buffers &data, const memory &m, int worker, dim index) const {
    memory_walk walk(m.of(worker));
    memory own = lay_out_share(walk);
    float *const all = own.sums;
    const share mine = share_at(index);
    own.first_row = mine.first_row, own.first_panel = mine.first_panel;
    own.sums = m.sums, own.infinite = m.infinite;
    const dim panels = mine.last_panel - mine.first_panel,
              ranges = div_up(mine.last_row - mine.first_row, range_);
    const auto for_each_range = [&](const auto &body) {
        for (dim i = 0; i < panels * ranges; ++i) {
            const auto [at, row] = panel_and_range(i, panels, ranges);
            const dim first = mine.first_row + row * range_;
            body(mine.first_panel + at, first, std::min(first + range_, mine.last_row));
        }
    };
    for (dim block = 0; block < blocks_; ++block) {
        const winograd_map::block tiles = tiles_of(block);
        for (dim chunk = mine.first_chunk; chunk < mine.last_chunk; ++chunk)
            transform_src(data, own, tiles, chunk, own.stage);
        transform_dst(data, own, tiles, mine.first_panel * panel(),
            std::min(mine.last_panel * panel(), p_.oc), own.stage);
        for (dim point = 0; point < map_.points && !all_points_; ++point)
            for_each_range([&](dim at, dim first, dim last) {
                product(own, tiles, point, at, first, last,
                    own.sums + point * sum_point_ + (at * ic_padded_ + first) * panel(), block > 0);
            });
    }
    for_each_range([&](dim at, dim first, dim last) {
        if (all_points_)
            multiply_all(data, own, all, at, first, last);
        else
            combine(data, own, m.sums + (at * ic_padded_ + first) * panel(), sum_point_, at, first,
                last);
    });
}

/// A chunk of src, of tiles with slots of a block.
void winograd_weights::transform_src(const conv::buffers &data, const memory &m,
    const winograd_map::block &some, dim chunk, float *stage) const {
    const dim which = chunk / source_chunks() * joined_, channel = first_channel(chunk),
              lanes = kernels_.lanes;
    map_.for_each_run(some, segment_, [&](const winograd_map::run &run) {
        const winograd_map::place place = map_.place_of(run.map, 0, which);
        float *out = m.v + (which * p_.ic + channel - m.first_row) * block_ + run.slot * lanes;
        transform_run(kernels_, map_.transforms(transforms_, run.what).input,
            map_.source_at(place, run.what, data.src, p_.type, p_.src), run, channel,
            src_channels(chunk), stage, {out, v_point_, lanes, block_ * lanes, p_.ic * block_});
    });
}

/// Channels [channel, end) of dst, of tiles with slots of a block.
void winograd_weights::transform_dst(const conv::buffers &data, const memory &m,
    const winograd_map::block &some, dim channel, dim end, float *stage) const {
    map_.for_each_run(some, segment_, [&](const winograd_map::run &run) {
        const winograd_map::place place = map_.place_of(run.map, 0, 0);
        const winograd_source source{
            bytes_at(data.dst) + static_cast<dim>(size_of(p_.type)) * place.of_results(p_.dst),
            p_.type, map_.result_strides(p_.dst), {place.out[0], place.out[1]}, {},
            map_.rows_of(run.what), map_.columns_of(run.what), map_.columns};
        for (dim c = channel; c < end; c += panel())
            transform_run(kernels_, map_.transforms(transforms_, run.what).gradient, source, run, c,
                std::min(panel(), end - c), stage,
                {m.y + (c - m.first_panel * panel()) * block_ + run.slot * panel(), y_point_,
                    panel(), dim{kernels_.lanes}});
    });
}

/// C[input channel][panel] of rows [first, last) for one point, over those tiles of a block that
/// have it.
void winograd_weights::product(const memory &m, const winograd_map::block &tiles, dim point, dim at,
    dim first, dim last, float *c, bool accumulate) const {
    const dim lanes = kernels_.lanes, rows = winograd_.gradient_rows;
    const auto [begin, end] = map_.slots(tiles, point);
    if (begin == end) {
        if (!accumulate) std::fill_n(c, (last - first) * panel(), 0.0F);
        return;
    }
    winograd_product_args args{};
    args.b = m.y + point * y_point_ + ((at - m.first_panel) * block_ + begin) * panel();
    args.last = end - begin;
    args.chain = chain_tiles;
    args.accumulate = accumulate;
    const int vectors = panel_channels(at) > lanes ? 2 : 1;
    for (dim i = first; vectors == 1 && !accumulate && i < last; ++i)
        std::fill_n(c + (i - first) * panel() + lanes, lanes, 0.0F);
    for (dim i = first; i < last; i += rows) {
        // The taps of the layer take nothing from there.
        if (map_.lacks_taps() && map_.vanishes(0, i / p_.ic, point)) {
            if (!accumulate) std::fill_n(c + (i - first) * panel(), rows * panel(), 0.0F);
            continue;
        }
        const dim row = i - m.first_row;
        args.a =
            m.v + point * v_point_ + row / lanes * lanes * block_ + row % lanes + begin * lanes;
        args.c = c + (i - first) * panel();
        winograd_.gradient(args, vectors);
    }
}

void winograd_weights::multiply(const memory &m, dim block, dim index) const {
    const dim first = index % ranges() * range_, at = index / ranges() % panels_,
              point = index / ranges() / panels_;
    product(m, tiles_of(block), point, at, first, std::min(first + range_, ic_padded_),
        m.sums + point * sum_point_ + (at * ic_padded_ + first) * panel(), block > 0);
}

/// Rows [first, last) of a panel at all points; `own`: sums of a worker.
void winograd_weights::multiply_all(
    const conv::buffers &data, const memory &m, float *own, dim at, dim first, dim last) const {
    for (dim point = 0; point < map_.points; ++point)
        product(m, tiles_of(0), point, at, first, last, own + point * own_point_, false);
    if (leaves_at_once()) return combine(data, m, own, own_point_, at, first, last);
    note(m, transforms_.filter_gradients({own, m.sums + (at * ic_padded_ + first) * panel(),
                (last - first) * panel() / kernels_.lanes, sum_point_, own_point_}));
}

void winograd_weights::note(const memory &m, bool finite) const {
    if (!finite) std::atomic_ref(*m.infinite).store(1, std::memory_order_relaxed);
}

/// Rows [first, last) of a panel, from `sums` on, where points and then taps lie `point` floats
/// apart.
void winograd_weights::combine(const conv::buffers &data, const memory &m, float *sums, dim point,
    dim at, dim first, dim last) const {
    note(m, transforms_.filter_gradients(
                {sums, sums, (last - first) * panel() / kernels_.lanes, point, point}));
    if (!leaves_at_once()) return;
    last = std::min(last, rows_);
    for (dim rows; first < last; first += rows, sums += rows * panel()) {
        rows = std::min({write_rows_, last - first, p_.ic - first % p_.ic});
        leave(data, sums, point, at, first, rows, m.stage);
    }
}

/// Rows [first, first + rows) of a panel, of one source, leave from `sums`, where taps lie `point`
/// floats apart.
void winograd_weights::leave(const conv::buffers &data, float *sums, dim point, dim at, dim first,
    dim rows, float *stage) const {
    if (taps_inside_) return write_filters(data, sums, point, at, first, rows, stage);
    const dim size = static_cast<dim>(size_of(p_.out_type)), source = first / p_.ic;
    for (dim tap = 0; tap < taps_; ++tap)
        if (!map_.meets(source, tap / map_.taps[1], tap % map_.taps[1]))
            std::fill_n(sums + tap * point, rows * panel(), 0.0F);
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
        args.c = sums + tap * point;
        args.out = out + size * map_.tap_weight(p_.weights, row, column);
        kernels_.store(args);
    }
}

/// Whole filters, whose taps lie side by side, and as many as follow each other.
void winograd_weights::write_filters(const conv::buffers &data, const float *sums, dim point,
    dim at, dim first, dim rows, float *stage) const {
    const dim taps = filter_taps_, size = static_cast<dim>(size_of(p_.out_type));
    const bool inputs_inside = p_.weights.i == taps;
    const dim channels = panel_channels(at), inside = inputs_inside ? rows : channels;
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
                    std::copy_n(sums + tap * point + (source * p_.ic + i) * panel(), panel(), to);
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

}  // namespace convgrad::cpu
