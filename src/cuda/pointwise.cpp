// Layers of one tap between planes, through Hopper's copy engine: see kernels/wgmma_pointwise.cu.
#include "cuda/pointwise.hpp"

#include <algorithm>
#include <cstdint>

#include "cuda/dense.hpp"
#include "cuda/operand.hpp"

namespace convgrad::cuda {
namespace {

using conv::problem;

constexpr wide line = 64;  // channels

/// Whether the copy engine can walk through a tensor as planes.
bool lies_in_planes(const problem &p, bool is_src) {
    const wide piece = 16 / static_cast<wide>(size_of(p.type));
    const conv::data_strides &s = is_src ? p.src : p.dst;
    wide next = 1;
    for (std::size_t d = 3; d-- > 0; next *= p.x[d].src)
        if (p.x[d].src != 1 && s.x[d] != next) return false;
    return s.c % piece == 0 && s.n % piece == 0 && s.c > 0 && s.n > 0;
}

/// How a data pass is computed.
struct data_kernel {
    kernel code, turned;  // bf16; turned weights
    wide columns;
    int rows, threads, shared, at_once;

    explicit data_kernel(const bulk_tile_size &t)
        : code(bulk_kernel(kernel::pointwise_data_256x64_bf16, t, data_type::bf16)),
          turned(bulk_kernel(kernel::pointwise_turned_256x64_bf16, t, data_type::bf16)),
          columns(t.columns), rows(t.rows), threads(t.threads), shared(t.shared),
          at_once(t.at_once) {}
    template <int N>
    data_kernel(whole_tiles<N> tiles, kernel as_they_lie, kernel of_turned)
        : code(as_they_lie), turned(of_turned), columns(N), rows(128), threads(tiles.threads),
          shared(tiles.shared), at_once(2) {}
};

/// What is multiplied, and in which tiles.
struct data_shape {
    wide in, out;  // channels
    plane_boxes boxes;
    planes input;
    weights_operand weights;
    bool whole;  // all weights stay
    data_kernel by{bulk_tile_sizes[0]};
    double seconds = 1e30;

    explicit data_shape(const problem &p)
        : in(is_backward(p) ? p.oc : p.ic), out(is_backward(p) ? p.ic : p.oc), boxes(boxes_of(p)),
          input(p, !is_backward(p)), weights(p, 1, padded(), false), whole(fits_whole(in, out)) {
        if (whole) {
            if (input.form.are_pixels())
                by = data_kernel(
                    whole_tiles<64>{}, kernel::whole_pixels_bf16, kernel::whole_pixels_turned_bf16);
            else
                by = data_kernel(
                    whole_tiles<64>{}, kernel::whole_planes_bf16, kernel::whole_planes_turned_bf16);
            seconds = whole_seconds();
            return;
        }
        for (const bulk_tile_size &t : allowed_tiles()) {
            const data_kernel other(t);
            const double needs = bulk_seconds(t, down(other) * across(other),
                static_cast<double>(lines()), stored_columns(t, out));
            if (needs >= seconds) continue;
            seconds = needs;
            by = other;
        }
    }
    /// Whether weights fit, and so many channels of positions.
    static bool fits_whole(wide in, wide out) {
        using tiles = whole_tiles<64>;
        const wide lines = cover(in, line);
        return lines <= tiles::stages && cover(out, 64) * 64 * lines * 128 <= tiles::weights;
    }
    [[nodiscard]] wide padded() const { return cover(in, 8) * 8; }
    [[nodiscard]] wide lines() const { return cover(in, line); }
    /// Channels of a box of planes: the unit adds 16 at once.
    [[nodiscard]] wide terms() const {
        return whole && !input.form.are_pixels() ? std::min(line, cover(in, 16) * 16) : line;
    }
    [[nodiscard]] wide across(const data_kernel &k) const { return cover(out, k.columns); }
    [[nodiscard]] wide down(const data_kernel &k) const {
        return cover(boxes.all, k.rows / pointwise_box(2));
    }
    [[nodiscard]] std::size_t workspace() const { return input.bytes() + weights.bytes(); }

private:
    /// As measured on an H200, in cycles of two tiles at once: each slice of channels is waited
    /// for.
    [[nodiscard]] double whole_seconds() const {
        const wide tile = 1460 * cover(out, bulk_slice) + 400 * lines();
        return static_cast<double>(cover(down(by), 2 * nominal::multiprocessors) * tile)
               / nominal::clock;
    }
};

struct weights_shape {
    plane_boxes boxes;
    planes src, dst;
    weights_cut cut;

    explicit weights_shape(const problem &p)
        : boxes(boxes_of(p)), src(p, true), dst(p, false),
          cut(cut_weights(cover(p.ic, line) * line, p.oc, 1, boxes.all,
              8.0 * static_cast<double>(p.oc * p.ic))) {}
    [[nodiscard]] std::size_t bytes() const { return src.bytes() + dst.bytes(); }
};

prediction predict_data(const problem &p, const architecture &on) {
    const data_shape s(p);
    const double packed =
        s.weights.turned(nullptr) != nullptr ? 0 : static_cast<double>(s.weights.bytes());
    return {6e-6 + packed * 3 / on.memory + std::max(least_bytes(p) / on.memory, s.seconds),
        s.workspace()};
}

class pointwise_data_plan final : public plan {
public:
    pointwise_data_plan(std::string_view name, const problem &p, const architecture &on)
        : problem_(p), shape_(p) {
        const data_kernel &by = shape_.by;
        bulk_args &b = args_.bulk;
        b.data = make_data_args(p, by.rows, by.columns);
        b.data.tiles_n = shape_.across(by);
        b.data.tiles_m = shape_.down(by);
        b.data.tiles = b.data.tiles_n * b.data.tiles_m;
        b.groups = 1;
        b.channels = static_cast<int>(shape_.in);
        b.out_channels = static_cast<int>(shape_.out);
        b.lines = static_cast<int>(shape_.lines());
        args_.boxes = shape_.boxes;
        args_.terms = static_cast<int>(shape_.terms());
        set_facts(name, on, predict_data(p, on), engines::accuracy::accurate);
    }
    [[nodiscard]] std::string describe() const override {
        return "tile " + std::to_string(shape_.by.rows) + "x" + std::to_string(shape_.by.columns)
               + ", " + std::to_string(args_.bulk.data.tiles) + " tiles"
               + (shape_.whole ? ", weights stay" : "");
    }

private:
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        const problem &p = problem_;
        const data_kernel &by = shape_.by;
        pointwise_args args = args_;
        bulk_args &b = args.bulk;
        b.data.in = is_backward(p) ? data.dst : data.src;
        b.data.weights = data.weights;
        bind(b.data.end, p, data);
        bind_output(b, p, on);
        auto *const room = static_cast<std::byte *>(workspace);
        b.in[0] = shape_.input.read(p.type, b.data.in, args.terms, room, on);
        const weights_operand::turned_form *const turned = shape_.weights.turned(data.weights);
        if (turned != nullptr)
            b.weights = map_turned_weights(on, p.type, data.weights, *turned, args.terms);
        else
            b.weights = map_weights(on, p.type,
                shape_.weights.read(data.weights, room + shape_.input.bytes(), on), shape_.out, 1,
                shape_.padded(), static_cast<int>(by.columns));
        const kernel of_bf16 = turned != nullptr ? by.turned : by.code;
        const kernel code =
            static_cast<kernel>(static_cast<int>(of_bf16) + (p.type == data_type::bf16 ? 0 : 1));
        on.launch(code,
            std::min<wide>(shape_.whole ? b.data.tiles_m : b.data.tiles,
                wide{on.on().multiprocessors} * by.at_once),
            by.threads, &args, static_cast<std::size_t>(by.shared));
    }

    problem problem_;
    data_shape shape_;
    pointwise_args args_{};
};

prediction predict_weights(
    const problem &p, const architecture &on, const engines::plan_limits &limits) {
    const weights_shape s(p);
    const gradient_sums sums(p, s.cut.parts, left_of(limits, s.bytes()));
    return {
        9e-6 + std::max(least_bytes(p) / on.memory, s.cut.seconds), sums.workspace() + s.bytes()};
}

class pointwise_weights_plan final : public plan {
public:
    pointwise_weights_plan(std::string_view name, const problem &p, const architecture &on,
        const engines::plan_limits &limits)
        : problem_(p), shape_(p), sums_(p, shape_.cut.parts, left_of(limits, shape_.bytes())) {
        args_ = make_args(p, shape_.boxes, sums_.parts(), shape_.cut.tiles_m, shape_.cut.tiles_n);
        set_facts(name, on, predict_weights(p, on, limits), engines::accuracy::accurate);
    }
    [[nodiscard]] std::string describe() const override {
        return "tile " + std::to_string(shape_.cut.tile.rows) + "x"
               + std::to_string(shape_.cut.tile.columns) + ", "
               + std::to_string(args_.bulk.weights.parts) + " parts of "
               + std::to_string(args_.part_boxes) + " boxes";
    }

private:
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        const problem &p = problem_;
        const bulk_tile_size &tile = shape_.cut.tile;
        pointwise_weights_args args = args_;
        bulk_weights_args &b = args.bulk;
        b.weights.src = data.src;
        b.weights.dst = data.dst;
        b.weights.partial = sums_.partial(workspace);
        std::byte *const src_room = static_cast<std::byte *>(workspace) + sums_.workspace();
        b.src = shape_.src.read(p.type, data.src, static_cast<int>(line), src_room, on);
        b.dst = shape_.dst.read(
            p.type, data.dst, static_cast<int>(line), src_room + shape_.src.bytes(), on);
        on.launch(bulk_kernel(kernel::pointwise_weights_256x64_bf16, tile, p.type),
            std::min<wide>(b.weights.tiles, wide{on.on().multiprocessors} * tile.at_once),
            tile.threads, &args, static_cast<std::size_t>(tile.shared));
        sums_.finish(p, data, workspace, on);
    }

    problem problem_;
    weights_shape shape_;
    gradient_sums sums_;
    pointwise_weights_args args_{};
};

}  // namespace

wide positions_of_plane(const problem &p) {
    return p.x[0].src * p.x[1].src * p.x[2].src;
}
wide pixel_pitch(const problem &p, bool is_src) {
    constexpr wide piece = 8;
    const wide pitch = pitch_of(p, is_src);
    const bool whole = (is_src ? p.ic : p.oc) % piece == 0 && pitch % piece == 0 && pitch > 0;
    return (is_src ? p.src : p.dst).c == 1 && whole ? pitch : 0;
}
plane_boxes boxes_of(const problem &p) {
    const wide pitch = p.type == data_type::f32 ? 0 : pixel_pitch(p, is_backward(p)),
               images = pitch == 0 ? p.mb : 1, positions = p.mb / images * positions_of_plane(p);
    plane_boxes made{};
    made.positions = static_cast<int>(positions);
    made.of_image = static_cast<int>(cover(positions, pointwise_box(size_of(p.type))));
    made.all = static_cast<int>(images) * made.of_image;
    made.step = pitch == 0 ? 1 : pitch;
    return made;
}
plane_form form_of(const problem &p, bool is_src) {
    const conv::data_strides &s = is_src ? p.src : p.dst;
    const wide pitch = p.type == data_type::f32 ? 0 : pixel_pitch(p, is_src),
               channels = is_src ? p.ic : p.oc;
    if (pitch != 0) return {p.mb * positions_of_plane(p), channels, 1, pitch, 1, 0};
    return {positions_of_plane(p), channels, p.mb, 1, s.c, s.n};
}
bool starts_piece(const void *at) {
    return reinterpret_cast<std::uintptr_t>(at) % 16 == 0;
}

std::size_t planes::elements() const {
    return static_cast<std::size_t>((form.images - 1) * form.image_stride
                                    + (form.channels - 1) * form.channel_stride
                                    + (form.positions - 1) * form.step + 1);
}
std::size_t planes::bytes() const {
    constexpr std::size_t alignment = 256;
    return (element * elements() + alignment - 1) / alignment * alignment;
}
tensor_map planes::read(
    data_type type, const void *data, int channels, void *room, const lane &on) const {
    if (!starts_piece(data)) {
        const auto address = [](const void *at) {
            return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(at));
        };
        on.on().check(the_driver().cuMemcpyDtoDAsync(
                          address(room), address(data), element * elements(), on.stream()),
            "copying planes");
        data = room;
    }
    return map_planes(on, type, data, form, channels);
}

pointwise_weights_args make_args(
    const problem &p, const plane_boxes &boxes, wide parts, wide tiles_m, wide tiles_n) {
    pointwise_weights_args args{};
    bulk_weights_args &b = args.bulk;
    b.weights = make_weights_args(p);
    b.weights.parts = parts;
    b.weights.tiles_m = tiles_m;
    b.weights.tiles_n = tiles_n;
    b.weights.tiles = tiles_m * tiles_n * parts;
    b.groups = b.merged = 1;
    b.ic = static_cast<int>(p.ic);
    b.oc = static_cast<int>(p.oc);
    b.lines = static_cast<int>(cover(p.ic, line));
    args.boxes = boxes;
    args.part_boxes = static_cast<int>(cover(boxes.all, parts));
    return args;
}

void bind_output(bulk_args &b, const problem &p, const lane &on) {
    void *const out = b.data.end.out;
    const plane_form form = form_of(p, is_backward(p));
    b.by_engine = starts_piece(out) ? 1 : 0;
    b.along_channels = form.are_pixels() ? b.by_engine : 0;
    if (b.by_engine != 0)
        b.out = form.are_pixels() ? map_outputs(on, p, out, form.channels, form.step)
                                  : map_planes(on, p.type, out, form, bulk_slice);
    // 16-bit types without the engine: as many positions at once as there can be.
    b.unit = form.are_pixels() ? 1 : 4;
    while (form.positions % b.unit != 0
           || reinterpret_cast<std::uintptr_t>(out) % (2 * static_cast<unsigned>(b.unit)) != 0)
        b.unit /= 2;
}

engines::plan_limits left_of(const engines::plan_limits &limits, std::size_t taken) {
    engines::plan_limits left = limits;
    left.workspace = limits.workspace > taken ? limits.workspace - taken : 0;
    return left;
}

std::string refuse_pointwise(const problem &p) {
    if (!fits_32_bits(p)) return "sizes need 64-bit indices";
    if (has_empty_tensor(p)) return "an empty tensor";
    if (p.groups != 1) return "for one group";
    for (const conv::axis &a : p.x)
        if (a.kernel != 1 || a.stride != 1 || a.pad != 0 || a.src != a.dst)
            return "for one tap, without strides and padding";
    const bool pixels = p.type != data_type::f32 && !is_weights(p) && pixel_pitch(p, true) != 0
                        && pixel_pitch(p, false) != 0
                        && (is_backward(p) ? data_shape::fits_whole(p.oc, p.ic)
                                           : data_shape::fits_whole(p.ic, p.oc));
    if (!pixels && (!lies_in_planes(p, true) || !lies_in_planes(p, false)))
        return "for planes, or pixels of few channels, of whole pieces of 16 bytes";
    if (!is_weights(p) && (p.add || p.accumulate)) return "adds nothing to its sums but a bias";
    // However they are cut.
    constexpr wide most = wide{1} << 31, most_parts = 512;
    const wide box = pointwise_box(size_of(p.type)),
               boxes = p.mb * cover(positions_of_plane(p), box);
    if (boxes * box >= most || boxes * cover(std::max(p.ic, p.oc), line) >= most
        || cover(p.ic, line) * cover(p.oc, line) >= most / most_parts)
        return "too many tiles";
    if (p.type != data_type::f32) return {};
    // Products of split values drop what lies below their last bit, which shows in short sums.
    if (is_weights(p)) return refuse_dense_weights(p);
    constexpr wide shortest = 3;
    if ((is_backward(p) ? p.oc : p.ic) < shortest) return "fewer than 3 channels in a sum";
    return {};
}

prediction predict_pointwise(
    const problem &p, const architecture &on, const engines::plan_limits &limits) {
    if (p.type == data_type::f32) return predict_pointwise_f32(p, on, limits);
    return is_weights(p) ? predict_weights(p, on, limits) : predict_data(p, on);
}

std::unique_ptr<const engines::plan> make_pointwise_plan(std::string_view name, const problem &p,
    const architecture &on, const engines::plan_limits &limits) {
    if (p.type == data_type::f32) return make_pointwise_f32_plan(name, p, on, limits);
    if (is_weights(p)) return std::make_unique<pointwise_weights_plan>(name, p, on, limits);
    return std::make_unique<pointwise_data_plan>(name, p, on);
}

}  // namespace convgrad::cuda
