#include "cpu/box_lines.hpp"

#include "cpu/streaming.hpp"

namespace convgrad::cpu {
namespace {

struct range {
    dim lo, hi;
};

box_lines box_of(const void *data, data_type type, const conv::data_strides &strides,
    const channel_range &channels, const range (&x)[3]) {
    const auto size = static_cast<dim>(size_of(type));
    dim first = channels.n * strides.n + channels.first * strides.c;
    std::array<box_lines::axis, 4> axes{};
    for (std::size_t a = 0; a < 3; ++a) {
        first += x[a].lo * strides.x[a];
        axes[a] = {x[a].hi - x[a].lo, size * strides.x[a]};
    }
    axes[3] = {channels.count, size * strides.c};
    return {static_cast<const char *>(data) + size * first, size, axes};
}

}  // namespace

bool worth_asking(const conv::problem &p) {
    const tensor_bytes bytes = bytes_of_data(p);
    const auto most = static_cast<double>(stream_above().load(std::memory_order_relaxed));
    return 4 * (bytes.src + bytes.dst) > most;
}

box_lines patch_box(const void *data, data_type type, const conv::data_strides &strides,
    const channel_range &channels, const axis_walk (&walk)[3], const axis_patch (&patch)[3],
    const dim (&tile)[3], const tile_place &place) {
    range x[3];
    for (int a = 0; a < 3; ++a) {
        const dim step = walk[a].in_step, short_by = tile[a] - place.length[a];
        x[a] = {walk[a].in_length, 0};
        for (const axis_patch::segment &segment : patch[a].segments) {
            const dim in = place.t0[a] * step + segment.in;
            const dim end = in + (segment.count - short_by - 1) * step + 1;
            x[a].lo = std::min(x[a].lo, std::max<dim>(in, 0));
            x[a].hi = std::max(x[a].hi, std::min(end, walk[a].in_length));
        }
    }
    return box_of(data, type, strides, channels, x);
}

box_lines tile_box(const void *data, data_type type, const conv::data_strides &strides,
    const channel_range &channels, const axis_walk (&walk)[3], const tile_place &place) {
    range x[3];
    for (int a = 0; a < 3; ++a) {
        const dim step = walk[a].out_step;
        x[a] = {place.t0[a] * step,
            std::min((place.t0[a] + place.length[a]) * step, walk[a].out_length)};
    }
    return box_of(data, type, strides, channels, x);
}

}  // namespace convgrad::cpu
