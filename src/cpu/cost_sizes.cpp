// What predictions ask about a problem.
#include <algorithm>
#include <utility>

#include "conv/simplify.hpp"
#include "conv/taps.hpp"
#include "cpu/cost_counts.hpp"

namespace convgrad::cpu {
namespace {

axis_sizes sizes_of(const conv::axis &a, conv::pass what) {
    axis_sizes x{number(a.src), number(a.dst), number(a.kernel), number(a.stride),
        number(a.dilation), number(a.pad)};
    if (a == conv::axis{}) return x;
    const conv::tap_counts inside = conv::count_taps(a);
    x.pairs = inside.pairs;
    x.kernel = std::max(1.0, inside.taps);  // drivers drop the others
    const double reach = (x.kernel - 1) * x.dilation + 1;
    if (what != conv::pass::backward_data) {
        x.results = x.length = x.dst;
        x.patch = std::min(x.dst * x.kernel, (x.dst - 1) * x.stride + reach);
        x.touched = std::min(x.src, x.patch);
        return x;
    }
    dim common = a.stride, rest = a.dilation;  // their greatest common divisor
    while (rest != 0) common = std::exchange(rest, common % rest);
    x.phases = std::min(x.kernel, std::max(1.0, x.stride / number(common)));
    x.length = parts_of(x.src, x.stride);
    x.results = std::min(x.src, x.length * x.phases);
    x.patch = x.length + parts_of(reach - 1, x.stride);
    x.touched = std::min(x.dst, x.patch);
    return x;
}

}  // namespace

problem_sizes::problem_sizes(const conv::problem &asked)
    : p(asked.what == conv::pass::backward_bias ? asked : conv::simplify(asked)),
      weights(p.what == conv::pass::backward_weights), forward(p.what != conv::pass::backward_data),
      f32(p.type == data_type::f32), size(static_cast<double>(size_of(p.type))),
      images(number(p.mb)), groups(number(p.groups)), maps(images * groups), ic(number(p.ic)),
      oc(number(p.oc)), taps(1), all_taps(1), src_positions(1), dst_positions(1), in_positions(1),
      out_positions(1) {
    for (std::size_t a = 0; a < 3; ++a) {
        x[a] = sizes_of(p.x[a], p.what);
        taps *= x[a].kernel;
        all_taps *= number(p.x[a].kernel);
        src_positions *= x[a].src;
        dst_positions *= x[a].dst;
        in_positions *= x[a].touched;
        out_positions *= forward ? x[a].dst : x[a].src;
    }
    const conv::data_strides &in = forward ? p.src : p.dst, &out = forward ? p.dst : p.src;
    in_c = forward ? ic : oc;
    out_c = forward ? oc : ic;
    in_last = in.c == 1;
    out_last = out.c == 1;
    in_pitch = number(in.x[2]);
    in_step = forward ? x[2].stride : 1;
    patch_rows = maps * x[0].touched * x[1].touched;
    segments = forward ? std::min(x[2].stride, x[2].kernel) : 1;
    if (weights) {
        in_positions = std::min(src_positions, dst_positions * taps);
        patch_rows = maps * std::min(x[0].src, x[0].dst * x[0].kernel)
                     * std::min(x[1].src, x[1].dst * x[1].kernel);
    }
    empty = maps * ic * oc * x[0].pairs * x[1].pairs * x[2].pairs == 0;
}

}  // namespace convgrad::cpu
