#include "cuda/depthwise.hpp"

#include <algorithm>

namespace convgrad::cuda {
namespace {

using conv::axis;
using conv::pass;
using conv::problem;

int narrow(wide v) {
    return static_cast<int>(v);
}

bool is_trivial(const axis &a) {
    return a.src == 1 && a.dst == 1 && a.kernel == 1 && a.pad == 0;
}

/// The strides that lanes of a warp run along.
bool runs_along_channels(const problem &p) {
    return p.src.c <= p.src.x[2] && p.groups > 1;
}

/// How rows and columns are cut: by the problem alone.
depthwise_args cut(const problem &p) {
    // Rows per segment: long ones load fewer rows twice, short ones fill a device.
    constexpr wide enough_threads = wide{1} << 18;
    const bool backward = p.what == pass::backward_data;
    const wide rows = backward ? p.x[1].src : p.x[1].dst,
               columns = backward ? p.x[2].src : p.x[2].dst;
    depthwise_args a{};
    const bool by_parity = backward && p.x[1].stride == 2;
    a.strips = narrow(by_parity ? cover(columns + (p.x[2].pad & 1), depthwise_back_columns)
                                : cover(columns, depthwise_columns));
    a.channels = narrow(p.groups * (backward ? 1 : p.oc));
    const wide threads = std::max<wide>(1, p.mb * a.channels * a.strips);
    const wide shortest = 2 * p.x[1].kernel;
    const wide segments =
        std::clamp<wide>(enough_threads / threads, 1, std::max<wide>(1, rows / shortest));
    a.segment_rows = narrow(std::clamp<wide>(cover(rows, segments), 1, depthwise_most_rows));
    a.segments = narrow(std::max<wide>(1, cover(rows, a.segment_rows)));
    a.items = narrow(p.mb * a.segments * a.strips);
    a.lanes_along_channels = runs_along_channels(p) ? 1 : 0;
    return a;
}

/// Parts of a weights gradient: blocks that fill a device, each with several items a thread, since
/// a part costs a sum over the block and one over the parts.
wide wanted_parts(const problem &p) {
    constexpr wide blocks = 1056, items_of_thread = 2;
    const depthwise_args a = cut(p);
    const wide lanes = a.lanes_along_channels != 0 ? 32 : 1;
    const wide columns = depthwise_threads / lanes;
    const wide most = std::max<wide>(1, a.items / (columns * items_of_thread));
    return std::clamp<wide>(cover(blocks, std::max<wide>(1, cover(a.channels, lanes))), 1, most);
}

/// Items of a part: the same number for all threads of a block, except at the end.
wide part_items(const depthwise_args &a, wide parts) {
    const wide columns = depthwise_threads / (a.lanes_along_channels != 0 ? 32 : 1);
    return cover(cover(a.items, parts), columns) * columns;
}

/// The kernel of a row in kernels.inc: by taps, stride and type.
kernel pick(const problem &p) {
    const bool strided = p.x[1].stride == 2;
    constexpr int kinds = 5;  // data, data stride 2, back stride 2, weights, weights stride 2
    int kind = 0;
    if (p.what == pass::backward_weights)
        kind = strided ? 4 : 3;
    else if (p.what == pass::backward_data)
        kind = strided ? 2 : 0;
    else
        kind = strided ? 1 : 0;
    const int taps = narrow(p.x[1].kernel) / 2 - 1;  // 3, 5, 7: 0, 1, 2
    const int first = static_cast<int>(kernel::depthwise_data_k3_f32);
    return of_type(static_cast<kernel>(first + (taps * kinds + kind) * 3), p.type);
}

class data_plan final : public plan {
public:
    data_plan(std::string_view name, const problem &p, const architecture &on, double seconds)
        : problem_(p), args_(cut(p)), kernel_(pick(p)) {
        set_data(args_, p);
        args_.blocks =
            narrow(args_.lanes_along_channels != 0
                       ? cover(args_.channels, 32) * cover(args_.items, depthwise_threads / 32)
                       : cover(static_cast<wide>(args_.channels) * args_.items, depthwise_threads));
        facts_.algorithm = name;
        facts_.uses = code_for(on);
        facts_.seconds = seconds;
    }
    [[nodiscard]] std::string describe() const override {
        return "lanes along "
               + std::string(args_.lanes_along_channels != 0 ? "channels" : "columns") + ", "
               + std::to_string(args_.strips) + " strips, segments of "
               + std::to_string(args_.segment_rows) + " rows";
    }

private:
    void run(const conv::buffers &data, void * /*workspace*/, const lane &on) const override {
        depthwise_args args = args_;
        args.in = problem_.what == pass::backward_data ? data.dst : data.src;
        args.weights = data.weights;
        bind(args.end, problem_, data);
        if (args.items > 0) on.launch(kernel_, args.blocks, depthwise_threads, &args);
    }

    problem problem_;
    depthwise_args args_;
    kernel kernel_;
};

class weights_plan final : public plan {
public:
    weights_plan(std::string_view name, const problem &p, const architecture &on,
        const engines::plan_limits &limits, double seconds)
        : problem_(p), args_(cut(p)), kernel_(pick(p)), sums_(p, wanted_parts(p), limits) {
        set_weights(args_, p);
        args_.parts = narrow(sums_.parts());
        args_.part_items = narrow(part_items(args_, args_.parts));
        args_.blocks =
            narrow(cover(args_.channels, args_.lanes_along_channels != 0 ? 32 : 1) * args_.parts);
        facts_.algorithm = name;
        facts_.uses = code_for(on);
        facts_.workspace = sums_.workspace();
        facts_.seconds = seconds;
    }
    [[nodiscard]] std::string describe() const override {
        return "lanes along "
               + std::string(args_.lanes_along_channels != 0 ? "channels" : "columns")
               + ", segments of " + std::to_string(args_.segment_rows) + " rows, "
               + std::to_string(args_.parts) + " parts";
    }

private:
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        depthwise_args args = args_;
        args.in = data.src;
        args.weights = data.dst;
        args.partial = sums_.partial(workspace);
        on.launch(kernel_, args.blocks, depthwise_threads, &args);
        sums_.finish(problem_, data, workspace, on);
    }

    problem problem_;
    depthwise_args args_;
    kernel kernel_;
    gradient_sums sums_;
};

}  // namespace

void set_data(depthwise_args &a, const problem &p) {
    const bool backward = p.what == pass::backward_data;
    const axis &y = p.x[1], &x = p.x[2];
    const bool mirrored = backward && y.stride == 1;
    a.in_rows = narrow(backward ? y.dst : y.src);
    a.in_columns = narrow(backward ? x.dst : x.src);
    a.out_rows = narrow(backward ? y.src : y.dst);
    a.out_columns = narrow(backward ? x.src : x.dst);
    a.pad_y = narrow(mirrored ? y.kernel - 1 - y.pad : y.pad);
    a.pad_x = narrow(mirrored ? x.kernel - 1 - x.pad : x.pad);
    a.flip = mirrored ? 1 : 0;
    a.multiplier = narrow(backward ? 1 : p.oc);
    const conv::data_strides &in = backward ? p.dst : p.src;
    a.in_n = in.n;
    a.in_c = in.c;
    a.in_y = in.x[1];
    a.in_x = in.x[2];
    // Channel c of the output has the weights of group c / oc, output c % oc: one stride, or
    // refused.
    a.w_channel = p.oc == 1 ? p.weights.g : p.weights.o;
    a.w_y = p.weights.k[1];
    a.w_x = p.weights.k[2];
    a.end = make_epilogue(p);
    a.plain = !p.bias && !p.add && !p.relu && !p.accumulate ? 1 : 0;
}

void set_weights(depthwise_args &a, const problem &p) {
    const axis &y = p.x[1], &x = p.x[2];
    a.in_rows = narrow(y.src);
    a.in_columns = narrow(x.src);
    a.out_rows = narrow(y.dst);
    a.out_columns = narrow(x.dst);
    a.pad_y = narrow(y.pad);
    a.pad_x = narrow(x.pad);
    a.multiplier = narrow(p.oc);
    a.in_n = p.src.n;
    a.in_c = p.src.c;
    a.in_y = p.src.x[1];
    a.in_x = p.src.x[2];
    a.dst_n = p.dst.n;
    a.dst_c = p.dst.c;
    a.dst_y = p.dst.x[1];
    a.dst_x = p.dst.x[2];
}

std::string refuse_depthwise(const problem &p) {
    if (p.ic != 1 || p.oc < 1) return "more than one input channel per group";
    if (p.what == pass::backward_data && p.oc != 1)
        return "several output channels meet in one sum";
    if (!is_trivial(p.x[0])) return "three axes";
    const axis &y = p.x[1], &x = p.x[2];
    if (y.kernel != x.kernel || (y.kernel != 3 && y.kernel != 5 && y.kernel != 7))
        return "the kernel is not 3x3, 5x5 or 7x7";
    if (y.dilation != 1 || x.dilation != 1) return "dilated";
    if (y.stride != x.stride || y.stride > 2)
        return "strides are not 1 or 2, the same for both axes";
    if (p.oc > 1 && p.what == pass::forward && p.weights.g != p.oc * p.weights.o)
        return "weights of a group's channels do not continue those of the last group";
    constexpr wide most = wide{1} << 28;
    if (!fits_32_bits(p)
        || p.mb * p.groups * p.oc * std::max(y.src * x.src, y.dst * x.dst) >= most * 8)
        return "sizes need 64-bit indices";
    return {};
}

std::string refuse_single(const problem &p) {
    if (std::string reason = refuse_depthwise(p); !reason.empty()) return reason;
    if (p.oc != 1) return "several output channels of one input channel";
    if (p.mb == 0 || p.groups == 0) return "empty";
    constexpr wide most_pad = 64;
    for (const axis *a : {&p.x[1], &p.x[2]}) {
        if (a->src < 1 || a->dst < 1) return "empty";
        if (a->pad < -most_pad || a->pad > most_pad) return "pads beyond 64";
    }
    return {};
}

bool copies_planes(const problem &p) {
    return p.x[1].stride == 1 && p.x[2].stride == 1 && p.groups > 1 && p.src.x[2] == 1
           && p.dst.x[2] == 1;
}

double waves(const problem &p, double most) {
    constexpr double all_busy = 20e6;  // bytes
    return most * std::min(1.0, least_bytes(p) / all_busy);
}

prediction predict_depthwise(
    const problem &p, const architecture &on, const engines::plan_limits &limits) {
    prediction made;
    if (p.what == pass::backward_weights)
        made.workspace = gradient_sums(p, wanted_parts(p), limits).workspace();
    const double macs =
        conv::macs(p)
        / (p.what == pass::backward_data ? static_cast<double>(p.x[1].stride * p.x[2].stride) : 1);
    if (copies_planes(p))
        made.seconds = 4e-6 + waves(p, 22e-6)
                       + std::max(least_bytes(p) / (0.6 * on.memory), macs / (0.3 * on.fma));
    else
        made.seconds = 4e-6 + std::max(least_bytes(p) / (0.7 * on.memory), macs / (0.5 * on.fma));
    return made;
}

std::unique_ptr<const engines::plan> make_depthwise_plan(std::string_view name, const problem &p,
    const architecture &on, const engines::plan_limits &limits) {
    const double seconds = predict_depthwise(p, on, limits).seconds;
    if (p.what == pass::backward_weights)
        return std::make_unique<weights_plan>(name, p, on, limits, seconds);
    return std::make_unique<data_plan>(name, p, on, seconds);
}

}  // namespace convgrad::cuda
