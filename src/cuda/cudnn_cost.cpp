#include "cuda/cudnn_cost.hpp"

#include <algorithm>

#include "cuda/bulk.hpp"

namespace convgrad::cuda {
namespace {

using conv::pass;
using conv::problem;

// By cuDNN 9.19 on an H200 (the engines that it puts first, 20 layers in both layouts).
constexpr wide tile = 128, narrow_tile = 64;  // positions by channels
constexpr double memory_share = 0.86;
constexpr double hopper_tensor = 400e12;  // architecture::tensor there; others by the same shares
constexpr double strided_data = 1.5;      // data gradients with a stride
constexpr double strided_taps = 1.3;      // other passes of 16-bit types
// Own kernels are taken where both are as fast; those for one TF32 product are predicted to be up
// to 1.6 times as fast as they are (1x1 layers to many channels), on planes with a stride 3 times,
// and were slower in 95 of 96 passes.
constexpr double preference = 1.05, tf32_preference = 0.75;

/// Shares of what tensor cores multiply.
struct share {
    double wide_tiles, narrow_tiles, pointwise;
};
share share_of(const problem &p) {
    if (p.type != data_type::f32) return {0.8, 0.47, 1};
    return p.what == pass::backward_weights ? share{0.42, 0.22, 0.42} : share{0.8, 0.47, 0.72};
}

bool is_pointwise(const problem &p) {
    bool found = true;
    for (const conv::axis &a : p.x) found = found && a.kernel == 1 && a.pad == 0;
    return found;
}
bool has_stride(const problem &p) {
    return p.x[0].stride > 1 || p.x[1].stride > 1 || p.x[2].stride > 1;
}

/// Of products, in rounds of tiles; a weights gradient of few tiles is cut into parts.
double product_seconds(const problem &p, const architecture &on, bool pointwise) {
    const bool weights = p.what == pass::backward_weights;
    const wide columns = is_backward(p) ? p.ic : p.oc,
               across = columns <= narrow_tile ? narrow_tile : tile,
               depth = weights ? positions_of(p) : taps_of(p) * (is_backward(p) ? p.oc : p.ic),
               rows = weights ? taps_of(p) * p.ic : positions_of(p);
    const wide tiles = cover(rows, tile) * cover(columns, across);
    const double rounds = weights ? static_cast<double>(tiles) / nominal::multiprocessors
                                  : static_cast<double>(nominal::rounds(tiles));
    const share s = share_of(p);
    const double of_tile = pointwise               ? s.pointwise
                           : across == narrow_tile ? s.narrow_tiles
                                                   : s.wide_tiles;
    const double rate = nominal::products * nominal::clock * (on.tensor / hopper_tensor)
                        * (p.type == data_type::f32 ? 0.5 : 1) * of_tile;
    constexpr double sums = 14e-6, pointwise_sums = 5e-6;  // of parts
    const bool cut = weights && tiles < nominal::multiprocessors;
    return rounds * static_cast<double>(depth) * static_cast<double>(tile * across) / rate
           + (!cut         ? 0
               : pointwise ? pointwise_sums
                           : sums);
}

/// Planes are turned to channels side by side and back, but for 1x1 layers, which have kernels of
/// their own where planes are whole pieces.
double planes_seconds(const problem &p, const architecture &on, bool pointwise, double seconds) {
    const bool f32 = p.type == data_type::f32;
    if (pointwise && !has_stride(p)) {
        const wide plane = p.x[0].src * p.x[1].src * p.x[2].src;
        return seconds * (plane % 16 == 0 ? 1.1 : f32 ? 1.7 : 3.2);
    }
    return seconds + (f32 ? 8e-6 : 7e-6) + (f32 ? 2.2 : 3.4) * least_bytes(p) / on.memory;
}

}  // namespace

double cudnn_seconds(const problem &p, const architecture &on, bool channels_last) {
    const bool pointwise = is_pointwise(p);
    double seconds =
        4.5e-6
        + std::max(product_seconds(p, on, pointwise), least_bytes(p) / (on.memory * memory_share));
    const bool f32 = p.type == data_type::f32;
    if (has_stride(p) && is_backward(p)) seconds *= strided_data;
    if (has_stride(p) && !is_backward(p) && !pointwise && !f32) seconds *= strided_taps;
    if (!channels_last) seconds = planes_seconds(p, on, pointwise, seconds);
    return seconds * (f32 ? tf32_preference : preference);
}

}  // namespace convgrad::cuda
