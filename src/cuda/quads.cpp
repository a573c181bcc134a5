// Depthwise layers of few taps, four channels a thread: see kernels/quads.cu.
#include <algorithm>
#include <cstdint>

#include "cuda/depthwise.hpp"
#include "cuda/kernels/quads_args.hpp"

namespace convgrad::cuda {
namespace {

using conv::pass;
using conv::problem;

constexpr int channels = 4;  // of a thread

int narrow(wide v) {
    return static_cast<int>(v);
}

/// By the problem alone.
quads_args cut(const problem &p) {
    quads_args a{};
    depthwise_args &b = a.base;
    set_data(b, p);
    b.channels = narrow(p.groups);
    a.vectors = b.channels / channels;
    b.strips = narrow(std::max<wide>(1, cover(b.out_columns, quads_columns)));
    // Rows of a segment: long ones read fewer rows twice, short ones fill a device.
    constexpr wide enough_threads = wide{1} << 17, shortest = 8;
    const wide threads = std::max<wide>(1, p.mb * a.vectors * b.strips);
    const wide segments = std::clamp<wide>(
        cover(enough_threads, threads), 1, std::max<wide>(1, b.out_rows / shortest));
    b.segment_rows = narrow(std::max<wide>(1, cover(b.out_rows, segments)));
    b.segments = narrow(std::max<wide>(1, cover(b.out_rows, b.segment_rows)));
    b.items = narrow(p.mb) * b.segments * b.strips;
    b.blocks = narrow(cover(static_cast<wide>(b.items) * a.vectors, quads_threads));
    return a;
}

class quads_plan final : public plan {
public:
    quads_plan(
        std::string_view name, const problem &p, const architecture &on, const prediction &made)
        : problem_(p), args_(cut(p)) {
        set_facts(name, on, made, engines::accuracy::strict);
    }
    [[nodiscard]] std::string describe() const override {
        return std::to_string(args_.base.strips) + " strips, segments of "
               + std::to_string(args_.base.segment_rows) + " rows, "
               + std::to_string(args_.base.blocks) + " blocks";
    }

private:
    /// Whether four channels of every pixel are aligned.
    [[nodiscard]] bool is_whole(const void *data, wide n, wide y, wide x) const {
        return reinterpret_cast<std::uintptr_t>(data) % (channels * size_of(problem_.type)) == 0
               && n % channels == 0 && y % channels == 0 && x % channels == 0;
    }
    void run(const conv::buffers &data, void * /*workspace*/, const lane &on) const override {
        quads_args args = args_;
        depthwise_args &b = args.base;
        b.in = problem_.what == pass::backward_data ? data.dst : data.src;
        b.weights = data.weights;
        bind(b.end, problem_, data);
        const data_stride_args &out = b.end.out_strides;
        args.whole = is_whole(b.in, b.in_n, b.in_y, b.in_x) ? 1 : 0;
        args.out_whole = b.plain != 0 && is_whole(b.end.out, out.n, out.x[1], out.x[2]) ? 1 : 0;
        const bool packed = b.w_x == 1 && b.w_y == 3 && b.w_channel == 9;
        args.taps_whole = packed && is_whole(b.weights, 0, 0, 0) ? 1 : 0;
        const kernel first =
            problem_.x[1].stride == 2 ? kernel::quads_data_s2_f32 : kernel::quads_data_f32;
        if (b.items > 0) on.launch(of_type(first, problem_.type), b.blocks, quads_threads, &args);
    }

    problem problem_;
    quads_args args_;
};

}  // namespace

std::string refuse_quads(const problem &p) {
    if (std::string reason = refuse_staged(p); !reason.empty()) return reason;
    if (p.x[1].kernel != 3) return "for 3x3 taps";
    if (p.what == pass::backward_weights) return "for data passes";
    if (p.x[1].stride == 2 && p.what != pass::forward) return "backward with stride 2";
    if (p.groups % channels != 0) return "channels are no multiple of four";
    if (p.src.c != 1 || p.dst.c != 1) return "channels do not lie side by side";
    return {};
}

prediction predict_quads(
    const problem &p, const architecture &on, const engines::plan_limits & /*limits*/) {
    // Where it was faster than `cuda.staged`.
    const wide rows = p.what == pass::backward_data ? p.x[1].src : p.x[1].dst;
    const bool faster = p.x[1].stride == 2 || (p.type == data_type::f32 && rows > 8);
    prediction made;
    made.seconds = 4e-6 + least_bytes(p) / ((faster ? 0.87 : 0.75) * on.memory);
    return made;
}

std::unique_ptr<const engines::plan> make_quads_plan(std::string_view name, const problem &p,
    const architecture &on, const engines::plan_limits &limits) {
    return std::make_unique<quads_plan>(name, p, on, predict_quads(p, on, limits));
}

}  // namespace convgrad::cuda
