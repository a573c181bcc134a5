#include "cuda/cudnn_cost.hpp"

#include <algorithm>

namespace convgrad::cuda {
namespace {

using conv::pass;
using conv::problem;

/// Rates of cuDNN 9.19 in terms of an architecture's, on layers that fill a device.
struct rates {
    static constexpr double products = 0.71;      // 16-bit; TF32 half as many
    static constexpr double tf32_gradient = 0.6;  // weights gradients in TF32, of that
    static constexpr double narrow = 0.68;        // of tiles for up to 64 channels
    static constexpr double memory = 0.86;
    static constexpr double turning = 4.4;  // bytes for each of a tensor that is turned
    static constexpr double start = 3e-6;
    static constexpr double turning_start = 4e-6;
    static constexpr double split_sums = 8e-6;  // few tiles: sums of parts
    static constexpr double odd_planes = 2.9;   // 1x1 on planes that 16 bytes do not divide
};

constexpr wide tile = 128;  // positions by channels
constexpr wide tiles_of_device = 132;

bool is_pointwise(const problem &p) {
    bool found = true;
    for (const conv::axis &a : p.x) found = found && a.kernel == 1 && a.stride == 1 && a.pad == 0;
    return found && p.groups == 1;
}

wide plane_of(const problem &p, bool src) {
    wide all = 1;
    for (const conv::axis &a : p.x) all *= src ? a.src : a.dst;
    return all;
}

/// Multiply-adds, with what whole tiles hold beyond the problem's.
double tiled_macs(const problem &p, wide &tiles) {
    const bool weights = p.what == pass::backward_weights;
    const wide columns = is_backward(p) ? p.ic : p.oc;
    const wide rows = weights ? taps_of(p) * p.ic : p.mb * plane_of(p, is_backward(p));
    // Fewer channels than 8 are padded, groups computed one by one.
    const auto padded = [](wide n) { return cover(n, 8) * 8; };
    const wide wide_columns =
        cover(columns, columns <= 64 ? 64 : tile) * (columns <= 64 ? 64 : tile);
    tiles = cover(rows, tile) * cover(columns, tile) * p.groups;
    const double depth =
        weights ? static_cast<double>(positions_of(p))
                : static_cast<double>(taps_of(p) * padded(is_backward(p) ? p.oc : p.ic));
    double all = static_cast<double>(cover(rows, tile) * tile)
                 * static_cast<double>(wide_columns * p.groups) * depth;
    // Taps that a stride leaves out.
    if (is_backward(p))
        for (const conv::axis &a : p.x) all /= static_cast<double>(std::min(a.stride, a.kernel));
    const double full = weights
                            ? 1
                            : std::max(1.0, static_cast<double>(tiles_of_device)
                                                / static_cast<double>(std::max<wide>(1, tiles)));
    return all * full;
}

}  // namespace

double cudnn_seconds(const problem &p, const architecture &on, bool channels_last) {
    const bool weights = p.what == pass::backward_weights, f32 = p.type == data_type::f32;
    wide tiles = 0;
    const double macs = tiled_macs(p, tiles);
    double rate = on.tensor * rates::products * (f32 ? 0.5 : 1);
    if (weights && f32) rate *= rates::tf32_gradient;
    if ((is_backward(p) ? p.ic : p.oc) <= 64 && !is_pointwise(p)) rate *= rates::narrow;
    double seconds =
        rates::start + std::max(macs / rate, least_bytes(p) / (on.memory * rates::memory));
    if (weights && tiles < tiles_of_device) seconds += rates::split_sums;
    if (channels_last) return seconds;
    // Planes are turned, but for 1x1 layers.
    const wide whole = 16 / static_cast<wide>(size_of(p.type));
    if (is_pointwise(p))
        return plane_of(p, true) % whole == 0 ? seconds : seconds * rates::odd_planes;
    return seconds + rates::turning_start + rates::turning * least_bytes(p) / on.memory;
}

}  // namespace convgrad::cuda
