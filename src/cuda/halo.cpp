// Data passes of 16-bit types with stride 1 whose taps share what the copy engine brings.
#include <algorithm>
#include <array>
#include <cstdint>

#include "cuda/bulk.hpp"
#include "cuda/kernels/halo_args.hpp"
#include "cuda/operand.hpp"
#include "cuda/wgmma.hpp"

namespace convgrad::cuda {
namespace {

using conv::pass;
using conv::problem;

constexpr wide line = 64;             // channels
constexpr wide merged_channels = 64;  // of groups of few

/// How positions run through rows and images. Axes: rows 1, columns 2.
struct walk_of_positions {
    bulk_phase phase;
    wide width, height;
    wide reach;  // of taps, in positions
    std::array<pixel_axis, 3> axes{pixel_axis(1), pixel_axis(1), pixel_axis(1)};

    explicit walk_of_positions(const problem &p) {
        const phase_walk walk = find_phase(p, make_data_args(p, halo_tiles::rows, 1), 0);
        phase = walk.args;
        height = pitch(walk.axes[1]);
        width = pitch(walk.axes[2]);
        // Where positions lie next to each other, several are stored at once.
        const conv::data_strides &out = is_backward(p) ? p.src : p.dst;
        if (wide unit = 4; out.x[2] == 1) {
            while (walk.axes[2].count % unit != 0) unit /= 2;
            width = cover(width, unit) * unit;
        }
        reach = walk.axes[1].farthest * width + walk.axes[2].farthest;
        axes[1] = {walk.axes[1].length, walk.axes[1].start, height, 1, 0};
        axes[2] = {walk.axes[2].length, walk.axes[2].start, width, 1, 0};
    }
    /// From row to row (or image to image): a tap that reaches beyond the end of one finds the
    /// zeros before the next.
    static wide pitch(const pixel_axis &a) {
        const wide read = a.count + a.farthest;
        return std::max(
            {a.count, std::min(a.length - a.start, read), read + std::min<wide>(a.start, 0)});
    }
    [[nodiscard]] wide box_pixels() const { return halo_tiles::rows + reach; }
    [[nodiscard]] wide stage_bytes() const { return cover(box_pixels() * 128, 1024) * 1024; }
};

/// What is computed: the problem of merged groups.
struct shape : merged_data {
    walk_of_positions positions;
    wide position_tiles, tiles_n, tiles;

    explicit shape(const problem &p)
        : merged_data(p, merged_channels, false), positions(p),
          position_tiles(cover(p.mb * positions.height * positions.width, halo_tiles::rows)),
          tiles_n(cover(out, halo_tiles::columns)),
          tiles(tiles_n * position_tiles * merged.groups) {}
    /// Of the products. One warpgroup stores a tile, while the other computes the next.
    [[nodiscard]] double seconds() const {
        constexpr double rate = 40;  // bytes in a cycle
        constexpr double area = halo_tiles::rows * halo_tiles::columns;
        const double taps = static_cast<double>(taps_of(merged));
        const double of_line = std::max(taps * area * 64 / nominal::products,
            (static_cast<double>(positions.stage_bytes()) + taps * halo_tiles::tap_bytes) / rate);
        const double of_tile = static_cast<double>(lines()) * of_line,
                     end = nominal::tile_start + 2 * area / nominal::stored;
        return (static_cast<double>(nominal::rounds(tiles)) * std::max(of_tile, (of_tile + end) / 2)
                   + end)
               / nominal::clock;
    }
    [[nodiscard]] wide lines() const { return cover(in, line); }
};

class halo_plan final : public plan {
public:
    halo_plan(
        std::string_view name, const problem &p, const architecture &on, const prediction &made)
        : problem_(p), shape_(p) {
        const walk_of_positions &positions = shape_.positions;
        bulk_args &b = args_.bulk;
        b.data = make_data_args(p, halo_tiles::rows, halo_tiles::columns);
        b.data.tiles_n = shape_.tiles_n;
        b.data.tiles = shape_.tiles;
        b.phase[0] = positions.phase;
        b.groups = static_cast<int>(shape_.merged.groups);
        b.out_channels = static_cast<int>(shape_.out);
        b.lines = static_cast<int>(shape_.lines());
        store_ = find_store(p, shape_.out, positions.width);
        args_.width = static_cast<int>(positions.width);
        args_.height = static_cast<int>(positions.height);
        args_.box_pixels = static_cast<int>(positions.box_pixels());
        args_.stage_bytes = static_cast<int>(positions.stage_bytes());
        args_.position_tiles = static_cast<int>(shape_.position_tiles);
        set_facts(name, on, made, engines::accuracy::accurate);
    }
    [[nodiscard]] std::string describe() const override {
        const walk_of_positions &positions = shape_.positions;
        return "tile " + std::to_string(halo_tiles::rows) + " positions of images of "
               + std::to_string(positions.height) + "x" + std::to_string(positions.width) + " x"
               + std::to_string(halo_tiles::columns) + ", " + std::to_string(shape_.tiles)
               + " tiles" + shape_.describe();
    }

private:
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        const problem &p = problem_;
        halo_args args = args_;
        bulk_args &b = args.bulk;
        const operand::place in =
            bind(b, p, shape_, store_, halo_tiles::columns, data, workspace, on);
        b.in[0] = map_pixels(on, p.type, in.data, in.strides, p.mb, shape_.merged.groups * in.group,
            shape_.positions.axes, false, args.box_pixels);
        on.launch(p.type == data_type::bf16 ? kernel::halo_bf16 : kernel::halo_f16,
            std::min<wide>(b.data.tiles, on.on().multiprocessors), halo_tiles::threads, &args,
            static_cast<std::size_t>(halo_tiles::shared(args.stage_bytes)));
    }

    problem problem_;
    shape shape_;
    halo_args args_{};
    store_form store_{};
};

}  // namespace

std::string refuse_halo(const problem &p) {
    if (p.what == pass::backward_weights) return "for data passes";
    if (std::string why = refuse_bulk(p); !why.empty()) return why;
    if (p.x[1].stride != 1 || p.x[2].stride != 1) return "for strides of 1";
    if (has_three_axes(p)) return "for two axes";
    if (taps_of(p) == 1) return "for more taps than one";
    const walk_of_positions positions(p);
    if (std::string why = refuse_walk(positions.axes); !why.empty()) return why;
    constexpr wide most_box = 1024;
    if (positions.box_pixels() > most_box || positions.stage_bytes() > halo_tiles::most_stage)
        return "more pixels between taps than shared memory holds";
    if (p.mb * positions.height * positions.width >= wide{1} << 30) return "too many positions";
    return {};
}

prediction predict_halo(
    const problem &p, const architecture &on, const engines::plan_limits & /*limits*/) {
    prediction made;
    const shape s(p);
    made.workspace = s.workspace();
    made.seconds = 6e-6 + s.packing_seconds(on)
                   + find_store(p, s.out, s.positions.width).seconds(p, on)
                   + std::max(least_bytes(p) / on.memory, s.seconds());
    return made;
}

std::unique_ptr<const engines::plan> make_halo_plan(std::string_view name, const problem &p,
    const architecture &on, const engines::plan_limits &limits) {
    return std::make_unique<halo_plan>(name, p, on, predict_halo(p, on, limits));
}

}  // namespace convgrad::cuda
