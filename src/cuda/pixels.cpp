// First layers as whole pixels in shared memory: see kernels/pixels.cuh.
#include "cuda/pixels.hpp"

#include <algorithm>
#include <cstdint>

#include "cuda/pixels_cut.hpp"

namespace convgrad::cuda {
namespace {

using conv::pass;
using conv::problem;

bool is_f32(const problem &p) {
    return p.type == data_type::f32;
}

/// Predicted first, then built: the last one is remembered.
const pixels_cut &make_cut(
    const problem &p, const architecture &on, const engines::plan_limits &limits) {
    struct memory {
        problem what;
        std::size_t workspace = 0;
        int shared = 0;
        pixels_cut cut;
    };
    thread_local memory last;
    const int shared = pixels_shared(on);
    if (last.shared != shared || !(last.what == p) || last.workspace != limits.workspace)
        last = {p, limits.workspace, shared, cut_pixels(p, shared, limits)};
    return last.cut;
}

kernel pick(const problem &p, const pixels_cut &c) {
    const auto after = [](kernel first, int step) {
        return static_cast<kernel>(static_cast<int>(first) + step);
    };
    const int pixels = p.dst.c == 1 ? 1 : 0;
    if (is_f32(p)) {
        const int channels = pixels_kernel_channels(c.args.ic), set = channels == 1   ? 0
                                                                      : channels == 3 ? 1
                                                                                      : 2;
        return after(is_weights(p) ? kernel::pixels_weights_c1p_f32 : kernel::pixels_data_c1p_f32,
            set * 2 + pixels);
    }
    if (!is_weights(p))
        return after(kernel::pixels_data_n4p_bf16,
            (c.columns == 8 ? 4 : 0) + pixels * 2 + (p.type == data_type::f16 ? 1 : 0));
    const int set = c.rows == 2 ? (c.columns == 6 ? 0 : 1) : (c.columns == 4 ? 2 : 3);
    return after(kernel::pixels_weights_m2n6p, set * 2 + pixels);
}

/// Whether dst moves in pieces of 16 bytes, of channels or of columns.
bool has_whole_pieces(const pixels_args &a, const void *dst, int element) {
    if (reinterpret_cast<std::uintptr_t>(dst) % 16 != 0) return false;
    const int piece = 16 / element;
    if (a.dst_c != 1) return has_whole_rows(a, piece);
    return a.oc % piece == 0 && a.dst_n % piece == 0 && a.dst_y % piece == 0
           && a.dst_x % piece == 0;
}

class pixels_plan final : public plan {
public:
    pixels_plan(std::string_view name, const problem &p, const architecture &on,
        const engines::plan_limits &limits)
        : problem_(p), cut_(make_cut(p, on, limits)), kernel_(pick(p, cut_)) {
        if (is_weights(p)) sums_ = gradient_sums(p, cut_.args.parts, {});
        set_facts(name, on, predict_pixels(p, on, limits),
            is_f32(p) ? engines::accuracy::strict : engines::accuracy::accurate);
    }
    [[nodiscard]] std::string describe() const override {
        const pixels_args &a = cut_.args;
        return "boxes of " + std::to_string(a.box_rows) + "x" + std::to_string(a.box_columns) + ", "
               + std::to_string(cut_.shared) + " bytes shared, " + std::to_string(a.blocks)
               + " blocks of " + std::to_string(cut_.threads) + " threads";
    }

private:
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        const int element = static_cast<int>(size_of(problem_.type));
        pixels_args args = cut_.args;
        args.src = data.src;
        const bool whole = has_whole_pieces(args, data.dst, element);
        if (is_weights(problem_)) {
            args.other = data.dst;
            args.dst_unit = whole ? 16 : 0;
            args.weights.partial = sums_.partial(workspace);
        } else {
            args.other = data.weights;
            args.store_whole = whole && args.plain != 0 ? 1 : 0;
            args.data.in = data.src;
            args.data.weights = data.weights;
            bind(args.data.end, problem_, data);
        }
        on.launch(kernel_, args.blocks, cut_.threads, &args, static_cast<std::size_t>(cut_.shared));
        if (is_weights(problem_)) sums_.finish(problem_, data, workspace, on);
    }

    problem problem_;
    pixels_cut cut_;
    kernel kernel_;
    gradient_sums sums_;
};

std::string refuse(const problem &p) {
    if (!fits_32_bits(p)) return "sizes need 64-bit indices";
    if (has_empty_tensor(p)) return "an empty tensor";
    if (p.groups != 1) return "for one group";
    if (is_backward(p)) return "for forward passes and weights gradients";
    if (p.ic > 4) return "for up to 4 channels";
    const conv::axis &depth = p.x[0];
    if (depth.src != 1 || depth.dst != 1 || depth.kernel != 1 || depth.pad != 0)
        return "for one or two axes";
    for (const conv::axis &a : p.x)
        if (a.kernel > 1 && a.dilation != 1) return "taps with gaps";
    // Of the largest box: 16 rows, 1024 columns.
    const wide far = wide{1} << 20;
    if (std::max(p.dst.x[1], p.dst.x[2]) >= far || p.x[2].stride >= far || p.x[1].stride >= far
        || p.mb * p.x[1].dst * p.x[2].dst >= wide{1} << 30)
        return "strides need 64-bit indices";
    constexpr wide most_taps = 256;
    if (taps_of(p) > most_taps) return "more than 256 taps";
    if (!fits_pixels(p)) return "no box fits into shared memory";
    return {};
}

}  // namespace

int pixels_shared(const architecture &on) {
    return on.major == 9 || on.major == 10 ? pixels_most_shared : pixels_least_shared;
}

std::string refuse_pixels(const problem &p) {
    return is_f32(p) ? "for 16-bit types" : refuse(p);
}
std::string refuse_pixels_f32(const problem &p) {
    return is_f32(p) ? refuse(p) : "for f32";
}

prediction predict_pixels(
    const problem &p, const architecture &on, const engines::plan_limits &limits) {
    const pixels_cut &c = make_cut(p, on, limits);
    const pixels_args &a = c.args;
    const bool f32 = is_f32(p), planes = a.dst_c != 1;
    // Cycles of a multiprocessor of an H200; of others by what they multiply. Forward measured
    // times are about 1.5 times the predicted ones, as those of the algorithms are that this one is
    // compared with.
    constexpr double clock = 1.7e9;
    const double slower = f32 ? 30e12 / on.fma : 400e12 / on.tensor,
                 more = is_weights(p) ? (f32 ? 1.2 : 1.25) : (f32 ? 1.15 : 1.0);
    double work = std::max(c.cycles / clock * slower * more, least_bytes(p) / (0.8 * on.memory));
    const bool whole = has_whole_pieces(a, nullptr, static_cast<int>(size_of(p.type)));
    prediction made;
    if (!is_weights(p)) {
        if (!whole && !planes) work *= 3;
        made.seconds = 4e-6 + work;
        return made;
    }
    made.workspace = gradient_sums(p, a.parts, {}).workspace();
    if (planes) work *= 1.3;
    if (!whole) work *= 2;
    // Sums of all warps go through shared memory to the parts, which are added.
    const double parts = 1.0 * a.parts * static_cast<double>(p.oc * p.ic * taps_of(p)) * 4;
    made.seconds = (f32 ? 18e-6 : 9e-6) + work + parts / 0.8e12 * (4.2e12 / on.memory);
    return made;
}

std::unique_ptr<const engines::plan> make_pixels_plan(std::string_view name, const problem &p,
    const architecture &on, const engines::plan_limits &limits) {
    return std::make_unique<pixels_plan>(name, p, on, limits);
}

}  // namespace convgrad::cuda
