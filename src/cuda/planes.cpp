// Depthwise layers on planes, as large as their outputs: see kernels/planes.cuh.
#include <algorithm>
#include <array>
#include <cstdint>

#include "cuda/depthwise.hpp"
#include "cuda/kernels/planes_args.hpp"

namespace convgrad::cuda {
namespace {

using conv::axis;
using conv::problem;

int narrow(wide v) {
    return static_cast<int>(v);
}
int taps_of_row(const problem &p) {
    return narrow(p.x[1].kernel);
}
int element_bytes(const problem &p) {
    return narrow(static_cast<wide>(size_of(p.type)));
}

/// How planes are shared out.
struct cut {
    wide bands;   // of rows
    wide rounds;  // images of a warp
};

/// Lanes that ask one bank for different words, at the most, where planes are so far apart.
int lanes_at_bank(const planes_args &a, int plane, int element) {
    std::array<int, 32> count{};
    std::array<int, 32> words{};
    words.fill(-1);
    for (int lane = 0; lane < a.warp_planes * a.base.strips; ++lane) {
        const int word =
            (lane / a.base.strips * plane + lane % a.base.strips * planes_columns) * element / 4;
        const auto bank = static_cast<std::size_t>(word % 32);
        if (words[bank] != word) ++count[bank];
        words[bank] = word;
    }
    return *std::max_element(count.begin(), count.end());
}

/// Steps in shared memory from run to run of a tensor, and bytes of all.
int set_steps(planes_source &t, const planes_args &a, int elements, int element) {
    const int unit = 16 / element, lead = unit - 1;
    t.plane = elements;
    if (a.whole != 0) {
        t.slot = 0;
        return narrow(cover(wide{1} * elements * a.warp_planes + lead, unit)) * 16;
    }
    const int least = narrow(cover(elements + lead, unit)) * unit;
    int best = 33;
    for (int more = 0; more < 8; ++more)
        if (const int n = lanes_at_bank(a, least + more * unit, element); n < best) {
            best = n;
            t.slot = least + more * unit;
        }
    return t.slot * a.warp_planes * element;
}

planes_args lay_out(const problem &p, const cut &c) {
    planes_args a{};
    depthwise_args &b = a.base;
    if (is_weights(p))
        set_weights(b, p);
    else
        set_data(b, p);
    const int element = element_bytes(p), taps = taps_of_row(p);
    b.channels = narrow(p.groups);
    b.strips = narrow(cover(b.out_columns, planes_columns));
    a.images = narrow(p.mb);
    a.warp_planes = narrow(std::min<wide>(32 / b.strips, p.groups));
    a.channel_blocks = narrow(cover(p.groups, a.warp_planes));
    b.segment_rows = narrow(cover(b.out_rows, c.bands));
    b.segments = narrow(cover(b.out_rows, b.segment_rows));
    a.rounds = narrow(std::min<wide>(c.rounds, p.mb));
    b.parts = narrow(cover(p.mb, a.rounds) * b.segments);
    a.jobs = a.channel_blocks * b.parts;
    b.blocks = narrow(cover(a.jobs, planes_warps));
    const wide plane = wide{1} * b.in_rows * b.in_columns;
    const bool dense = p.src.c == plane && p.dst.c == plane && b.segments == 1;
    a.whole = dense && lanes_at_bank(a, narrow(plane), element) <= 2 ? 1 : 0;
    const conv::data_strides &in = is_backward(p) ? p.dst : p.src;
    a.in = {nullptr, in.n, in.c, 0, 0, 0};
    a.dst = {nullptr, p.dst.n, p.dst.c, 0, 0, 0};
    const int rows = std::min(b.in_rows, b.segment_rows + taps - 1);
    a.warp_bytes = set_steps(a.in, a, rows * b.in_columns, element);
    if (is_weights(p)) {
        a.dst.at = a.warp_bytes;
        a.warp_bytes += set_steps(a.dst, a, b.segment_rows * b.in_columns, element);
        a.warp_bytes = std::max(a.warp_bytes, narrow(cover(taps * taps * 33, 4)) * 16);
    }
    return a;
}

int shared_bytes(const planes_args &a) {
    return planes_warps * a.warp_bytes;
}

/// Bands of rows only where planes have no room: twelve warps at work take less time than planes
/// that are whole where taps reach one row only. Images one after the other load 49 taps once, and
/// leave fewer parts of a weights gradient; more of them leave too few warps at work.
planes_args choose(const problem &p) {
    const bool weights = is_weights(p);
    const int taps = taps_of_row(p), most = taps == 3 && !weights ? 20000 : planes_most_shared;
    cut c{1, 1};
    while (shared_bytes(lay_out(p, c)) > most) ++c.bands;
    const planes_args one = lay_out(p, c);
    if (weights && one.jobs >= 2048)
        c.rounds = taps == 7 ? 3 : 2;
    else if (!weights && taps == 7 && shared_bytes(one) < 19000)
        c.rounds = 2;
    return lay_out(p, c);
}

kernel pick(const problem &p) {
    const int first = static_cast<int>(kernel::planes_data_k3_f32),
              set = (taps_of_row(p) / 2 - 1) * 2 + (is_weights(p) ? 1 : 0);
    return of_type(static_cast<kernel>(first + set * 3), p.type);
}

bool is_aligned(const void *data) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

class planes_plan final : public plan {
public:
    planes_plan(
        std::string_view name, const problem &p, const architecture &on, const prediction &made)
        : problem_(p), args_(choose(p)), kernel_(pick(p)) {
        if (is_weights(p)) sums_ = gradient_sums(p, args_.base.parts, {});
        set_facts(name, on, made, engines::accuracy::strict);
    }
    [[nodiscard]] std::string describe() const override {
        return std::to_string(args_.warp_planes) + " planes of " + std::to_string(args_.base.strips)
               + " strips, " + std::to_string(args_.rounds) + " images, bands of "
               + std::to_string(args_.base.segment_rows) + " rows, "
               + (args_.whole != 0 ? "whole" : "spread") + ", "
               + std::to_string(shared_bytes(args_)) + " bytes shared, "
               + std::to_string(args_.base.blocks) + " blocks";
    }

private:
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        planes_args args = args_;
        depthwise_args &b = args.base;
        const bool weights = is_weights(problem_);
        b.in = args.in.data = is_backward(problem_) ? data.dst : data.src;
        b.weights = weights ? data.dst : data.weights;
        if (weights) {
            b.partial = sums_.partial(workspace);
            args.dst.data = data.dst;
        } else {
            bind(b.end, problem_, data);
        }
        args.slow = is_aligned(b.in) && is_aligned(weights ? args.dst.data : b.end.out) ? 0 : 1;
        on.launch(kernel_, b.blocks, planes_warps * 32, &args,
            static_cast<std::size_t>(shared_bytes(args)));
        if (weights) sums_.finish(problem_, data, workspace, on);
    }

    problem problem_;
    planes_args args_;
    kernel kernel_;
    gradient_sums sums_;
};

}  // namespace

std::string refuse_planes(const problem &p) {
    if (std::string reason = refuse_single(p); !reason.empty()) return reason;
    if (p.x[1].stride != 1) return "for strides of 1";
    if (p.add || p.relu || (p.accumulate && !is_weights(p))) return "stores sums with bias alone";
    for (const axis *a : {&p.x[1], &p.x[2]})
        if (a->src != a->dst || a->pad != a->kernel / 2)
            return "outputs are not as large as inputs";
    constexpr wide most_columns = 32 * planes_columns;
    if (p.x[2].src > most_columns) return "rows of more than 224 columns";
    const wide columns = p.x[2].src;
    for (const conv::data_strides *s : {&p.src, &p.dst})
        if ((columns != 1 && s->x[2] != 1) || (p.x[1].src != 1 && s->x[1] != columns))
            return "rows do not lie one after the other";
    if (p.src.n != p.dst.n || p.src.c != p.dst.c) return "planes do not lie as those of the output";
    return {};
}

/// Measured on an H200: 0.85 of memory, or products with 105 other instructions for a row
/// of seven outputs, which a weights gradient has more of, with so many warps for shared memory.
prediction predict_planes(
    const problem &p, const architecture &on, const engines::plan_limits & /*limits*/) {
    prediction made;
    const planes_args a = choose(p);
    const bool weights = is_weights(p);
    if (weights) made.workspace = gradient_sums(p, a.base.parts, {}).workspace();
    const double products = planes_columns * taps_of_row(p) * taps_of_row(p),
                 halo = static_cast<double>(a.in.plane * a.base.segments)
                        / (static_cast<double>(a.base.in_rows) * a.base.in_columns),
                 warps = std::min(1.0, 20000.0 / shared_bytes(a)),
                 lanes = a.warp_planes * a.base.strips / 32.0,
                 rate = 0.59 * products / (products + 105) * warps * lanes * (weights ? 0.95 : 1.0);
    made.seconds =
        4e-6 + waves(p, 4e-6)
        + std::max(least_bytes(p) / (0.85 * on.memory), halo * conv::macs(p) / (rate * on.fma));
    return made;
}

std::unique_ptr<const engines::plan> make_planes_plan(std::string_view name, const problem &p,
    const architecture &on, const engines::plan_limits &limits) {
    return std::make_unique<planes_plan>(name, p, on, predict_planes(p, on, limits));
}

}  // namespace convgrad::cuda
