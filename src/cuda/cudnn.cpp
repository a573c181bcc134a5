#include "cuda/cudnn.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

#include <convgrad/error.hpp>

#include "cuda/cudnn_cost.hpp"
#include "cuda/cudnn_device.hpp"
#include "cuda/kernels/care_args.hpp"
#include "cuda/operand.hpp"

namespace convgrad::cuda {
namespace {

using conv::pass;
using conv::problem;

constexpr std::size_t alignment = 256;

std::size_t aligned(std::size_t bytes) {
    return (bytes + alignment - 1) / alignment * alignment;
}

/// Whether data lies dense, channels last or as planes.
bool lies(const problem &p, bool is_src, bool channels_last) {
    const conv::data_strides &s = is_src ? p.src : p.dst;
    const dim channels = p.groups * (is_src ? p.ic : p.oc);
    dim next = channels_last ? channels : 1;
    if (channels_last && channels != 1 && s.c != 1) return false;
    for (std::size_t d = 3; d-- > 0;) {
        const dim length = is_src ? p.x[d].src : p.x[d].dst;
        if (length != 1 && s.x[d] != next) return false;
        next *= length;
    }
    if (!channels_last && channels != 1 && s.c != next) return false;
    return p.mb == 1 || s.n == next * (channels_last ? 1 : channels);
}

/// How src and dst lie both.
std::optional<bool> channels_last(const problem &p) {
    for (const bool last : {true, false})
        if (lies(p, true, last) && lies(p, false, last)) return last;
    return std::nullopt;
}

/// Weights as cuDNN has them beside such data: [oc][tap][ic], or [oc][ic][tap] as a problem whose
/// taps are channels. None, if taps are not one step apart.
std::optional<problem> ordered_weights(const problem &p, bool last) {
    problem made = p;
    made.what = pass::forward;
    if (last) return made;
    dim step = 1, next = 0;
    for (std::size_t d = 3; d-- > 0;) {
        made.x[d] = {};
        made.weights.k[d] = 0;
        if (p.x[d].kernel == 1) continue;
        if (next == 0) step = next = p.weights.k[d];
        if (p.weights.k[d] != next) return std::nullopt;
        next *= p.x[d].kernel;
    }
    made.ic = taps_of(p);
    made.weights.i = step;
    made.x[2].kernel = p.ic;
    made.weights.k[2] = p.weights.i;
    return made;
}

/// Whether weights lie so already.
bool lie_ordered(const problem &ordered) {
    dim next = ordered.ic;
    if (ordered.ic != 1 && ordered.weights.i != 1) return false;
    for (std::size_t d = 3; d-- > 0;) {
        if (ordered.x[d].kernel != 1 && ordered.weights.k[d] != next) return false;
        next *= ordered.x[d].kernel;
    }
    if (ordered.oc != 1 && ordered.weights.o != next) return false;
    return ordered.groups == 1 || ordered.weights.g == next * ordered.oc;
}

bool is_pointwise(const problem &p) {
    bool found = true;
    for (const conv::axis &a : p.x) found = found && a.kernel == 1 && a.stride == 1 && a.pad == 0;
    return found;
}

/// Whether zeros that are no numbers may have a part in sums: padding, or what lies between
/// gradients of positions that are a stride apart.
bool may_meet_zeros(const problem &p) {
    for (const conv::axis &a : p.x)
        if (a.pad > 0 || end_pad(a) > 0 || (is_backward(p) && a.stride > 1)) return true;
    return false;
}

/// The bias gradient of a problem and nothing else: one without weights.
problem bias_of(const problem &p) {
    problem made = p;
    (p.diff_bias == conv::bias_gradient::from_dst ? made.ic : made.oc) = 0;
    return made;
}

/// What surrounds cuDNN's part, by the problem alone. Workspace: weights in order, signs of weights
/// that are not finite, sums of a bias gradient; cuDNN's own comes last.
struct frame {
    bool last;  // channels
    problem ordered;
    bool in_order;  // weights lie as cuDNN has them
    weights_operand weights;
    bool careful;
    gradient_sums bias;
    std::size_t weights_bytes, found_at, bias_at, bytes;
    std::unique_ptr<const engines::plan> otherwise;  // for tensors that start anywhere

    frame(const problem &p, const architecture &on)
        : last(*channels_last(p)), ordered(*ordered_weights(p, last)),
          in_order(lie_ordered(ordered) && !(is_weights(p) && p.accumulate)),
          weights(ordered, 1, ordered.ic, false),
          // Weights that are put in order are rounded, in which the largest numbers overflow.
          careful(may_meet_zeros(p) || (p.type == data_type::f32 && !in_order && !is_weights(p))) {
        constexpr engines::plan_limits leanest{.workspace = 0};
        weights_bytes = in_order ? 0 : aligned(weights.bytes());
        found_at = weights_bytes;
        bias_at = found_at
                  + (careful && !is_weights(p) ? aligned(care_scan_blocks * sizeof(unsigned)) : 0);
        bytes = bias_at;
        if (is_weights(p) && p.diff_bias != conv::bias_gradient::none) {
            bias = gradient_sums(bias_of(p), 1, leanest);
            bytes += aligned(bias.workspace());
        }
        otherwise = make_general_plan("cuda.general", p, on, tile_kind::general, leanest);
    }
    /// Of what surrounds cuDNN: short kernels, and weights that are put in order.
    [[nodiscard]] double seconds(const problem &p, const architecture &on) const {
        constexpr double short_kernel = 2.7e-6;
        const int kernels =
            is_weights(p) ? (careful || !in_order ? 1 : 0) : (careful ? 2 : 0) + (in_order ? 0 : 1);
        return kernels * short_kernel
               + (in_order ? 0 : 3 * static_cast<double>(weights.bytes()) / on.memory);
    }
    /// With so much for cuDNN.
    [[nodiscard]] std::size_t workspace(std::size_t inner) const {
        return std::max(bytes + inner, otherwise->workspace());
    }
};

prediction predict_with(const frame &around, const problem &p, const architecture &on) {
    return {cudnn_seconds(p, on, around.last) + around.seconds(p, on), around.workspace(0)};
}

class cudnn_plan final : public plan {
public:
    /// `made`: its workspace is all that is needed.
    cudnn_plan(std::string_view name, const problem &p, const architecture &on, frame &&around,
        const cudnn_device::found *by, const prediction &made)
        : problem_(p), frame_(std::move(around)), on_(on.cudnn_here), by_(by),
          data_(make_data_args(p, 1, 1)) {
        care_weights_args &c = place_;
        c.weights = make_weights_args(p);
        std::copy_n(p.weights.k.begin(), 3, c.tap_strides);
        c.group_stride = p.weights.g;
        c.out_stride = p.weights.o;
        c.in_stride = p.weights.i;
        c.taps_last = frame_.last ? 0 : 1;
        c.accumulate = p.accumulate ? 1 : 0;
        c.careful = frame_.careful ? 1 : 0;
        set_facts(
            name, on, made, is_fast(p) ? engines::accuracy::fast : engines::accuracy::accurate);
    }
    [[nodiscard]] std::string describe() const override {
        if (by_ == nullptr) return "cuDNN, on no device";
        return on_->version() + ", engine " + std::to_string(by_->engine)
               + (frame_.in_order         ? ""
                   : is_weights(problem_) ? ", diff_weights put in order"
                                          : ", weights put in order first");
    }

private:
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        const auto is_aligned = [](const void *at) {
            return reinterpret_cast<std::uintptr_t>(at) % 16 == 0;
        };
        if (by_ == nullptr)
            throw error(error_code::unsupported, "a plan of cuDNN that was made for no device");
        if (!is_aligned(data.src) || !is_aligned(data.weights) || !is_aligned(data.dst))
            return plan::run(static_cast<const plan &>(*frame_.otherwise), data, workspace, on);
        auto *const room = static_cast<std::byte *>(workspace);
        if (is_weights(problem_))
            run_weights(data, room, on);
        else
            run_data(data, room, on);
    }

    void run_data(const conv::buffers &data, std::byte *room, const lane &on) const {
        const problem &p = problem_;
        conv::buffers theirs = data;
        if (!frame_.in_order) {
            frame_.weights.read(data.weights, room, on);
            theirs.weights = room;
        }
        on_->run(*by_, theirs, room + frame_.bytes, on);
        if (!frame_.careful) return;
        auto *const found = reinterpret_cast<unsigned *>(room + frame_.found_at);
        const care_scan_args scan{theirs.weights, p.groups * p.oc * p.ic * taps_of(p), found};
        on.launch(of_type(kernel::care_scan_f32, p.type), care_scan_blocks, care_threads, &scan);
        care_data_args care{data_, found};
        care.data.in = is_backward(p) ? data.dst : data.src;
        care.data.weights = data.weights;
        bind(care.data.end, p, data);
        on.launch(of_type(kernel::care_data_f32, p.type), care_blocks, care_threads, &care);
    }

    void run_weights(const conv::buffers &data, std::byte *room, const lane &on) const {
        const problem &p = problem_;
        conv::buffers theirs = data;
        if (!frame_.in_order) theirs.weights = room;
        on_->run(*by_, theirs, room + frame_.bytes, on);
        if (frame_.careful || !frame_.in_order) {
            care_weights_args place = place_;
            place.weights.src = data.src;
            place.weights.dst = data.dst;
            place.from = theirs.weights;
            place.out = data.weights;
            const wide each = frame_.in_order ? 16 / static_cast<wide>(size_of(p.type)) : 1,
                       threads = cover(p.groups * p.oc * p.ic * taps_of(p), each);
            on.launch(of_type(kernel::care_weights_f32, p.type), cover(threads, care_threads),
                care_threads, &place);
        }
        if (p.diff_bias != conv::bias_gradient::none)
            frame_.bias.finish(bias_of(p), data, room + frame_.bias_at, on);
    }

    static constexpr wide care_blocks = 264;

    problem problem_;
    frame frame_;
    cudnn_device *on_;
    const cudnn_device::found *by_;
    data_args data_{};
    care_weights_args place_{};
};

}  // namespace

bool has_cudnn(const architecture &on) {
    return on.cudnn;
}

std::string refuse_cudnn(const problem &p) {
    if (p.type == data_type::f32 && p.math != math_mode::fast) return "f32 in `fast` only";
    if (p.out_type != p.type) return "gradients of the inputs' type only";
    // With groups, cuDNN multiplies values of one by zeros of another, which care would have to
    // look for in all of the input.
    if (p.groups > 1) return "one group only";
    if (const wide piece = 16 / static_cast<wide>(size_of(p.type));
        p.ic % piece != 0 || p.oc % piece != 0)
        return "channels that are whole pieces of 16 bytes only";
    // Engines for few channels lose infinities (f16).
    if (constexpr dim least = 32; p.type != data_type::f32 && std::min(p.ic, p.oc) < least)
        return "16-bit types from 32 channels on";
    if (!fits_32_bits(p)) return "sizes need 64-bit indices";
    if (has_empty_tensor(p)) return "an empty tensor";
    if (!is_weights(p) && (p.bias || p.add || p.relu || p.accumulate))
        return "does nothing with its sums";
    if (is_weights(p) && p.accumulate && p.type != data_type::f32)
        return "rounds before anything could be added";
    for (const conv::axis &a : p.x) {
        const dim reach = (a.kernel - 1) * a.dilation + 1, end = std::max<dim>(0, end_pad(a));
        if ((a.src + a.pad + end - reach) / a.stride + 1 != a.dst) return "a negative pad";
    }
    const std::optional<bool> last = channels_last(p);
    if (!last) return "data that is neither dense planes nor dense channels side by side";
    if (!*last && p.type != data_type::f32 && !is_weights(p) && !is_pointwise(p))
        return "planes of 16-bit types by 1x1 layers only";
    if (!ordered_weights(p, *last)) return "weights whose taps are not one step apart";
    return {};
}

prediction predict_cudnn(
    const problem &p, const architecture &on, const engines::plan_limits & /*limits*/) {
    return predict_with(frame(p, on), p, on);
}

std::unique_ptr<const engines::plan> make_cudnn_plan(std::string_view name, const problem &p,
    const architecture &on, const engines::plan_limits &limits) {
    frame around(p, on);
    prediction made = predict_with(around, p, on);
    if (made.workspace > limits.workspace) return nullptr;
    const cudnn_device::found *by = nullptr;
    if (on.cudnn_here != nullptr) {
        by = on.cudnn_here->find({p, around.last, p.type, limits.workspace - around.bytes});
        if (by == nullptr) return nullptr;
        made.workspace = around.workspace(by->ready.workspace());
    }
    return std::make_unique<cudnn_plan>(name, p, on, std::move(around), by, made);
}

}  // namespace convgrad::cuda
