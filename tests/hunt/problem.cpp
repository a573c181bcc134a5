#include "problem.hpp"

#include <algorithm>
#include <sstream>

namespace hunt {
namespace {

dim floor_div(dim a, dim b) {
    return a >= 0 ? a / b : -((-a + b - 1) / b);
}

/// Lengths, strides and pads of one axis, by the output formulas of section 5.
axis draw_axis(const problem &p, draw &random, int profile, dim longest) {
    axis a;
    a.kernel = profile == 2 ? random.one_of<dim>({1, 1, 3})
                            : random.one_of<dim>(
                                {1, 1, 2, 2, 3, 3, 3, 4, 5, 7, random.percent(90) ? 3 : 33});
    a.stride = random.one_of<dim>({1, 1, 1, 2, 2, 3, 4, 5});
    a.dilation = random.one_of<dim>({1, 1, 1, 1, 2, 2, 3, 5, 12});
    if (profile == 5) {
        a.kernel = 3;
        a.stride = a.dilation = 1;
    }
    const dim e = a.extent();
    const bool automatic = p.auto_pad != "none";
    if (!automatic) {
        const dim most = random.one_of<dim>({0, 1, a.kernel / 2, e - 1, e + 2, 9});
        a.pad_begin = random.between(0, std::max<dim>(most, 0));
        a.pad_end = random.percent(60) ? a.pad_begin : random.between(0, std::max<dim>(most, 0));
    }
    if (!p.transposed) {
        a.large = random.between(1, longest);
        if (automatic && p.auto_pad == "valid") a.large = std::max(a.large, e);
        a.large = std::max(a.large, automatic ? 1 : e - a.pad_begin - a.pad_end);
        if (automatic) resolve_auto_pad(p, a);
        a.small = floor_div(a.large + a.pad_begin + a.pad_end - e, a.stride) + 1;
        return a;
    }
    a.small = random.between(1, longest);
    if (random.percent(40))
        a.output_padding = random.between(0, std::max(a.stride, a.dilation) - 1);
    if (automatic) resolve_auto_pad(p, a);
    const dim padded = a.stride * (a.small - 1) + e + a.output_padding;
    while (padded - a.pad_begin - a.pad_end < 1)
        --(a.pad_begin > a.pad_end ? a.pad_begin : a.pad_end);
    a.large = padded - a.pad_begin - a.pad_end;
    return a;
}

void draw_channels(problem &p, draw &random, int profile) {
    dim large = random.between(1, 5), small = random.between(1, 5);
    p.groups = random.one_of<dim>({1, 1, 1, 2, 3, 4});
    if (profile == 1) {  // one channel on one side of every group
        p.groups =
            random.percent(70) ? random.between(1, 40) : random.one_of<dim>({16, 32, 48, 64});
        large = random.percent(80) ? 1 : random.between(1, 4);
        small = large == 1 ? random.one_of<dim>({1, 1, 1, 1, 2, 3, 4}) : 1;
    } else if (profile == 2) {  // blocks of channels, and their tails
        const auto some = [&] {
            return random.one_of<dim>(
                {1, 3, 8, 12, 15, 16, 17, 24, 31, 32, 33, 47, 48, 64, 65, 80});
        };
        large = some();
        small = some();
        p.groups = random.one_of<dim>({1, 1, 1, 1, 2, 3});
    } else if (profile == 5) {  // layers that may be computed by tiles
        large = random.one_of<dim>({16, 17, 24, 32, 33, 48, 64, 100});
        small = random.one_of<dim>({16, 17, 24, 32, 33, 48, 64, 100});
        p.groups = random.one_of<dim>({1, 1, 1, 2});
    } else if (profile == 3) {
        large = random.between(1, 20);
        small = random.between(1, 20);
        p.groups = 1;
    }
    p.large_c = large * p.groups;
    p.small_c = small * p.groups;
    if (profile != 4) return;
    p.groups = random.one_of<dim>({1, 1, 2, 4});
    p.large_c = p.groups * random.between(0, 12);
    p.small_c = p.groups * random.between(0, 12);
    switch (random.between(0, 3)) {
    case 0:
        p.n = 0;
        break;
    case 1:
        p.large_c = 0;
        break;
    case 2:
        p.small_c = 0;
        break;
    default:
        p.large_c = p.small_c = 0;
    }
}

void draw_extras(problem &p, draw &random) {
    if (p.what == gradient::none) {
        p.bias = random.percent(40);
        p.relu = random.percent(25);
        p.add = random.percent(35);
        p.in_place = p.add && random.percent(60);
        p.add_is_src = p.add && !p.in_place && p.large_shape() == p.small_shape();
        return;
    }
    p.accumulate = random.percent(30);
    if (p.what == gradient::data) return;
    p.f32_weights = random.percent(35);
    p.diff_bias = random.percent(35);
    p.f32_bias = random.percent(35);
}

}  // namespace

void resolve_auto_pad(const problem &p, axis &a) {
    const dim e = a.extent();
    dim total = 0;
    if (p.auto_pad != "valid") {
        if (p.transposed) {
            total = std::max<dim>(0, e - a.stride);
        } else {
            const dim rest = a.large % a.stride;
            total = std::max<dim>(0, e - (rest == 0 ? a.stride : rest));
        }
    }
    a.pad_begin = a.pad_end = total / 2;
    (p.auto_pad == "same_lower" ? a.pad_begin : a.pad_end) = total - total / 2;
}

op_kind problem::kind() const {
    const int layer = transposed ? 16 : 13;
    const int offset = what == gradient::data ? 1 : what == gradient::weights ? 2 : 0;
    return static_cast<op_kind>(layer + offset);
}

double problem::products() const {
    double all = static_cast<double>(n) * static_cast<double>(small_c)
                 * static_cast<double>(large_per_group());
    for (const axis &a : x) all *= static_cast<double>(a.small) * static_cast<double>(a.kernel);
    return all;
}

bool problem::may_be_tiled() const {
    const bool plain = std::all_of(x.begin(), x.end(),
        [](const axis &a) { return a.kernel == 3 && a.stride == 1 && a.dilation == 1; });
    return x.size() == 2 && plain && std::min(large_per_group(), small_per_group()) >= 16;
}

double problem::terms() const {
    double positions = static_cast<double>(n), taps = 1;
    for (const axis &a : x) {
        positions *= static_cast<double>(a.small);
        taps *= static_cast<double>(a.kernel);
    }
    const double channels = static_cast<double>(std::max(large_per_group(), small_per_group()));
    double large_positions = static_cast<double>(n);
    for (const axis &a : x) large_positions *= static_cast<double>(a.large);
    if (what == gradient::weights) return std::max(positions, diff_bias ? large_positions : 0) + 2;
    if (what == gradient::both)
        return std::max({positions, channels * taps, diff_bias ? large_positions : 0}) + 2;
    return channels * taps + 3;
}

dims problem::data_shape(dim channels, dim axis::*length) const {
    dims shape = {n};
    if (channels_first) shape.push_back(channels);
    for (const axis &a : x) shape.push_back(a.*length);
    if (!channels_first) shape.push_back(channels);
    return shape;
}

/// OIX (OC, IC/G, K), XIO (K, IC/G, OC); IOX (IC, OC/G, K) or (IC/G, OC, K), XOI (K, OC/G, IC) or
/// (K, OC, IC/G). So the small tensor's channels stand outside in the outer formats and inside in
/// the others, for convolutions and transposed ones alike.
dims problem::weights_shape() const {
    const dim small = second_form ? small_per_group() : small_c;
    const dim large = second_form ? large_c : large_per_group();
    dims shape;
    if (channels_outer) shape = {small, large};
    for (const axis &a : x) shape.push_back(a.kernel);
    if (!channels_outer) shape.insert(shape.end(), {large, small});
    return shape;
}

std::string problem::weights_format() const {
    if (transposed) return channels_outer ? "IOX" : "XOI";
    return channels_outer ? "OIX" : "XIO";
}

dims problem::list(dim axis::*member) const {
    dims values;
    for (const axis &a : x) values.push_back(a.*member);
    return values;
}

bool problem::has_output_padding() const {
    return std::any_of(x.begin(), x.end(), [](const axis &a) { return a.output_padding != 0; });
}

std::string problem::text() const {
    constexpr const char *gradients[] = {
        "", " gradient=data", " gradient=weights", " gradient=both"};
    std::ostringstream s;
    s << (transposed ? "ConvTranspose" : "Convolution") << gradients[static_cast<int>(what)] << ' '
      << to_string(type) << ' ' << data_format() << ' ' << weights_format()
      << (second_form ? " (second form)" : "") << " n" << n << " groups" << groups << " large"
      << large_c << " small" << small_c;
    for (const axis &a : x)
        s << " [" << a.large << "->" << a.small << " k" << a.kernel << " s" << a.stride << " d"
          << a.dilation << " p" << a.pad_begin << '/' << a.pad_end << " q" << a.output_padding
          << ']';
    s << " auto_pad=" << auto_pad;
    if (bias) s << " bias";
    if (add_is_src) s << " (src)";
    if (add) s << (in_place ? " add in place" : " add");
    if (relu) s << " relu";
    if (accumulate) s << " accumulate";
    if (f32_weights) s << " f32 weights";
    if (diff_bias) s << (f32_bias ? " f32 diff_bias" : " diff_bias");
    s << (exact ? " integers" : special ? " reals with infinities" : " reals");
    return s.str();
}

problem draw_problem(draw &random) {
    for (;;) {
        problem p;
        p.transposed = random.percent(50);
        p.what = static_cast<gradient>(random.between(0, 3));
        p.type = random.one_of({data_type::f32, data_type::bf16, data_type::f16});
        p.auto_pad = random.percent(70)
                         ? "none"
                         : random.one_of<const char *>({"same_upper", "same_lower", "valid"});
        p.channels_first = random.percent(50);
        p.channels_outer = random.percent(50);
        p.n = random.one_of<dim>({1, 1, 2, 2, 3, 5, random.percent(80) ? 1 : 40});
        const auto share = random.between(0, 99);
        const int profile = share < 38   ? 0
                            : share < 58 ? 1
                            : share < 80 ? 2
                            : share < 89 ? 3
                            : share < 95 ? 4
                                         : 5;
        const bool heavy = random.between(0, 999) < 4;
        draw_channels(p, random, profile);
        // The documents' form of grouped transposed weights; with C = 0 nothing tells them apart.
        p.second_form = p.transposed && p.groups > 1 && p.small_c > 0 && random.percent(50);
        const auto rank = static_cast<std::size_t>(profile == 3   ? 1
                                                   : profile == 5 ? 2
                                                                  : random.one_of({1, 2, 2, 2, 3}));
        const dim longest = (heavy ? 2 : 1)
                            * (rank == 1    ? (profile == 3 ? 150 : 40)
                                : rank == 2 ? 14
                                            : 6);
        while (p.x.size() < rank) p.x.push_back(draw_axis(p, random, profile, longest));
        draw_extras(p, random);
        p.exact = random.percent(60);
        p.special = !p.exact && random.percent(15);
        double elements = static_cast<double>(p.n) * static_cast<double>(p.large_c);
        for (const axis &a : p.x) elements *= static_cast<double>(a.large);
        const double most = heavy                               ? 1e7
                            : profile == 5 || random.percent(3) ? 3e6
                            : random.percent(30)                ? 2e5
                                                                : 3e4;
        if (p.products() <= most && elements <= most) return p;
    }
}

}  // namespace hunt
