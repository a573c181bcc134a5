#include "cuda/wgmma.hpp"

#include <algorithm>
#include <cstdint>

#include "cuda/dense.hpp"
#include "cuda/operand.hpp"

namespace convgrad::cuda {
namespace {

using conv::pass;
using conv::problem;

bool is_split(const problem &p) {
    return p.type == data_type::f32 && !is_fast(p);
}

/// What is computed: the problem of merged groups.
struct shape : merged_data {
    int columns;  // of a tile

    explicit shape(const problem &p)
        : merged_data(p, wgmma_merged_channels, is_split(p)),
          columns(out <= 32                           ? 32
                  : out <= 64 || (out - 1) % 128 < 64 ? 64
                                                      : 128) {}
    /// Lines of 128 bytes hold several taps, or a tap takes several lines.
    [[nodiscard]] wide tap_pieces() const {
        const wide n = input.pieces();
        return n <= 2 ? n : n <= 4 ? 4 : 8;
    }
    [[nodiscard]] wide lines() const { return cover(input.pieces(), 8); }
};

kernel kernel_for(const problem &p, int columns) {
    const kernel rows[] = {
        kernel::wgmma_data_n32_f32, kernel::wgmma_data_n64_f32, kernel::wgmma_data_n128_f32};
    const kernel fast[] = {
        kernel::wgmma_data_n32_tf32, kernel::wgmma_data_n64_tf32, kernel::wgmma_data_n128_tf32};
    const int which = columns == 32 ? 0 : columns == 64 ? 1 : 2;
    return is_fast(p) ? fast[which] : of_type(rows[which], p.type);
}

class wgmma_plan final : public plan {
public:
    wgmma_plan(
        std::string_view name, const problem &p, const architecture &on, const prediction &made)
        : problem_(p), shape_(p) {
        const data_args cut = make_data_args(shape_.merged, wgmma_rows, shape_.columns);
        args_.data = make_data_args(p, wgmma_rows, shape_.columns);
        args_.data.tiles_m = cut.tiles_m;
        args_.data.tiles_n = cut.tiles_n;
        args_.data.tiles = cut.tiles;
        args_.groups = shape_.merged.groups;
        args_.channels = static_cast<int>(shape_.channels());
        args_.out_channels = static_cast<int>(shape_.out);
        args_.weights_row = taps_of(p) * args_.channels;
        args_.small = is_split(p) ? shape_.weights.elements() : 0;
        args_.tap_pieces = static_cast<int>(shape_.tap_pieces());
        args_.lines = static_cast<int>(shape_.lines());
        const conv::data_strides &out = is_backward(p) ? p.src : p.dst;
        pairs_ = out.c == 1 && shape_.out % 2 == 0 && out.n % 2 == 0 && out.x[0] % 2 == 0
                 && out.x[1] % 2 == 0 && out.x[2] % 2 == 0;
        args_.plain = p.bias || p.add || p.accumulate || p.relu ? 0 : 1;
        set_facts(
            name, on, made, is_fast(p) ? engines::accuracy::fast : engines::accuracy::accurate);
    }
    [[nodiscard]] std::string describe() const override {
        return "tile " + std::to_string(wgmma_rows) + "x" + std::to_string(shape_.columns) + ", "
               + std::to_string(args_.data.tiles) + " blocks" + shape_.describe();
    }

private:
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        const auto is_aligned = [](const void *at, std::size_t to) {
            return reinterpret_cast<std::uintptr_t>(at) % to == 0;
        };
        wgmma_args args = args_;
        args.data.in = is_backward(problem_) ? data.dst : data.src;
        args.data.weights = data.weights;
        bind(args.data.end, problem_, data);
        args.pairs = pairs_ && is_aligned(args.data.end.out, 2 * size_of(problem_.type)) ? 1 : 0;
        auto *const room = static_cast<std::byte *>(workspace);
        args.weights = shape_.weights.read(data.weights, room + shape_.input.bytes(), on);
        const operand::place in = shape_.input.read(args.data.in, room, on);
        args.in = in.data;
        args.in_n = in.strides.n;
        std::copy_n(in.strides.x, 3, args.in_x);
        args.in_group = in.group;
        on.launch(kernel_for(problem_, shape_.columns), args.data.tiles, wgmma_threads, &args,
            static_cast<std::size_t>(wgmma_shared(shape_.columns, is_split(problem_) ? 2 : 1)));
    }

    problem problem_;
    shape shape_;
    wgmma_args args_{};
    bool pairs_ = false;
};

}  // namespace

wide merged_groups(const problem &p, wide channels) {
    wide best = 1;
    for (wide n = 2; n <= p.groups && n * std::max(p.ic, p.oc) <= channels; ++n)
        if (p.groups % n == 0) best = n;
    return best;
}

problem merge(const problem &p, wide groups) {
    problem merged = p;
    merged.groups /= groups;
    merged.ic *= groups;
    merged.oc *= groups;
    return merged;
}

std::string refuse_wgmma(const problem &p) {
    if (p.what == pass::backward_weights) return refuse_dense_weights(p);
    if (!fits_32_bits(p)) return "sizes need 64-bit indices";
    if (taps_of(p) > wgmma_most_taps)
        return "more than " + std::to_string(wgmma_most_taps) + " taps";
    if (make_data_args(p, wgmma_rows, 32).tiles >= wide{1} << 31) return "too many tiles";
    // Products of split values drop what lies below their last bit, which shows in short sums.
    constexpr wide shortest = 3;
    if ((is_backward(p) ? p.oc : p.ic) < shortest) return "fewer than 3 channels in a sum";
    return {};
}

prediction predict_wgmma(
    const problem &p, const architecture &on, const engines::plan_limits &limits) {
    if (p.what == pass::backward_weights) return predict_wgmma_weights(p, on, limits);
    prediction made;
    const shape s(p);
    made.workspace = s.workspace();
    const data_args a = make_data_args(s.merged, wgmma_rows, s.columns);
    double phases = 1;
    for (const wide n : a.phases) phases *= static_cast<double>(n);
    // Bytes of lines, which tap after tap come from the second-level cache.
    const double lines = static_cast<double>(s.lines() * cover(taps_of(p), 8 / s.tap_pieces()))
                         / phases,
                 tiles = std::max(264.0, static_cast<double>(a.tiles));
    const int copies = is_split(p) ? 2 : 1;
    const double products = is_split(p) ? 6 : is_fast(p) ? 2 : 1;
    const double macs = tiles * wgmma_rows * s.columns * lines * 128
                        / static_cast<double>(size_of(p.type)) * products;
    const double bytes = tiles * (wgmma_rows + s.columns * copies) * lines * 128;
    // Pairs of 16-bit values are half a sector, and a part of one costs as much as all.
    const wide stored = is_backward(p)
                            ? p.mb * p.groups * p.ic * p.x[0].src * p.x[1].src * p.x[2].src
                            : positions_of(p) * p.groups * p.oc;
    // Planes of f32 are stored by sectors too, whose lines are far from each other: longer sums
    // hide it.
    const bool planes = (is_backward(p) ? p.src : p.dst).c != 1 && taps_of(p) == 1;
    const double pieces = static_cast<double>(stored)
                          * (p.type != data_type::f32 ? 4
                              : planes                ? 7
                                                      : 0);
    made.seconds = 8e-6 + s.packing_seconds(on) + pieces / on.memory
                   + std::max({least_bytes(p) / on.memory, macs / (on.tensor * 0.7),
                       bytes / (on.memory * 1.1)});
    return made;
}

std::unique_ptr<const engines::plan> make_wgmma_plan(std::string_view name, const problem &p,
    const architecture &on, const engines::plan_limits &limits) {
    if (p.what == pass::backward_weights) return make_wgmma_weights_plan(name, p, on, limits);
    return std::make_unique<wgmma_plan>(name, p, on, predict_wgmma(p, on, limits));
}

}  // namespace convgrad::cuda
