// Weights gradients of 16-bit types through Hopper's copy engine.
#include <algorithm>
#include <array>
#include <cstdint>

#include "cuda/bulk.hpp"
#include "cuda/operand.hpp"
#include "cuda/wgmma.hpp"

namespace convgrad::cuda {
namespace {

using conv::problem;

constexpr wide line = 64;             // channels
constexpr wide merged_channels = 64;  // of groups of few
constexpr wide depth = 64;            // positions of a stage

using walk = std::array<pixel_axis, 3>;

walk src_walk(const problem &p) {
    const auto axis = [](const conv::axis &a) {
        return pixel_axis(a.src, -a.pad, a.dst, a.stride, (a.kernel - 1) * a.dilation);
    };
    return {axis(p.x[0]), axis(p.x[1]), axis(p.x[2])};
}
walk dst_walk(const problem &p) {
    return {pixel_axis(p.x[0].dst), pixel_axis(p.x[1].dst), pixel_axis(p.x[2].dst)};
}

/// What is computed: the problem of merged groups, in tiles of lines of taps and input channels by
/// output channels, and parts of the positions. By the problem alone.
struct shape {
    wide groups;  // merged to one
    problem merged;
    operand src, dst;
    wide lines;  // of a tap
    weights_cut cut;

    explicit shape(const problem &p)
        : groups(merged_groups(p, merged_channels)), merged(merge(p, groups)), src(merged, true),
          dst(merged, false), lines(cover(merged.ic, line)),
          cut(cut_weights(taps_of(merged) * lines * line, merged.oc, merged.groups,
              cover(positions_of(merged), depth),
              8.0
                  * static_cast<double>(
                      merged.groups * merged.oc * merged.ic / groups * taps_of(merged)))) {}
    [[nodiscard]] std::size_t packed_bytes() const { return src.bytes() + dst.bytes(); }
    /// Sums get what the limit leaves.
    [[nodiscard]] engines::plan_limits rest(const engines::plan_limits &limits) const {
        engines::plan_limits left = limits;
        left.workspace = limits.workspace > packed_bytes() ? limits.workspace - packed_bytes() : 0;
        return left;
    }
};

class bulk_weights_plan final : public plan {
public:
    bulk_weights_plan(std::string_view name, const problem &p, const architecture &on,
        const prediction &made, const engines::plan_limits &limits)
        : problem_(p), shape_(p), sums_(p, shape_.cut.parts, shape_.rest(limits)) {
        weights_args &w = args_.weights;
        w = make_weights_args(p);
        for (std::size_t d = 0; d < 3; ++d) {
            args_.start[d] = static_cast<int>(-p.x[d].pad);
            args_.step[d] = static_cast<int>(p.x[d].stride);
            args_.offset_step[d] = static_cast<int>(p.x[d].dilation);
        }
        w.parts = sums_.parts();
        w.part_length = cover(cover(w.positions, w.parts), depth) * depth;
        w.tiles_m = shape_.cut.tiles_m;
        w.tiles_n = shape_.cut.tiles_n;
        w.tiles = shape_.cut.tiles * w.parts;
        args_.groups = static_cast<int>(shape_.merged.groups);
        args_.merged = static_cast<int>(shape_.groups);
        args_.ic = static_cast<int>(shape_.merged.ic);
        args_.oc = static_cast<int>(shape_.merged.oc);
        args_.lines = static_cast<int>(shape_.lines);
        args_.three_axes = has_three_axes(p) ? 1 : 0;
        wide rest = depth;
        for (std::size_t d = 3; d-- > 0; rest /= p.x[d].dst)
            args_.advance[d] = static_cast<int>(rest % p.x[d].dst);
        args_.advance_image = static_cast<int>(rest);
        set_facts(name, on, made, engines::accuracy::accurate);
    }
    [[nodiscard]] std::string describe() const override {
        const weights_args &w = args_.weights;
        return "tile " + std::to_string(shape_.cut.tile.rows) + "x"
               + std::to_string(shape_.cut.tile.columns) + ", " + std::to_string(w.parts)
               + " parts of " + std::to_string(w.part_length) + " positions"
               + (shape_.groups > 1 ? ", " + std::to_string(shape_.groups) + " groups merged" : "")
               + (shape_.src.direct() ? "" : ", src packed first")
               + (shape_.dst.direct() ? "" : ", diff_dst packed first");
    }

private:
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        const problem &p = problem_;
        const bulk_tile_size &tile = shape_.cut.tile;
        bulk_weights_args args = args_;
        args.weights.src = data.src;
        args.weights.dst = data.dst;
        args.weights.partial = sums_.partial(workspace);
        std::byte *const src_room = static_cast<std::byte *>(workspace) + sums_.workspace(),
                         *const dst_room = src_room + shape_.src.bytes();
        const operand::place src = shape_.src.read(data.src, src_room, on),
                             dst = shape_.dst.read(data.dst, dst_room, on);
        const auto map = [&](const operand::place &of, const walk &axes) {
            return map_pixels(on, p.type, of.data, of.strides, p.mb,
                shape_.merged.groups * of.group, axes, args.three_axes != 0,
                static_cast<int>(depth));
        };
        args.src = map(src, src_walk(p));
        args.dst = map(dst, dst_walk(p));
        args.src_channels = static_cast<int>(src.group);
        args.dst_channels = static_cast<int>(dst.group);
        on.launch(bulk_kernel(kernel::bulk_weights_256x64_bf16, tile, p.type),
            std::min<wide>(args.weights.tiles, wide{on.on().multiprocessors} * tile.at_once),
            tile.threads, &args, static_cast<std::size_t>(tile.shared));
        sums_.finish(p, data, workspace, on);
    }

    problem problem_;
    shape shape_;
    gradient_sums sums_;
    bulk_weights_args args_{};
};

}  // namespace

weights_cut cut_weights(wide rows, wide columns, wide groups, wide steps, double part_bytes) {
    constexpr wide most_parts = 512, most_rounds = 12;
    constexpr double sum_rate = 2.5e12;  // bytes
    weights_cut best;
    steps = std::max<wide>(1, steps);
    for (const bulk_tile_size &t : allowed_tiles()) {
        const wide m = cover(columns, t.columns), n = cover(rows, t.rows), all = m * n * groups;
        // As many parts as fill whole rounds.
        for (wide rounds = 1; rounds <= most_rounds; ++rounds) {
            const wide many =
                std::clamp<wide>(rounds * nominal::multiprocessors / std::max<wide>(1, all), 1,
                    std::min(steps, most_parts));
            const double needs =
                bulk_seconds(t, all * many, static_cast<double>(cover(steps, many)), t.columns)
                + static_cast<double>(many) * part_bytes / sum_rate;
            if (needs < best.seconds) best = {t, m, n, all, many, needs};
        }
    }
    return best;
}

std::string refuse_bulk_weights(const problem &p) {
    if (has_empty_tensor(p)) return "an empty tensor";
    if (std::string why = refuse_walk(src_walk(p)); !why.empty()) return why;
    // However they are cut.
    constexpr wide least_area = 128 * 64, most_parts = 512;
    if (cover(p.oc, line) * cover(taps_of(p) * p.ic, line) * line * line / least_area * p.groups
        >= (wide{1} << 31) / most_parts / 4)
        return "too many tiles";
    return {};
}

prediction predict_bulk_weights(
    const problem &p, const architecture &on, const engines::plan_limits &limits) {
    prediction made;
    const shape s(p);
    const gradient_sums sums(p, s.cut.parts, s.rest(limits));
    made.workspace = sums.workspace() + s.packed_bytes();
    double packed = s.src.direct() ? 0 : static_cast<double>(s.src.bytes());
    if (!s.dst.direct()) packed += static_cast<double>(s.dst.bytes());
    made.seconds =
        9e-6 + packed * 3 / on.memory + std::max(least_bytes(p) / on.memory, s.cut.seconds);
    return made;
}

std::unique_ptr<const engines::plan> make_bulk_weights_plan(std::string_view name, const problem &p,
    const architecture &on, const engines::plan_limits &limits) {
    return std::make_unique<bulk_weights_plan>(
        name, p, on, predict_bulk_weights(p, on, limits), limits);
}

}  // namespace convgrad::cuda
