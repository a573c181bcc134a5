// Data passes of 16-bit types through Hopper's copy engine.
#include "cuda/bulk.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "cuda/kernels/phases.hpp"
#include "cuda/operand.hpp"
#include "cuda/wgmma.hpp"

namespace convgrad::cuda {
namespace {

using conv::pass;
using conv::problem;

constexpr wide line = 64;             // channels
constexpr wide merged_channels = 64;  // of groups of few

std::atomic<int> only_tile{-1};

/// What is computed: the problem of merged groups.
struct shape : merged_data {
    bulk_tile_size tile;
    double seconds = 1e30;  // of the products

    explicit shape(const problem &p)
        : merged_data(p, merged_channels, false), tile(bulk_tile_sizes[0]) {
        for (const bulk_tile_size &t : allowed_tiles()) {
            const data_args cut = make_data_args(merged, t.rows, t.columns);
            const double steps =
                static_cast<double>(taps_of(p) * lines()) / static_cast<double>(phases_of(cut));
            const double needs = bulk_seconds(t, cut.tiles, steps, t.columns);
            if (needs >= seconds) continue;
            seconds = needs;
            tile = t;
        }
    }
    [[nodiscard]] wide lines() const { return cover(in, line); }
};

class bulk_plan final : public plan {
public:
    bulk_plan(
        std::string_view name, const problem &p, const architecture &on, const prediction &made)
        : problem_(p), shape_(p) {
        const bulk_tile_size &tile = shape_.tile;
        const data_args cut = make_data_args(shape_.merged, tile.rows, tile.columns);
        args_.data = make_data_args(p, tile.rows, tile.columns);
        args_.data.tiles_m = cut.tiles_m;
        args_.data.tiles_n = cut.tiles_n;
        args_.data.tiles = cut.tiles;
        args_.groups = static_cast<int>(shape_.merged.groups);
        args_.out_channels = static_cast<int>(shape_.out);
        args_.lines = static_cast<int>(shape_.lines());
        args_.three_axes = has_three_axes(p) ? 1 : 0;
        for (std::size_t d = 0; d < 3; ++d) {
            args_.step[d] = is_backward(p) ? 1 : static_cast<int>(p.x[d].stride);
            args_.out_step[d] = is_backward(p) ? static_cast<int>(p.x[d].stride) : 1;
        }
        for (int i = 0; i < phases_of(cut); ++i) {
            phases_.push_back(find_phase(p, args_.data, i));
            args_.phase[i] = phases_.back().args;
        }
        store_ = find_store(p, shape_.out, 0);
        set_facts(name, on, made, engines::accuracy::accurate);
    }
    [[nodiscard]] std::string describe() const override {
        return "tile " + std::to_string(shape_.tile.rows) + "x"
               + std::to_string(shape_.tile.columns) + ", " + std::to_string(args_.data.tiles)
               + " tiles" + shape_.describe();
    }

private:
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        const problem &p = problem_;
        const bulk_tile_size &tile = shape_.tile;
        bulk_args args = args_;
        const operand::place in = bind(args, p, shape_, store_, tile.columns, data, workspace, on);
        if (args.by_engine != 0)
            args.out = map_outputs(on, p, args.data.end.out, shape_.out, position_pitch(p));
        for (std::size_t i = 0; i < phases_.size(); ++i)
            if (!phases_[i].is_empty)
                args.in[i] = map_pixels(on, p.type, in.data, in.strides, p.mb,
                    shape_.merged.groups * in.group, phases_[i].axes, args.three_axes != 0,
                    tile.rows);
        const kernel first = args.turned_weights != 0 ? kernel::bulk_turned_256x64_bf16
                                                      : kernel::bulk_data_256x64_bf16;
        on.launch(bulk_kernel(first, tile, p.type),
            std::min<wide>(args.data.tiles, wide{on.on().multiprocessors} * tile.at_once),
            tile.threads, &args, static_cast<std::size_t>(tile.shared));
    }

    problem problem_;
    shape shape_;
    std::vector<phase_walk> phases_;
    bulk_args args_{};
    store_form store_{};
};

}  // namespace

std::span<const bulk_tile_size> allowed_tiles() {
    const std::span all(bulk_tile_sizes);
    const int only = only_tile.load(std::memory_order_relaxed);
    return only < 0 ? all : all.subspan(static_cast<std::size_t>(only), 1);
}

void limit_tiles_for_testing(int index) {
    only_tile = index;
}

phase_walk find_phase(const problem &p, const data_args &a, int number) {
    phase_walk made;
    for (std::size_t d = 3; d-- > 0;) {
        const int phases = static_cast<int>(a.phases[d]);
        const axis_phase<int> f = make_phase<int>(a.x[d], is_backward(p), number % phases);
        number /= phases;
        bulk_phase &b = made.args;
        const int reach = f.shift * (f.taps - 1);
        b.count[d] = f.count;
        b.taps[d] = f.taps;
        b.first_tap[d] = f.tap_first;
        b.tap_step[d] = f.tap_step;
        b.start[d] = f.in_first + std::min(0, reach);
        b.offset[d] = std::max(0, -reach);
        b.offset_step[d] = f.shift;
        b.out_first[d] = f.out_first;
        made.is_empty = made.is_empty || f.taps == 0 || f.count == 0;
        if (f.taps == 0 || f.count == 0) continue;
        made.axes[d] = {f.in, b.start[d], f.count, f.in_step, std::max(reach, -reach)};
    }
    return made;
}

store_form find_store(const problem &p, wide channels, wide row) {
    const conv::data_strides &out = is_backward(p) ? p.src : p.dst;
    const auto length = [&](std::size_t d) { return is_backward(p) ? p.x[d].src : p.x[d].dst; };
    store_form form{out.c == 1 && channels % 8 == 0 && out.n % 8 == 0 && out.x[0] % 8 == 0
                        && out.x[1] % 8 == 0 && out.x[2] % 8 == 0,
        1};
    form.by_engine = form.along_channels && row == 0 && position_pitch(p) != 0;
    wide next = 1;
    for (std::size_t d = 3; d-- > 0; next *= length(d)) {
        if (is_backward(p) && p.x[d].stride != 1) return form;
        if (length(d) != 1 && out.x[d] != next && (d == 2 || row == 0)) return form;
    }
    form.unit = 8;
    const wide run = row == 0 ? next : length(2);
    while (run % form.unit != 0 || row % form.unit != 0 || out.n % form.unit != 0
           || out.c % form.unit != 0 || (row != 0 && out.x[1] % form.unit != 0))
        form.unit /= 2;
    return form;
}

operand::place bind(bulk_args &args, const problem &p, const merged_data &what,
    const store_form &store, int columns, const conv::buffers &data, void *workspace,
    const lane &on) {
    args.data.in = is_backward(p) ? data.dst : data.src;
    args.data.weights = data.weights;
    bind(args.data.end, p, data);
    const auto out = reinterpret_cast<std::uintptr_t>(args.data.end.out);
    args.along_channels = store.along_channels && out % 16 == 0 ? 1 : 0;
    args.by_engine = store.by_engine && args.along_channels != 0 ? 1 : 0;
    args.unit = store.unit;
    while (out % (2 * static_cast<std::uintptr_t>(args.unit)) != 0) args.unit /= 2;
    auto *const room = static_cast<std::byte *>(workspace);
    const operand::place in = what.input.read(args.data.in, room, on);
    args.channels = static_cast<int>(in.group);
    const weights_operand::turned_form *const turned = what.weights.turned(data.weights);
    args.turned_weights = turned != nullptr ? 1 : 0;
    if (turned != nullptr) {
        args.weights = map_turned_weights(on, p.type, data.weights, *turned, line);
        return in;
    }
    const void *const weights = what.weights.read(data.weights, room + what.input.bytes(), on);
    args.weights = map_weights(
        on, p.type, weights, what.merged.groups * what.out, taps_of(p), what.channels(), columns);
    return in;
}

double store_form::seconds(const problem &p, const architecture &on) const {
    if (along_channels || unit == 8) return 0;
    const wide stored = is_backward(p)
                            ? p.mb * p.groups * p.ic * p.x[0].src * p.x[1].src * p.x[2].src
                            : positions_of(p) * p.groups * p.oc;
    return static_cast<double>(stored) * (unit == 4 ? 1 : 3) / on.memory;
}

double bulk_seconds(const bulk_tile_size &tile, wide tiles, double steps, double columns) {
    // What a tile starts and ends with is hidden where there are two, but the last of an odd number
    // is alone.
    const double area = static_cast<double>(tile.rows) * tile.columns;
    const double step = std::max(area * 64 / nominal::products,
        static_cast<double>(tile.rows + tile.columns) * 128 / tile.rate);
    const wide whole = nominal::rounds(tiles);
    const double rounds =
        static_cast<double>(whole) + (tile.at_once == 2 && whole > 1 && whole % 2 == 1 ? 0.5 : 0);
    const double ends =
        (nominal::tile_start + tile.rows * columns / nominal::stored) / tile.at_once;
    return rounds * (steps * step + ends) / nominal::clock;
}

std::string refuse_bulk(const problem &p) {
    if (p.type == data_type::f32) return "for 16-bit types";
    if (!fits_32_bits(p)) return "sizes need 64-bit indices";
    if (p.what == pass::backward_weights) return refuse_bulk_weights(p);
    if (p.add || p.accumulate) return "adds nothing to its sums but a bias";
    if (has_empty_tensor(p)) return "an empty tensor";
    const data_args cut = make_data_args(p, bulk_tile_sizes[0].rows, bulk_tile_sizes[0].columns);
    if (cut.tiles >= wide{1} << 31) return "too many tiles";
    if (phases_of(cut) > bulk_most_phases)
        return "more than " + std::to_string(bulk_most_phases) + " phases of positions";
    for (int i = 0; i < phases_of(cut); ++i) {
        const phase_walk phase = find_phase(p, cut, i);
        if (phase.is_empty) continue;
        if (std::string why = refuse_walk(phase.axes); !why.empty()) return why;
    }
    return {};
}

prediction predict_bulk(
    const problem &p, const architecture &on, const engines::plan_limits &limits) {
    if (p.what == pass::backward_weights) return predict_bulk_weights(p, on, limits);
    prediction made;
    const shape s(p);
    made.workspace = s.workspace();
    made.seconds = 6e-6 + s.packing_seconds(on) + find_store(p, s.out, 0).seconds(p, on)
                   + std::max(least_bytes(p) / on.memory, s.seconds);
    return made;
}

std::unique_ptr<const engines::plan> make_bulk_plan(std::string_view name, const problem &p,
    const architecture &on, const engines::plan_limits &limits) {
    if (p.what == pass::backward_weights) return make_bulk_weights_plan(name, p, on, limits);
    return std::make_unique<bulk_plan>(name, p, on, predict_bulk(p, on, limits));
}

}  // namespace convgrad::cuda
