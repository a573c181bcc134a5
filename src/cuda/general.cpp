#include "cuda/general.hpp"

#include <algorithm>

#include <convgrad/error.hpp>

namespace convgrad::cuda {
namespace {

using conv::pass;
using conv::problem;

constexpr int threads = 256;

struct tile_size {
    wide m, n;
};

constexpr tile_size data_tile(tile_kind k) {
    return k == tile_kind::narrow ? tile_size{256, 8} : tile_size{128, 64};
}
constexpr tile_size weights_tile(tile_kind k) {
    return k == tile_kind::narrow ? tile_size{8, 64} : tile_size{64, 128};
}

/// Tiles of a data pass: those of the longest phase, for all phases and groups.
struct data_tiles {
    wide phases[3], m, n, all;
};

data_tiles cut_data(const problem &p, const tile_size &size) {
    const bool backward = p.what == pass::backward_data;
    data_tiles t{};
    wide rows = p.mb, phases = 1;
    for (std::size_t d = 0; d < 3; ++d) {
        const conv::axis &a = p.x[d];
        t.phases[d] = backward ? std::max<wide>(1, std::min(a.stride, a.src)) : 1;
        rows *= backward ? cover(a.src, a.stride) : a.dst;
        phases *= t.phases[d];
    }
    t.m = cover(rows, size.m);
    t.n = cover(backward ? p.ic : p.oc, size.n);
    t.all = t.m * t.n * p.groups * phases;
    return t;
}

/// Parts of the positions: enough blocks to fill a large device, and never so short that tiles cost
/// more to write than to compute.
wide wanted_parts(const problem &p, tile_kind kind) {
    constexpr wide blocks = 1056, shortest = 256;
    const tile_size size = weights_tile(kind);
    const wide tiles = cover(p.oc, size.m) * cover(taps_of(p) * p.ic, size.n) * p.groups;
    const wide most = std::max<wide>(1, positions_of(p) / shortest);
    return std::clamp<wide>(tiles == 0 ? 1 : blocks / tiles, 1, most);
}

class data_plan final : public plan {
public:
    data_plan(std::string_view name, const problem &p, tile_kind kind) : problem_(p), kind_(kind) {
        args_ = make_data_args(p, data_tile(kind).m, data_tile(kind).n);
        facts_.algorithm = name;
    }
    void set_facts(const architecture &on, const prediction &p) {
        facts_.uses = code_for(on);
        facts_.seconds = p.seconds;
    }
    [[nodiscard]] std::string describe() const override {
        const tile_size size = data_tile(kind_);
        return "tile " + std::to_string(size.m) + "x" + std::to_string(size.n) + " depth 16, "
               + std::to_string(args_.tiles) + " blocks";
    }

private:
    void run(const conv::buffers &data, void * /*workspace*/, const lane &on) const override {
        data_args args = args_;
        args.in = args.backward != 0 ? data.dst : data.src;
        args.weights = data.weights;
        bind(args.end, problem_, data);
        const kernel rows[] = {
            kernel::general_data_f32, kernel::narrow_data_f32, kernel::wide_data_f32};
        on.launch(
            of_type(rows[static_cast<int>(kind_)], problem_.type), args.tiles, threads, &args);
    }

    problem problem_;
    tile_kind kind_;
    data_args args_{};
};

class weights_plan final : public plan {
public:
    weights_plan(
        std::string_view name, const problem &p, tile_kind kind, const engines::plan_limits &limits)
        : problem_(p), kind_(kind), sums_(p, wanted_parts(p, kind), limits) {
        const tile_size size = weights_tile(kind);
        args_ = make_weights_args(p);
        args_.src_runs_along_channels = p.src.c == 1 && p.ic > 1 ? 1 : 0;
        args_.dst_runs_along_channels = p.dst.c == 1 && p.oc > 1 ? 1 : 0;
        args_.parts = sums_.parts();
        args_.part_length = cover(args_.positions, args_.parts);
        args_.tiles_m = cover(p.oc, size.m);
        args_.tiles_n = cover(args_.taps * p.ic, size.n);
        args_.tiles = args_.tiles_m * args_.tiles_n * p.groups * args_.parts;
        facts_.algorithm = name;
        facts_.workspace = sums_.workspace();
    }
    void set_facts(const architecture &on, const prediction &p) {
        facts_.uses = code_for(on);
        facts_.seconds = p.seconds;
    }
    [[nodiscard]] std::string describe() const override {
        const tile_size size = weights_tile(kind_);
        return "tile " + std::to_string(size.m) + "x" + std::to_string(size.n) + " depth 16, "
               + std::to_string(args_.parts) + " parts of " + std::to_string(args_.part_length)
               + " positions";
    }

private:
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        weights_args args = args_;
        args.src = data.src;
        args.dst = data.dst;
        args.partial = sums_.partial(workspace);
        const kernel rows[] = {
            kernel::general_weights_f32, kernel::narrow_weights_f32, kernel::wide_weights_f32};
        on.launch(
            of_type(rows[static_cast<int>(kind_)], problem_.type), args.tiles, threads, &args);
        sums_.finish(problem_, data, workspace, on);
    }

    problem problem_;
    tile_kind kind_;
    gradient_sums sums_;
    weights_args args_{};
};

}  // namespace

data_args make_data_args(const problem &p, wide rows, wide columns) {
    data_args a{};
    const bool backward = p.what == pass::backward_data;
    const data_tiles t = cut_data(p, {rows, columns});
    a.mb = p.mb;
    a.groups = p.groups;
    a.in_channels = backward ? p.oc : p.ic;
    a.out_channels = backward ? p.ic : p.oc;
    for (std::size_t d = 0; d < 3; ++d) {
        a.x[d] = to_args(p.x[d], backward);
        a.phases[d] = t.phases[d];
        a.w_tap[d] = p.weights.k[d];
    }
    a.in_strides = to_args(backward ? p.dst : p.src);
    a.w_group = p.weights.g;
    a.w_out = backward ? p.weights.i : p.weights.o;
    a.w_in = backward ? p.weights.o : p.weights.i;
    a.end = make_epilogue(p);
    a.backward = backward ? 1 : 0;
    a.in_runs_along_channels = a.in_strides.c == 1 && a.in_channels > 1 ? 1 : 0;
    a.weights_run_along_in = a.w_in <= a.w_out ? 1 : 0;
    a.tiles_m = t.m;
    a.tiles_n = t.n;
    a.tiles = t.all;
    return a;
}

weights_args make_weights_args(const problem &p) {
    weights_args w{};
    w.mb = p.mb;
    w.groups = p.groups;
    w.ic = p.ic;
    w.oc = p.oc;
    for (std::size_t d = 0; d < 3; ++d) w.x[d] = to_args(p.x[d], false);
    w.src_strides = to_args(p.src);
    w.dst_strides = to_args(p.dst);
    w.taps = taps_of(p);
    w.positions = positions_of(p);
    return w;
}

wide taps_of(const problem &p) {
    return p.x[0].kernel * p.x[1].kernel * p.x[2].kernel;
}

wide positions_of(const problem &p) {
    wide all = p.mb;
    for (const conv::axis &a : p.x) all *= a.dst;
    return all;
}

bool fits_32_bits(const problem &p) {
    constexpr wide most = wide{1} << 28;
    wide positions = p.mb, src = p.mb, taps = 1;
    for (const conv::axis &a : p.x) {
        if (std::max({a.src, a.dst, a.kernel, a.stride, a.dilation, a.pad}) >= most) return false;
        if (a.kernel * a.dilation >= most || a.dst * a.stride >= most) return false;
        positions *= a.dst;
        src *= a.src;
        taps *= a.kernel;
        if (std::max({positions, src, taps}) >= most * 4) return false;
    }
    return std::max(p.ic, p.oc) < most && taps * std::max(p.ic, p.oc) < most * 4
           && p.groups * taps * std::max(p.ic, p.oc) < most * 8;
}

data_stride_args to_args(const conv::data_strides &s) {
    return {s.n, s.c, {s.x[0], s.x[1], s.x[2]}};
}

data_axis_args to_args(const conv::axis &a, bool backward) {
    return {
        backward ? a.dst : a.src, backward ? a.src : a.dst, a.kernel, a.stride, a.dilation, a.pad};
}

element element_of(data_type type) {
    return type == data_type::f32    ? element::f32
           : type == data_type::bf16 ? element::bf16
                                     : element::f16;
}

epilogue_args make_epilogue(const problem &p) {
    epilogue_args e{};
    e.out_strides = to_args(p.what == pass::forward ? p.dst : p.src);
    if (p.add) e.add_strides = to_args(p.add_strides);
    e.bias_stride = p.bias_stride;
    e.relu = p.relu ? 1 : 0;
    e.accumulate = p.accumulate ? 1 : 0;
    return e;
}

void bind(epilogue_args &e, const problem &p, const conv::buffers &data) {
    e.out = p.what == pass::forward ? data.dst : data.src;
    e.bias = p.bias ? data.bias : nullptr;
    e.add = p.add ? data.add : nullptr;
}

double least_bytes(const problem &p) {
    const auto size = [](data_type t) { return t == data_type::f32 ? 4.0 : 2.0; };
    double src = static_cast<double>(p.mb * p.groups * p.ic),
           dst = static_cast<double>(p.mb * p.groups * p.oc);
    double weights = static_cast<double>(p.groups * p.oc * p.ic);
    for (const conv::axis &a : p.x) {
        src *= static_cast<double>(a.src);
        dst *= static_cast<double>(a.dst);
        weights *= static_cast<double>(a.kernel);
    }
    return (src + dst) * size(p.type) + weights * size(p.out_type);
}

void plan::set_facts(
    std::string_view name, const architecture &on, const prediction &made, engines::accuracy kept) {
    facts_.algorithm = name;
    facts_.uses = code_for(on);
    facts_.workspace = made.workspace;
    facts_.seconds = made.seconds;
    facts_.kept = kept;
}

bool has_empty_tensor(const problem &p) {
    bool found = p.mb == 0 || p.ic == 0 || p.oc == 0 || p.groups == 0;
    for (const conv::axis &a : p.x) found = found || a.src == 0 || a.dst == 0;
    return found;
}

std::string_view code_for(const architecture &on) {
    return on.major == 8 ? "sm_80" : "sm_90";
}

prediction predict_general(
    const problem &p, const architecture &on, tile_kind kind, const engines::plan_limits &limits) {
    // Shares of the rate that tiles reach when they are full: loads of few columns weigh more.
    const bool weights = p.what == pass::backward_weights;
    const double share = kind == tile_kind::general  ? (weights ? 0.24 : 0.35)
                         : kind == tile_kind::narrow ? 0.08
                                                     : 0.2;
    double macs = 0;
    prediction made;
    if (p.what == pass::backward_weights) {
        const tile_size size = weights_tile(kind);
        const gradient_sums sums(p, wanted_parts(p, kind), limits);
        made.workspace = sums.workspace();
        macs = static_cast<double>(cover(p.oc, size.m) * size.m * p.groups)
               * static_cast<double>(cover(taps_of(p) * p.ic, size.n) * size.n)
               * static_cast<double>(positions_of(p));
        // Few parts leave most of a device idle.
        const double blocks = static_cast<double>(
            cover(p.oc, size.m) * cover(taps_of(p) * p.ic, size.n) * p.groups * sums.parts());
        macs *= std::max(1.0, 200 / std::max(1.0, blocks));
    } else {
        const tile_size size = data_tile(kind);
        const data_tiles t = cut_data(p, data_tile(kind));
        const bool backward = p.what == pass::backward_data;
        double phases = 1;
        for (const wide n : t.phases) phases *= static_cast<double>(n);
        // What a tile starts and ends with takes as long as so many terms.
        const double ends = kind == tile_kind::narrow ? 0 : 75;
        const double depth =
            static_cast<double>(taps_of(p) * (backward ? p.oc : p.ic)) / phases + ends;
        macs = std::max(200.0, static_cast<double>(t.all)) * static_cast<double>(size.m * size.n)
               * depth;
    }
    made.seconds = 4e-6 + std::max(least_bytes(p) / on.memory, macs / (on.fma * share));
    return made;
}

std::unique_ptr<const engines::plan> make_general_plan(std::string_view name, const problem &p,
    const architecture &on, tile_kind kind, const engines::plan_limits &limits) {
    const prediction made = predict_general(p, on, kind, limits);
    if (p.what == pass::backward_weights) {
        auto built = std::make_unique<weights_plan>(name, p, kind, limits);
        built->set_facts(on, made);
        return built;
    }
    auto built = std::make_unique<data_plan>(name, p, kind);
    built->set_facts(on, made);
    return built;
}

}  // namespace convgrad::cuda
