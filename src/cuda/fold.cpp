#include "cuda/fold.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "cuda/bulk.hpp"
#include "cuda/kernels/fold_args.hpp"
#include "cuda/operand.hpp"

namespace convgrad::cuda {
namespace {

using conv::pass;
using conv::problem;

bool is_split(const problem &p) {
    return p.type == data_type::f32 && !is_fast(p);
}

/// One axis: which cells taps reach, and how long lines of positions and cells are.
struct fold_axis {
    wide cells, least = 0, most = 0, length;

    explicit fold_axis(const conv::axis &a) : cells(cover(a.src, a.stride)) {
        const data_axis_args of = to_args(a, true);
        least = most = find_fold_tap(of, 0).moved;
        for (int k = 1; k < a.kernel; ++k) {
            const int moved = find_fold_tap(of, k).moved;
            least = std::min<wide>(least, moved);
            most = std::max<wide>(most, moved);
        }
        // What lies before the first cell of a line lies behind the last one of the line before.
        const wide first = std::min<wide>(0, least), last = std::max(cells, a.dst + most);
        length = std::max<wide>(2, last - first);
    }
};

/// Lists columns (a tap and a channel) by slot, and puts them in groups of eight different slots:
/// the slots with most columns left go first, so that there are as few groups as can be.
class column_order {
public:
    column_order(const problem &p, fold_args &to) {
        const data_args a = make_data_args(p, 1, 1);
        const int channels = static_cast<int>(p.ic), taps = static_cast<int>(taps_of(p));
        std::vector<std::vector<int>> left(static_cast<std::size_t>(to.slots));
        for (int column = 0; column < taps * channels; ++column) {
            int tap = column / channels, slot = 0, slots = 1;
            for (std::size_t d = 3; d-- > 0;) {
                const int kernel = static_cast<int>(a.x[d].kernel);
                slot += find_fold_tap(a.x[d], tap % kernel).rest * slots;
                slots *= static_cast<int>(a.x[d].stride);
                tap /= kernel;
            }
            const int channel = column % channels;
            slot = to.channels_inside != 0 ? slot * channels + channel : channel * slots + slot;
            slot -= to.first_slot;
            if (slot >= 0 && slot < to.slots)
                left[static_cast<std::size_t>(slot)].push_back(column);
        }
        std::vector<bool> used(left.size(), false);
        for (;;) {
            const std::vector<std::size_t> group = take_group(left);
            if (group.empty()) break;
            if (groups == fold_most_columns / fold_group) {
                fits = false;
                break;
            }
            add(group, left, used, to);
        }
        to.columns = groups * fold_group;
    }
    bool fits = true;

private:
    static std::vector<std::size_t> take_group(const std::vector<std::vector<int>> &left) {
        std::vector<std::size_t> slots;
        for (std::size_t i = 0; i < left.size(); ++i)
            if (!left[i].empty()) slots.push_back(i);
        std::stable_sort(slots.begin(), slots.end(),
            [&](std::size_t a, std::size_t b) { return left[a].size() > left[b].size(); });
        if (slots.size() > fold_group) slots.resize(fold_group);
        std::sort(slots.begin(), slots.end());
        return slots;
    }
    void add(const std::vector<std::size_t> &group, std::vector<std::vector<int>> &left,
        std::vector<bool> &used, fold_args &to) {
        // Threads meet before a slot is added to again.
        if (std::any_of(group.begin(), group.end(), [&](std::size_t i) { return used[i]; })) {
            to.meet |= std::uint64_t{1} << groups;
            std::fill(used.begin(), used.end(), false);
        }
        std::uint16_t *const order = to.order + groups * fold_group;
        std::fill_n(order, fold_group, fold_no_column);
        for (std::size_t i = 0; i < group.size(); ++i) {
            order[i] = static_cast<std::uint16_t>(left[group[i]].back());
            left[group[i]].pop_back();
            used[group[i]] = true;
        }
        ++groups;
    }
    int groups = 0;
};

constexpr std::uint32_t magic_of(wide length) {
    return static_cast<std::uint32_t>(
        (std::uint64_t{1} << 32) / static_cast<std::uint64_t>(length) + 1);
}

/// What is computed, and in which pieces: one of so many parts of each cell's results.
struct shape {
    fold_args args{};
    int width = 32;  // columns of a product
    int warpgroups = 0, shared = 0;
    double tiles = 0;  // of 64 positions, one after the other
    std::string refusal;

    shape(const problem &p, const operand &input, wide part, wide parts) {
        const fold_axis axes[3] = {fold_axis(p.x[0]), fold_axis(p.x[1]), fold_axis(p.x[2])};
        find_slots(p, part, parts);
        if (refusal.empty()) find_cells(axes);
        if (!refusal.empty()) return;
        if (!column_order(p, args).fits) {
            refusal = "more weights of a position than a product takes";
            return;
        }
        const bool wider = cover(args.columns, 64) * 10 <= cover(args.columns, 32) * 6;
        width = wider ? 64 : 32;
        args.chunks = static_cast<int>(cover(args.columns, width));
        args.pieces = static_cast<int>(input.pieces());
        args.lines = static_cast<int>(cover(args.pieces, 8));
        args.padded = args.lines * 128 / static_cast<int>(size_of(p.type));
        args.small = is_split(p) ? wide{args.chunks} * width * args.padded : 0;
        find_room(p);
        if (refusal.empty()) cut(p.mb);
    }
    [[nodiscard]] std::size_t weights_bytes(const problem &p) const {
        return static_cast<std::size_t>(args.chunks) * static_cast<std::size_t>(width)
               * static_cast<std::size_t>(args.padded) * size_of(p.type) * (is_split(p) ? 2 : 1);
    }

private:
    void find_slots(const problem &p, wide part, wide parts) {
        args.channels_inside = p.src.c == 1 ? 1 : 0;
        const wide run = p.x[2].stride * (args.channels_inside != 0 ? p.ic : 1);
        wide all = p.ic;
        for (const conv::axis &a : p.x) all *= a.stride;
        const wide slots = cover(all / run, parts) * run, first = part * slots;
        args.first_slot = static_cast<int>(first);
        args.slots = static_cast<int>(std::min(slots, all - first));
        args.run = static_cast<int>(run);
        args.run_magic = run == 1 ? 0 : magic_of(run);
        args.pairs = run % 2 == 0 && p.src.x[2] == run / p.x[2].stride && p.src.n % 2 == 0
                             && p.src.x[0] % 2 == 0 && p.src.x[1] % 2 == 0
                             && (args.channels_inside != 0 || p.src.c % 2 == 0)
                         ? 1
                         : 0;
        if (first >= all)
            refusal = "fewer results than parts of them";
        else if (args.slots > fold_most_slots)
            refusal = "more results of a position than sums have room for";
    }
    void find_cells(const fold_axis (&axes)[3]) {
        wide lines = 0, end = 0;
        const wide plane = axes[1].length * axes[2].length;
        const auto moved = [&](wide fold_axis::*which) {
            return axes[0].*which * plane + axes[1].*which * axes[2].length + axes[2].*which;
        };
        const wide reach = moved(&fold_axis::most) - moved(&fold_axis::least);
        lines = (axes[0].cells - 1) * axes[1].length + axes[1].cells;
        end = (axes[0].length + 2) * plane + reach + std::abs(moved(&fold_axis::least));
        constexpr wide most = wide{1} << 30, most_reach = 4096;
        if (end >= most || end * std::max(axes[2].length, axes[1].length) >= most * 4
            || reach > most_reach) {
            refusal = "taps or lines too far apart";
            return;
        }
        args.width = static_cast<int>(axes[2].length);
        args.height = static_cast<int>(axes[1].length);
        args.width_magic = magic_of(axes[2].length);
        args.height_magic = magic_of(axes[1].length);
        for (std::size_t d = 0; d < 3; ++d) args.cells[d] = static_cast<int>(axes[d].cells);
        args.cell_lines = static_cast<int>(lines);
        args.move_min = static_cast<int>(moved(&fold_axis::least));
        args.reach = static_cast<int>(reach);
        args.ring = static_cast<int>(
            std::bit_ceil(static_cast<unsigned>(fold_rows) + static_cast<unsigned>(reach)));
    }
    void find_room(const problem &p) {
        const wide common = wide{args.chunks} * width * args.lines * 128 * (is_split(p) ? 2 : 1);
        if (common <= fold_most_shared) {
            const int own = fold_own(args.lines, args.slots, args.ring),
                      all = fold_common(
                          args.chunks * width, args.lines, is_split(p) ? 2 : 1, args.slots);
            warpgroups = std::clamp(
                (fold_most_shared - all) / own, 0, fold_most_warpgroups(width, size_of(p.type)));
            shared = all + own * warpgroups;
        }
        if (warpgroups == 0) refusal = "more weights or sums than shared memory holds";
    }
    /// By the problem alone: as many segments as keep a nominal device busy, and no more: each
    /// begins with what the last taps of the one before reach.
    void cut(wide images) {
        const wide at_once = nominal::multiprocessors * warpgroups;
        double least = 1e30;
        constexpr wide most_segments = 512;
        for (wide n = 1; n <= std::min<wide>(args.cell_lines, most_segments); ++n) {
            const wide lines = cover(args.cell_lines, n),
                       rounds = cover(images * cover(args.cell_lines, lines), at_once);
            const wide of_item =
                cover(args.reach, fold_rows) + cover(lines * args.width, fold_rows);
            constexpr double start = 1;  // of a segment, in tiles
            const double needs =
                static_cast<double>(rounds) * (static_cast<double>(of_item) + start);
            if (needs >= least) continue;
            least = needs;
            args.segment_lines = static_cast<int>(lines);
            args.segments = static_cast<int>(cover(args.cell_lines, lines));
        }
        tiles = least;
        const wide items = images * args.segments;
        if (items >= wide{1} << 31) refusal = "too many images";
        args.items = static_cast<int>(items);
    }
};

kernel kernel_for(const problem &p, int width) {
    if (is_fast(p)) return width == 32 ? kernel::fold_n32_tf32 : kernel::fold_n64_tf32;
    return of_type(width == 32 ? kernel::fold_n32_f32 : kernel::fold_n64_f32, p.type);
}

/// All parts of a cell's results: as few as have room.
struct parts_of_cells {
    operand input;
    std::vector<shape> parts;
    std::string refusal;

    explicit parts_of_cells(const problem &p) : input(p, false) {
        constexpr wide most_parts = 4, most_taps = 1024, most_slots = fold_most_slots * most_parts;
        wide slots = p.ic;
        for (const conv::axis &a : p.x) slots = std::min(slots * a.stride, most_slots + 1);
        if (slots > most_slots || taps_of(p) * p.ic > most_taps) {
            refusal = "more results of a position, or weights, than sums have room for";
            return;
        }
        for (wide n = 1; n <= most_parts; ++n) {
            parts.clear();
            refusal.clear();
            for (wide i = 0; i < n; ++i) {
                parts.emplace_back(p, input, i, n);
                if (!parts.back().refusal.empty()) refusal = parts.back().refusal;
            }
            if (refusal.empty()) return;
        }
    }
    [[nodiscard]] std::size_t workspace(const problem &p) const {
        std::size_t all = input.bytes();
        for (const shape &s : parts) all += s.weights_bytes(p);
        return all;
    }
};

class fold_plan final : public plan {
public:
    fold_plan(
        std::string_view name, const problem &p, const architecture &on, const prediction &made)
        : problem_(p), cells_(p) {
        for (shape &s : cells_.parts) {
            s.args.data = make_data_args(p, fold_rows, 1);
            s.args.plain = p.bias || p.add || p.accumulate || p.relu ? 0 : 1;
        }
        set_facts(
            name, on, made, is_fast(p) ? engines::accuracy::fast : engines::accuracy::accurate);
    }
    [[nodiscard]] std::string describe() const override {
        const fold_args &a = cells_.parts[0].args;
        return std::to_string(a.columns) + " columns into " + std::to_string(a.slots)
               + " results of a position, " + std::to_string(a.items) + " segments of "
               + std::to_string(a.segment_lines) + " lines"
               + (cells_.parts.size() > 1
                       ? ", one of " + std::to_string(cells_.parts.size()) + " parts"
                       : "")
               + (cells_.input.direct() ? "" : ", input packed first");
    }

private:
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        auto *const room = static_cast<std::byte *>(workspace);
        const operand::place in = cells_.input.read(data.dst, room, on);
        std::byte *weights = room + cells_.input.bytes();
        for (const shape &s : cells_.parts) {
            fold_args args = s.args;
            args.data.in = data.dst;
            args.data.weights = data.weights;
            bind(args.data.end, problem_, data);
            args.in = in.data;
            args.in_n = in.strides.n;
            std::copy_n(in.strides.x, 3, args.in_x);
            args.weights = weights;
            const auto out = reinterpret_cast<std::uintptr_t>(args.data.end.out);
            if (out % (2 * size_of(problem_.type)) != 0) args.pairs = 0;
            const fold_weights_args pack{args, data.weights, weights, args.chunks * s.width};
            on.launch(of_type(kernel::fold_weights_f32, problem_.type),
                cover(wide{pack.rows} * args.padded, pack_threads), pack_threads, &pack);
            on.launch(kernel_for(problem_, s.width), cover(args.items, s.warpgroups),
                128 * s.warpgroups, &args, static_cast<std::size_t>(s.shared));
            weights += s.weights_bytes(problem_);
        }
    }

    problem problem_;
    parts_of_cells cells_;
};

}  // namespace

std::string refuse_fold(const problem &p) {
    if (p.what != pass::backward_data) return "for data gradients";
    if (!fits_32_bits(p)) return "sizes need 64-bit indices";
    if (has_empty_tensor(p)) return "an empty tensor";
    if (p.groups != 1) return "for one group";
    if (p.ic > few_channels) return "for up to " + std::to_string(few_channels) + " channels";
    // As refuse_wgmma().
    constexpr wide shortest = 3;
    if (p.oc < shortest) return "fewer than 3 channels in a sum";
    return parts_of_cells(p).refusal;
}

prediction predict_fold(
    const problem &p, const architecture &on, const engines::plan_limits & /*limits*/) {
    const parts_of_cells cells(p);
    prediction made;
    made.workspace = cells.workspace(p);
    const operand &input = cells.input;
    made.seconds = 4e-6 + (input.direct() ? 0 : static_cast<double>(input.bytes()) * 3 / on.memory);
    for (const shape &s : cells.parts) {
        // Cycles of a tile, of which a multiprocessor has one of each warpgroup under way, as
        // measured on an H200: instructions of sums, products and stores.
        const double columns = s.args.columns, products = s.args.chunks * s.width * s.args.lines
                                                          * (p.type == data_type::f32 ? 6 : 1);
        const double of_tile =
            std::max(5000.0, s.warpgroups * (columns * 14 + s.args.slots * 30 + products * 2));
        made.seconds +=
            4e-6 + std::max(least_bytes(p) / on.memory, s.tiles * of_tile / nominal::clock);
    }
    return made;
}

std::unique_ptr<const engines::plan> make_fold_plan(std::string_view name, const problem &p,
    const architecture &on, const engines::plan_limits &limits) {
    return std::make_unique<fold_plan>(name, p, on, predict_fold(p, on, limits));
}

}  // namespace convgrad::cuda
