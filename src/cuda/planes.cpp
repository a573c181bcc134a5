// Depthwise layers whose columns lie next to each other: see kernels/planes.cuh.
#include <algorithm>
#include <cstdint>

#include "cuda/depthwise.hpp"

namespace convgrad::cuda {
namespace {

using conv::pass;
using conv::problem;

constexpr wide warps = depthwise_threads / 32;

wide cover(wide length, wide by) {
    return (length + by - 1) / by;
}

/// How work is cut: by the problem alone.
struct cut {
    wide x = 1;                                                    // columns of a lane
    wide strips = 1;                                               // of a row
    wide slots = 1;                                                // rows that share a warp
    wide channels = 0, segments = 1, segment_rows = 1, items = 0;  // items of a channel
    wide parts = 1, part_items = 1;
};

wide columns_of_lane(const problem &p) {
    for (const wide x : {4, 2}) {
        bool all = p.x[2].dst % x == 0;
        for (const conv::data_strides *s : {&p.src, &p.dst})
            all = all && s->n % x == 0 && s->c % x == 0 && s->x[1] % x == 0;
        if (all) return x;
    }
    return 1;
}

cut cut_planes(const problem &p) {
    constexpr wide enough_warps = 8448, enough_blocks = 1056, most_steps = 8;
    const bool weights = p.what == pass::backward_weights;
    const wide rows = p.what == pass::backward_data ? p.x[1].src : p.x[1].dst, taps = p.x[1].kernel;
    cut c;
    c.x = columns_of_lane(p);
    const wide lanes = cover(p.x[2].dst, c.x), halo = cover(taps / 2, c.x);
    c.slots = lanes <= 32 ? 32 / std::max<wide>(1, lanes) : 1;
    c.strips = lanes <= 32 ? 1 : cover(lanes, 32 - 2 * halo);
    c.channels = p.groups * p.oc;
    const wide planes = std::max<wide>(1, c.channels * c.strips * cover(p.mb, c.slots));
    const wide segments =
        std::clamp<wide>(enough_warps / planes, 1, std::max<wide>(1, rows / (2 * taps)));
    c.segment_rows = std::clamp<wide>(cover(rows, segments), 1, depthwise_most_rows);
    c.segments = std::max<wide>(1, cover(rows, c.segment_rows));
    c.items = p.mb * c.segments;
    if (weights) {
        const wide most = std::max<wide>(1, c.items / (warps * c.slots));
        c.parts = std::clamp<wide>(
            cover(enough_blocks, std::max<wide>(1, c.channels * c.strips)), 1, most);
        c.part_items = cover(cover(c.items, c.parts), warps * c.slots) * warps * c.slots;
    } else {
        const wide steps = std::clamp<wide>(
            c.channels * c.strips * cover(c.items, c.slots) / enough_warps, 1, most_steps);
        c.part_items = c.slots * steps;
    }
    c.parts = std::max<wide>(1, cover(c.items, std::max<wide>(1, c.part_items)));
    return c;
}

kernel pick(const problem &p, wide x) {
    const int taps = static_cast<int>(p.x[1].kernel) / 2 - 1, width = x == 1 ? 0 : x == 2 ? 1 : 2;
    const int weights = p.what == pass::backward_weights ? 1 : 0;
    const int first = static_cast<int>(kernel::planes_data_k3x1_f32);
    return of_type(static_cast<kernel>(first + ((taps * 3 + width) * 2 + weights) * 3), p.type);
}

class planes_plan final : public plan {
public:
    planes_plan(
        std::string_view name, const problem &p, const architecture &on, const prediction &made)
        : problem_(p), cut_(cut_planes(p)), kernel_(pick(p, cut_.x)) {
        const bool weights = p.what == pass::backward_weights;
        if (weights) {
            sums_ = gradient_sums(p, cut_.parts * cut_.strips, {});
            set_weights(args_, p);
        } else {
            set_data(args_, p);
        }
        args_.channels = static_cast<int>(cut_.channels);
        args_.strips = static_cast<int>(cut_.strips);
        args_.segments = static_cast<int>(cut_.segments);
        args_.segment_rows = static_cast<int>(cut_.segment_rows);
        args_.items = static_cast<int>(cut_.items);
        args_.parts = static_cast<int>(cut_.parts);
        args_.part_items = static_cast<int>(cut_.part_items);
        const wide works = cut_.channels * cut_.strips * cut_.parts;
        args_.blocks = static_cast<int>(weights ? works : cover(works, warps));
        facts_.algorithm = name;
        facts_.uses = code_for(on);
        facts_.workspace = made.workspace;
        facts_.seconds = made.seconds;
    }
    [[nodiscard]] std::string describe() const override {
        return std::to_string(cut_.x) + " columns a lane, " + std::to_string(cut_.slots)
               + " rows a warp, segments of " + std::to_string(cut_.segment_rows) + " rows, "
               + std::to_string(cut_.parts) + " parts";
    }

private:
    [[nodiscard]] bool is_aligned(const void *data) const {
        const auto bytes = static_cast<std::uintptr_t>(cut_.x) * size_of(problem_.type);
        return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
    }
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        depthwise_args args = args_;
        args.aligned = is_aligned(data.src) && is_aligned(data.dst) ? 1 : 0;
        if (problem_.what == pass::backward_weights) {
            args.in = data.src;
            args.weights = data.dst;
            args.partial = sums_.partial(workspace);
            on.launch(kernel_, args.blocks, depthwise_threads, &args);
            sums_.finish(problem_, data, workspace, on);
            return;
        }
        args.in = problem_.what == pass::backward_data ? data.dst : data.src;
        args.weights = data.weights;
        bind(args.end, problem_, data);
        if (args.items > 0) on.launch(kernel_, args.blocks, depthwise_threads, &args);
    }

    problem problem_;
    cut cut_;
    kernel kernel_;
    gradient_sums sums_;
    depthwise_args args_{};
};

}  // namespace

std::string refuse_planes(const problem &p) {
    if (std::string reason = refuse_depthwise(p); !reason.empty()) return reason;
    if (p.x[1].stride != 1) return "the stride is not 1";
    if (p.src.x[2] != 1 || p.dst.x[2] != 1) return "columns do not lie next to each other";
    if (p.x[2].pad != p.x[2].kernel / 2 || p.x[2].src != p.x[2].dst)
        return "rows of output and input differ";
    return {};
}

prediction predict_planes(
    const problem &p, const architecture &on, const engines::plan_limits & /*limits*/) {
    const cut c = cut_planes(p);
    prediction made;
    if (p.what == pass::backward_weights)
        made.workspace = gradient_sums(p, c.parts * c.strips, {}).workspace();
    made.seconds =
        4e-6 + std::max(least_bytes(p) / (0.8 * on.memory), conv::macs(p) / (0.6 * on.fma));
    return made;
}

std::unique_ptr<const engines::plan> make_planes_plan(std::string_view name, const problem &p,
    const architecture &on, const engines::plan_limits &limits) {
    return std::make_unique<planes_plan>(name, p, on, predict_planes(p, on, limits));
}

}  // namespace convgrad::cuda
