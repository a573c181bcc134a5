#include "cpu/gathered.hpp"

#include <algorithm>

#include "cpu/cost_model.hpp"
#include "cpu/fits.hpp"
#include "cpu/geometry.hpp"
#include "cpu/pointwise.hpp"
#include "cpu/tasks.hpp"
#include "cpu/tiled.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

constexpr double most_bytes = 0x1p50;     // sizes do not overflow
constexpr double turn_target = 16 << 20;  // planes that the last cache holds until they are read
constexpr std::string_view what = "gathered planes";

dim count_taps(const conv::problem &p) {
    return p.x[0].kernel * p.x[1].kernel * p.x[2].kernel;
}

/// Distance of weights whose taps, or whose input channels, are the inner of the two; both lie at
/// equal distances then, and are one long channel. 0: they are not.
dim step_with_taps_inside(const conv::problem &p) {
    const conv::weights_strides &w = p.weights;
    dim step = 0, span = 1;  // of the axes from the last on
    for (std::size_t a = 3; a-- > 0;) {
        if (p.x[a].kernel == 1) continue;
        if (step == 0) step = w.k[a];
        if (w.k[a] != step * span) return 0;
        span *= p.x[a].kernel;
    }
    if (step == 0) return w.i;
    return p.ic == 1 || w.i == step * span ? step : 0;
}

dim step_with_channels_inside(const conv::problem &p) {
    const conv::weights_strides &w = p.weights;
    dim span = p.ic;
    for (std::size_t a = 3; a-- > 0;) {
        if (p.x[a].kernel == 1) continue;
        if (w.k[a] != w.i * span) return 0;
        span *= p.x[a].kernel;
    }
    return w.i;
}

conv::problem dense_of(const conv::problem &p, bool taps_inside) {
    conv::problem q = p;
    q.ic = p.ic * count_taps(p);
    q.weights.i = taps_inside ? step_with_taps_inside(p) : step_with_channels_inside(p);
    q.weights.k = {};
    q.diff_bias = conv::bias_gradient::none;
    dim pitch = 1;
    for (std::size_t a = 3; a-- > 0;) {
        q.x[a] = conv::axis{};
        q.x[a].src = q.x[a].dst = p.x[a].dst;
        q.src.x[a] = pitch;
        pitch *= p.x[a].dst;
    }
    constexpr dim apart = 16;  // for planes that tiled_weights reads where they lie
    if (p.what == conv::pass::backward_weights && p.type == data_type::f32
        && shares_sets(4 * pitch))
        pitch += apart;
    q.src.c = pitch;
    q.src.n = pitch * q.ic * q.groups;
    const double each = static_cast<double>(q.src.n) * static_cast<double>(size_of(p.type));
    // Parts of a sum would be rounded between turns: weights gradients have one.
    if (p.what != conv::pass::backward_weights)
        while (q.mb > 1 && (p.mb % q.mb != 0 || each * static_cast<double>(q.mb) > turn_target))
            --q.mb;
    return q;
}

/// out[i] = in[i · step].
template <typename T>
void take_every(const T *in, dim step, dim count, T *out) {
    if (step == 2)
        for (dim i = 0; i < count; ++i) out[i] = in[2 * i];
    else
        for (dim i = 0; i < count; ++i) out[i] = in[step * i];
}

/// out[i · step] = in[i].
template <typename T>
void put_every(const T *in, dim step, dim count, T *out) {
    if (step == 2)
        for (dim i = 0; i < count; ++i) out[2 * i] = in[i];
    else
        for (dim i = 0; i < count; ++i) out[step * i] = in[i];
}

}  // namespace

bool fits_gathered(const conv::problem &p, std::string *why) {
    if (p.what == conv::pass::backward_data && (p.bias || p.add || p.relu || p.accumulate))
        return refuse(why, "bias, add, ReLU or old contents of diff_src");
    if (p.src.x[2] != 1 || p.src.c == 1) return refuse(why, "not planes");
    bool strided = false;
    double bytes =
        static_cast<double>(p.mb) * static_cast<double>(p.groups) * static_cast<double>(p.ic) * 4;
    for (const conv::axis &a : p.x) {
        if (a.pad != 0 || (a.dst - 1) * a.stride + (a.kernel - 1) * a.dilation >= a.src)
            return refuse(why, "padding");
        if (a.kernel > a.stride || (a.dilation != 1 && a.kernel != 1))
            return refuse(why, "taps that overlap");
        strided = strided || a.stride > 1;
        bytes *= static_cast<double>(a.dst) * static_cast<double>(a.kernel);
    }
    if (!strided) return refuse(why, "no stride");
    if (step_with_taps_inside(p) == 0 && step_with_channels_inside(p) == 0)
        return refuse(why, "weights of taps and channels that lie at unequal distances");
    if (bytes * static_cast<double>(p.oc) == 0) return refuse(why, "nothing to sum");
    return bytes <= most_bytes || refuse(why, "too large");
}

gathered_choice choose_gathered(const conv::problem &dense, const kernel_set &k) {
    const problem_sizes s(dense);
    const prediction tiled = predict_tiled(s, k);
    if (k.tiles() || !fits_pointwise(s.p, k, nullptr)) return {false, tiled};
    const prediction straight = predict_pointwise(s, k);
    return straight.seconds < tiled.seconds ? gathered_choice{true, straight}
                                            : gathered_choice{false, tiled};
}

prediction predict_gathered(const problem_sizes &s, const kernel_set &k) {
    const gathered_planes planes(s.p);
    prediction cost = choose_gathered(planes.dense(), k).cost;
    // Rows, elements that are copied, and lines of memory with what lies between.
    constexpr double row = 3e-9, element = 0.15e-9, byte = 0.04e-9;
    const double met = s.dst_positions * s.taps;
    const double lines = s.forward ? s.line_positions() + met : s.src_positions;
    // Taps of a stride of two share lines that are still near (patches of 16 to 128 channels: the
    // copy takes a third or less of that, a weights gradient as a whole 0.85 to 0.95).
    const bool near = s.taps > 1 && s.x[2].stride == 2;
    const double share = !near ? 1 : s.forward ? 0.3 : s.weights ? 0.7 : 1;
    cost.seconds =
        cost.seconds * number(planes.turns())
        + share * s.maps * s.ic * (row * met / s.x[2].dst + element * met + byte * s.size * lines);
    cost.bytes += number(static_cast<dim>(planes.bytes()));
    return cost;
}

gathered_planes::gathered_planes(const conv::problem &p)
    : p_(p), taps_(count_taps(p)), taps_inside_(step_with_taps_inside(p) != 0),
      dense_(dense_of(p, taps_inside_)) {}

std::size_t gathered_planes::bytes() const {
    return static_cast<std::size_t>(
        round_up_to(dense_.mb * dense_.src.n * static_cast<dim>(size_of(p_.type)), 64));
}

std::size_t gathered_planes::rest_of(std::size_t workspace_limit) const {
    check_workspace(what, bytes(), workspace_limit);
    return workspace_limit - bytes();
}

dim gathered_planes::turn_bytes(const conv::data_strides &s) const {
    return dense_.mb * s.n * static_cast<dim>(size_of(p_.type));
}

/// Elements from the first plane to that of a channel (of all groups) and tap.
dim gathered_planes::plane_of(dim n, dim channel, dim tap) const {
    const dim group = channel / p_.ic, i = channel % p_.ic;
    const dim inner = taps_inside_ ? i * taps_ + tap : tap * p_.ic + i;
    return n * dense_.src.n + (group * dense_.ic + inner) * dense_.src.c;
}

template <typename T>
void gathered_planes::gather(
    const T *src, T *planes, dim n, dim channel, dim first_tap, dim taps) const {
    const conv::axis &d = p_.x[0], &h = p_.x[1], &w = p_.x[2];
    src += n * p_.src.n + channel * p_.src.c;
    for (dim tap = first_tap; tap < first_tap + taps; ++tap) {
        const dim k[3] = {tap / w.kernel / h.kernel, tap / w.kernel % h.kernel, tap % w.kernel};
        T *out = planes + plane_of(n, channel, tap);
        for (dim z = 0; z < d.dst; ++z)
            for (dim y = 0; y < h.dst; ++y, out += w.dst)
                take_every(src + (z * d.stride + k[0]) * p_.src.x[0]
                               + (y * h.stride + k[1]) * p_.src.x[1] + k[2],
                    w.stride, w.dst, out);
    }
}

/// Row by row of diff_src, so that it is written once.
template <typename T>
void gathered_planes::scatter(T *src, const T *planes, dim n, dim channel) const {
    const conv::axis &d = p_.x[0], &h = p_.x[1], &w = p_.x[2];
    src += n * p_.src.n + channel * p_.src.c;
    for (dim z = 0; z < d.src; ++z)
        for (dim y = 0; y < h.src; ++y) {
            T *row = src + z * p_.src.x[0] + y * p_.src.x[1];
            std::fill_n(row, w.src, T{0});
            const dim kz = z % d.stride, ky = y % h.stride;
            if (kz >= d.kernel || ky >= h.kernel) continue;
            if (z / d.stride >= d.dst || y / h.stride >= h.dst) continue;
            const dim at = (z / d.stride * h.dst + y / h.stride) * w.dst;
            for (dim kx = 0; kx < w.kernel; ++kx) {
                const dim tap = (kz * h.kernel + ky) * w.kernel + kx;
                put_every(planes + plane_of(n, channel, tap) + at, w.stride, w.dst, row + kx);
            }
        }
}

void gathered_planes::copy(
    void *src, void *planes, bool by_channels, const executor &threads) const {
    const dim channels = p_.groups * p_.ic, taps = p_.x[2].kernel;
    // Of the planes: taps of a channel that read the same rows.
    const dim pieces = taps_inside_ || !by_channels ? 1 : taps_ / taps;
    const auto all = [&](auto element) {
        using T = decltype(element);
        for_each_task(threads, dense_.mb * channels * pieces, [&](int, dim task) {
            const dim n = by_channels ? task % dense_.mb : task / channels;
            if (by_channels) task /= dense_.mb;
            const dim channel = task % channels, piece = by_channels ? task / channels : 0;
            if (p_.what == conv::pass::backward_data)
                scatter(static_cast<T *>(src), static_cast<const T *>(planes), n, channel);
            else
                gather(static_cast<const T *>(src), static_cast<T *>(planes), n, channel,
                    piece * taps, pieces == 1 ? taps_ : taps);
        });
    };
    if (size_of(p_.type) == 4)
        all(std::uint32_t{});
    else
        all(std::uint16_t{});
}

work_stage gathered_planes::stage() const {
    const double size = static_cast<double>(size_of(p_.type));
    double plane = size, map = size;
    for (const conv::axis &a : p_.x) {
        plane *= static_cast<double>(a.dst * a.kernel);
        map *= static_cast<double>(a.src);
    }
    return {"planes", p_.mb * p_.groups * p_.ic, 1 << 20, [plane, map](dim, dim) {
                return task_cost{0, plane, map};
            }};
}

}  // namespace convgrad::cpu
