// Layers of one tap between planes, f32: see kernels/wgmma_pointwise_f32.cu.
#include <algorithm>

#include "cuda/operand.hpp"
#include "cuda/pointwise.hpp"

namespace convgrad::cuda {
namespace {

using conv::problem;

constexpr wide rows = 128;  // positions, or input channels, of a tile
constexpr wide depth = 32;  // terms of a stage

/// A tile that there are kernels for.
struct tile_form {
    int columns, shared, weights_shared;
    kernel data, weights;

    tile_form(const problem &p, wide out) : columns(out <= 64 || (out - 1) % 128 < 64 ? 64 : 128) {
        const bool fast = is_fast(p), half = columns == 64;
        const auto set = [&](auto tiles, kernel of_data, kernel of_weights) {
            shared = decltype(tiles)::shared;
            weights_shared = decltype(tiles)::weights_shared;
            data = of_data;
            weights = of_weights;
        };
        if (half && fast)
            set(pointwise_tiles<64, false>{}, kernel::pointwise_data_n64_tf32,
                kernel::pointwise_weights_n64_tf32);
        else if (half)
            set(pointwise_tiles<64, true>{}, kernel::pointwise_data_n64_f32,
                kernel::pointwise_weights_n64_f32);
        else if (fast)
            set(pointwise_tiles<128, false>{}, kernel::pointwise_data_n128_tf32,
                kernel::pointwise_weights_n128_tf32);
        else
            set(pointwise_tiles<128, true>{}, kernel::pointwise_data_n128_f32,
                kernel::pointwise_weights_n128_f32);
    }
    /// Of tiles of so many stages, as measured on an H200, of which so many columns are stored on
    /// average.
    [[nodiscard]] double seconds(const problem &p, wide tiles, wide steps, double stored) const {
        const double step = (columns == 128 ? 1.3e-6 : 0.72e-6) * (is_fast(p) ? 0.45 : 1),
                     ends = 1e-6 + 1.5e-8 * stored;
        return static_cast<double>(nominal::rounds(tiles))
               * (ends + static_cast<double>(steps) * step);
    }
};

void launch(kernel which, wide tiles, const void *args, int shared, const lane &on) {
    on.launch(which, std::min<wide>(tiles, on.on().multiprocessors),
        pointwise_tiles<128, true>::threads, args, static_cast<std::size_t>(shared));
}
engines::accuracy kept(const problem &p) {
    return is_fast(p) ? engines::accuracy::fast : engines::accuracy::accurate;
}

struct data_shape {
    wide in, out;  // channels
    plane_boxes boxes;
    planes input;
    weights_operand weights;
    tile_form tile;

    explicit data_shape(const problem &p)
        : in(is_backward(p) ? p.oc : p.ic), out(is_backward(p) ? p.ic : p.oc), boxes(boxes_of(p)),
          input(p, !is_backward(p)), weights(p, 1, padded(), !is_fast(p)), tile(p, out) {}
    [[nodiscard]] wide padded() const { return cover(in, 4) * 4; }
    [[nodiscard]] wide lines() const { return cover(in, depth); }
    [[nodiscard]] wide tiles() const {
        return cover(boxes.all, rows / pointwise_box(4)) * cover(out, tile.columns);
    }
    [[nodiscard]] std::size_t workspace() const { return input.bytes() + weights.bytes(); }
};

prediction predict_data(const problem &p, const architecture &on) {
    const data_shape s(p);
    return {6e-6
                + std::max(least_bytes(p) / on.memory,
                    s.tile.seconds(p, s.tiles(), s.lines(),
                        static_cast<double>(s.out)
                            / static_cast<double>(cover(s.out, s.tile.columns)))),
        s.workspace()};
}

class pointwise_f32_data final : public plan {
public:
    pointwise_f32_data(std::string_view name, const problem &p, const architecture &on)
        : problem_(p), shape_(p) {
        bulk_args &b = args_.bulk;
        b.data = make_data_args(p, rows, shape_.tile.columns);
        b.data.tiles_n = cover(shape_.out, shape_.tile.columns);
        b.data.tiles = shape_.tiles();
        b.out_channels = static_cast<int>(shape_.out);
        b.lines = static_cast<int>(shape_.lines());
        args_.boxes = shape_.boxes;
        set_facts(name, on, predict_data(p, on), kept(p));
    }
    [[nodiscard]] std::string describe() const override {
        return "tile " + std::to_string(rows) + "x" + std::to_string(shape_.tile.columns) + ", "
               + std::to_string(args_.bulk.data.tiles) + " tiles";
    }

private:
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        const problem &p = problem_;
        pointwise_args args = args_;
        bulk_args &b = args.bulk;
        b.data.in = is_backward(p) ? data.dst : data.src;
        b.data.weights = data.weights;
        bind(b.data.end, p, data);
        bind_output(b, p, on);
        auto *const room = static_cast<std::byte *>(workspace);
        b.in[0] = shape_.input.read(p.type, b.data.in, static_cast<int>(depth), room, on);
        b.weights = map_split_weights(on,
            shape_.weights.read(data.weights, room + shape_.input.bytes(), on), shape_.out,
            shape_.padded(), is_fast(p) ? 1 : 2, shape_.tile.columns);
        launch(shape_.tile.data, b.data.tiles, &args, shape_.tile.shared, on);
    }

    problem problem_;
    data_shape shape_;
    pointwise_args args_{};
};

/// Input channels by output channels, in parts of the positions: by the problem alone.
struct weights_shape {
    plane_boxes boxes;
    planes src, dst;
    tile_form tile;
    wide tiles_m, tiles_n, parts = 1;
    double seconds = 1e30;

    explicit weights_shape(const problem &p)
        : boxes(boxes_of(p)), src(p, true), dst(p, false), tile(p, p.oc),
          tiles_m(cover(p.oc, tile.columns)), tiles_n(cover(p.ic, rows)) {
        constexpr wide most_parts = 512, most_rounds = 12;
        constexpr double sum_rate = 2.5e12;  // bytes, written and read
        const double part_bytes = 8.0 * static_cast<double>(p.oc * p.ic);
        for (wide rounds = 1; rounds <= most_rounds; ++rounds) {
            const wide many = std::clamp<wide>(rounds * nominal::multiprocessors / tiles(), 1,
                std::min<wide>(boxes.all, most_parts));
            const double needs =
                tile.seconds(p, tiles() * many, cover(boxes.all, many), tile.columns)
                + static_cast<double>(many) * part_bytes / sum_rate;
            if (needs >= seconds) continue;
            seconds = needs;
            parts = many;
        }
    }
    [[nodiscard]] wide tiles() const { return tiles_m * tiles_n; }
    [[nodiscard]] std::size_t bytes() const { return src.bytes() + dst.bytes(); }
};

prediction predict_weights(
    const problem &p, const architecture &on, const engines::plan_limits &limits) {
    const weights_shape s(p);
    const gradient_sums sums(p, s.parts, left_of(limits, s.bytes()));
    return {9e-6 + std::max(least_bytes(p) / on.memory, s.seconds), sums.workspace() + s.bytes()};
}

class pointwise_f32_weights final : public plan {
public:
    pointwise_f32_weights(std::string_view name, const problem &p, const architecture &on,
        const engines::plan_limits &limits)
        : problem_(p), shape_(p), sums_(p, shape_.parts, left_of(limits, shape_.bytes())) {
        args_ = make_args(p, shape_.boxes, sums_.parts(), shape_.tiles_m, shape_.tiles_n);
        set_facts(name, on, predict_weights(p, on, limits), kept(p));
    }
    [[nodiscard]] std::string describe() const override {
        return "tile " + std::to_string(rows) + "x" + std::to_string(shape_.tile.columns) + ", "
               + std::to_string(args_.bulk.weights.parts) + " parts of "
               + std::to_string(args_.part_boxes) + " boxes";
    }

private:
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        const problem &p = problem_;
        pointwise_weights_args args = args_;
        bulk_weights_args &b = args.bulk;
        b.weights.src = data.src;
        b.weights.dst = data.dst;
        b.weights.partial = sums_.partial(workspace);
        std::byte *const src_room = static_cast<std::byte *>(workspace) + sums_.workspace();
        b.src = shape_.src.read(p.type, data.src, 64, src_room, on);
        b.dst = shape_.dst.read(
            p.type, data.dst, shape_.tile.columns, src_room + shape_.src.bytes(), on);
        launch(shape_.tile.weights, b.weights.tiles, &args, shape_.tile.weights_shared, on);
        sums_.finish(p, data, workspace, on);
    }

    problem problem_;
    weights_shape shape_;
    gradient_sums sums_;
    pointwise_weights_args args_{};
};

}  // namespace

prediction predict_pointwise_f32(
    const problem &p, const architecture &on, const engines::plan_limits &limits) {
    return is_weights(p) ? predict_weights(p, on, limits) : predict_data(p, on);
}

std::unique_ptr<const engines::plan> make_pointwise_f32_plan(std::string_view name,
    const problem &p, const architecture &on, const engines::plan_limits &limits) {
    if (is_weights(p)) return std::make_unique<pointwise_f32_weights>(name, p, on, limits);
    return std::make_unique<pointwise_f32_data>(name, p, on);
}

}  // namespace convgrad::cuda
