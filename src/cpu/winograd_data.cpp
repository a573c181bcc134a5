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

float *floats(char *p) {
    return static_cast<float *>(static_cast<void *>(p));
}
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

dim winograd_data::shared_u_floats() const {
    return share_u_ ? p_.groups * map_.points * u_point_ : 0;
}

dim winograd_data::shared_v_floats() const {
    return share_v_ ? p_.groups * blocks_ * v_floats() : 0;
}

dim winograd_data::filters_floats() const {
    return 9 * (chunk_ * panel() + 16);
}

/// Also holds the patch of sum_directly().
dim winograd_data::stage_floats() const {
    return round_up_to(std::max(winograd_stage_floats(map_, kernels_, rows_),
                           chunk_ * (map_.rows + 2) * (map_.columns + 2)),
        16);
}

dim winograd_data::result_floats() const {
    return map_.rows * rows_ * map_.columns * panel();
}

dim winograd_data::scratch_floats() const {
    return (share_v_ ? 0 : v_floats()) + map_.points * m_point_
           + (share_u_ ? 0 : map_.points * u_point_) + filters_floats() + stage_floats()
           + result_floats() + panel();
}

winograd_data::scratch winograd_data::make_scratch(float *memory) const {
    scratch s{};
    s.v = memory;
    s.m = s.v + (share_v_ ? 0 : v_floats());
    s.u = s.m + map_.points * m_point_;
    s.filters = s.u + (share_u_ ? 0 : map_.points * u_point_);
    s.stage = s.filters + filters_floats();
    s.results = s.stage + stage_floats();
    s.bias = s.results + result_floats();
    return s;
}

std::size_t winograd_data::workspace() const {
    return static_cast<std::size_t>(
        4 * (shared_u_floats() + shared_v_floats() + workers_ * scratch_floats()));
}

// --- execution ----------------------------------------------------------------------------------

winograd_data::task winograd_data::make_task(dim index) const {
    task t{};
    t.group = index / blocks_ / panel_blocks_;
    index %= blocks_ * panel_blocks_;
    // Neighbours share what is large: filters, or else tiles.
    t.block = share_u_ ? index % blocks_ : index / panel_blocks_;
    t.tiles = tiles_of(t.block);
    t.first_panel = (share_u_ ? index / blocks_ : index % panel_blocks_) * panels_each_;
    t.panels = std::min(panels_each_, panels_ - t.first_panel);
    return t;
}

void winograd_data::execute(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    float *u = floats(workspace), *v = u + shared_u_floats(), *memory = v + shared_v_floats();
    const executor workers = threads.limited(workers_);
    const auto scratch_of = [&](int worker) {
        return make_scratch(memory + worker * scratch_floats());
    };
    if (share_u_)
        for_each_task(workers, p_.groups * panels_ * filter_chunks(), [&](int worker, dim index) {
            const dim chunk = index % filter_chunks(), group = index / filter_chunks() / panels_,
                      at = index / filter_chunks() % panels_;
            transform_filters(data, scratch_of(worker).filters, group, at, chunk,
                u + group * map_.points * u_point_ + (at * in_c_ + chunk * chunk_) * panel(),
                u_point_);
        });
    if (share_v_)
        for_each_task(workers, p_.groups * blocks_ * input_chunks(), [&](int worker, dim index) {
            const dim first = index % input_chunks() * input_chunk_,
                      block = index / input_chunks() % blocks_,
                      group = index / input_chunks() / blocks_;
            transform_input(data, group, tiles_of(block), first,
                std::min(input_chunk_, in_c_ - first), scratch_of(worker).stage,
                v + (group * blocks_ + block) * v_floats());
        });
    for_each_task(workers, tasks_, [&](int worker, dim index) {
        task t = make_task(index);
        const scratch s = scratch_of(worker);
        t.u = share_u_ ? u + t.group * map_.points * u_point_ : s.u;
        t.v = share_v_ ? v + (t.group * blocks_ + t.block) * v_floats() : s.v;
        run_task(data, s, t);
    });
}

template <typename Function>
void winograd_data::for_each_plane(dim first, dim count, Function &&f) const {
    for (dim done = 0, some; done < count; done += some) {
        const dim tap = (first + done) / roles_.in_c, channel = (first + done) % roles_.in_c;
        some = std::min(count - done, roles_.in_c - channel);
        f(tap, channel, some, done);
    }
}

void winograd_data::transform_filters(const conv::buffers &data, float *stage, dim group, dim index,
    dim chunk, float *u, dim point) const {
    const dim size = static_cast<dim>(size_of(p_.type)), channels = chunk_channels(chunk);
    const dim tap = channels * panel() + 16, count = panel_channels(index);
    for_each_plane(chunk * chunk_, channels, [&](dim plane, dim channel, dim some, dim before) {
        const dim at = group * p_.weights.g + channel * roles_.weights_in
                       + index * panel() * roles_.weights_out + plane_weights(plane);
        const pack_args args{bytes_at(data.weights) + size * at, p_.type, roles_.weights_in,
            roles_.weights_out, some, count, 0, count, bytes(stage + before * panel())};
        kernels_.pack_weights(args, taps_, 9, 2, 4 * tap, 4 * panel());
    });
    transforms_.filters({stage, u, 2 * channels, tap, point});
}

void winograd_data::transform_input(const conv::buffers &data, dim group,
    const winograd_map::block &tiles, dim channel, dim channels, float *stage, float *v) const {
    const dim lanes = kernels_.lanes, size = static_cast<dim>(size_of(p_.type));
    winograd_source source{};
    source.type = p_.type;
    source.strides = map_.strides(roles_.in);
    source.step = map_.columns;
    map_.for_each_run(tiles, rows_, [&](const winograd_map::run &run) {
        const winograd_map::place place = map_.place_of(run.map);
        source.rows = map_.rows_of(run.what) + 2;
        source.columns = map_.columns_of(run.what) + 2;
        source.shift[0] = -place.pad[0];
        source.shift[1] = -place.pad[1];
        float *out =
            v + run.slot / rows_ * rows_ * in_padded_ + run.slot % rows_ * lanes + channel * rows_;
        for_each_plane(channel, channels, [&](dim tap, dim first, dim some, dim before) {
            const dim plane = map_.in_plane(place.plane, tap);
            source.length[0] = plane < 0 ? 0 : place.in[0];
            source.length[1] = place.in[1];
            source.tensor = bytes_at(roles_.input(data))
                            + size
                                  * (group * roles_.in_c * roles_.in.c
                                      + place.of_inputs(roles_.in, std::max<dim>(plane, 0)));
            transform_run(kernels_, map_.transforms(transforms_, run.what).input, source, run,
                first, some, stage, {out + before * rows_, v_point_, lanes, rows_ * lanes});
        });
    });
}

void winograd_data::run_task(const conv::buffers &data, const scratch &s, const task &t) const {
    if (!share_v_) transform_input(data, t.group, t.tiles, 0, in_c_, s.stage, s.v);
    for (dim index = t.first_panel; index < t.first_panel + t.panels; ++index) {
        const int vectors = panel_channels(index) > kernels_.lanes ? 2 : 1;
        if (share_u_)
            multiply(t, t.v, t.u + index * in_c_ * panel(), u_point_, 0, in_c_, vectors, s.m);
        else
            for (dim chunk = 0; chunk < filter_chunks(); ++chunk) {
                transform_filters(data, s.filters, t.group, index, chunk, s.u, u_point_);
                multiply(
                    t, t.v, s.u, u_point_, chunk * chunk_, chunk_channels(chunk), vectors, s.m);
            }
        finish(data, s, t, index);
    }
}

/// Input channels [first, first + count), whose transformed filters begin at `u`.
void winograd_data::multiply(const task &t, const float *v, const float *u, dim point, dim first,
    dim count, int vectors, float *m) const {
    const dim lanes = kernels_.lanes;
    winograd_product_args args{};
    args.a_run = rows_ * lanes;
    args.runs = div_up(count, lanes);
    args.last = count - (args.runs - 1) * lanes;
    args.chain = chain_products / lanes;
    args.accumulate = first > 0;
    for (dim q = 0; q < map_.points; ++q) {
        const auto [begin, end] = map_.slots(t.tiles, q);
        args.b = u + q * point;
        for (dim slot = begin, rows; slot < end; slot += rows) {
            rows = std::min(rows_ - slot % rows_, end - slot);
            args.next = slot + rows >= end && q + 1 < map_.points ? args.b + point : args.b;
            args.a = v + q * v_point_ + slot / rows_ * rows_ * in_padded_ + slot % rows_ * lanes
                     + first * rows_;
            args.c = m + q * m_point_ + slot * panel();
            winograd_.product(args, static_cast<int>(rows), vectors);
        }
    }
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
    const winograd_map::place place = map_.place_of(run.map);
    const dim columns = map_.columns_of(run.what);
    const dim length[2] = {std::min(map_.rows_of(run.what), place.out[0] - run.y),
        std::min(run.tiles * columns, place.out[1] - run.x)};
    if (length[0] <= 0 || length[1] <= 0) return;  // one map may be shorter than another
    const conv::data_strides strides = map_.strides(roles_.out);
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
        if (results(args) == 0) return;
    }
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
            if (!place.reached(0, run.y + y) || !place.reached(1, run.x + x))
                std::fill_n(results + y * row + x * panel(), panel(), 0.0F);
}

/// What `made` results of a tile read from one plane, [channel][row][column].
void winograd_data::pack_patch(const conv::buffers &data, const winograd_map::place &place,
    dim plane, dim channel, dim channels, const dim (&first)[2], const dim (&made)[2],
    float *patch) const {
    const dim size = static_cast<dim>(size_of(p_.type)), columns = made[1] + 2;
    const conv::data_strides strides = map_.strides(roles_.in);
    dim lo, hi;
    clip(first[1], 1, columns, place.in[1], lo, hi);
    for (dim r = 0; r < made[0] + 2; ++r) {
        const dim y = first[0] + r;
        const bool inside = plane >= 0 && y >= 0 && y < place.in[0] && hi > lo;
        const dim at = place.of_inputs(roles_.in, std::max<dim>(plane, 0)) + channel * roles_.in.c
                       + y * strides.x[1] + first[1] * strides.x[2];
        kernels_.pack_channels(
            {bytes_at(roles_.input(data)) + size * at, p_.type, roles_.in.c, strides.x[2], channels,
                columns, inside ? lo : 0, inside ? hi : 0, bytes(patch + r * columns)},
            4 * (made[0] + 2) * columns, 0);
    }
}

/// The results of one tile without transforms. `tile.tiles`: those of its run, whose rows `results`
/// lie in.
void winograd_data::sum_directly(const conv::buffers &data, const scratch &s, const task &t,
    dim index, const winograd_map::run &tile, float *results) const {
    const dim size = static_cast<dim>(size_of(p_.type)), count = panel_channels(index);
    const dim made[2] = {map_.rows_of(tile.what), map_.columns_of(tile.what)};
    const dim columns = made[1] + 2;
    const winograd_map::place place = map_.place_of(tile.map);
    const dim first[2] = {tile.y - place.pad[0], tile.x - place.pad[1]};
    value_range weights;
    product_args args{};
    const auto add = [&](dim tap, dim channel, dim channels) {
        dim a_run[9], b_run[9];
        for (dim k = 0; k < 9; ++k) {
            a_run[k] = 4 * (k / 3 * columns + k % 3);
            b_run[k] = 4 * k * channels * panel();
        }
        const dim filter = t.group * p_.weights.g + channel * roles_.weights_in
                           + index * panel() * roles_.weights_out + plane_weights(tap);
        weights.merge(kernels_.pack_weights(
            {bytes_at(data.weights) + size * filter, p_.type, roles_.weights_in, roles_.weights_out,
                channels, count, 0, count, bytes(s.filters)},
            taps_, 9, 2, 4 * channels * panel(), 4 * panel()));
        pack_patch(data, place, map_.in_plane(place.plane, tap), t.group * roles_.in_c + channel,
            channels, first, made, s.stage);
        args.b = bytes_at(s.filters);
        args.ldc = panel();
        args.a_run = a_run;
        args.b_run = b_run;
        args.runs = 9;
        args.k = channels;
        args.a_step = 4 * (made[0] + 2) * columns;
        args.b_step = 4 * panel();
        args.a_m = 4;
        for (dim y = 0; y < made[0]; ++y) {
            args.a = bytes_at(s.stage + y * columns);
            args.c = results + y * tile.tiles * made[1] * panel();
            kernels_.product(args, static_cast<int>(made[1]), 2);
        }
        args.accumulate = true;
    };
    for (dim chunk = 0; chunk < filter_chunks(); ++chunk)
        for_each_plane(chunk * chunk_, chunk_channels(chunk),
            [&](dim tap, dim channel, dim some, dim) { add(tap, channel, some); });
    if (weights.nonfinite) sum_carefully(data, t, index, tile, results);
}

/// Zeros that stand for padding must not meet infinities.
void winograd_data::sum_carefully(const conv::buffers &data, const task &t, dim index,
    const winograd_map::run &tile, float *results) const {
    const dim made[2] = {map_.rows_of(tile.what), map_.columns_of(tile.what)};
    const winograd_map::place place = map_.place_of(tile.map);
    bool cut = false;  // planes are missing
    for (dim tap = 0; tap < map_.taps; ++tap) cut = cut || map_.in_plane(place.plane, tap) < 0;
    const auto padded = [&](int axis, dim at) {
        const dim first = at - place.pad[axis];
        return first < 0 || first + 3 > place.in[axis];
    };
    for (dim y = 0; y < std::min(made[0], place.out[0] - tile.y); ++y)
        for (dim x = 0; x < std::min(made[1], place.out[1] - tile.x); ++x) {
            float *to = results + (y * tile.tiles * made[1] + x) * panel();
            if (!cut && !padded(0, tile.y + y) && !padded(1, tile.x + x)) continue;
            for (dim c = 0; c < panel_channels(index); ++c)
                to[c] =
                    careful_sum(data, t.group, index * panel() + c, place, tile.y + y, tile.x + x);
        }
}

/// One result, from taps inside the input only.
float winograd_data::careful_sum(const conv::buffers &data, dim group, dim channel,
    const winograd_map::place &place, dim y, dim x) const {
    const conv::data_strides strides = map_.strides(roles_.in);
    const dim filter = group * p_.weights.g + channel * roles_.weights_out;
    float sum = 0;
    for (dim k = 0; k < 9 * map_.taps; ++k) {
        const dim plane = map_.in_plane(place.plane, k / 9);
        const dim at[2] = {y + k % 9 / 3 - place.pad[0], x + k % 3 - place.pad[1]};
        if (plane < 0 || at[0] < 0 || at[0] >= place.in[0] || at[1] < 0 || at[1] >= place.in[1])
            continue;
        const dim from = place.of_inputs(roles_.in, plane) + group * roles_.in_c * roles_.in.c
                         + at[0] * strides.x[1] + at[1] * strides.x[2];
        const dim weight = filter + plane_weights(k / 9) + taps_[k % 9];
        for (dim i = 0; i < roles_.in_c; ++i)
            sum += load_float(roles_.input(data), p_.type, from + i * roles_.in.c)
                   * load_float(data.weights, p_.type, weight + i * roles_.weights_in);
    }
    return sum;
}

void winograd_data::store(const conv::buffers &data, const scratch &s, const task &t, dim index,
    const winograd_map::run &run, const winograd_map::place &place, const dim (&length)[2]) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    const dim channel = t.group * roles_.out_c + index * panel();
    const auto offset = [&](const conv::data_strides &of, dim y) {
        const conv::data_strides strides = map_.strides(of);
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
    args.xs = roles_.out.x[2] * map_.step[1];
    args.bias = p_.bias ? s.bias : nullptr;
    args.add_cs = p_.add_strides.c;
    args.add_xs = p_.add_strides.x[2] * map_.step[1];
    args.accumulate = p_.accumulate;
    args.relu = p_.relu;
    for (dim y = 0; y < length[0]; ++y) {
        args.c = s.results + y * run.tiles * map_.columns_of(run.what) * panel();
        args.out = static_cast<char *>(roles_.output(data)) + offset(roles_.out, y);
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
