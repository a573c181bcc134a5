#include "cuda/dense.hpp"

#include <algorithm>
#include <cstdint>

#include "cuda/operand.hpp"

namespace convgrad::cuda {
namespace {

using conv::pass;
using conv::problem;

constexpr std::size_t alignment = 256;

wide in_channels(const problem &p) {
    return is_backward(p) ? p.oc : p.ic;
}

/// Channels of a group as they are packed: whole pieces of 16 bytes.
wide padded_channels(const problem &p) {
    const wide piece = 16 / static_cast<wide>(size_of(p.type));
    return cover(in_channels(p), piece) * piece;
}

/// Where both packed operands lie in the workspace.
struct packed {
    std::size_t in = 0, weights = 0;  // bytes
    [[nodiscard]] std::size_t all() const { return in + weights; }
};

packed sizes_of(const problem &p) {
    const bool backward = is_backward(p);
    wide in = p.mb * p.groups * padded_channels(p),
         weights = p.groups * (backward ? p.ic : p.oc) * padded_channels(p);
    for (const conv::axis &a : p.x) {
        in *= backward ? a.dst : a.src;
        weights *= a.kernel;
    }
    const auto bytes = [&](wide elements) {
        return (static_cast<std::size_t>(elements) * size_of(p.type) + alignment - 1) / alignment
               * alignment;
    };
    return {bytes(in), bytes(weights)};
}

double src_elements(const problem &p) {
    return static_cast<double>(p.mb * p.groups * p.ic * p.x[0].src * p.x[1].src * p.x[2].src);
}
double dst_elements(const problem &p) {
    return static_cast<double>(positions_of(p) * p.groups * p.oc);
}

class dense_plan final : public plan {
public:
    dense_plan(
        std::string_view name, const problem &p, const architecture &on, const prediction &made)
        : problem_(p), sizes_(sizes_of(p)) {
        const bool backward = is_backward(p);
        const conv::data_strides &in = backward ? p.dst : p.src;
        args_.data = make_data_args(p, dense_rows, dense_columns);
        args_.channels = static_cast<int>(padded_channels(p));

        in_.lengths[0] = 1;
        in_.lengths[1] = p.mb;
        in_.strides[1] = in.n;
        weights_.lengths[0] = p.groups;
        weights_.strides[0] = p.weights.g;
        weights_.lengths[1] = backward ? p.ic : p.oc;
        weights_.strides[1] = backward ? p.weights.i : p.weights.o;
        for (std::size_t d = 0; d < 3; ++d) {
            in_.lengths[d + 2] = backward ? p.x[d].dst : p.x[d].src;
            in_.strides[d + 2] = in.x[d];
            weights_.lengths[d + 2] = p.x[d].kernel;
            weights_.strides[d + 2] = p.weights.k[d];
        }
        in_.groups = p.groups;
        in_.channels = weights_.channels = in_channels(p);
        in_.padded_channels = weights_.padded_channels = args_.channels;
        in_.channel_stride = in.c;
        in_.group_stride = in_channels(p) * in.c;
        weights_.groups = 1;
        weights_.channel_stride = backward ? p.weights.o : p.weights.i;
        in_.positions = weights_.positions = 1;
        for (int d = 0; d < 5; ++d) {
            in_.positions *= in_.lengths[d];
            weights_.positions *= weights_.lengths[d];
        }
        ready_ = is_packed(in_);
        set_facts(
            name, on, made, is_fast(p) ? engines::accuracy::fast : engines::accuracy::accurate);
    }
    [[nodiscard]] std::string describe() const override {
        return "tile " + std::to_string(dense_rows) + "x" + std::to_string(dense_columns) + ", "
               + std::to_string(args_.data.tiles) + " blocks, channels padded to "
               + std::to_string(args_.channels) + (ready_ ? "" : ", input packed first");
    }

private:
    /// Whether the tensor lies as packed data would.
    static bool is_packed(const pack_args &a) {
        wide next = a.groups * a.channels;
        bool all = a.channel_stride == 1 && a.channels == a.padded_channels;
        for (int d = 4; d >= 1; --d) {
            all = all && (a.strides[d] == next || a.lengths[d] == 1);
            next *= a.lengths[d];
        }
        return all;
    }
    void pack(const pack_args &a, const lane &on) const { launch_pack(a, problem_.type, on); }
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        dense_args args = args_;
        args.data.in = is_backward(problem_) ? data.dst : data.src;
        args.data.weights = data.weights;
        bind(args.data.end, problem_, data);
        auto *const room = static_cast<std::byte *>(workspace);
        pack_args weights = weights_;
        weights.from = data.weights;
        weights.to = room + sizes_.in;
        pack(weights, on);
        args.packed_weights = weights.to;
        // Packing changes where values lie, never what they are: bits do not depend on addresses.
        if (ready_ && reinterpret_cast<std::uintptr_t>(args.data.in) % 16 == 0) {
            args.packed_in = args.data.in;
        } else {
            pack_args in = in_;
            in.from = args.data.in;
            in.to = room;
            pack(in, on);
            args.packed_in = in.to;
        }
        on.launch(is_fast(problem_) ? kernel::dense_data_tf32
                                    : of_type(kernel::dense_data_f32, problem_.type),
            args.data.tiles, dense_threads, &args, dense_shared);
    }

    problem problem_;
    packed sizes_;
    dense_args args_{};
    pack_args in_{}, weights_{};
    bool ready_ = false;
};

}  // namespace

std::string refuse_dense(const problem &p) {
    if (p.what == pass::backward_weights) return refuse_dense_weights(p);
    if (!fits_32_bits(p)) return "sizes need 64-bit indices";
    // Products of split values drop what lies below their last bit, which shows in short sums.
    constexpr wide shortest = 8;
    if (in_channels(p) < shortest) return "fewer than 8 channels in a sum";
    return {};
}

prediction predict_dense(
    const problem &p, const architecture &on, const engines::plan_limits &limits) {
    if (p.what == pass::backward_weights) return predict_dense_weights(p, on, limits);
    prediction made;
    made.workspace = sizes_of(p).all();
    const data_args a = make_data_args(p, dense_rows, dense_columns);
    double taps = 1, phases = 1;
    for (std::size_t d = 0; d < 3; ++d) {
        taps *= static_cast<double>(p.x[d].kernel);
        phases *= static_cast<double>(a.phases[d]);
    }
    const wide deep = 128 / static_cast<wide>(size_of(p.type));
    const double depth = taps / phases * static_cast<double>(cover(in_channels(p), deep) * deep);
    const double macs =
        std::max(264.0, static_cast<double>(a.tiles)) * dense_rows * dense_columns * depth;
    // Shares of the tensor rate: f32 takes three products at half of it, in `fast` one. On an H200,
    // where `mma` reaches less of it, as measured but for `fast`.
    const double share = p.type != data_type::f32 ? (on.warpgroups ? 0.12 : 0.3)
                         : is_fast(p)             ? (on.warpgroups ? 0.06 : 0.15)
                                                  : (on.warpgroups ? 0.047 : 0.07);
    const double rate = on.tensor * share;
    const double packing = static_cast<double>(made.workspace) * 3 / on.memory;
    // In planes a value is stored by itself, and costs a sector (as measured on an H200).
    const bool planes = (is_backward(p) ? p.src : p.dst).c != 1 && on.warpgroups;
    const double sector = 32, outputs = is_backward(p) ? src_elements(p) : dst_elements(p);
    made.seconds = 8e-6 + packing + (planes ? outputs * sector / on.memory : 0)
                   + std::max(least_bytes(p) / on.memory, macs / rate);
    return made;
}

std::unique_ptr<const engines::plan> make_dense_plan(std::string_view name, const problem &p,
    const architecture &on, const engines::plan_limits &limits) {
    if (p.what == pass::backward_weights) return make_dense_weights_plan(name, p, on, limits);
    return std::make_unique<dense_plan>(name, p, on, predict_dense(p, on, limits));
}

}  // namespace convgrad::cuda
