// Depthwise layers whose channels lie side by side, by rings in registers: see kernels/ring.cuh.
#include <algorithm>
#include <cstdint>

#include "cuda/depthwise.hpp"
#include "cuda/kernels/ring_args.hpp"

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
int taps_of_row(const problem &p) {
    return narrow(p.x[1].kernel);
}
ring_shape shape_of(const problem &p) {
    return ring_shape_of(taps_of_row(p), mode_of(p), size_of(p.type));
}

/// How threads and blocks share the work.
struct cut {
    int lanes, strips, images;  // of a block
    int rounds, segments;
};

int threads_of(const ring_args &a) {
    return narrow(cover(wide{1} * a.lanes * a.block_strips * a.block_images, 32)) * 32;
}

int shared_bytes(const ring_args &a, const problem &p) {
    const ring_shape s = shape_of(p);
    const int rings = threads_of(a) / 32 * a.warp_bytes, taps = taps_of_row(p) * taps_of_row(p);
    if (is_weights(p)) return std::max(rings, taps * s.channels * (threads_of(a) + 1) * 4);
    return rings + narrow(cover(wide{1} * a.lanes * s.lane_bytes * taps, 16)) * 16;
}

/// Backward with stride 2: whether a strip starts with an output that is not there, so that pads
/// are as odd as half the kernel.
int shift_of(const axis &a, const problem &p) {
    return mode_of(p) == staged_mode::back ? narrow((a.pad + a.kernel / 2) & 1) : 0;
}

ring_args lay_out(const problem &p, const cut &c) {
    const ring_shape s = shape_of(p);
    ring_args a{};
    depthwise_args &b = a.base;
    if (is_weights(p))
        set_weights(b, p);
    else
        set_data(b, p);
    b.channels = narrow(p.groups);
    a.images = narrow(p.mb);
    a.shift_y = shift_of(p.x[1], p);
    a.shift_x = shift_of(p.x[2], p);
    b.strips = narrow(cover(b.out_columns + a.shift_x, s.columns));
    a.lanes = c.lanes;
    a.channel_blocks = narrow(cover(cover(p.groups, s.channels), c.lanes));
    a.strip_blocks = narrow(cover(b.strips, c.strips));
    a.block_strips = narrow(cover(b.strips, a.strip_blocks));
    a.block_images = std::min(c.images, a.images);
    a.rounds = narrow(std::min<wide>(c.rounds, cover(a.images, a.block_images)));
    const int rows = b.out_rows + a.shift_y;
    b.segment_rows = narrow(cover(rows, c.segments));
    b.segments = narrow(cover(rows, b.segment_rows));
    a.warp_bytes = ring_warp_bytes(s, mode_of(p), is_weights(p), false);
    const auto bytes = [&](wide n) { return n * static_cast<wide>(size_of(p.type)); };
    a.in = {nullptr, bytes(b.in_n), bytes(b.in_y), narrow(bytes(b.in_x)), b.in_columns, 0};
    a.dst = {nullptr, bytes(b.dst_n), bytes(b.dst_y), narrow(bytes(b.dst_x)), b.out_columns, 0};
    a.out_row = bytes(b.end.out_strides.x[1]);
    a.out_column = narrow(bytes(b.end.out_strides.x[2]));
    b.parts =
        narrow(cover(a.images, wide{1} * a.block_images * a.rounds) * b.segments * a.strip_blocks);
    b.blocks = a.channel_blocks * b.parts;
    return a;
}

/// Threads along channels: as few that have nothing to do as possible, then whole lines of memory.
int choose_lanes(const problem &p) {
    const ring_shape s = shape_of(p);
    const wide all = cover(p.groups, s.channels), unit = 16 / s.lane_bytes,
               line = 64 / s.lane_bytes;
    if (all <= 32) return narrow(cover(all, unit) * unit);
    wide best = 32;
    double least = 0;
    for (wide lanes = 2 * line; lanes <= std::min<wide>(cover(all, line) * line, 160);
         lanes += line) {
        const double cost = static_cast<double>(cover(all, lanes) * lanes)
                            + 0.02 * static_cast<double>(all * (lanes % 32 != 0 ? 1 : 0))
                            + 0.01 * static_cast<double>(lanes);
        if (least == 0 || cost < least) {
            least = cost;
            best = lanes;
        }
    }
    return narrow(best);
}

/// Bytes of a block where nothing is aligned.
int most_bytes(const problem &p, const cut &c) {
    ring_args a = lay_out(p, c);
    a.warp_bytes = ring_warp_bytes(shape_of(p), mode_of(p), is_weights(p), true);
    return shared_bytes(a, p);
}

wide warps_of(const ring_args &a) {
    return wide{1} * a.base.blocks * (threads_of(a) / 32);
}

/// Warps of a nominal device that it was measured with, at the least.
constexpr wide enough_warps = 1024;

/// About 256 threads: all strips of a row, or a share of them, of as many images.
ring_args choose(const problem &p) {
    cut c{choose_lanes(p), 1, 1, 1, 1};
    const wide strips = lay_out(p, c).base.strips, most = std::max(1, 256 / c.lanes);
    c.strips = narrow(cover(strips, cover(strips, most)));
    c.images = narrow(std::max<wide>(1, most / strips));
    while (c.lanes * c.strips * c.images % 32 != 0
           && c.lanes * c.strips * (c.images + 1) <= ring_most_threads)
        ++c.images;
    while (most_bytes(p, c) > ring_most_shared)
        if (c.images > 1)
            --c.images;
        else
            c.strips = (c.strips + 1) / 2;
    // Many images: sums of a limited number of parts, and taps are fetched once for several.
    const wide most_parts = is_weights(p) ? 512 : 1024;
    const ring_args whole = lay_out(p, c);
    c.rounds = narrow(std::min<wide>(cover(whole.base.parts, most_parts), ring_most_rounds));
    // Few images: their rows are shared by several blocks.
    const wide rows = whole.base.out_rows, longest = std::max<wide>(1, rows / (2 * taps_of_row(p)));
    c.segments = narrow(std::clamp<wide>(enough_warps / warps_of(whole), 1, longest));
    return lay_out(p, c);
}

/// Whether rows can be copied and stored as they are.
bool is_plain(const problem &p) {
    if (!is_weights(p) && (p.add || p.relu || p.accumulate)) return false;
    const wide unit = 16 / static_cast<wide>(size_of(p.type));
    const auto fits = [&](const conv::data_strides &t) {
        return t.n % unit == 0 && t.x[1] % unit == 0 && t.x[2] % unit == 0;
    };
    return p.groups % unit == 0 && fits(p.src) && fits(p.dst);
}

/// Where it was faster than `cuda.staged`, `cuda.quads` and `cuda.banded`.
bool is_faster(const problem &p, const ring_args &a) {
    if (!is_plain(p) || warps_of(a) < enough_warps || a.base.segments > 1) return false;
    if (p.type != data_type::f32) return true;
    // What the caches hold in part: neighbouring strips find there what both of them read.
    const bool near = least_bytes(p) < 256e6;
    const int taps = taps_of_row(p);
    if (taps == 3) return near || p.x[1].stride == 2 || a.lanes % 32 == 0 || a.lanes < 32;
    if (is_weights(p)) return true;
    return taps == 5 ? mode_of(p) != staged_mode::back : near || a.base.out_columns <= 28;
}

kernel pick(const problem &p) {
    constexpr int kinds = 4;  // data, back stride 2, weights, weights stride 2
    if (taps_of_row(p) == 7)
        return is_weights(p) ? kernel::ring_weights_k7_f32 : kernel::ring_data_k7_f32;
    const staged_mode mode = mode_of(p);
    if (!is_weights(p) && mode == staged_mode::strided)
        return of_type(kernel::ring_data_k5s2_f32, p.type);
    const int kind = (is_weights(p) ? 2 : 0) + (mode == staged_mode::plain ? 0 : 1);
    const int first = static_cast<int>(kernel::ring_data_k3_f32),
              set = (taps_of_row(p) / 2 - 1) * kinds;
    return of_type(static_cast<kernel>(first + (set + kind) * 3), p.type);
}

/// Where a tensor is, and how it can be copied: 16 bytes, those of a lane, or an element at a time.
void bind(ring_source &t, const problem &p, int lanes, const void *data) {
    const ring_shape s = shape_of(p);
    const auto fits = [&](wide bytes) {
        const wide element = static_cast<wide>(size_of(p.type));
        return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(bytes) == 0
               && t.image % bytes == 0 && t.row % bytes == 0 && t.column % bytes == 0
               && p.groups * element % bytes == 0;
    };
    t.data = data;
    t.unit = fits(16) && lanes % (16 / s.lane_bytes) == 0 ? 16
             : s.lane_bytes == 4 && fits(4)               ? 4
                                            : narrow(static_cast<wide>(size_of(p.type)));
}

/// Whether all channels of a lane can be stored at once.
bool stores_lanes(const problem &p, const epilogue_args &end) {
    if (shape_of(p).channels == 1) return true;
    const data_stride_args &out = end.out_strides;
    return reinterpret_cast<std::uintptr_t>(end.out) % 4 == 0 && p.groups % 2 == 0 && out.n % 2 == 0
           && out.x[1] % 2 == 0 && out.x[2] % 2 == 0;
}

class ring_plan final : public plan {
public:
    ring_plan(
        std::string_view name, const problem &p, const architecture &on, const prediction &made)
        : problem_(p), args_(choose(p)), kernel_(pick(p)) {
        if (is_weights(p)) sums_ = gradient_sums(p, args_.base.parts, {});
        set_facts(name, on, made, engines::accuracy::strict);
    }
    [[nodiscard]] std::string describe() const override {
        return std::to_string(args_.lanes) + " lanes, " + std::to_string(args_.block_strips)
               + " strips of " + std::to_string(args_.block_images) + " images, "
               + std::to_string(args_.rounds) + " rounds, segments of "
               + std::to_string(args_.base.segment_rows) + " rows, "
               + std::to_string(threads_of(args_)) + " threads, "
               + std::to_string(shared_bytes(args_, problem_)) + " bytes shared, "
               + std::to_string(args_.base.blocks) + " blocks";
    }

private:
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        ring_args args = args_;
        depthwise_args &b = args.base;
        const bool weights = is_weights(problem_);
        b.in = is_backward(problem_) ? data.dst : data.src;
        b.weights = weights ? data.dst : data.weights;
        bind(args.in, problem_, args.lanes, b.in);
        if (weights) {
            b.partial = sums_.partial(workspace);
            bind(args.dst, problem_, args.lanes, b.weights);
            args.slow = args.in.unit != 16 || args.dst.unit != 16 ? 1 : 0;
            // Both in the same manner.
            if (args.slow != 0)
                for (ring_source *t : {&args.in, &args.dst}) t->unit = std::min(t->unit, 4);
        } else {
            cuda::bind(b.end, problem_, data);
            args.bias = b.end.bias;
            b.end.bias = nullptr;
            args.taps_along_channels = b.w_channel == 1 ? 1 : 0;
            const bool more = problem_.add || problem_.relu || problem_.accumulate;
            args.slow = more || args.in.unit != 16 || !stores_lanes(problem_, b.end) ? 1 : 0;
            args.warp_bytes =
                ring_warp_bytes(shape_of(problem_), mode_of(problem_), false, args.slow != 0);
        }
        on.launch(kernel_, b.blocks, threads_of(args), &args,
            static_cast<std::size_t>(shared_bytes(args, problem_)));
        if (weights) sums_.finish(problem_, data, workspace, on);
    }

    problem problem_;
    ring_args args_;
    kernel kernel_;
    gradient_sums sums_;
};

}  // namespace

std::string refuse_ring(const problem &p) {
    if (std::string reason = refuse_single(p); !reason.empty()) return reason;
    constexpr wide most_stride = wide{1} << 28;
    const axis &y = p.x[1];
    const bool back = mode_of(p) == staged_mode::back;
    const wide mirrored = is_backward(p) ? y.kernel - 1 - y.pad : y.pad,
               in = is_backward(p) ? y.dst : y.src, out = is_backward(p) ? y.src : y.dst;
    const bool covered = back ? (out + y.pad - y.kernel + 1) >> 1 < in
                              : mirrored < y.kernel && (out - 1) * y.stride - mirrored < in;
    if (!is_weights(p) && !covered) return "rows of outputs that read nothing";
    if (takes_planes(p) || p.src.c != 1 || p.dst.c != 1) return "channels do not lie side by side";
    if (std::max(p.src.x[2], p.dst.x[2]) >= most_stride) return "strides need 64-bit indices";
    if (p.x[1].kernel == 7 && (p.type != data_type::f32 || p.x[1].stride != 1))
        return "7x7 taps of 16-bit types or with stride 2";
    if (p.x[1].kernel == 3 && !is_weights(p) && mode_of(p) == staged_mode::strided)
        return "forward with 3x3 taps and stride 2";
    return {};
}

prediction predict_ring(
    const problem &p, const architecture &on, const engines::plan_limits & /*limits*/) {
    prediction made;
    const ring_args a = choose(p);
    if (is_weights(p)) made.workspace = gradient_sums(p, a.base.parts, {}).workspace();
    const bool faster = is_faster(p, a);
    const double macs = conv::macs(p) / (mode_of(p) == staged_mode::back ? 4 : 1);
    // Beside `cuda.banded`, which is predicted by its bytes.
    const double arithmetic =
        faster && p.type != data_type::f32 ? 0 : macs / ((faster ? 0.65 : 0.5) * on.fma);
    made.seconds =
        4e-6 + std::max(least_bytes(p) / ((faster ? 0.95 : 0.7) * on.memory), arithmetic);
    return made;
}

std::unique_ptr<const engines::plan> make_ring_plan(std::string_view name, const problem &p,
    const architecture &on, const engines::plan_limits &limits) {
    return std::make_unique<ring_plan>(name, p, on, predict_ring(p, on, limits));
}

}  // namespace convgrad::cuda
