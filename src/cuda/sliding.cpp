// Depthwise layers of any kernel, stride and dilation, on one to three axes: see
// kernels/sliding.cuh.
#include <algorithm>
#include <cstdint>
#include <numeric>

#include "cuda/depthwise.hpp"
#include "cuda/kernels/sliding_args.hpp"

namespace convgrad::cuda {
namespace {

using conv::axis;
using conv::pass;
using conv::problem;

constexpr wide lanes = 32;

int narrow(wide v) {
    return static_cast<int>(v);
}

/// Channels that threads have.
wide channels_of(const problem &p) {
    return p.groups * (is_backward(p) ? 1 : p.oc);
}

/// What a thread does along the axis it walks.
struct walk_form {
    std::size_t axis = 2;
    int unit = 1, apart = 1;
    int step = 0;      // of the window, from position to position: 1 or 2; 0: no input is met twice
    int at_once = 8;   // positions (data passes), or taps (weights gradients)
    int channels = 1;  // of a thread
    bool along_walk = false;
    double cost = 1e30;  // instructions for each multiply-add that is asked for
};

/// Pairs of channels lie side by side wherever a thread needs them (but for where tensors start).
bool has_pairs(const problem &p) {
    const auto even = [](const conv::data_strides &s) {
        return s.c == 1 && s.n % 2 == 0 && s.x[0] % 2 == 0 && s.x[1] % 2 == 0 && s.x[2] % 2 == 0;
    };
    return !takes_planes(p) && p.oc == 1 && p.groups % 2 == 0 && even(p.src) && even(p.dst);
}

/// How positions and taps of an axis meet: position j reads input `in_step·j + shift·t`.
struct meeting {
    wide positions, taps, in_step, shift;
};
meeting meet(const problem &p, std::size_t d) {
    const axis &a = p.x[d];
    if (!is_backward(p)) return {a.dst, a.kernel, a.stride, a.dilation};
    const wide every = a.stride / std::gcd(a.stride, a.dilation);
    return {cover(a.src, a.stride), cover(a.kernel, every), 1, every * a.dilation / a.stride};
}

walk_form form_of(const problem &p, std::size_t d) {
    const meeting m = meet(p, d);
    walk_form f;
    f.axis = d;
    if (takes_planes(p) && d == 2) {
        f.along_walk = true;
        f.apart = narrow(lanes);
        f.unit = narrow(m.shift);
        return f;
    }
    // One tap slides along nothing.
    const wide shift = m.taps == 1 ? m.in_step : m.shift, common = std::gcd(m.in_step, shift);
    const wide step = m.in_step / common;
    f.unit = narrow(shift);
    f.step = step <= 2 ? narrow(step) : 0;
    f.apart = f.step == 0 ? 1 : narrow(shift / common);
    return f;
}

/// Ends of pieces count as whole ones.
double waste(wide length, wide piece) {
    return static_cast<double>(cover(length, piece) * piece)
           / static_cast<double>(std::max<wide>(1, length));
}

// Loads cost four instructions each: address, bounds, the load, a conversion.
constexpr double load_cost = 4;

walk_form find_data_walk(const problem &p) {
    walk_form best;
    for (std::size_t d = 0; d < 3; ++d) {
        const meeting m = meet(p, d);
        for (const int at_once : {8, 16}) {
            walk_form f = form_of(p, d);
            if (at_once == 16 && f.step != 1) continue;
            f.at_once = at_once;
            f.channels = at_once == 8 && f.step == 1 && has_pairs(p) ? 2 : 1;
            const double sums = at_once * f.channels;
            f.cost = waste(m.positions, f.apart * at_once)
                     * (f.step == 0 ? 1 + load_cost * (1 + 1 / sums)
                                    : waste(m.taps, sliding_step) * (1 + load_cost * 2 / sums));
            if (f.cost < best.cost) best = f;
        }
    }
    return best;
}

walk_form find_weights_walk(const problem &p) {
    walk_form best;
    for (std::size_t d = 0; d < 3; ++d) {
        const meeting m = meet(p, d);
        for (const int taps : {1, 4, 8}) {
            walk_form f = form_of(p, d);
            if (taps == 1 && f.step != 0) continue;
            f.at_once = taps;
            f.channels = f.step == 1 && has_pairs(p) ? 2 : 1;
            const double sums = taps * f.channels;
            const double idle = f.along_walk ? waste(m.positions, lanes) : 1;
            f.cost = idle * waste(m.taps, taps)
                     * (f.step == 0 ? 1 + load_cost * (1 + 1.0 / taps)
                                    : waste(cover(m.positions, f.apart), sliding_positions)
                                          * (1 + load_cost * (f.step + 1) / sums));
            if (f.cost < best.cost) best = f;
        }
    }
    return best;
}

walk_form find_walk(const problem &p) {
    return is_weights(p) ? find_weights_walk(p) : find_data_walk(p);
}

/// The axes in the order that kernels want: the one to walk last; columns before it, where lanes
/// run along them.
std::array<std::size_t, 3> order_of(const walk_form &f) {
    const std::size_t before = f.axis == 2 ? 1 : 2;
    return {3 - f.axis - before, before, f.axis};
}

template <typename Strides>
void reorder(Strides (&all)[3], const std::array<std::size_t, 3> &order) {
    const Strides old[] = {all[0], all[1], all[2]};
    for (std::size_t d = 0; d < 3; ++d) all[d] = old[order[d]];
}

kernel data_kernel(const walk_form &f, bool pairs) {
    if (f.step == 0) return kernel::sliding_data_i8_r0_f32;
    if (f.step == 2) return kernel::sliding_data_i8_r2_f32;
    if (f.at_once == 16) return kernel::sliding_data_i16_r1_f32;
    return pairs ? kernel::sliding_data_i8_r1_v2_f32 : kernel::sliding_data_i8_r1_f32;
}

kernel weights_kernel(const walk_form &f, bool pairs) {
    const bool four = f.at_once == 4;
    if (f.step == 0)
        return f.at_once == 1 ? kernel::sliding_weights_s1_r0_f32
               : four         ? kernel::sliding_weights_s4_r0_f32
                              : kernel::sliding_weights_s8_r0_f32;
    if (f.step == 2)
        return four ? kernel::sliding_weights_s4_r2_f32 : kernel::sliding_weights_s8_r2_f32;
    if (pairs)
        return four ? kernel::sliding_weights_s4_r1_v2_f32 : kernel::sliding_weights_s8_r1_v2_f32;
    return four ? kernel::sliding_weights_s4_r1_f32 : kernel::sliding_weights_s8_r1_f32;
}

bool is_aligned(const void *data, std::size_t to) {
    return reinterpret_cast<std::uintptr_t>(data) % to == 0;
}

std::string describe_walk(const walk_form &f, const problem &p) {
    constexpr std::string_view names[] = {"depth", "height", "width"};
    return "lanes along " + std::string(takes_planes(p) ? "columns" : "channels") + ", "
           + std::to_string(f.at_once) + (is_weights(p) ? " taps" : " positions") + " along "
           + std::string(names[f.axis])
           + (f.step == 0 ? ", no input twice" : ", window step " + std::to_string(f.step));
}

class data_plan final : public plan {
public:
    data_plan(
        std::string_view name, const problem &p, const architecture &on, const prediction &made)
        : problem_(p), form_(find_data_walk(p)) {
        data_args &d = args_.data;
        d = make_data_args(p, 1, 1);
        args_.walk = {form_.apart, form_.unit};
        args_.along_channels = takes_planes(p) ? 0 : 1;
        args_.along_walk = form_.along_walk ? 1 : 0;
        const std::array<std::size_t, 3> order = order_of(form_);
        reorder(d.x, order);
        reorder(d.in_strides.x, order);
        reorder(d.w_tap, order);
        reorder(d.phases, order);
        reorder(d.end.out_strides.x, order);
        reorder(d.end.add_strides.x, order);
        for (std::size_t i = 0; i < 3; ++i) args_.counts[i] = narrow(meet(p, order[i]).positions);
        const wide strip = wide{form_.apart} * form_.at_once;
        args_.counts[2] = narrow(cover(args_.counts[2], strip) * form_.apart);
        set_taps(order);
        set_facts(name, on, made, engines::accuracy::strict);
    }
    [[nodiscard]] std::string describe() const override { return describe_walk(form_, problem_); }

    /// Whether weights are put in order first.
    static bool puts_taps(const problem &p) {
        return p.type != data_type::f32 || (!takes_planes(p) && weights_channel(p) != 1);
    }

private:
    /// From channel to channel; 0: there is no such step.
    static wide weights_channel(const problem &p) {
        return p.oc == 1 ? p.weights.g : p.weights.g == p.oc * p.weights.o ? p.weights.o : 0;
    }
    void set_taps(const std::array<std::size_t, 3> &order) {
        const problem &p = problem_;
        const wide all = p.groups * p.oc;
        in_place_ = !puts_taps(p);
        if (in_place_) {
            args_.tap_channel = is_backward(p) ? p.weights.g : weights_channel(p);
            in_place_ = args_.tap_channel != 0 || all == 1;
        }
        if (in_place_) {
            args_.tap_in = p.weights.o;
            for (std::size_t d = 0; d < 3; ++d) args_.tap_stride[d] = p.weights.k[order[d]];
            return;
        }
        const wide next = args_.along_channels != 0 ? all : 1,
                   channel = args_.along_channels != 0 ? 1 : taps_of(p);
        args_.tap_channel = channel * (is_backward(p) ? p.oc : 1);
        args_.tap_in = channel;
        const wide steps[] = {p.x[1].kernel * p.x[2].kernel, p.x[2].kernel, 1};
        for (std::size_t d = 0; d < 3; ++d) args_.tap_stride[d] = steps[order[d]] * next;
        put_ = {nullptr, nullptr, p.weights.g, p.weights.o,
            {p.weights.k[0], p.weights.k[1], p.weights.k[2]}, narrow(p.groups), narrow(p.oc),
            {narrow(p.x[0].kernel), narrow(p.x[1].kernel), narrow(p.x[2].kernel)},
            args_.along_channels};
    }
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        const problem &p = problem_;
        sliding_data_args args = args_;
        args.data.in = is_backward(p) ? data.dst : data.src;
        args.data.weights = data.weights;
        bind(args.data.end, p, data);
        args.taps = static_cast<const float *>(in_place_ ? data.weights : workspace);
        if (!in_place_) {
            sliding_taps_args put = put_;
            put.from = data.weights;
            put.to = static_cast<float *>(workspace);
            on.launch(of_type(kernel::sliding_taps_f32, p.type),
                cover(p.groups * p.oc * taps_of(p), sliding_threads), sliding_threads, &put);
        }
        const std::size_t pair = 2 * size_of(p.type);
        const bool pairs = form_.channels == 2 && is_aligned(args.data.in, pair)
                           && is_aligned(args.taps, 8) && args.tap_stride[0] % 2 == 0
                           && args.tap_stride[1] % 2 == 0 && args.tap_stride[2] % 2 == 0;
        args.pairs = pairs && is_aligned(args.data.end.out, pair) && !p.bias && !p.add && !p.relu
                             && !p.accumulate
                         ? 1
                         : 0;
        args.channels = narrow(channels_of(p) / (pairs ? 2 : 1));
        args.items = wide{args.channels} * p.mb;
        for (std::size_t d = 0; d < 3; ++d) args.items *= args.counts[d] * args.data.phases[d];
        on.launch(of_type(data_kernel(form_, pairs), p.type), cover(args.items, sliding_threads),
            sliding_threads, &args);
    }

    problem problem_;
    walk_form form_;
    sliding_data_args args_{};
    sliding_taps_args put_{};
    bool in_place_ = false;
};

/// Warps of a channel, and blocks of all channels: of one part.
struct weights_cut {
    wide chunks, rows, row_blocks, channel_blocks, items, wanted_parts;
};
weights_cut cut_weights(const problem &p, const walk_form &f) {
    weights_cut c{};
    const std::array<std::size_t, 3> order = order_of(f);
    c.chunks = cover(p.x[f.axis].kernel, f.at_once);
    c.rows = c.chunks * p.x[order[0]].kernel * p.x[order[1]].kernel;
    c.row_blocks = cover(c.rows, sliding_threads / lanes);
    // As pairs of channels or not: the same parts, so that bits do not depend on where tensors lie.
    c.channel_blocks = takes_planes(p) ? channels_of(p) : cover(channels_of(p), lanes);
    c.items = p.mb * p.x[order[0]].dst * p.x[order[1]].dst;
    constexpr wide blocks = 2112, shortest = 64;  // positions of a thread
    const wide walked = cover(p.x[f.axis].dst, f.along_walk ? lanes : 1),
               each = takes_planes(p) && !f.along_walk ? lanes : 1;
    const wide most = c.items / std::max<wide>(1, each * cover(shortest, walked));
    c.wanted_parts =
        std::clamp<wide>(blocks / (c.row_blocks * c.channel_blocks), 1, std::max<wide>(1, most));
    return c;
}

class weights_plan final : public plan {
public:
    weights_plan(std::string_view name, const problem &p, const architecture &on,
        const engines::plan_limits &limits, const prediction &made)
        : problem_(p), form_(find_weights_walk(p)) {
        const weights_cut c = cut_weights(p, form_);
        sums_ = gradient_sums(p, c.wanted_parts, limits);
        const std::array<std::size_t, 3> order = order_of(form_);
        weights_args &w = args_.weights;
        w = make_weights_args(p);
        reorder(w.src_strides.x, order);
        reorder(w.dst_strides.x, order);
        const wide steps[] = {p.x[1].kernel * p.x[2].kernel, p.x[2].kernel, 1};
        for (std::size_t d = 0; d < 3; ++d) {
            w.x[d] = to_args(p.x[order[d]], false);
            args_.tap_at[d] = steps[order[d]];
        }
        args_.walk = {form_.apart, form_.unit};
        args_.along_channels = takes_planes(p) ? 0 : 1;
        args_.along_walk = form_.along_walk ? 1 : 0;
        args_.chunks = narrow(c.chunks);
        args_.rows = narrow(c.rows);
        args_.row_blocks = narrow(c.row_blocks);
        args_.items = narrow(c.items);
        args_.part_items = narrow(cover(c.items, sums_.parts()));
        set_facts(name, on, made, engines::accuracy::strict);
    }
    [[nodiscard]] std::string describe() const override {
        return describe_walk(form_, problem_) + ", " + std::to_string(sums_.parts()) + " parts";
    }

private:
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        const problem &p = problem_;
        sliding_weights_args args = args_;
        args.weights.src = data.src;
        args.weights.dst = data.dst;
        args.weights.partial = sums_.partial(workspace);
        const std::size_t pair = 2 * size_of(p.type);
        const bool pairs =
            form_.channels == 2 && is_aligned(data.src, pair) && is_aligned(data.dst, pair);
        args.channel_blocks = narrow(
            takes_planes(p) ? channels_of(p) : cover(channels_of(p), lanes * (pairs ? 2 : 1)));
        args.blocks = args.row_blocks * args.channel_blocks * narrow(sums_.parts());
        on.launch(
            of_type(weights_kernel(form_, pairs), p.type), args.blocks, sliding_threads, &args);
        sums_.finish(p, data, workspace, on);
    }

    problem problem_;
    walk_form form_;
    sliding_weights_args args_{};
    gradient_sums sums_;
};

}  // namespace

std::string refuse_sliding(const problem &p) {
    if (p.ic != 1) return "more than one input channel per group";
    if (has_empty_tensor(p)) return "an empty tensor";
    if (!fits_32_bits(p)) return "sizes need 64-bit indices";
    constexpr wide most = wide{1} << 31;
    for (std::size_t d = 0; d < 3; ++d)
        if (p.x[d].src * p.src.x[d] >= most || p.x[d].dst * p.dst.x[d] >= most)
            return "steps need 64-bit indices";
    const walk_form f = find_walk(p);
    wide threads = channels_of(p);
    if (is_weights(p)) {
        const weights_cut c = cut_weights(p, f);
        threads *= c.rows * c.wanted_parts;
    } else {
        threads *= p.mb;
        for (std::size_t d = 0; d < 3 && threads < most; ++d) {
            const wide n = meet(p, d).positions;
            threads *= d == f.axis ? cover(n, wide{f.apart} * f.at_once) * f.apart : n;
            if (is_backward(p)) threads *= p.x[d].stride;
        }
    }
    return threads < most ? "" : "too many threads";
}

prediction predict_sliding(
    const problem &p, const architecture &on, const engines::plan_limits &limits) {
    prediction made;
    const walk_form f = find_walk(p);
    double macs = static_cast<double>(p.mb) * static_cast<double>(p.groups * p.oc);
    for (std::size_t d = 0; d < 3; ++d) {
        const meeting m = meet(p, d);
        const wide phases = is_backward(p) ? std::min(p.x[d].stride, p.x[d].src) : 1;
        macs *= static_cast<double>(m.positions * phases * m.taps);
    }
    if (is_weights(p))
        made.workspace = gradient_sums(p, cut_weights(p, f).wanted_parts, limits).workspace();
    else
        made.workspace = static_cast<std::size_t>(p.groups * p.oc * taps_of(p)) * sizeof(float);
    // H200, f32, 7×7 to 13×13 on planes: 0.31 ms where 0.7 promised 0.09, 0.45 for 0.14, 0.38 for
    // 0.15; several outputs of a channel in either order, backward: 0.15 for 0.05, 0.14 for 0.05.
    const double rate = takes_planes(p) || p.oc > 1 ? 0.22 : 0.7;
    made.seconds =
        7e-6 + std::max(least_bytes(p) / (0.6 * on.memory), macs * f.cost / (rate * on.fma));
    return made;
}

std::unique_ptr<const engines::plan> make_sliding_plan(std::string_view name, const problem &p,
    const architecture &on, const engines::plan_limits &limits) {
    const prediction made = predict_sliding(p, on, limits);
    if (is_weights(p)) return std::make_unique<weights_plan>(name, p, on, limits, made);
    return std::make_unique<data_plan>(name, p, on, made);
}

}  // namespace convgrad::cuda
