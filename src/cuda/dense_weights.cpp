// Weights gradients on tensor cores.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "cuda/bulk.hpp"
#include "cuda/dense.hpp"
#include "cuda/operand.hpp"
#include "cuda/wgmma.hpp"

namespace convgrad::cuda {
namespace {

using conv::problem;

/// What is computed: the problem of merged groups, in tiles of output channels by taps and input
/// channels.
struct shape {
    bool warpgroups;
    wide groups;  // merged to one
    problem merged;
    operand src, dst;
    wide rows, columns;            // of a tile
    wide tiles_m, tiles_n, tiles;  // of one part

    shape(const problem &p, bool by_warpgroups)
        : warpgroups(by_warpgroups), groups(merged_groups(p)), merged(merge(p, groups)),
          src(merged, true), dst(merged, false), rows(dense_weights_rows),
          columns(dense_weights_columns) {
        const wide oc = merged.oc;
        if (warpgroups) {
            columns = wgmma_rows;
            rows = oc <= 32 ? 32 : oc <= 64 || (oc - 1) % 128 < 64 ? 64 : 128;
        }
        tiles_m = cover(oc, rows);
        tiles_n =
            cover(taps_of(p) * src.pieces() * 16, columns * static_cast<wide>(size_of(p.type)));
        tiles = tiles_m * tiles_n * merged.groups;
    }
    [[nodiscard]] bool is_f32() const { return merged.type == data_type::f32; }
    [[nodiscard]] bool is_split() const { return is_f32() && !is_fast(merged); }
    /// The tensor unit takes f32 by rows along the sum alone.
    [[nodiscard]] bool turns() const { return warpgroups && is_f32(); }
    [[nodiscard]] std::size_t dst_bytes() const {
        return turns() ? dst.turned_bytes(is_split()) : dst.bytes();
    }
    /// By the problem alone: as few rounds of blocks on a nominal large device as make up for the
    /// sums of parts and for what each block starts with.
    [[nodiscard]] wide wanted_parts() const {
        const wide at_once = has_roles() ? 132 : 264;
        constexpr wide most_parts = 512, start = 10;            // start: in steps
        constexpr double step_seconds = 2e-6, sum_rate = 2e12;  // bytes, written and read
        const wide steps = std::max<wide>(
            1, cover(positions_of(merged) * static_cast<wide>(size_of(merged.type)), 128));
        const double part_bytes =
            8.0
            * static_cast<double>(merged.groups * merged.oc * merged.ic / groups * taps_of(merged));
        wide best = 1;
        double least = 1e30;
        for (wide parts = 1; parts <= std::min(steps, most_parts); ++parts) {
            const wide rounds = cover(std::max<wide>(1, tiles) * parts, at_once);
            const double seconds =
                static_cast<double>(rounds * (cover(steps, parts) + start)) * step_seconds
                + static_cast<double>(parts) * part_bytes / sum_rate;
            if (seconds >= least) continue;
            least = seconds;
            best = parts;
        }
        return best;
    }
    /// Sums get what the limit leaves.
    [[nodiscard]] engines::plan_limits rest(const engines::plan_limits &limits) const {
        engines::plan_limits left = limits;
        const std::size_t packed = src.bytes() + dst_bytes();
        left.workspace = limits.workspace > packed ? limits.workspace - packed : 0;
        return left;
    }
    [[nodiscard]] kernel code() const {
        constexpr kernel exact[] = {kernel::wgmma_weights_n32_f32, kernel::wgmma_weights_n64_f32,
            kernel::wgmma_weights_n128_f32};
        constexpr kernel fast[] = {kernel::wgmma_weights_n32_tf32, kernel::wgmma_weights_n64_tf32,
            kernel::wgmma_weights_n128_tf32};
        if (!warpgroups)
            return is_fast(merged) ? kernel::dense_weights_tf32
                                   : of_type(kernel::dense_weights_f32, merged.type);
        const int which = rows == 32 ? 0 : rows == 64 ? 1 : 2;
        return is_fast(merged) ? fast[which] : of_type(exact[which], merged.type);
    }
    /// Whether a warpgroup more copies.
    [[nodiscard]] bool has_roles() const { return warpgroups && is_f32() && rows >= 64; }
    [[nodiscard]] int shared() const {
        return !warpgroups   ? dense_weights_shared
               : has_roles() ? wgmma_roles_shared(static_cast<int>(rows), is_split() ? 2 : 1)
                             : wgmma_weights_shared;
    }
    [[nodiscard]] int threads() const {
        return !warpgroups   ? dense_weights_threads
               : has_roles() ? wgmma_roles_threads
                             : wgmma_threads;
    }
};

class dense_weights_plan final : public plan {
public:
    dense_weights_plan(std::string_view name, const problem &p, bool warpgroups,
        const architecture &on, const prediction &made, const engines::plan_limits &limits)
        : problem_(p), shape_(p, warpgroups), sums_(p, shape_.wanted_parts(), shape_.rest(limits)) {
        weights_args &w = args_.weights;
        w = make_weights_args(p);
        w.parts = sums_.parts();
        const wide depth = 128 / static_cast<wide>(size_of(p.type));
        w.part_length = cover(cover(w.positions, w.parts), depth) * depth;
        w.tiles_m = shape_.tiles_m;
        w.tiles_n = shape_.tiles_n;
        w.tiles = shape_.tiles * w.parts;
        args_.groups = shape_.merged.groups;
        args_.merged = shape_.groups;
        args_.ic = static_cast<int>(shape_.merged.ic);
        args_.oc = static_cast<int>(shape_.merged.oc);
        args_.tap_pieces = static_cast<int>(shape_.src.pieces());
        args_.turned_row = shape_.dst.turned_row();
        args_.small =
            shape_.is_split() ? args_.turned_row * shape_.merged.groups * shape_.merged.oc : 0;
        set_facts(
            name, on, made, is_fast(p) ? engines::accuracy::fast : engines::accuracy::accurate);
    }
    [[nodiscard]] std::string describe() const override {
        const weights_args &w = args_.weights;
        return "tile " + std::to_string(shape_.rows) + "x" + std::to_string(shape_.columns) + ", "
               + std::to_string(w.parts) + " parts of " + std::to_string(w.part_length)
               + " positions"
               + (shape_.groups > 1 ? ", " + std::to_string(shape_.groups) + " groups merged" : "")
               + (shape_.src.direct() ? "" : ", src packed first")
               + (shape_.turns()         ? ", diff_dst turned first"
                   : shape_.dst.direct() ? ""
                                         : ", diff_dst packed first");
    }

private:
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        dense_weights_args args = args_;
        args.weights.src = data.src;
        args.weights.dst = data.dst;
        args.weights.partial = sums_.partial(workspace);
        std::byte *const src_room = static_cast<std::byte *>(workspace) + sums_.workspace(),
                         *const dst_room = src_room + shape_.src.bytes();
        const operand::place src = shape_.src.read(data.src, src_room, on);
        args.src = src.data;
        args.src_strides = src.strides;
        args.src_group = src.group;
        if (shape_.turns()) {
            shape_.dst.turn(data.dst, dst_room, shape_.is_split(), on);
            args.dst = dst_room;
            if (shape_.has_roles())
                args.turned = map_turned_rows(on, reinterpret_cast<const float *>(dst_room),
                    args.turned_row, args.groups * args.oc, shape_.is_split() ? 2 : 1,
                    static_cast<int>(shape_.rows));
        } else {
            const operand::place dst = shape_.dst.read(data.dst, dst_room, on);
            args.dst = dst.data;
            args.dst_strides = dst.strides;
            args.dst_group = dst.group;
        }
        on.launch(shape_.code(), args.weights.tiles, shape_.threads(), &args,
            static_cast<std::size_t>(shape_.shared()));
        sums_.finish(problem_, data, workspace, on);
    }

    problem problem_;
    shape shape_;
    gradient_sums sums_;
    dense_weights_args args_{};
};

/// The fewest positions that any weight's sum has, of weights that have some.
wide fewest_terms(const problem &p) {
    wide fewest = p.mb;
    for (const conv::axis &a : p.x) {
        wide least = a.dst;
        for (wide k = 0; k < a.kernel; ++k) {
            // Positions y with 0 <= y·stride + k·dilation - pad < src.
            const wide from = a.pad - k * a.dilation;
            const wide first = std::clamp<wide>(from <= 0 ? 0 : cover(from, a.stride), 0, a.dst);
            const wide behind = a.src + from;
            const wide last = std::clamp<wide>(behind <= 0 ? 0 : cover(behind, a.stride), 0, a.dst);
            if (last > first) least = std::min(least, last - first);
        }
        fewest *= least;
    }
    return fewest;
}

}  // namespace

std::string refuse_dense_weights(const problem &p) {
    if (!fits_32_bits(p)) return "sizes need 64-bit indices";
    // Products of split values drop what lies below their last bit, which shows in short sums.
    constexpr wide shortest = 8;
    if (p.type == data_type::f32 && fewest_terms(p) < shortest)
        return "fewer than 8 positions in a sum";
    return {};
}

namespace {

prediction predict_weights(
    const problem &p, bool warpgroups, const architecture &on, const engines::plan_limits &limits) {
    prediction made;
    const shape s(p, warpgroups);
    const gradient_sums sums(p, s.wanted_parts(), s.rest(limits));
    made.workspace = sums.workspace() + s.src.bytes() + s.dst_bytes();
    const double blocks = static_cast<double>(s.tiles * sums.parts());
    // Blocks that run at once; one product is so short that the last ones count.
    const double at_once = s.has_roles() ? 132 : 264;
    const double rounds = is_fast(p) && !warpgroups ? std::ceil(blocks / at_once) : 1;
    const double macs = static_cast<double>(s.tiles * s.rows * s.columns)
                        * static_cast<double>(positions_of(p))
                        * std::max(1.0, rounds * at_once / std::max(1.0, blocks));
    // Shares of the tensor rate, as measured on an H200, whose `mma` reaches less of it than older
    // ones do; f32 takes three products at half of it.
    const double older = on.warpgroups ? 1 : 2;
    const bool wide_tiles = s.rows > 64;
    double share = (p.type != data_type::f32 ? 0.085 : is_fast(p) ? 0.083 : 0.052) * older;
    if (warpgroups)
        share = p.type != data_type::f32 ? 0.2
                : is_fast(p)             ? (wide_tiles ? 0.15 : 0.092)
                                         : (wide_tiles ? 0.089 : 0.064);
    double packed = s.src.direct() ? 0 : static_cast<double>(s.src.bytes());
    if (s.turns() || !s.dst.direct()) packed += static_cast<double>(s.dst_bytes());
    made.seconds = 1e-5 + (packed * 3 + static_cast<double>(sums.workspace()) * 2) / on.memory
                   + std::max(least_bytes(p) / on.memory, macs / (on.tensor * share));
    return made;
}

}  // namespace

prediction predict_dense_weights(
    const problem &p, const architecture &on, const engines::plan_limits &limits) {
    return predict_weights(p, false, on, limits);
}
prediction predict_wgmma_weights(
    const problem &p, const architecture &on, const engines::plan_limits &limits) {
    return predict_weights(p, true, on, limits);
}

std::unique_ptr<const engines::plan> make_dense_weights_plan(std::string_view name,
    const problem &p, const architecture &on, const engines::plan_limits &limits) {
    return std::make_unique<dense_weights_plan>(
        name, p, false, on, predict_dense_weights(p, on, limits), limits);
}
std::unique_ptr<const engines::plan> make_wgmma_weights_plan(std::string_view name,
    const problem &p, const architecture &on, const engines::plan_limits &limits) {
    return std::make_unique<dense_weights_plan>(
        name, p, true, on, predict_wgmma_weights(p, on, limits), limits);
}

}  // namespace convgrad::cuda
