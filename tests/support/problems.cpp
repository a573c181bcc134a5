#include "support/problems.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

/// Assigns strides from the innermost axis outwards. With gaps, every axis is followed by unused
/// elements, the innermost one too.
class stride_setter {
public:
    explicit stride_setter(bool gaps) : gaps_(gaps), next_(gaps ? 2 : 1) {}

    stride_setter &axis(dim length, dim &stride) {
        stride = next_;
        next_ *= std::max<dim>(length, 1);
        if (gaps_) next_ += 3;
        return *this;
    }

private:
    bool gaps_;
    dim next_;
};

void set_data_strides(
    conv::data_strides &s, data_layout layout, dim mb, dim channels, const std::array<dim, 3> &x) {
    stride_setter set(layout == data_layout::nxc_gaps || layout == data_layout::ncx_gaps);
    const auto space = [&] { set.axis(x[2], s.x[2]).axis(x[1], s.x[1]).axis(x[0], s.x[0]); };
    switch (layout) {
    case data_layout::nxc:
    case data_layout::nxc_gaps:
        set.axis(channels, s.c);
        space();
        set.axis(mb, s.n);
        break;
    case data_layout::ncx:
    case data_layout::ncx_gaps:
        space();
        set.axis(channels, s.c).axis(mb, s.n);
        break;
    case data_layout::cxn:
        set.axis(mb, s.n);
        space();
        set.axis(channels, s.c);
        break;
    }
}

void set_weights_strides(problem &p, weights_layout layout) {
    conv::weights_strides &s = p.weights;
    stride_setter set(layout == weights_layout::gaps || layout == weights_layout::oix_gaps);
    const auto space = [&] {
        set.axis(p.x[2].kernel, s.k[2]).axis(p.x[1].kernel, s.k[1]).axis(p.x[0].kernel, s.k[0]);
    };
    switch (layout) {
    case weights_layout::oix:
    case weights_layout::oix_gaps:
        space();
        set.axis(p.ic, s.i).axis(p.oc, s.o).axis(p.groups, s.g);
        break;
    case weights_layout::o_gi_x:
        space();
        set.axis(p.ic, s.i).axis(p.groups, s.g).axis(p.oc, s.o);
        break;
    case weights_layout::xio:
    case weights_layout::gaps:
        set.axis(p.oc, s.o).axis(p.groups, s.g).axis(p.ic, s.i);
        space();
        break;
    case weights_layout::x_gi_o:
        set.axis(p.oc, s.o).axis(p.ic, s.i).axis(p.groups, s.g);
        space();
        break;
    }
}

std::array<extent, 6> data_extents(const problem &p, const conv::data_strides &s, bool src) {
    const dim c = p.groups * (src ? p.ic : p.oc);
    std::array<extent, 6> e;
    e[0] = {p.mb, s.n};
    e[1] = {c, s.c};
    for (std::size_t d = 0; d < 3; ++d) e[d + 2] = {src ? p.x[d].src : p.x[d].dst, s.x[d]};
    return e;
}

dim bias_length(const problem &p) {
    if (p.what == pass::backward_weights || p.what == pass::backward_bias) {
        if (p.diff_bias == conv::bias_gradient::none) return 0;
        return p.groups * (p.diff_bias == conv::bias_gradient::from_dst ? p.oc : p.ic);
    }
    if (!p.bias) return 0;
    return p.groups * (p.what == pass::forward ? p.oc : p.ic);
}

}  // namespace

void set_layouts(problem &p, data_layout src, weights_layout weights, data_layout dst) {
    set_data_strides(p.src, src, p.mb, p.groups * p.ic, {p.x[0].src, p.x[1].src, p.x[2].src});
    set_data_strides(p.dst, dst, p.mb, p.groups * p.oc, {p.x[0].dst, p.x[1].dst, p.x[2].dst});
    set_weights_strides(p, weights);
    if (p.add) p.add_strides = p.what == pass::forward ? p.dst : p.src;
}

std::array<extent, 6> extents_of(const problem &p, role r) {
    std::array<extent, 6> e;
    switch (r) {
    case role::src:
        return data_extents(p, p.src, true);
    case role::dst:
        return data_extents(p, p.dst, false);
    case role::add:
        if (p.add) return data_extents(p, p.add_strides, p.what == pass::backward_data);
        e[0].length = 0;
        return e;
    case role::bias:
        e[0] = {bias_length(p), p.bias_stride};
        return e;
    case role::weights:
        break;
    }
    e[0] = {p.groups, p.weights.g};
    e[1] = {p.oc, p.weights.o};
    e[2] = {p.ic, p.weights.i};
    for (std::size_t d = 0; d < 3; ++d) e[d + 3] = {p.x[d].kernel, p.weights.k[d]};
    return e;
}

dim span_of(const problem &p, role r) {
    dim last = 0;
    for (const extent &e : extents_of(p, r)) {
        if (e.length == 0) return 0;
        last += (e.length - 1) * e.stride;
    }
    return last + 1;
}

role output_of(const problem &p) {
    switch (p.what) {
    case pass::forward:
        return role::dst;
    case pass::backward_data:
        return role::src;
    case pass::backward_weights:
        return role::weights;
    case pass::backward_bias:
        break;
    }
    return role::bias;
}

data_type type_of(const problem &p, role r) {
    if (r == output_of(p)) return p.out_type;
    if (r == role::bias && p.what == pass::backward_weights) return p.diff_bias_type;
    return p.type;
}

conv::problem sized(pass what, data_type type, dim mb, dim groups, dim ic, dim oc) {
    problem p;
    p.what = what;
    p.type = p.out_type = type;
    p.mb = mb;
    p.groups = groups;
    p.ic = ic;
    p.oc = oc;
    return p;
}

conv::axis make_axis(dim src, dim kernel, dim stride, dim dilation, dim pad, dim pad_end) {
    const dim room = src + pad + pad_end - (dilation * (kernel - 1) + 1);
    const dim dst = room < 0 ? 0 : room / stride + 1;
    return {src, dst, kernel, stride, dilation, pad};
}

namespace {

conv::axis random_axis(rng &random) {
    for (;;) {
        const dim kernel = random.pick<dim>({1, 1, 2, 3, 3, 3, 4, 5, 7});
        const dim stride = random.pick<dim>({1, 1, 1, 2, 2, 3, 4, 5});
        const dim dilation = random.pick<dim>({1, 1, 1, 2, 3});
        const dim extent = dilation * (kernel - 1) + 1;
        const dim longest_pad = random.chance(0.15) ? extent + 3 : extent - 1;
        const dim pad = random.chance(0.3) ? 0 : random.between(0, longest_pad);
        const dim pad_end = random.chance(0.3) ? pad : random.between(0, longest_pad);
        const dim src = random.chance(0.3) ? random.between(1, 4) : random.between(1, 33);
        conv::axis a = make_axis(src, kernel, stride, dilation, pad, pad_end);
        // Fewer outputs than fit: what output_padding leads to.
        if (a.dst > 1 && random.chance(0.15)) a.dst -= 1;
        if (a.dst >= 1) return a;
    }
}

dim random_channels(rng &random) {
    return random.pick<dim>({1, 1, 2, 3, 3, 4, 5, 7, 8, 8, 12, 15, 16, 16, 17, 24, 31, 32, 33, 47,
        48, 49, 63, 64, 64, 65, 96, 130});
}

void halve_largest(problem &p) {
    std::array<dim *, 3> sizes = {&p.mb, &p.groups, p.ic > p.oc ? &p.ic : &p.oc};
    dim &largest = **std::ranges::max_element(sizes, {}, [](const dim *d) { return *d; });
    if (largest > 1) {
        largest = (largest + 1) / 2;
        return;
    }
    for (conv::axis &a : p.x)
        if (a.dst > 1) {
            const dim less = a.dst / 2;
            a.dst -= less;
            a.src = std::max<dim>(1, a.src - less * a.stride);
        }
}

}  // namespace

namespace {

void overlap(rng &random, std::initializer_list<dim *> strides) {
    for (dim *stride : strides)
        if (random.chance(0.5)) *stride = random.between(1, std::min<dim>(*stride, 8));
}

}  // namespace

void overlap_inputs(rng &random, problem &p) {
    const role out = output_of(p);
    const auto data = [&](conv::data_strides &s) {
        overlap(random, {&s.n, &s.c, &s.x[0], &s.x[1], &s.x[2]});
    };
    if (out != role::src && random.chance(0.5)) data(p.src);
    if (out != role::dst && random.chance(0.5)) data(p.dst);
    if (out != role::weights && random.chance(0.5))
        overlap(random, {&p.weights.g, &p.weights.o, &p.weights.i, &p.weights.k[0], &p.weights.k[1],
                            &p.weights.k[2]});
    if (p.add && random.chance(0.5)) data(p.add_strides);
}

void set_random_layouts(rng &random, problem &p, inputs allowed) {
    // Packed formats most of the time, both data tensors alike: what the fast paths look for.
    const auto data = [&] {
        return random.pick({data_layout::nxc, data_layout::nxc, data_layout::ncx, data_layout::ncx,
            data_layout::nxc_gaps, data_layout::ncx_gaps, data_layout::cxn});
    };
    const auto weights =
        random.pick({weights_layout::oix, weights_layout::xio, weights_layout::o_gi_x,
            weights_layout::x_gi_o, weights_layout::gaps, weights_layout::oix_gaps});
    const data_layout src = data();
    set_layouts(p, src, weights, random.chance(0.8) ? src : data());
    p.bias_stride = random.chance(0.8) ? 1 : 3;
    if (p.add && random.chance(0.3)) {
        problem other = p;
        set_layouts(other, data(), weights, data());
        p.add_strides = other.add_strides;
    }
    if (random.chance(0.08) && allowed == inputs::any) overlap_inputs(random, p);
    // A tensor to add may be repeated along any axes.
    if (p.add && allowed == inputs::any && random.chance(0.1))
        for (dim *stride : {&p.add_strides.n, &p.add_strides.c, &p.add_strides.x[0],
                 &p.add_strides.x[1], &p.add_strides.x[2]})
            if (random.chance(0.4)) *stride = 0;
}

void set_random_extras(rng &random, problem &p) {
    if (p.what == pass::backward_weights) {
        p.out_type = random.chance(0.3) ? data_type::f32 : p.type;
        p.diff_bias = random.pick({conv::bias_gradient::none, conv::bias_gradient::none,
            conv::bias_gradient::from_dst, conv::bias_gradient::from_src});
        p.diff_bias_type = random.chance(0.3) ? data_type::f32 : p.type;
    } else {
        p.out_type = p.type;
        p.bias = random.chance(0.4);
        p.add = random.chance(0.2);
        p.relu = random.chance(0.2);
    }
    p.accumulate = random.chance(0.25);
}

problem random_problem(rng &random, double max_macs, inputs allowed) {
    problem p;
    p.what = random.pick({pass::forward, pass::backward_data, pass::backward_weights});
    p.type = random.pick({data_type::f32, data_type::bf16, data_type::f16});
    p.mb = random.pick<dim>({1, 1, 2, 3, 5});
    p.ic = random_channels(random);
    p.oc = random_channels(random);
    if (random.chance(0.35)) {
        p.groups = random.pick<dim>({2, 3, 4, 8, 16, 17, 32, 40, 64});
        // Depthwise, with or without multiplier, as often as groups of several channels.
        if (random.chance(0.5)) p.ic = 1;
        if (p.ic == 1 && random.chance(0.6)) p.oc = random.pick<dim>({1, 1, 1, 2, 3});
    }
    const auto rank = static_cast<std::size_t>(random.pick({1, 2, 2, 2, 3}));
    for (std::size_t d = 3 - rank; d < 3; ++d) p.x[d] = random_axis(random);
    while (conv::macs(p) > max_macs) {
        const double before = conv::macs(p);
        halve_largest(p);
        if (conv::macs(p) >= before) break;
    }
    if (random.chance(0.03)) (random.chance(0.5) ? p.ic : p.oc) = 0;
    set_random_extras(random, p);
    set_random_layouts(random, p, allowed);
    return p;
}

namespace {

const char *name_of(data_type t) {
    switch (t) {
    case data_type::bf16:
        return "bf16";
    case data_type::f16:
        return "f16";
    default:
        return "f32";
    }
}

void print(std::ostream &out, const char *name, const conv::data_strides &s) {
    out << ' ' << name << "{n" << s.n << " c" << s.c << " x" << s.x[0] << ',' << s.x[1] << ','
        << s.x[2] << '}';
}

}  // namespace

std::string to_text(const problem &p) {
    static constexpr const char *passes[] = {"forward", "backward_data", "backward_weights"};
    std::ostringstream out;
    out << passes[static_cast<int>(p.what)] << ' ' << name_of(p.type) << "->" << name_of(p.out_type)
        << " mb" << p.mb << " g" << p.groups << " ic" << p.ic << " oc" << p.oc;
    for (const conv::axis &a : p.x)
        out << " [src" << a.src << " dst" << a.dst << " k" << a.kernel << " s" << a.stride << " d"
            << a.dilation << " p" << a.pad << ']';
    print(out, "src", p.src);
    print(out, "dst", p.dst);
    const conv::weights_strides &w = p.weights;
    out << " weights{g" << w.g << " o" << w.o << " i" << w.i << " k" << w.k[0] << ',' << w.k[1]
        << ',' << w.k[2] << '}';
    if (p.bias) out << " bias/" << p.bias_stride;
    if (p.add) print(out, "add", p.add_strides);
    if (p.relu) out << " relu";
    if (p.accumulate) out << " accumulate";
    if (p.diff_bias != conv::bias_gradient::none)
        out << (p.diff_bias == conv::bias_gradient::from_dst ? " diff_bias(dst)->"
                                                             : " diff_bias(src)->")
            << name_of(p.diff_bias_type) << '/' << p.bias_stride;
    return out.str();
}

}  // namespace convgrad::test
