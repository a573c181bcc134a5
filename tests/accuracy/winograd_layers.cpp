#include "accuracy/winograd_layers.hpp"

namespace convgrad::accuracy {
namespace {

/// Taps and stride.
struct filter {
    dim kernel, stride;
};
constexpr filter filter_3x3 = {3, 1};

/// With `side` output positions along both axes, or (backward data) of diff_src for each residue.
conv::problem layer(conv::pass what, dim ic, dim oc, dim side, dim mb = 1, filter of = filter_3x3) {
    conv::problem p;
    p.what = what;
    p.mb = mb;
    p.ic = ic;
    p.oc = oc;
    p.x[1] = p.x[2] = test::make_axis(side * of.stride, of.kernel, of.stride, 1, 1, 1);
    test::set_layouts(p, test::data_layout::nxc, test::weights_layout::xio, test::data_layout::nxc);
    return p;
}

}  // namespace

std::vector<winograd_layer> winograd_layers(conv::pass what) {
    std::vector<winograd_layer> found;
    if (what == conv::pass::backward_weights)
        for (const dim side : {4, 7, 10, 14, 16, 23, 28, 32, 46, 64})
            found.push_back({layer(what, 16, 16, side), side * side});
    else
        for (const dim channels : {16, 32, 64, 96, 128, 256, 384, 512})
            found.push_back({what == conv::pass::forward ? layer(what, channels, 16, 12)
                                                         : layer(what, 16, channels, 12),
                channels});
    return found;
}

std::vector<winograd_layer> winograd_edge_layers(conv::pass what) {
    std::vector<winograd_layer> found;
    if (what == conv::pass::backward_weights) {
        for (const dim side : {26, 40}) found.push_back({layer(what, 16, 16, side), side * side});
        for (const dim images : {6, 14, 16, 32, 42})  // all edges
            found.push_back({layer(what, 16, 16, 7, images), images * 49});
        for (const dim images : {4, 8, 11})
            found.push_back({layer(what, 16, 16, 14, images), images * 196});
        return found;
    }
    for (const dim channels : {16, 32, 64, 96, 128, 256, 384})
        for (const dim side : {7, 6}) {
            // Where a tile is close to 1, enough results that chance does not decide.
            const dim images = channels < 128 ? 12 : 3;
            found.push_back({what == conv::pass::forward ? layer(what, channels, 16, side, images)
                                                         : layer(what, 16, channels, side, images),
                channels});
        }
    return found;
}

// Forward four residues are summed up, as if they were channels.
std::vector<winograd_layer> winograd_stride_layers(conv::pass what, dim kernel) {
    const filter of{kernel, 2};
    std::vector<winograd_layer> found;
    if (what == conv::pass::backward_weights) {
        for (const dim side : {4, 7, 10, 14, 16, 23, 26, 28, 32, 40, 46, 56, 64})
            found.push_back({layer(what, 16, 16, side, 1, of), side * side});
        for (const dim images : {16, 32, 48, 64, 128, 192, 288})
            found.push_back({layer(what, 16, 16, 4, images, of), images * 16});
        return found;
    }
    for (const dim side : {15, 7, 4})
        for (const dim channels : {16, 32, 64, 128, 256, 384, 704, 1024, 1536}) {
            const dim mb = side == 15 ? 1 : 4;
            if (what == conv::pass::backward_data)
                found.push_back({layer(what, 16, channels, side, mb, of), channels});
            else if (channels <= 704)
                found.push_back({layer(what, channels, 16, side, mb, of), channels});
        }
    return found;
}

std::vector<winograd_layer> winograd_tap_layers(conv::pass what, dim kernel, bool line) {
    const filter of{kernel, 1};
    std::vector<winograd_layer> found;
    const auto add = [&](dim channels, dim side, dim mb) {
        const bool forward = what == conv::pass::forward;
        const bool weights = what == conv::pass::backward_weights;
        conv::problem p = layer(what, forward ? channels : 16,
            what == conv::pass::backward_data ? channels : 16, side, mb, of);
        if (line) p.x[1] = test::make_axis(1, 1, 1, 1, 0, 0);
        test::set_layouts(
            p, test::data_layout::nxc, test::weights_layout::xio, test::data_layout::nxc);
        found.push_back({p, weights ? mb * p.x[1].dst * p.x[2].dst : channels});
    };
    if (what == conv::pass::backward_weights) {
        for (const dim side : {16, 24, 29, 40, 56, 64}) add(16, line ? side * side : side, 1);
        for (const dim images : {14, 42, 64}) add(16, 7, line ? 7 * images : images);
        return found;
    }
    for (const dim channels : {64, 96, 128, 192, 256, 512})
        for (const dim side : {14, 7})
            add(channels, line ? 10 * side : side, line ? 6 : side == 7 ? 12 : 3);
    return found;
}

double winograd_factor(const conv::problem &p, cpu::winograd_tile tile, isa set, flavour f) {
    subject s(p, f, 1);
    const errors e =
        s.run({.max_isa = set, .only_algorithm = winograd_names[static_cast<std::size_t>(tile)]},
            math_mode::accurate);
    return e.rms_error() / s.plain().rms_error();
}

}  // namespace convgrad::accuracy
