// Depthwise layers through shared memory: see kernels/staged.cuh.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

#include "cuda/depthwise.hpp"

namespace convgrad::cuda {
namespace {

using conv::axis;
using conv::pass;
using conv::problem;

int narrow(wide v) {
    return static_cast<int>(v);
}

staged_mode mode_of(const problem &p) {
    if (p.x[1].stride == 1) return staged_mode::plain;
    return p.what == pass::backward_data ? staged_mode::back : staged_mode::strided;
}
staged_shape shape_of(const problem &p) {
    return staged_shape_of(narrow(p.x[1].kernel), mode_of(p), takes_planes(p));
}
int channels_of_thread(const problem &p) {
    return staged_channels(narrow(p.x[1].kernel), mode_of(p), takes_planes(p), size_of(p.type));
}

/// Where the window of output 0 starts, with the pads that there are.
int window_start(int pad, const problem &p) {
    if (mode_of(p) != staged_mode::back) return -pad;
    const int half = narrow(p.x[1].kernel) / 2, parity = half % 2;
    return (pad - parity) / 2 + parity - half;
}

/// The row of the input that a band's window starts with.
int first_row(const staged_args &a, const problem &p, int y) {
    const staged_mode m = mode_of(p);
    return (m == staged_mode::back ? y / 2 : m == staged_mode::strided ? 2 * y : y) + a.row_shift;
}

/// Rows that wait in shared memory at once: those of a band, and those that the next one adds.
int count_slots(const staged_args &a, const problem &p) {
    int most = 1, before = 0;
    for (int round = 0; round < 2; ++round)  // twice: the first band of an image follows the last
        for (int segment = 0; segment < a.segments; ++segment) {
            const int begin = segment * a.segment_rows,
                      end = std::min(begin + a.segment_rows, a.base.out_rows);
            int got = 0;
            for (int y = begin; y < end; y += a.band_rows) {
                const int low = std::max(0, first_row(a, p, y)),
                          high = std::min(a.base.in_rows, first_row(a, p, y) + a.window_rows);
                const int fresh = std::max(0, high - (y == begin ? low : std::max(low, got)));
                most = std::max(most, before + fresh);
                before = std::max(0, high - low);
                got = high;
            }
        }
    return most;
}

/// How a block's threads lie.
struct threads_shape {
    int lanes, strips, row_groups;
    bool spread;  // planes lie so that no bank is asked twice, however much room that takes
};

/// All that follows from the threads' shape, but for pointers and parts.
staged_args lay_out(const problem &p, const threads_shape &t) {
    const staged_shape s = shape_of(p);
    const bool planes = takes_planes(p);
    const int element = narrow(static_cast<wide>(size_of(p.type))),
              channels = channels_of_thread(p);
    staged_args a{};
    if (is_weights(p))
        set_weights(a.base, p);
    else
        set_data(a.base, p);
    a.base.channels = narrow(p.groups);
    a.lanes = t.lanes;
    a.row_groups = t.row_groups;
    a.block_channels = t.lanes * channels;
    a.channel_blocks = narrow(cover(p.groups, a.block_channels));
    const int groups = narrow(cover(a.base.out_columns, s.columns));
    a.column_groups = narrow(cover(groups, t.strips));
    a.strips = narrow(cover(groups, a.column_groups));
    a.strip_columns = a.column_groups * s.columns;
    a.band_rows = t.row_groups * s.rows;
    a.window_rows = (t.row_groups - 1) * s.row_step + s.in_rows;
    a.band_step = t.row_groups * s.row_step;
    a.row_shift = window_start(a.base.pad_y, p);

    staged_copy &c = a.copy;
    c.c = a.base.in_c;
    c.y = a.base.in_y;
    c.x = a.base.in_x;
    c.columns = a.base.in_columns;
    c.first = window_start(a.base.pad_x, p);
    c.window = (a.column_groups - 1) * s.column_step + s.in_columns;
    c.strip_step = a.column_groups * s.column_step;
    a.lead = planes ? 16 / element : -s.first;
    c.shift = a.lead + s.first - c.first;
    if (planes) {
        // Packs of four are read from the window's aligned start on. Planes of a row lie so that
        // neighbouring threads have neighbouring banks.
        const int unit = 16 / element, banks = 32 * 4 / (4 * element);
        const int skip = s.first == 0 ? 4 : 0,
                  packs = narrow(cover(4 + s.first - skip + s.in_columns, 4)) * 4;
        const int read = a.lead - 4 + skip + (a.column_groups - 1) * s.column_step + packs;
        const int written =
            a.lead + std::min(c.columns, c.window + unit) + std::abs(c.shift - a.lead);
        int pitch = narrow(cover(std::max(read, written), unit)) * unit;
        // Neighbours in the next plane shall have the next banks.
        const int next = a.column_groups % banks;
        while (t.spread && pitch / 4 % banks != next && pitch / 4 % banks != (next + 1) % banks)
            pitch += unit;
        c.line = pitch;
        c.row = pitch * a.lanes;
    } else {
        c.line = a.block_channels;
        c.row = c.line * (c.window + 1);
    }
    if (is_weights(p)) {
        staged_copy &d = a.dst_copy;
        d.c = a.base.dst_c;
        d.y = a.base.dst_y;
        d.x = a.base.dst_x;
        d.columns = a.base.out_columns;
        d.window = d.strip_step = a.strip_columns;
        d.line = planes ? narrow(cover(a.strip_columns, 16 / element)) * (16 / element)
                        : a.block_channels;
        d.row = planes ? d.line * a.lanes : d.line * a.strip_columns;
    }
    return a;
}

/// Whether a block puts whole planes together before they are stored: where threads would store
/// pieces of sectors.
bool is_boxed(const staged_args &a, const problem &p) {
    const data_stride_args &out = a.base.end.out_strides;
    const bool pieces = mode_of(p) == staged_mode::back || a.base.out_columns % 4 != 0;
    return takes_planes(p) && !is_weights(p) && pieces && a.base.plain != 0 && a.segments == 1
           && a.strips == 1 && a.band_rows >= a.base.out_rows && out.x[2] == 1
           && out.x[1] == a.base.out_columns
           && (out.c == wide{1} * a.base.out_rows * a.base.out_columns || p.groups == 1);
}

/// Cuts images into segments, and items into parts.
void set_segments(staged_args &a, const problem &p, int segments) {
    const int element = narrow(static_cast<wide>(size_of(p.type)));
    const int bands = narrow(std::max<wide>(1, cover(a.base.out_rows, a.band_rows)));
    a.segment_rows = narrow(cover(bands, segments)) * a.band_rows;
    a.segments = narrow(std::max<wide>(1, cover(a.base.out_rows, a.segment_rows)));
    a.items = narrow(p.mb) * a.segments;
    a.slots = count_slots(a, p);
    const auto whole = [](wide bytes) { return narrow(cover(bytes, 16)) * 16; };
    a.ring_bytes = whole((static_cast<wide>(a.slots) + 1) * a.copy.row * element);
    a.dst_bytes = is_weights(p) ? whole(wide{2} * a.band_rows * a.dst_copy.row * element) : 0;
    a.box_bytes = is_boxed(a, p)
                      ? whole(wide{1} * a.lanes * a.base.out_rows * a.base.out_columns * element)
                      : 0;
}

int threads_of(const staged_args &a) {
    return narrow(cover(a.lanes * a.column_groups * a.row_groups, 32)) * 32;
}

int shared_bytes(const staged_args &a, const problem &p) {
    const int sums = is_weights(p) ? narrow(p.x[1].kernel * p.x[2].kernel) * channels_of_thread(p)
                                         * threads_of(a) * 4
                                   : 0;
    return std::max(a.ring_bytes + a.dst_bytes + a.box_bytes, sums);
}

/// Blocks that a multiprocessor holds: its registers and shared memory, which devices of an
/// architecture have in common.
int blocks_at_once(const staged_args &a, const problem &p, const architecture &on) {
    const int shared = on.major >= 9 ? 227 * 1024 : on.minor == 0 ? 163 * 1024 : 99 * 1024;
    const bool lean = p.x[1].kernel == 3 && (takes_planes(p) || p.type == data_type::f32);
    const int threads = lean ? 768 : 512;
    return std::max(1, std::min(threads / threads_of(a), shared / (shared_bytes(a, p) + 1024)));
}

/// Estimated cycles of one multiprocessor for all of a problem, in the manner of a roofline: what a
/// band issues, what it moves, and how long its rows take to come, over the blocks that share the
/// multiprocessor.
double effort(const staged_args &a, const problem &p, const architecture &on, bool spread) {
    const staged_shape s = shape_of(p);
    const bool planes = takes_planes(p), back = mode_of(p) == staged_mode::back;
    const auto element = static_cast<double>(size_of(p.type));
    const double threads = threads_of(a), at_once = blocks_at_once(a, p, on);
    const double outputs = static_cast<double>(s.rows * s.columns) * channels_of_thread(p);
    const double taps = static_cast<double>(p.x[1].kernel * p.x[2].kernel) / (back ? 4 : 1);
    const double loads = static_cast<double>(s.in_rows)
                         * (planes ? s.in_columns * 0.75 * (spread ? 1 : 1.4) : s.in_columns);
    const double in = static_cast<double>(a.band_step) * a.block_channels
                      * std::min(a.copy.window, a.copy.columns) * element,
                 out = static_cast<double>(a.band_rows) * a.strip_columns * a.block_channels
                       * element;
    // A chunk has 16 bytes at best: rows of planes need not allow that.
    double chunk = 16;
    while (planes && chunk > element && a.copy.columns % static_cast<int>(chunk / element) != 0)
        chunk /= 2;
    const double copies = (in + (is_weights(p) ? out : 0)) / chunk / threads;
    const double issued = 200 + outputs * (taps + (is_weights(p) ? 1 : 2.5)) + loads + 14 * copies;
    const double warps = threads / 32, hidden = at_once * warps / (at_once * warps + 7);
    const double arithmetic = warps * issued / 4 / hidden;
    // Memory moves 18 bytes a cycle, fewer where it is asked for short runs.
    const double run = planes ? 256 : a.block_channels * element;
    const double moved = (in + out) / 18 * (run < 64 ? 2 : run < 128 ? 1.35 : run < 192 ? 1.1 : 1);
    // Pieces of sectors cost as much as whole ones, of which 33 bytes a cycle pass.
    double pieces = 0;
    if (planes && !is_weights(p) && a.box_bytes == 0)
        pieces = a.base.out_columns % 4 == 0
                     ? (back ? out / 16 : 0)
                     : out / element / (a.base.out_columns % 2 == 0 ? 2 : 1);
    constexpr double latency = 1500;
    const double bands = static_cast<double>(cover(a.base.out_rows, a.band_rows))
                         * static_cast<double>(p.mb) * a.channel_blocks * a.strips;
    return bands * std::max({arithmetic, moved + pieces, latency / at_once});
}

/// The cut of least effort that shared memory has room for; the smallest always has.
staged_args choose(const problem &p, const architecture &on) {
    const staged_shape s = shape_of(p);
    const bool planes = takes_planes(p);
    const wide out_columns = p.what == pass::backward_data ? p.x[2].src : p.x[2].dst,
               out_rows = p.what == pass::backward_data ? p.x[1].src : p.x[1].dst;
    const wide groups = std::max<wide>(1, cover(out_columns, s.columns)),
               all_rows = std::max<wide>(1, cover(out_rows, s.rows));
    staged_args best{};
    double least = 0;
    const auto try_cut = [&](const threads_shape &t) {
        staged_args a = lay_out(p, t);
        set_segments(a, p, 1);
        if (shared_bytes(a, p) > staged_most_shared) return;
        const double estimate = effort(a, p, on, t.spread);
        if (best.lanes != 0 && estimate >= least) return;
        best = a;
        least = estimate;
    };
    const wide least_strips = cover(groups, planes ? staged_threads : staged_threads / 8);
    for (wide strips = least_strips; strips <= std::min(groups, 4 * least_strips); ++strips)
        for (const wide share : {1, 2, 4, 8, 1 << 30}) {  // of the rows, in a band
            const wide rows = cover(all_rows, share), columns = cover(groups, strips);
            if (rows * columns * (planes ? 1 : 8) > staged_threads) continue;
            if (share > 1 && rows == cover(all_rows, share / 2)) continue;
            for (const int threads : {256, 192, 128, 64}) {
                // As many channels as threads are left for: whole pieces of 16 bytes, and no more
                // than there are.
                const wide step = planes ? 1 : 8, lane_channels = channels_of_thread(p);
                wide lanes = std::max<wide>(step, threads / (rows * columns) / step * step);
                lanes = std::min(lanes, cover(cover(p.groups, lane_channels), step) * step);
                const wide blocks = cover(p.groups, lanes * lane_channels);
                lanes = cover(cover(cover(p.groups, lane_channels), blocks), step) * step;
                for (const bool spread : {false, true})
                    if (planes || !spread)
                        try_cut({narrow(lanes), narrow(strips), narrow(rows), spread});
            }
        }
    if (best.lanes == 0) try_cut({planes ? 1 : 8, narrow(groups), 1, false});
    return best;
}

/// Parts of the items: whole waves of blocks on a nominal device, and some time to start each.
void set_parts(staged_args &a, const problem &p, const architecture &on) {
    const wide at_once = static_cast<wide>(blocks_at_once(a, p, on)) * (on.major >= 9 ? 132 : 108);
    const wide across = std::max<wide>(1, static_cast<wide>(a.channel_blocks) * a.strips);
    const wide bands = std::max<wide>(1, cover(a.base.out_rows, a.band_rows));
    // Few images: their rows are shared by several blocks.
    const wide enough = cover(2 * at_once, across * std::max<wide>(1, p.mb));
    if (enough > 1) {
        staged_args cut = a;
        set_segments(cut, p, narrow(std::min(enough, bands)));
        if (shared_bytes(cut, p) <= staged_most_shared) a = cut;
    }
    const double steps = static_cast<double>(cover(bands, a.segments));
    const double start = is_weights(p) ? 2.5 : 1.5;  // in bands
    double least = 0;
    a.part_items = std::max(1, a.items);
    for (wide parts = 1; parts <= std::min<wide>(std::max(1, a.items), 512); ++parts) {
        const wide items = cover(std::max(1, a.items), parts);
        const double cost = static_cast<double>(cover(across * cover(a.items, items), at_once))
                            * (static_cast<double>(items) * steps + start);
        if (parts == 1 || cost < least) {
            least = cost;
            a.part_items = narrow(items);
        }
    }
    a.blocks = narrow(across * cover(a.items, a.part_items));
}

staged_args make_cut(const problem &p, const architecture &on) {
    // Predicted first, then built: the last one is remembered.
    struct memory {
        problem what;
        int major = 0, minor = 0;
        staged_args cut;
    };
    thread_local memory last;
    if (last.major == on.major && last.minor == on.minor && last.what == p) return last.cut;
    staged_args a = choose(p, on);
    set_parts(a, p, on);
    last = {p, on.major, on.minor, a};
    return a;
}

wide parts_of(const staged_args &a) {
    return cover(a.items, a.part_items) * a.strips;
}

kernel pick(const problem &p) {
    constexpr int kinds = 5;  // data, data stride 2, back stride 2, weights, weights stride 2
    const bool strided = p.x[1].stride == 2;
    const int kind = is_weights(p)                   ? (strided ? 4 : 3)
                     : !strided                      ? 0
                     : p.what == pass::backward_data ? 2
                                                     : 1;
    const int taps = narrow(p.x[1].kernel) / 2 - 1, layout = takes_planes(p) ? 0 : 1;
    const int first = static_cast<int>(kernel::staged_data_k3p_f32);
    return of_type(static_cast<kernel>(first + ((taps * 2 + layout) * kinds + kind) * 3), p.type);
}

/// The most elements, of 16 bytes at most, that a tensor's rows can be copied by.
int copy_unit(const staged_copy &c, const problem &p, const void *data, wide image, bool planes,
    int strips, int channels) {
    const int element = narrow(static_cast<wide>(size_of(p.type)));
    for (int bytes = 16; bytes > element; bytes /= 2) {
        const int unit = bytes / element;
        if (bytes < 4 || reinterpret_cast<std::uintptr_t>(data) % static_cast<unsigned>(bytes) != 0)
            continue;
        bool all = image % unit == 0 && c.y % unit == 0 && c.line % unit == 0;
        if (planes)
            all = all && c.x == 1 && c.columns % unit == 0 && c.c % unit == 0 && c.shift % unit == 0
                  && (strips == 1 || c.strip_step % unit == 0);
        else
            all = all && c.c == 1 && channels % unit == 0 && c.x % unit == 0;
        if (all) return unit;
    }
    return 1;
}

/// How threads share the chunks of rows.
void set_chunks(staged_copy &c, const staged_args &a, const problem &p, bool planes) {
    c.unit_columns = planes ? c.unit : 1;
    const int columns = std::min(c.columns, c.window + 2 * c.unit_columns);
    const wide channels = std::min<wide>(a.block_channels, p.groups);
    c.units = narrow(cover(planes ? columns : channels, c.unit));
    c.lines = planes ? narrow(channels) : columns;
    c.unit_step = (planes ? c.x : c.c) * c.unit;
    c.line_step = planes ? c.c : c.x;
    const int threads = threads_of(a), chunks = c.units * c.lines;
    c.row_step = std::max(1, threads / chunks);
    c.next_unit = threads % c.units;
    c.next_line = threads / c.units;
}

class staged_plan final : public plan {
public:
    staged_plan(
        std::string_view name, const problem &p, const architecture &on, const prediction &made)
        : problem_(p), args_(make_cut(p, on)), kernel_(pick(p)) {
        if (is_weights(p)) sums_ = gradient_sums(p, parts_of(args_), {});
        facts_.algorithm = name;
        facts_.uses = code_for(on);
        facts_.workspace = made.workspace;
        facts_.seconds = made.seconds;
    }
    [[nodiscard]] std::string describe() const override {
        return std::string(takes_planes(problem_) ? "planes" : "channels") + ": "
               + std::to_string(args_.block_channels) + " channels, "
               + std::to_string(args_.strip_columns) + " columns, bands of "
               + std::to_string(args_.band_rows) + " rows, " + std::to_string(threads_of(args_))
               + " threads, " + std::to_string(shared_bytes(args_, problem_)) + " bytes shared, "
               + std::to_string(args_.blocks) + " blocks";
    }

private:
    void set_units(staged_args &a) const {
        const bool planes = takes_planes(problem_);
        a.copy.unit =
            copy_unit(a.copy, problem_, a.base.in, a.base.in_n, planes, a.strips, a.base.channels);
        set_chunks(a.copy, a, problem_, planes);
        if (is_weights(problem_)) {
            a.dst_copy.unit = copy_unit(a.dst_copy, problem_, a.base.weights, a.base.dst_n, planes,
                a.strips, a.base.channels);
            set_chunks(a.dst_copy, a, problem_, planes);
            return;
        }
        // Stores of four columns, or of two channels.
        const data_stride_args &out = a.base.end.out_strides;
        const auto fits = [&](int unit) {
            const auto bytes = static_cast<std::uintptr_t>(unit) * size_of(problem_.type);
            const bool all = reinterpret_cast<std::uintptr_t>(a.base.end.out) % bytes == 0
                             && out.n % unit == 0 && out.x[1] % unit == 0;
            return planes
                       ? all && out.x[2] == 1 && out.c % unit == 0 && a.base.out_columns % 2 == 0
                       : all && out.c == 1 && out.x[2] % unit == 0 && a.base.channels % unit == 0;
        };
        a.store_unit = a.base.plain == 0                                          ? 0
                       : planes && fits(4)                                        ? 4
                       : (planes || channels_of_thread(problem_) == 2) && fits(2) ? 2
                                                                                  : 1;
    }
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        staged_args args = args_;
        const bool weights = is_weights(problem_);
        args.base.in = problem_.what == pass::backward_data ? data.dst : data.src;
        args.base.weights = weights ? data.dst : data.weights;
        if (weights)
            args.base.partial = sums_.partial(workspace);
        else
            bind(args.base.end, problem_, data);
        set_units(args);
        if (args.items > 0)
            on.launch(kernel_, args.blocks, threads_of(args), &args,
                static_cast<std::size_t>(shared_bytes(args, problem_)));
        if (weights) sums_.finish(problem_, data, workspace, on);
    }

    problem problem_;
    staged_args args_;
    kernel kernel_;
    gradient_sums sums_;
};

}  // namespace

std::string refuse_staged(const problem &p) {
    if (std::string reason = refuse_single(p); !reason.empty()) return reason;
    for (const axis *a : {&p.x[1], &p.x[2]}) {
        if (mode_of(p) == staged_mode::back && (a->pad - a->kernel / 2) % 2 != 0)
            return "backward with stride 2 and a pad of the other parity than half the kernel";
    }
    return {};
}

prediction predict_staged(
    const problem &p, const architecture &on, const engines::plan_limits & /*limits*/) {
    const staged_args a = make_cut(p, on);
    prediction made;
    if (is_weights(p)) made.workspace = gradient_sums(p, parts_of(a), {}).workspace();
    const double macs = conv::macs(p) / (mode_of(p) == staged_mode::back ? 4 : 1);
    if (copies_planes(p))
        made.seconds = 4e-6 + waves(p, 18e-6)
                       + std::max(least_bytes(p) / (0.8 * on.memory), macs / (0.4 * on.fma));
    else
        made.seconds = 4e-6 + std::max(least_bytes(p) / (0.85 * on.memory), macs / (0.6 * on.fma));
    return made;
}

std::unique_ptr<const engines::plan> make_staged_plan(std::string_view name, const problem &p,
    const architecture &on, const engines::plan_limits &limits) {
    return std::make_unique<staged_plan>(name, p, on, predict_staged(p, on, limits));
}

}  // namespace convgrad::cuda
