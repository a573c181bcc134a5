// First the filters of all panels are transformed (and, where there are too few blocks of tiles for
// many threads, all tiles). Then, for each task (a block of tiles × some panels of output
// channels):
//   V[point][tile][channel] = Bᵀ · input · B                                  transform_input
//   for each panel: for each point
//     M[tile][panel] = Σ_channels V · U                                       multiply
//   results = Aᵀ · M · A leave with bias, add, ReLU and one rounding          finish
// Tiles with results that are not finite are computed once more without transforms: sum_directly.
//
// What a result is summed from, and in which order, depends on its tile only.
#include "cpu/winograd_data.hpp"

#include <cmath>

#include "cpu/element.hpp"
#include "cpu/tasks.hpp"
#include "cpu/tiled.hpp"

namespace convgrad::cpu {
namespace {

// Products of one chain of roundings, before it is added to the others.
constexpr dim chain_products = 32;

char *bytes(float *p) {
    return static_cast<char *>(static_cast<void *>(p));
}

}  // namespace

struct winograd_data::scratch {
    float *v, *m, *u;
    float *filters;  // taps of a panel and chunk, as packed
    float *stage;    // a run of tiles, input
    float *results;  // a run of tiles
    float *bias;
};

// --- memory -------------------------------------------------------------------------------------

dim winograd_data::filters_floats() const {
    return taps_ * (chunk_ * panel() + 16);
}

/// Also holds the patch of sum_directly().
dim winograd_data::stage_floats() const {
    return round_up_to(std::max(winograd_stage_floats(map_, kernels_, rows_),
                           chunk_ * map_.input_rows(winograd_map::whole)
                               * map_.input_columns(winograd_map::whole)),
        16);
}

dim winograd_data::result_floats() const {
    return map_.rows * rows_ * map_.columns * panel();
}

winograd_data::shared winograd_data::lay_out_shared(memory_walk &memory) const {
    shared all{};
    all.u = memory.take<float>(share_u_ ? sets() * map_.points * u_point_ : 0);
    all.v = memory.take<float>(share_v_ ? sets() * blocks_ * v_floats() : 0);
    return all;
}

winograd_data::scratch winograd_data::lay_out(memory_walk &memory) const {
    scratch s{};
    s.v = memory.take<float>(share_v_ ? 0 : v_floats());
    s.m = memory.take<float>(together_ * m_floats());
    s.u = memory.take<float>(share_u_ ? 0 : map_.points * u_point_);
    s.filters = memory.take<float>(filters_floats());
    s.stage = memory.take<float>(stage_floats());
    s.results = memory.take<float>(result_floats());
    s.bias = memory.take<float>(panel());
    return s;
}

std::size_t winograd_data::shared_bytes() const {
    return bytes_of_walk([this](memory_walk &memory) { return lay_out_shared(memory); });
}

std::size_t winograd_data::scratch_bytes() const {
    return bytes_of_walk([this](memory_walk &memory) { return lay_out(memory); });
}

std::size_t winograd_data::workspace() const {
    return shared_bytes() + static_cast<std::size_t>(workers_) * scratch_bytes();
}

// --- execution ----------------------------------------------------------------------------------

winograd_data::task winograd_data::make_task(dim index) const {
    task t{};
    // Phases of planes write to the same lines: those of some blocks come together, for each
    // worker.
    const dim each = sets() * panel_blocks_;
    const bool together = map_.phases > 1 && roles_.out.c != 1 && blocks_ >= workers_;
    dim first = 0, last = blocks_;
    for (int w = 0; w < workers_ && together; ++w) {
        first = first_task(blocks_, w, workers_), last = first_task(blocks_, w + 1, workers_);
        if (index < each * last) break;
    }
    index -= each * first;
    const dim blocks = last - first;
    t.set = index / blocks / panel_blocks_;
    t.group = t.set / map_.phases;
    t.phase = t.set % map_.phases;
    index %= blocks * panel_blocks_;
    // Neighbours share what is large: filters, or else tiles.
    t.block = first + (share_u_ ? index % blocks : index / panel_blocks_);
    t.tiles = tiles_of(t.block);
    t.first_panel = (share_u_ ? index / blocks : index % panel_blocks_) * panels_each_;
    t.panels = std::min(panels_each_, panels_ - t.first_panel);
    return t;
}

std::vector<winograd_data::scratch> winograd_data::lay_out_workers(memory_walk &memory) const {
    std::vector<scratch> own;
    for (int w = 0; w < workers_; ++w) own.push_back(lay_out(memory));
    return own;
}

void winograd_data::transform_all_filters(const conv::buffers &data,
    const std::vector<scratch> &own, const executor &workers, float *u) const {
    const dim point = all_filters_point();
    for_each_task(workers, sets() * panels_ * filter_chunks(), [&](int worker, dim index) {
        const dim chunk = index % filter_chunks(), set = index / filter_chunks() / panels_,
                  at = index / filter_chunks() % panels_;
        transform_filters(data, own[static_cast<std::size_t>(worker)].filters, set, at, chunk,
            u + set * map_.points * point + (at * in_c_ + chunk * chunk_) * panel(), point);
    });
}

std::size_t winograd_data::prepared_bytes() const {
    return static_cast<std::size_t>(4 * sets() * map_.points * all_filters_point());
}

void winograd_data::prepare(
    const conv::buffers &data, void *to, char *workspace, const executor &threads) const {
    memory_walk memory(workspace);
    transform_all_filters(
        data, lay_out_workers(memory), threads.limited(workers_), static_cast<float *>(to));
}

void winograd_data::execute(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    memory_walk memory(workspace);
    // By name, not as a structured binding: clang before 16 lets no lambda capture one.
    const shared both = lay_out_shared(memory);
    float *const v = both.v;
    const std::vector<scratch> own = lay_out_workers(memory);
    const executor workers = threads.limited(workers_);
    const auto scratch_of = [&](int worker) -> const scratch & {
        return own[static_cast<std::size_t>(worker)];
    };
    const float *u = static_cast<const float *>(data.prepared);
    if (u == nullptr && share_u_) {
        transform_all_filters(data, own, workers, both.u);
        u = both.u;
    }
    if (share_v_)
        for_each_task(workers, sets() * blocks_ * input_chunks(), [&](int worker, dim index) {
            const dim first = index % input_chunks() * input_chunk_,
                      block = index / input_chunks() % blocks_,
                      set = index / input_chunks() / blocks_;
            transform_input(data, set, tiles_of(block), first,
                std::min(input_chunk_, in_c_ - first), scratch_of(worker).stage,
                v + (set * blocks_ + block) * v_floats());
        });
    struct alignas(64) tiles_made {
        dim set = -1, block = -1;
    };
    std::vector<tiles_made> made(static_cast<std::size_t>(keep_v_ ? workers_ : 0));
    for_each_task(workers, tasks_, [&](int worker, dim index) {
        task t = make_task(index);
        const scratch &s = scratch_of(worker);
        if (u != nullptr)
            t.u = {u + t.set * map_.points * all_filters_point(), all_filters_point()};
        t.v = share_v_ ? v + (t.set * blocks_ + t.block) * v_floats() : s.v;
        tiles_made *last = keep_v_ ? &made[static_cast<std::size_t>(worker)] : nullptr;
        const bool has_tiles =
            share_v_ || (last != nullptr && last->set == t.set && last->block == t.block);
        if (!has_tiles) transform_input(data, t.set, t.tiles, 0, in_c_, s.stage, s.v);
        if (last != nullptr) *last = {t.set, t.block};
        run_task(data, s, t);
    });
}

template <typename Function>
void winograd_data::for_each_source(dim first, dim count, Function &&f, dim together) const {
    const dim all = roles_.in_c * together;
    for (dim done = 0, some; done < count; done += some) {
        const dim source = (first + done) / all * together, channel = (first + done) % all;
        some = std::min(count - done, all - channel);
        f(source, channel / together, some / together, done);
    }
}

/// The taps that the layer has, each in its place, `tap` floats from one to the next.
value_range winograd_data::pack_filters(const conv::buffers &data, dim set, dim index, dim source,
    dim channel, dim channels, float *out, dim tap) const {
    const dim size = static_cast<dim>(size_of(p_.type)), count = panel_channels(index);
    const dim group = set / map_.phases, phase = set % map_.phases;
    const winograd_map::place place = map_.place_of(0, phase, source);
    const dim at = group * p_.weights.g + channel * roles_.weights_in
                   + index * panel() * roles_.weights_out
                   + map_.first_weight(p_.weights, phase, source);
    const bool all =
        (place.end_tap[0] - place.first_tap[0]) * (place.end_tap[1] - place.first_tap[1]) == taps_;
    const auto pack = [&](dim first, dim some) {
        dim offsets[most_winograd_taps];
        for (dim k = 0; k < some; ++k)
            offsets[k] =
                map_.tap_weight(p_.weights, (first + k) / map_.taps[1], (first + k) % map_.taps[1]);
        const pack_args args{bytes_at(data.weights) + size * at, p_.type, roles_.weights_in,
            roles_.weights_out, channels, count, 0, count, bytes(out + first * tap)};
        return kernels_.pack_weights(args, offsets, some, 2, 4 * tap, 4 * panel());
    };
    if (all) return pack(0, taps_);
    value_range range;
    for (dim row = place.first_tap[0]; row < place.end_tap[0]; ++row)
        range.merge(
            pack(row * map_.taps[1] + place.first_tap[1], place.end_tap[1] - place.first_tap[1]));
    return range;
}

void winograd_data::transform_filters(const conv::buffers &data, float *stage, dim set, dim index,
    dim chunk, float *u, dim point) const {
    const dim channels = chunk_channels(chunk), tap = channels * panel() + 16;
    if (map_.lacks_taps()) std::fill_n(stage, taps_ * tap, 0.0F);
    for_each_source(chunk * chunk_, channels, [&](dim source, dim channel, dim some, dim before) {
        pack_filters(data, set, index, source, channel, some, stage + before * panel(), tap);
    });
    transforms_.filters({stage, u, 2 * channels, tap, point});
}

void winograd_data::transform_input(const conv::buffers &data, dim set,
    const winograd_map::block &tiles, dim channel, dim channels, float *stage, float *v) const {
    const dim lanes = kernels_.lanes, size = static_cast<dim>(size_of(p_.type));
    const dim group = set / map_.phases, phase = set % map_.phases;
    const char *in = bytes_at(roles_.input(data)) + size * group * roles_.in_c * roles_.in.c;
    map_.for_each_run(tiles, rows_, [&](const winograd_map::run &run) {
        float *out = v + run.slot / rows_ * rows_ * in_padded_ + run.slot % rows_ * lanes;
        const auto add = [&](dim source, dim first, dim some, dim /*before*/) {
            const winograd_source from = map_.source_at(
                map_.place_of(run.map, phase, source), run.what, in, p_.type, roles_.in);
            transform_run(kernels_, map_.transforms(transforms_, run.what).input, from, run, first,
                some, stage,
                {out + (source * roles_.in_c + first) * rows_, v_point_, lanes, rows_ * lanes,
                    roles_.in_c * rows_});
        };
        for_each_source(channel, channels, add, map_.joined_sources(roles_.in));
    });
}

void winograd_data::run_task(const conv::buffers &data, const scratch &s, const task &t) const {
    for (dim done = 0, some; done < t.panels; done += some) {
        const dim index = t.first_panel + done;
        some = std::min(together_, t.panels - done);
        if (t.u.at != nullptr)
            multiply_panels(t, index, some, s.m);
        else
            for (dim chunk = 0; chunk < filter_chunks(); ++chunk) {
                transform_filters(data, s.filters, t.set, index, chunk, s.u, u_point_);
                for (dim q = 0; q < map_.points; ++q)
                    multiply(t, q, s.u + q * u_point_, s.u + (q + 1) % map_.points * u_point_,
                        chunk * chunk_, chunk_channels(chunk), vectors_of(index), s.m);
            }
        for (dim i = 0; i < some; ++i) {
            scratch of = s;
            of.m += i * m_floats();
            finish(data, of, t, index + i);
        }
    }
}

/// Point by point, so that tiles which exceed a core's cache come once for all panels.
void winograd_data::multiply_panels(const task &t, dim index, dim panels, float *m) const {
    const dim each = in_c_ * panel();
    for (dim q = 0; q < map_.points; ++q)
        for (dim i = 0; i < panels; ++i) {
            const float *u = t.u.at + q * t.u.point + (index + i) * each;
            const float *next = i + 1 < panels        ? u + each
                                : q + 1 < map_.points ? u - i * each + t.u.point
                                                      : u;
            multiply(t, q, u, next, 0, in_c_, vectors_of(index + i), m + i * m_floats());
        }
}

/// Input channels [first, first + count) at one point, where their filters are `u`; `next` will be
/// needed then.
void winograd_data::multiply(const task &t, dim q, const float *u, const float *next, dim first,
    dim count, int vectors, float *m) const {
    dim begin = first;
    const auto add = [&](dim end) {
        if (begin < end)
            multiply_range(
                t, q, u + (begin - first) * panel(), next, begin, end - begin, vectors, m);
    };
    // Filters that vanish are left out. Forward those of the first source never do; backward those
    // of all sources do, or none.
    if (map_.lacks_taps())
        for_each_source(first, count, [&](dim source, dim, dim some, dim before) {
            if (!map_.vanishes(t.phase, source, q)) return;
            add(first + before);
            begin = first + before + some;
        });
    add(first + count);
    if (begin == in_c_ && map_.vanishes(t.phase, 0, q)) clear_point(t, q, m);
}

void winograd_data::multiply_range(const task &t, dim q, const float *u, const float *next,
    dim first, dim count, int vectors, float *m) const {
    const dim lanes = kernels_.lanes;
    winograd_product_args args{};
    args.a_run = rows_ * lanes;
    args.b = u;
    args.runs = div_up(count, lanes);
    args.last = count - (args.runs - 1) * lanes;
    args.chain = chain_products / lanes;
    args.accumulate = first > 0;
    const auto [begin, end] = map_.slots(t.tiles, q);
    for (dim slot = begin, rows; slot < end; slot += rows) {
        rows = std::min(rows_ - slot % rows_, end - slot);
        args.next = slot + rows >= end ? next : u;
        args.a = t.v + q * v_point_ + slot / rows_ * rows_ * in_padded_ + slot % rows_ * lanes
                 + first * rows_;
        args.c = m + q * m_point_ + slot * panel();
        winograd_.product(args, static_cast<int>(rows), vectors);
    }
}

/// A point whose filters are zero.
void winograd_data::clear_point(const task &t, dim q, float *m) const {
    const auto [begin, end] = map_.slots(t.tiles, q);
    std::fill_n(m + q * m_point_ + begin * panel(), (end - begin) * panel(), 0.0F);
}

void winograd_data::finish(
    const conv::buffers &data, const scratch &s, const task &t, dim index) const {
    if (p_.bias) load_bias(data, s.bias, t.group, index);
    map_.for_each_run(
        t.tiles, rows_, [&](const winograd_map::run &run) { finish_run(data, s, t, index, run); });
}

bool winograd_data::stores_itself(const winograd_map::run &run, const winograd_map::place &place,
    dim index, const dim (&length)[2]) const {
    return p_.type == data_type::f32 && roles_.out.c == 1 && !p_.bias && !p_.add && !p_.relu
           && !p_.accumulate && panel_channels(index) % kernels_.lanes == 0
           && length[0] == map_.rows_of(run.what)
           && length[1] == run.tiles * map_.columns_of(run.what)
           && place.all_reached(0, run.y, length[0]) && place.all_reached(1, run.x, length[1]);
}

void winograd_data::finish_run(const conv::buffers &data, const scratch &s, const task &t,
    dim index, const winograd_map::run &run) const {
    const winograd_map::place place = map_.place_of(run.map, t.phase, 0);
    const dim columns = map_.columns_of(run.what);
    const dim length[2] = {std::min(map_.rows_of(run.what), place.out[0] - run.y),
        std::min(run.tiles * columns, place.out[1] - run.x)};
    if (length[0] <= 0 || length[1] <= 0) return;  // one map may be shorter than another
    const conv::data_strides strides = map_.result_strides(roles_.out);
    const auto results = map_.transforms(transforms_, run.what).results;
    winograd_tile_args args{};
    args.in = s.m + run.slot * panel();
    args.tiles = run.tiles;
    args.vectors = div_up(panel_channels(index), kernels_.lanes);
    args.point = m_point_;
    args.slot = panel();
    args.slot_vector = args.vector = kernels_.lanes;
    if (stores_itself(run, place, index, length)) {
        args.out = static_cast<float *>(roles_.output(data)) + place.of_results(roles_.out)
                   + t.group * roles_.out_c + index * panel() + run.y * strides.x[1]
                   + run.x * strides.x[2];
        args.row = strides.x[1];
        args.column = strides.x[2];
        args.next_tile = columns * args.column;
        args.stream = streams_ && on_lines(args.out, 4 * args.row, 4 * panel())
                      && 4 * args.column % line_bytes == 0;
        if (results(args) == 0) return;
    }
    args.stream = false;
    args.out = s.results;
    args.column = panel();
    args.next_tile = columns * panel();
    args.row = run.tiles * args.next_tile;
    const std::uint64_t bad = results(args);
    for (dim i = 0; bad != 0 && i < run.tiles; ++i) {
        winograd_map::run tile = run;
        tile.x += i * columns;
        if ((bad >> i & 1) != 0)
            sum_directly(data, s, t, index, tile, s.results + i * args.next_tile);
    }
    clear_unreached(s.results, run, place, length);
    store(data, s, t, index, run, place, length);
}

/// Results that no tap reaches are empty sums, not nearly so.
void winograd_data::clear_unreached(float *results, const winograd_map::run &run,
    const winograd_map::place &place, const dim (&length)[2]) const {
    if (place.all_reached(0, run.y, length[0]) && place.all_reached(1, run.x, length[1])) return;
    const dim row = run.tiles * map_.columns_of(run.what) * panel();
    for (dim y = 0; y < length[0]; ++y)
        for (dim x = 0; x < length[1]; ++x)
            if (!place.all_reached(0, run.y + y, 1) || !place.all_reached(1, run.x + x, 1))
                std::fill_n(results + y * row + x * panel(), panel(), 0.0F);
}

/// What the results of a tile read from one source, [channel][row][column].
void winograd_data::pack_patch(const conv::buffers &data, const winograd_map::place &place,
    dim channel, dim channels, const winograd_map::run &tile, float *patch) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    const dim rows = map_.input_rows(tile.what), columns = map_.input_columns(tile.what);
    const conv::data_strides strides = map_.input_strides(roles_.in);
    const dim x = tile.x - place.pad[1];
    dim lo, hi;
    clip(x, 1, columns, place.in[1], lo, hi);
    for (dim r = 0; r < rows; ++r) {
        const dim y = tile.y - place.pad[0] + r;
        const bool inside = place.in_plane >= 0 && y >= 0 && y < place.in[0] && hi > lo;
        const dim at = place.of_inputs(roles_.in) + channel * roles_.in.c + y * strides.x[1]
                       + x * strides.x[2];
        kernels_.pack_channels(
            {bytes_at(roles_.input(data)) + size * at, p_.type, roles_.in.c, strides.x[2], channels,
                columns, inside ? lo : 0, inside ? hi : 0, bytes(patch + r * columns)},
            4 * rows * columns, 0);
    }
}

/// The results of one tile without transforms. `tile.tiles`: those of its run, whose rows `results`
/// lie in.
void winograd_data::sum_directly(const conv::buffers &data, const scratch &s, const task &t,
    dim index, const winograd_map::run &tile, float *results) const {
    const dim made[2] = {map_.rows_of(tile.what), map_.columns_of(tile.what)};
    const dim columns = map_.input_columns(tile.what);
    value_range weights;
    product_args args{};
    args.ldc = panel();
    args.a_step = 4 * map_.input_rows(tile.what) * columns;
    args.b_step = 4 * panel();
    args.a_m = 4;
    const auto add = [&](dim source, dim channel, dim channels) {
        const winograd_map::place place = map_.place_of(tile.map, t.phase, source);
        dim a_run[most_winograd_taps], b_run[most_winograd_taps];
        args.runs = 0;
        for (dim row = place.first_tap[0]; row < place.end_tap[0]; ++row)
            for (dim column = place.first_tap[1]; column < place.end_tap[1]; ++column) {
                a_run[args.runs] = 4 * (row * columns + column);
                b_run[args.runs++] = 4 * (row * map_.taps[1] + column) * channels * panel();
            }
        weights.merge(pack_filters(
            data, t.set, index, source, channel, channels, s.filters, channels * panel()));
        pack_patch(data, place, t.group * roles_.in_c + channel, channels, tile, s.stage);
        args.b = bytes_at(s.filters);
        args.a_run = a_run;
        args.b_run = b_run;
        args.k = channels;
        for (dim y = 0; y < made[0]; ++y) {
            args.a = bytes_at(s.stage + y * columns);
            args.c = results + y * tile.tiles * made[1] * panel();
            kernels_.product(args, static_cast<int>(made[1]), 2);
        }
        args.accumulate = true;
    };
    // As many at a time as every plan has room for: which plan it is may depend on the threads.
    const dim each = std::min(least_chunk, chunk_);
    for (dim first = 0; first < in_c_; first += each)
        for_each_source(first, std::min(each, in_c_ - first),
            [&](dim source, dim channel, dim some, dim) { add(source, channel, some); });
    if (weights.nonfinite) sum_carefully(data, t, index, tile, results);
}

/// Zeros that stand for padding must not meet infinities.
void winograd_data::sum_carefully(const conv::buffers &data, const task &t, dim index,
    const winograd_map::run &tile, float *results) const {
    const dim made[2] = {map_.rows_of(tile.what), map_.columns_of(tile.what)};
    const winograd_map::place first = map_.place_of(tile.map, t.phase, 0);
    const auto padded = [&](dim y, dim x) {
        for (dim source = 0; source < map_.sources; ++source) {
            const winograd_map::place place = map_.place_of(tile.map, t.phase, source);
            const auto cut = [&](int axis, dim at) {
                return at - place.pad[axis] + place.first_tap[axis] < 0
                       || at - place.pad[axis] + place.end_tap[axis] > place.in[axis];
            };
            if (place.in_plane < 0 || cut(0, y) || cut(1, x)) return true;
        }
        return false;
    };
    for (dim y = 0; y < std::min(made[0], first.out[0] - tile.y); ++y)
        for (dim x = 0; x < std::min(made[1], first.out[1] - tile.x); ++x) {
            if (!padded(tile.y + y, tile.x + x)) continue;
            float *to = results + (y * tile.tiles * made[1] + x) * panel();
            for (dim c = 0; c < panel_channels(index); ++c)
                to[c] = careful_sum(data, t, index * panel() + c, tile.map, tile.y + y, tile.x + x);
        }
}

/// One result, from taps inside the input only.
float winograd_data::careful_sum(
    const conv::buffers &data, const task &t, dim channel, dim map, dim y, dim x) const {
    const conv::data_strides strides = map_.input_strides(roles_.in);
    float sum = 0;
    for (dim source = 0; source < map_.sources; ++source) {
        const winograd_map::place place = map_.place_of(map, t.phase, source);
        const dim filter = t.group * p_.weights.g + channel * roles_.weights_out
                           + map_.first_weight(p_.weights, t.phase, source);
        for (dim row = place.first_tap[0]; row < place.end_tap[0]; ++row)
            for (dim column = place.first_tap[1]; column < place.end_tap[1]; ++column) {
                const dim at[2] = {y + row - place.pad[0], x + column - place.pad[1]};
                if (place.in_plane < 0 || at[0] < 0 || at[0] >= place.in[0] || at[1] < 0
                    || at[1] >= place.in[1])
                    continue;
                const dim from = place.of_inputs(roles_.in) + t.group * roles_.in_c * roles_.in.c
                                 + at[0] * strides.x[1] + at[1] * strides.x[2];
                const dim weight = filter + map_.tap_weight(p_.weights, row, column);
                for (dim i = 0; i < roles_.in_c; ++i)
                    sum += load_float(roles_.input(data), p_.type, from + i * roles_.in.c)
                           * load_float(data.weights, p_.type, weight + i * roles_.weights_in);
            }
    }
    return sum;
}

void winograd_data::store(const conv::buffers &data, const scratch &s, const task &t, dim index,
    const winograd_map::run &run, const winograd_map::place &place, const dim (&length)[2]) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    const dim channel = t.group * roles_.out_c + index * panel();
    const auto offset = [&](const conv::data_strides &of, dim y) {
        const conv::data_strides strides = map_.result_strides(of);
        return size
               * (place.of_results(of) + channel * of.c + (run.y + y) * strides.x[1]
                   + run.x * strides.x[2]);
    };
    store_args args{};
    args.c_cs = 1;
    args.c_xs = panel();
    args.channels = panel_channels(index);
    args.count = length[1];
    args.type = p_.type;
    args.cs = roles_.out.c;
    args.xs = roles_.out.x[2] * map_.out_step[1];
    args.bias = p_.bias ? s.bias : nullptr;
    args.add_cs = p_.add_strides.c;
    args.add_xs = p_.add_strides.x[2] * map_.out_step[1];
    args.accumulate = p_.accumulate;
    args.relu = p_.relu;
    for (dim y = 0; y < length[0]; ++y) {
        args.c = s.results + y * run.tiles * map_.columns_of(run.what) * panel();
        args.out = static_cast<char *>(roles_.output(data)) + offset(roles_.out, y);
        args.stream = streams_ && stores_lines(args);
        args.add = p_.add ? bytes_at(data.add) + offset(p_.add_strides, y) : nullptr;
        kernels_.store(args);
    }
}

void winograd_data::load_bias(const conv::buffers &data, float *bias, dim group, dim index) const {
    for (dim c = 0; c < panel(); ++c)
        bias[c] = c < panel_channels(index) ? load_float(data.bias, p_.type,
                      (group * roles_.out_c + index * panel() + c) * p_.bias_stride)
                                            : 0;
}

}  // namespace convgrad::cpu
