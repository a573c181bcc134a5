// Depthwise layers on tensor cores: see kernels/banded.cuh.
#include <algorithm>
#include <cstdint>

#include "cuda/depthwise.hpp"
#include "cuda/kernels/banded_args.hpp"

namespace convgrad::cuda {
namespace {

using conv::axis;
using conv::pass;
using conv::problem;

constexpr int element = 2, chunk = 8;  // bytes, columns
constexpr int tile_rows = 16;

int narrow(wide v) {
    return static_cast<int>(v);
}
int taps_of_row(const problem &p) {
    return narrow(p.x[2].kernel);
}
/// Bytes that neighbours lie apart so that eight of them have banks of their own.
int odd_pieces(int bytes) {
    const int pieces = narrow(cover(bytes, 16));
    return (pieces + (pieces % 2 == 0 ? 1 : 0)) * 16;
}

/// Columns between the window's start and its first tap: as many as the window has room for, so
/// that rows of planes are loaded by pieces.
int shift_of(const problem &p, int pad) {
    if (!takes_planes(p)) return 0;
    int best = 0, most = 0;
    for (int shift = 0; shift <= 9 - taps_of_row(p); ++shift) {
        int unit = 1;
        while (unit < 4 && (pad + shift) % (2 * unit) == 0) unit *= 2;
        if (unit > most) {
            most = unit;
            best = shift;
        }
    }
    return best;
}

/// What an item is: images, rows and columns of the output.
struct item_shape {
    int images, rows, columns;
};

/// Rows of tiles in shared memory from `at` on, where those of a plane need so many beside them.
/// Returns where they end.
int lay_out(banded_planes &p, const banded_args &a, const problem &of, int halo, int at) {
    p.chunks = a.column_tiles + (halo > 0 ? 1 : 0);
    p.pitch = odd_pieces(p.chunks * 16);
    const int tiles = narrow(cover(a.band_rows, tile_rows));
    const int lines = (a.pairs != 0 ? 8 : tiles * tile_rows) + halo;
    p.live = a.band_rows + halo;
    // Sums of weights meet all rows of a tile, where data passes do not store them.
    p.lines = is_weights(of) ? lines : p.live;
    p.image_bytes = lines * p.pitch;
    p.slot_bytes = odd_pieces(a.images * p.image_bytes);
    const int planes = banded_channels * p.slot_bytes, units = a.images * p.lines * p.chunks;
    p.at = at;
    p.raw_at = at + planes;
    p.table_at = p.raw_at + (takes_planes(of) ? 0 : units * banded_raw_chunk);
    return p.table_at + units * banded_line;
}

bool is_aligned(const void *data, int unit) {
    return reinterpret_cast<std::uintptr_t>(data) % static_cast<unsigned>(unit * element) == 0;
}

/// Elements that could be stored at once, if their tensor is aligned.
int store_unit(const depthwise_args &b, const problem &p) {
    const data_stride_args &out = b.end.out_strides;
    const auto fits = [&](int unit) { return out.n % unit == 0 && out.x[1] % unit == 0; };
    if (!takes_planes(p)) {
        constexpr int unit = banded_channels / 4;
        return fits(unit) && out.x[2] % unit == 0 && p.groups % unit == 0 ? unit : 1;
    }
    for (const int unit : {8, 4, 2})
        if (fits(unit) && out.c % unit == 0 && b.out_columns % unit == 0) return unit;
    return 1;
}

banded_planes planes_of(const data_stride_args &strides, int rows, int columns) {
    banded_planes p{};
    p.n = strides.n;
    p.c = strides.c;
    p.y = strides.x[1];
    p.x = strides.x[2];
    p.rows = rows;
    p.columns = columns;
    return p;
}

/// All that follows from an item's shape, but for pointers and parts.
banded_args lay_out(const problem &p, const item_shape &item) {
    const int taps = taps_of_row(p);
    banded_args a{};
    depthwise_args &b = a.base;
    if (is_weights(p))
        set_weights(b, p);
    else
        set_data(b, p);
    b.channels = narrow(p.groups);
    a.shift = shift_of(p, b.pad_x);
    a.channel_blocks = narrow(cover(p.groups, banded_channels));
    a.mb = narrow(p.mb);
    a.images = item.images;
    a.band_rows = item.rows;
    a.strip_columns = item.columns;
    a.bands = narrow(cover(b.out_rows, a.band_rows));
    a.strips = narrow(cover(b.out_columns, a.strip_columns));
    a.items = narrow(cover(p.mb, a.images)) * a.bands * a.strips;
    a.pairs = b.out_rows <= 8 ? 1 : 0;
    a.column_tiles = a.strip_columns / chunk;

    banded_planes &in = a.in;
    in = planes_of({b.in_n, b.in_c, {0, b.in_y, b.in_x}}, b.in_rows, b.in_columns);
    in.first_row = -b.pad_y;
    in.first_column = -b.pad_x - a.shift;
    const int end = lay_out(in, a, p, taps - 1, 0);
    if (!is_weights(p)) {
        a.store_unit = store_unit(b, p);
        a.taps_at = end;
        a.bias_at = a.taps_at + banded_channels * taps * (taps + 2) * 4;
        a.out_table_at = narrow(cover(a.bias_at + banded_channels * 4, 16)) * 16;
        return a;
    }
    a.dst = planes_of({b.dst_n, b.dst_c, {0, b.dst_y, b.dst_x}}, b.out_rows, b.out_columns);
    lay_out(a.dst, a, p, 0, end);
    return a;
}

int shared_bytes(const banded_args &a, const problem &p) {
    if (!is_weights(p)) {
        const int across = a.strip_columns / (takes_planes(p) ? a.store_unit : chunk);
        return a.out_table_at + a.images * a.band_rows * across * banded_line;
    }
    const int room = banded_warps * taps_of_row(p) * tile_rows * chunk * 4;
    const int table = a.images * a.dst.lines * a.dst.chunks * banded_line;
    return std::max(room, a.dst.table_at + table);
}

constexpr int multiprocessors = 132;  // of a nominal device

int blocks_at_once(const banded_args &a, const problem &p) {
    constexpr int shared = 227 * 1024, reserved = 1024;
    return std::min(2, shared / (shared_bytes(a, p) + reserved));
}

/// Estimated cycles of a multiprocessor for an item: what memory takes, or shared memory, and what
/// its steps wait for.
double item_cycles(const banded_args &a, const problem &p) {
    const double taps = taps_of_row(p), channels = banded_channels;
    const double rows = std::min(a.in.live, a.in.rows),
                 columns = std::min(a.strip_columns + taps - 1, 1.0 * a.in.columns);
    const double in = a.images * rows * columns * channels * element,
                 out = 1.0 * a.images * a.band_rows * std::min(a.strip_columns, a.base.out_columns)
                       * channels * element;
    // Memory moves 18 bytes a cycle, fewer where it is asked for short runs.
    const double run = takes_planes(p) ? (a.strips == 1 ? 1024 : 2 * columns) : 96;
    const double moved = (in + out) / 18 * (run + 48) / run;
    // A chunk of 16 rows is read in two turns, for each row of taps.
    const double groups = static_cast<double>(cover(a.column_tiles, 4)),
                 tiles = static_cast<double>(cover(a.band_rows, tile_rows)) * a.images
                         / (a.pairs != 0 ? 2 : 1);
    const double read = channels * tiles * taps * (a.column_tiles + groups) * 2;
    const double placed = (takes_planes(p) ? 2 : 4) * (in + out) / 128;
    constexpr double latency = 2500;
    return std::max(moved, read + placed) + latency / blocks_at_once(a, p);
}

/// Cycles of a nominal device for all items, in whole waves of blocks.
double all_cycles(const banded_args &a, const problem &p) {
    const wide at_once = wide{multiprocessors} * blocks_at_once(a, p);
    const wide waves = cover(static_cast<wide>(a.items) * a.channel_blocks, at_once);
    return static_cast<double>(waves * blocks_at_once(a, p)) * item_cycles(a, p);
}

/// Items of the least effort that shared memory has room for: a tile always has.
banded_args choose(const problem &p) {
    const bool backward = p.what == pass::backward_data;
    const wide rows = backward ? p.x[1].src : p.x[1].dst,
               columns = backward ? p.x[2].src : p.x[2].dst;
    const wide tiles = cover(columns, chunk);
    banded_args best{};
    double least = 0;
    const auto try_shape = [&](const item_shape &item) {
        const banded_args a = lay_out(p, item);
        if (shared_bytes(a, p) > banded_most_shared) return;
        const double cycles = all_cycles(a, p);
        if (best.images != 0 && cycles >= least) return;
        best = a;
        least = cycles;
    };
    constexpr wide most_tiles = 16;
    const wide row_tiles = cover(rows, tile_rows);
    for (wide down = 1; down <= std::min(row_tiles, most_tiles); ++down)
        for (wide across = 1; across <= std::min(tiles, most_tiles); ++across)
            for (const int images : {1, 2, 4, 8, 16}) {
                const wide bands = cover(row_tiles, down), strips = cover(tiles, across);
                if (images > 1 && (bands > 1 || strips > 1 || images >= 2 * p.mb)) break;
                const int even = rows <= 8 ? std::max(2, images) : images;
                try_shape({even, narrow(cover(rows, bands)), narrow(cover(tiles, strips)) * chunk});
            }
    return best;
}

/// Parts of the items: whole waves of blocks on a nominal device, and some time to start each.
void set_parts(banded_args &a, const problem &p) {
    const wide at_once = wide{multiprocessors} * blocks_at_once(a, p);
    const double start = is_weights(p) ? 1.5 : 0.5;  // in items
    double least = 0;
    for (wide parts = 1; parts <= std::min<wide>(a.items, 1024); ++parts) {
        const wide items = cover(a.items, parts);
        const double cost =
            static_cast<double>(cover(a.channel_blocks * cover(a.items, items), at_once))
            * (static_cast<double>(items) + start);
        if (parts == 1 || cost < least) {
            least = cost;
            a.part_items = narrow(items);
        }
    }
    a.blocks = narrow(a.channel_blocks * cover(a.items, a.part_items));
}

banded_args make_cut(const problem &p) {
    // Predicted first, then built: the last one is remembered.
    struct memory {
        problem what;
        bool known = false;
        banded_args cut;
    };
    thread_local memory last;
    if (last.known && last.what == p) return last.cut;
    banded_args a = choose(p);
    set_parts(a, p);
    last = {p, true, a};
    return a;
}

wide parts_of(const banded_args &a) {
    return cover(a.items, a.part_items);
}

kernel pick(const problem &p) {
    const int first = static_cast<int>(
        is_weights(p) ? kernel::banded_weights_k3p_bf16 : kernel::banded_data_k3p_bf16);
    return static_cast<kernel>(first + (taps_of_row(p) / 2 - 1) * 4 + (takes_planes(p) ? 0 : 2)
                               + (p.type == data_type::f16 ? 1 : 0));
}

/// Elements that are loaded at once: of a row of a plane, or all channels of a lane.
int load_unit(const banded_planes &t, const problem &p, const void *data) {
    const auto fits = [&](int unit) {
        return is_aligned(data, unit) && t.n % unit == 0 && t.y % unit == 0;
    };
    if (!takes_planes(p)) {
        constexpr int unit = 8;
        return fits(unit) && t.x % unit == 0 && p.groups % unit == 0 ? unit : 1;
    }
    for (const int unit : {4, 2})
        if (fits(unit) && t.c % unit == 0 && t.columns % unit == 0 && t.first_column % unit == 0)
            return unit;
    return 1;
}

class banded_plan final : public plan {
public:
    banded_plan(
        std::string_view name, const problem &p, const architecture &on, const prediction &made)
        : problem_(p), args_(make_cut(p)), kernel_(pick(p)) {
        if (is_weights(p)) sums_ = gradient_sums(p, parts_of(args_), {});
        set_facts(name, on, made, engines::accuracy::accurate);
    }
    [[nodiscard]] std::string describe() const override {
        return std::string(takes_planes(problem_) ? "planes" : "channels") + ": "
               + std::to_string(banded_channels) + " channels of " + std::to_string(args_.images)
               + " images, boxes of " + std::to_string(args_.band_rows) + "x"
               + std::to_string(args_.strip_columns) + ", "
               + std::to_string(shared_bytes(args_, problem_)) + " bytes shared, "
               + std::to_string(args_.blocks) + " blocks";
    }

private:
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        banded_args args = args_;
        const bool weights = is_weights(problem_);
        args.base.in = problem_.what == pass::backward_data ? data.dst : data.src;
        args.base.weights = weights ? data.dst : data.weights;
        args.in.unit = load_unit(args.in, problem_, args.base.in);
        if (weights) {
            args.base.partial = sums_.partial(workspace);
            args.dst.unit = load_unit(args.dst, problem_, args.base.weights);
        } else {
            bind(args.base.end, problem_, data);
            const bool whole = takes_planes(problem_) || args.store_unit != 1;
            args.store_whole = whole && is_aligned(args.base.end.out, args.store_unit) ? 1 : 0;
        }
        on.launch(kernel_, args.blocks, banded_threads, &args,
            static_cast<std::size_t>(shared_bytes(args, problem_)));
        if (weights) sums_.finish(problem_, data, workspace, on);
    }

    problem problem_;
    banded_args args_;
    kernel kernel_;
    gradient_sums sums_;
};

}  // namespace

bool has_banded(const architecture &on) {
    return on.major == 9 || on.major == 10;
}

std::string refuse_banded(const problem &p) {
    if (p.type == data_type::f32) return "for 16-bit types";
    if (std::string reason = refuse_staged(p); !reason.empty()) return reason;
    if (p.x[1].stride != 1) return "for strides of 1";
    if (p.add || p.relu || (p.accumulate && !is_weights(p))) return "stores sums with bias alone";
    const bool planes = takes_planes(p);
    for (const conv::data_strides *s : {&p.src, &p.dst}) {
        if ((planes ? s->x[2] : s->c) != 1)
            return planes ? "columns do not lie side by side" : "channels do not lie side by side";
        // Of the largest box: 16 images, 256 rows and what is beside them, 128 columns.
        if (s->n >= wide{1} << 25 || std::max(s->x[1], s->x[2]) >= wide{1} << 21)
            return "strides need 64-bit indices";
    }
    return {};
}

prediction predict_banded(
    const problem &p, const architecture &on, const engines::plan_limits & /*limits*/) {
    const banded_args a = make_cut(p);
    prediction made;
    if (is_weights(p)) made.workspace = gradient_sums(p, parts_of(a), {}).workspace();
    // Where it was faster than `cuda.staged`: with 9 taps only in planes, and there not small ones.
    const bool few_taps = taps_of_row(p) == 3,
               small = std::max(a.base.in_columns, a.base.out_columns) < 28;
    const bool faster = !few_taps || (takes_planes(p) && (is_weights(p) || !small));
    made.seconds = 4e-6 + least_bytes(p) / ((faster ? 0.9 : 0.75) * on.memory);
    if (copies_planes(p))
        made.seconds =
            4e-6 + waves(p, small ? 31e-6 : 21e-6)
            + std::max(least_bytes(p) / (0.9 * on.memory), conv::macs(p) / (1.15 * on.fma));
    return made;
}

std::unique_ptr<const engines::plan> make_banded_plan(std::string_view name, const problem &p,
    const architecture &on, const engines::plan_limits &limits) {
    return std::make_unique<banded_plan>(name, p, on, predict_banded(p, on, limits));
}

}  // namespace convgrad::cuda
