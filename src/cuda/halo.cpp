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

constexpr wide line = 64;               // channels
constexpr wide merged_channels = 64;    // of groups of few
constexpr wide block = 64, blocks = 4;  // positions; of a tile

/// Rows of an image that a tile has, and what comes with them. Axes: rows 1, columns 2.
struct cut {
    bulk_phase phase;
    wide reach_y, reach_x;  // of taps
    wide width, rows = 1, images = 1, image_blocks = 1, row_tiles, image_tiles;

    explicit cut(const problem &p) {
        const phase_walk walk = find_phase(p, make_data_args(p, block, block), 0);
        phase = walk.args;
        reach_y = walk.axes[1].farthest;
        reach_x = walk.axes[2].farthest;
        width = phase.count[2] + reach_x;
        const wide height = phase.count[1],
                   most_rows = std::max<wide>(1, blocks * block / std::max<wide>(1, width));
        row_tiles = cover(height, std::min(most_rows, std::max<wide>(1, height)));
        rows = cover(height, std::max<wide>(1, row_tiles));
        image_blocks = cover(rows * width, block);
        if (row_tiles == 1) images = std::clamp<wide>(blocks / image_blocks, 1, p.mb);
        image_tiles = cover(p.mb, images);
    }
    [[nodiscard]] wide box_rows() const { return rows + reach_y; }
    [[nodiscard]] wide box_pixels() const { return box_rows() * width; }
    [[nodiscard]] wide stage_bytes() const {
        return cover(box_pixels() * images * 128, 1024) * 1024;
    }
    /// Bytes behind a box that the last block of positions reads, to throw away what it makes of
    /// them.
    [[nodiscard]] wide behind() const { return (block + reach_y * width + reach_x) * 128; }
};

/// What is computed: the problem of merged groups.
struct shape : merged_data {
    cut tile;
    int columns;
    wide tiles_n, tiles;

    explicit shape(const problem &p) : merged_data(p, merged_channels, false), tile(p) {
        columns = seconds(64) <= seconds(128) ? 64 : 128;
        tiles_n = cover(out, columns);
        tiles = tiles_of(columns);
    }
    [[nodiscard]] wide tiles_of(int n) const {
        return cover(out, n) * tile.row_tiles * tile.image_tiles * merged.groups;
    }
    /// Of the products.
    [[nodiscard]] double seconds(int n) const {
        constexpr double rate = 40;  // bytes in a cycle
        const double area = static_cast<double>(blocks * block * n),
                     taps = static_cast<double>(taps_of(merged));
        const double of_line = std::max(taps * area * 64 / nominal::products,
            (static_cast<double>(tile.stage_bytes()) + taps * n * 128) / rate);
        const double of_tile =
            static_cast<double>(lines()) * of_line + nominal::tile_start + area / nominal::stored;
        return static_cast<double>(nominal::rounds(tiles_of(n))) * of_tile / nominal::clock;
    }
    [[nodiscard]] wide lines() const { return cover(in, line); }
};

class halo_plan final : public plan {
public:
    halo_plan(
        std::string_view name, const problem &p, const architecture &on, const prediction &made)
        : problem_(p), shape_(p) {
        const cut &tile = shape_.tile;
        bulk_args &b = args_.bulk;
        b.data = make_data_args(p, block * blocks, shape_.columns);
        b.data.tiles_n = shape_.tiles_n;
        b.data.tiles = shape_.tiles;
        b.phase[0] = tile.phase;
        b.groups = static_cast<int>(shape_.merged.groups);
        b.out_channels = static_cast<int>(shape_.out);
        b.lines = static_cast<int>(shape_.lines());
        store_ = find_store(p, shape_.out, tile.width);
        args_.width = static_cast<int>(tile.width);
        args_.rows = static_cast<int>(tile.rows);
        args_.images = static_cast<int>(tile.images);
        args_.box_pixels = static_cast<int>(tile.box_pixels());
        args_.image_blocks = static_cast<int>(tile.image_blocks);
        args_.stage_bytes = static_cast<int>(tile.stage_bytes());
        args_.row_tiles = static_cast<int>(tile.row_tiles);
        args_.image_tiles = static_cast<int>(tile.image_tiles);
        set_facts(name, on, made, engines::accuracy::accurate);
    }
    [[nodiscard]] std::string describe() const override {
        const cut &tile = shape_.tile;
        return "tile " + std::to_string(tile.rows) + " rows of " + std::to_string(tile.images)
               + " images x" + std::to_string(shape_.columns) + ", " + std::to_string(shape_.tiles)
               + " tiles" + shape_.describe();
    }

private:
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        const problem &p = problem_;
        const cut &tile = shape_.tile;
        halo_args args = args_;
        bulk_args &b = args.bulk;
        const operand::place in = bind(b, p, shape_, store_, shape_.columns, data, workspace, on);
        b.in[0] = map_rows(on, p.type, in.data, in.strides, p, shape_.merged.groups * in.group,
            std::array{tile.width, tile.box_rows(), tile.images});
        const kernel first = shape_.columns == 64 ? kernel::halo_64_bf16 : kernel::halo_128_bf16;
        const int stage = args.stage_bytes, shared = shape_.columns == 64
                                                         ? halo_tiles<64>::shared(stage)
                                                         : halo_tiles<128>::shared(stage);
        on.launch(
            static_cast<kernel>(static_cast<int>(first) + (p.type == data_type::bf16 ? 0 : 1)),
            std::min<wide>(b.data.tiles, on.on().multiprocessors), halo_tiles<64>::threads, &args,
            static_cast<std::size_t>(shared));
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
    const cut tile(p);
    constexpr wide most_box = 256,
                   most_stage = std::min(halo_tiles<64>::most_stage, halo_tiles<128>::most_stage),
                   most_behind = std::min(halo_tiles<64>::taps * halo_tiles<64>::tap_bytes,
                       halo_tiles<128>::taps * halo_tiles<128>::tap_bytes);
    if (tile.width > most_box || tile.box_rows() > most_box) return "rows longer than a box";
    if (tile.image_blocks > blocks || tile.stage_bytes() > most_stage
        || tile.behind() > most_behind)
        return "more rows than shared memory holds";
    return {};
}

prediction predict_halo(
    const problem &p, const architecture &on, const engines::plan_limits & /*limits*/) {
    prediction made;
    const shape s(p);
    made.workspace = s.workspace();
    made.seconds = 6e-6 + s.packing_seconds(on) + find_store(p, s.out, s.tile.width).seconds(p, on)
                   + std::max(least_bytes(p) / on.memory, s.seconds(s.columns));
    return made;
}

std::unique_ptr<const engines::plan> make_halo_plan(std::string_view name, const problem &p,
    const architecture &on, const engines::plan_limits &limits) {
    return std::make_unique<halo_plan>(name, p, on, predict_halo(p, on, limits));
}

}  // namespace convgrad::cuda
