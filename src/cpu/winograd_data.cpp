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
                u + group * map_.points * u_point_ + (at * roles_.in_c + chunk * chunk_) * panel(),
                u_point_);
        });
    if (share_v_)
        for_each_task(workers, p_.groups * blocks_ * input_chunks(), [&](int worker, dim index) {
            const dim first = index % input_chunks() * input_chunk_,
                      block = index / input_chunks() % blocks_,
                      group = index / input_chunks() / blocks_;
            transform_input(data, group, tiles_of(block), first,
                std::min(input_chunk_, roles_.in_c - first), scratch_of(worker).stage,
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

void winograd_data::transform_filters(const conv::buffers &data, float *stage, dim group, dim index,
    dim chunk, float *u, dim point) const {
    const dim size = static_cast<dim>(size_of(p_.type)), channels = chunk_channels(chunk);
    const dim tap = channels * panel() + 16, count = panel_channels(index);
    const dim at = group * p_.weights.g + chunk * chunk_ * roles_.weights_in
                   + index * panel() * roles_.weights_out;
    const pack_args args{bytes_at(data.weights) + size * at, p_.type, roles_.weights_in,
        roles_.weights_out, channels, count, 0, count, bytes(stage)};
    kernels_.pack_weights(args, taps_, 9, 2, 4 * tap, 4 * panel());
    transforms_.filters({stage, u, 2 * channels, tap, point});
}

void winograd_data::transform_input(const conv::buffers &data, dim group,
    const winograd_map::block &tiles, dim channel, dim channels, float *stage, float *v) const {
    const dim lanes = kernels_.lanes, size = static_cast<dim>(size_of(p_.type));
    winograd_source source{bytes_at(roles_.input(data)) + size * group * roles_.in_c * roles_.in.c,
        p_.type, roles_.in, roles_.in_c, {map_.in[0], map_.in[1]}, {-map_.pad[0], -map_.pad[1]}, 0,
        0, map_.columns};
    map_.for_each_run(tiles, rows_, [&](const winograd_map::run &run) {
        source.rows = map_.rows_of(run.what) + 2;
        source.columns = map_.columns_of(run.what) + 2;
        float *out =
            v + run.slot / rows_ * rows_ * in_padded_ + run.slot % rows_ * lanes + channel * rows_;
        transform_run(kernels_, map_.transforms(transforms_, run.what).input, source, run, channel,
            channels, stage, {out, v_point_, lanes, rows_ * lanes});
    });
}

void winograd_data::run_task(const conv::buffers &data, const scratch &s, const task &t) const {
    if (!share_v_) transform_input(data, t.group, t.tiles, 0, roles_.in_c, s.stage, s.v);
    for (dim index = t.first_panel; index < t.first_panel + t.panels; ++index) {
        const int vectors = panel_channels(index) > kernels_.lanes ? 2 : 1;
        if (share_u_)
            multiply(t, t.v, t.u + index * roles_.in_c * panel(), u_point_, 0, roles_.in_c, vectors,
                s.m);
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

bool winograd_data::stores_itself(
    const winograd_map::run &run, dim index, const dim (&length)[2]) const {
    return p_.type == data_type::f32 && roles_.out.c == 1 && !p_.bias && !p_.add && !p_.relu
           && !p_.accumulate && panel_channels(index) % kernels_.lanes == 0
           && length[0] == map_.rows_of(run.what)
           && length[1] == run.tiles * map_.columns_of(run.what)
           && map_.all_reached(0, run.y, length[0]) && map_.all_reached(1, run.x, length[1]);
}

void winograd_data::finish_run(const conv::buffers &data, const scratch &s, const task &t,
    dim index, const winograd_map::run &run) const {
    const dim columns = map_.columns_of(run.what);
    const dim length[2] = {std::min(map_.rows_of(run.what), map_.out[0] - run.y),
        std::min(run.tiles * columns, map_.out[1] - run.x)};
    const auto results = map_.transforms(transforms_, run.what).results;
    winograd_tile_args args{};
    args.in = s.m + run.slot * panel();
    args.tiles = run.tiles;
    args.vectors = div_up(panel_channels(index), kernels_.lanes);
    args.point = m_point_;
    args.slot = panel();
    args.slot_vector = args.vector = kernels_.lanes;
    if (stores_itself(run, index, length)) {
        args.out = static_cast<float *>(roles_.output(data)) + run.n * roles_.out.n
                   + t.group * roles_.out_c + index * panel() + run.y * roles_.out.x[1]
                   + run.x * roles_.out.x[2];
        args.row = roles_.out.x[1];
        args.column = roles_.out.x[2];
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
    clear_unreached(s.results, run, length);
    store(data, s, t, index, run, length);
}

/// Results that no tap reaches are empty sums, not nearly so.
void winograd_data::clear_unreached(
    float *results, const winograd_map::run &run, const dim (&length)[2]) const {
    if (map_.all_reached(0, run.y, length[0]) && map_.all_reached(1, run.x, length[1])) return;
    const dim row = run.tiles * map_.columns_of(run.what) * panel();
    for (dim y = 0; y < length[0]; ++y)
        for (dim x = 0; x < length[1]; ++x)
            if (!map_.reached(0, run.y + y) || !map_.reached(1, run.x + x))
                std::fill_n(results + y * row + x * panel(), panel(), 0.0F);
}

/// The results of one tile without transforms. `tile.tiles`: those of its run, whose rows `results`
/// lie in.
void winograd_data::sum_directly(const conv::buffers &data, const scratch &s, const task &t,
    dim index, const winograd_map::run &tile, float *results) const {
    const dim size = static_cast<dim>(size_of(p_.type)), count = panel_channels(index);
    const dim made[2] = {map_.rows_of(tile.what), map_.columns_of(tile.what)};
    const dim columns = made[1] + 2, pitch = (made[0] + 2) * columns;
    const dim row = tile.tiles * made[1] * panel();
    const dim y0 = tile.y - map_.pad[0], x0 = tile.x - map_.pad[1];
    dim lo, hi, a_run[9], b_run[9];
    clip(x0, 1, columns, map_.in[1], lo, hi);
    value_range weights;
    for (dim chunk = 0; chunk < filter_chunks(); ++chunk) {
        const dim channels = chunk_channels(chunk), first = chunk * chunk_;
        for (dim k = 0; k < 9; ++k) {
            a_run[k] = 4 * (k / 3 * columns + k % 3);
            b_run[k] = 4 * k * channels * panel();
        }
        const dim filter = t.group * p_.weights.g + first * roles_.weights_in
                           + index * panel() * roles_.weights_out;
        weights.merge(kernels_.pack_weights(
            {bytes_at(data.weights) + size * filter, p_.type, roles_.weights_in, roles_.weights_out,
                channels, count, 0, count, bytes(s.filters)},
            taps_, 9, 2, 4 * channels * panel(), 4 * panel()));
        for (dim r = 0; r < made[0] + 2; ++r) {
            const bool inside = y0 + r >= 0 && y0 + r < map_.in[0] && hi > lo;
            const dim at = tile.n * roles_.in.n + (t.group * roles_.in_c + first) * roles_.in.c
                           + (y0 + r) * roles_.in.x[1] + x0 * roles_.in.x[2];
            kernels_.pack_channels({bytes_at(roles_.input(data)) + size * at, p_.type, roles_.in.c,
                                       roles_.in.x[2], channels, columns, inside ? lo : 0,
                                       inside ? hi : 0, bytes(s.stage + r * columns)},
                4 * pitch, 0);
        }
        for (dim y = 0; y < made[0]; ++y) {
            product_args args{};
            args.a = bytes_at(s.stage + y * columns);
            args.b = bytes_at(s.filters);
            args.c = results + y * row;
            args.ldc = panel();
            args.a_run = a_run;
            args.b_run = b_run;
            args.runs = 9;
            args.k = channels;
            args.a_step = 4 * pitch;
            args.b_step = 4 * panel();
            args.a_m = 4;
            args.accumulate = chunk > 0;
            kernels_.product(args, static_cast<int>(made[1]), 2);
        }
    }
    if (!weights.nonfinite) return;
    // Zeros that stand for padding must not meet infinities.
    for (dim y = 0; y < std::min(made[0], map_.out[0] - tile.y); ++y)
        for (dim x = 0; x < std::min(made[1], map_.out[1] - tile.x); ++x) {
            const bool padded =
                y0 + y < 0 || y0 + y + 3 > map_.in[0] || x0 + x < 0 || x0 + x + 3 > map_.in[1];
            float *to = results + y * row + x * panel();
            for (dim c = 0; padded && c < count; ++c)
                to[c] =
                    careful_sum(data, t.group, index * panel() + c, tile.n, tile.y + y, tile.x + x);
        }
}

/// One result, from taps inside the input only.
float winograd_data::careful_sum(
    const conv::buffers &data, dim group, dim channel, dim n, dim y, dim x) const {
    const dim in = n * roles_.in.n + group * roles_.in_c * roles_.in.c;
    const dim filter = group * p_.weights.g + channel * roles_.weights_out;
    float sum = 0;
    for (dim k = 0; k < 9; ++k) {
        const dim at[2] = {y + k / 3 - map_.pad[0], x + k % 3 - map_.pad[1]};
        if (at[0] < 0 || at[0] >= map_.in[0] || at[1] < 0 || at[1] >= map_.in[1]) continue;
        const dim from = in + at[0] * roles_.in.x[1] + at[1] * roles_.in.x[2];
        for (dim i = 0; i < roles_.in_c; ++i)
            sum += load_float(roles_.input(data), p_.type, from + i * roles_.in.c)
                   * load_float(data.weights, p_.type, filter + taps_[k] + i * roles_.weights_in);
    }
    return sum;
}

void winograd_data::store(const conv::buffers &data, const scratch &s, const task &t, dim index,
    const winograd_map::run &run, const dim (&length)[2]) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    const dim channel = t.group * roles_.out_c + index * panel();
    const auto offset = [&](const conv::data_strides &of, dim y) {
        return size * (run.n * of.n + channel * of.c + (run.y + y) * of.x[1] + run.x * of.x[2]);
    };
    store_args args{};
    args.c_cs = 1;
    args.c_xs = panel();
    args.channels = panel_channels(index);
    args.count = length[1];
    args.type = p_.type;
    args.cs = roles_.out.c;
    args.xs = roles_.out.x[2];
    args.bias = p_.bias ? s.bias : nullptr;
    args.add_cs = p_.add_strides.c;
    args.add_xs = p_.add_strides.x[2];
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
