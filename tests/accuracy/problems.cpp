#include "accuracy/problems.hpp"

#include <convgrad/error.hpp>

#include "support/sanitizers.hpp"

namespace convgrad::accuracy {
namespace {

using conv::pass;
using conv::problem;
using test::data_layout;
using test::make_axis;
using test::weights_layout;

struct layer {
    std::string_view name;
    dim mb, groups, ic, oc;  // channels per group
    std::array<conv::axis, 3> x;
    data_layout data;
    weights_layout weights;
};

std::vector<layer> layers_of(family f) {
    constexpr auto nxc = data_layout::nxc, ncx = data_layout::ncx;
    constexpr auto xio = weights_layout::xio, oix = weights_layout::oix;
    const conv::axis one;
    switch (f) {
    case family::dense:
        return {
            {"3x3, 48 to 40 channels", 2, 1, 48, 40,
                {one, make_axis(9, 3, 1, 1, 1, 1), make_axis(10, 3, 1, 1, 1, 1)}, nxc, xio},
            {"1x1, 1100 to 24 channels", 1, 1, 1100, 24,
                {one, make_axis(4, 1, 1, 1, 0, 0), make_axis(5, 1, 1, 1, 0, 0)}, ncx, oix},
            {"1x1, 17 to 16 channels, 6400 positions", 4, 1, 17, 16,
                {one, make_axis(40, 1, 1, 1, 0, 0), make_axis(40, 1, 1, 1, 0, 0)}, nxc, oix},
            {"3-D, strides 2, 20 to 33 channels", 1, 1, 20, 33,
                {make_axis(5, 2, 2, 1, 0, 0), make_axis(6, 3, 2, 1, 1, 1),
                    make_axis(7, 3, 2, 1, 1, 1)},
                ncx, xio},
            {"1-D, dilated, 64 to 16 channels", 2, 1, 64, 16,
                {one, one, make_axis(35, 5, 1, 3, 6, 6)}, nxc, xio},
            {"1x1, 16 to 32 channels, 9 positions", 1, 1, 16, 32,
                {one, make_axis(3, 1, 1, 1, 0, 0), make_axis(3, 1, 1, 1, 0, 0)}, nxc, oix},
        };
    case family::narrow:
        return {
            {"3x3, 5 groups of 3 to 3 channels", 2, 5, 3, 3,
                {one, make_axis(11, 3, 1, 1, 1, 1), make_axis(12, 3, 1, 1, 1, 1)}, nxc, xio},
            {"7x7, strides 2, 3 to 6 channels", 2, 1, 3, 6,
                {one, make_axis(21, 7, 2, 1, 3, 3), make_axis(22, 7, 2, 1, 3, 3)}, ncx, oix},
            {"1-D, 2 to 1 channels, 3000 positions", 2, 1, 2, 1,
                {one, one, make_axis(3000, 3, 1, 1, 1, 1)}, nxc, oix},
        };
    case family::depthwise:
        return {
            {"3x3, 40 channels", 2, 40, 1, 1,
                {one, make_axis(13, 3, 1, 1, 1, 1), make_axis(14, 3, 1, 1, 1, 1)}, nxc, xio},
            {"5x5, strides 2, 19 channels", 3, 19, 1, 1,
                {one, make_axis(16, 5, 2, 1, 2, 2), make_axis(15, 5, 2, 1, 2, 2)}, ncx, oix},
        };
    case family::bias:
        return {};
    }
    return {};
}

/// Whole pieces of 16 bytes in every type, planes as large as their outputs, more output channels
/// from an image's three: GPU kernels that the layers above do not reach.
std::vector<layer> engine_layers_of(family f) {
    constexpr auto nxc = data_layout::nxc, ncx = data_layout::ncx;
    constexpr auto xio = weights_layout::xio, oix = weights_layout::oix;
    const conv::axis one;
    switch (f) {
    case family::dense:
        return {
            {"1x1, 72 to 40 channels, planes of 64 positions", 2, 1, 72, 40,
                {one, make_axis(8, 1, 1, 1, 0, 0), make_axis(8, 1, 1, 1, 0, 0)}, ncx, oix},
        };
    case family::narrow:
        return {
            {"7x7, strides 2, 3 to 24 channels", 2, 1, 3, 24,
                {one, make_axis(21, 7, 2, 1, 3, 3), make_axis(22, 7, 2, 1, 3, 3)}, nxc, oix},
            {"3x3, 3 to 40 channels", 2, 1, 3, 40,
                {one, make_axis(12, 3, 1, 1, 1, 1), make_axis(13, 3, 1, 1, 1, 1)}, ncx, xio},
        };
    case family::depthwise:
        return {
            {"3x3, 24 channels, planes", 2, 24, 1, 1,
                {one, make_axis(13, 3, 1, 1, 1, 1), make_axis(14, 3, 1, 1, 1, 1)}, ncx, oix},
            {"7x7, 24 channels, planes", 2, 24, 1, 1,
                {one, make_axis(14, 7, 1, 1, 3, 3), make_axis(14, 7, 1, 1, 3, 3)}, ncx, oix},
            {"5x5, 40 channels", 2, 40, 1, 1,
                {one, make_axis(13, 5, 1, 1, 2, 2), make_axis(14, 5, 1, 1, 2, 2)}, nxc, oix},
            {"7x7, 40 channels", 2, 40, 1, 1,
                {one, make_axis(10, 7, 1, 1, 3, 3), make_axis(11, 7, 1, 1, 3, 3)}, nxc, xio},
        };
    case family::bias:
        return {
            {"5 images of 23x29, 40 channels", 5, 1, 0, 40,
                {one, make_axis(23, 1, 1, 1, 0, 0), make_axis(29, 1, 1, 1, 0, 0)}, nxc, oix},
            {"7000 positions of 3 channels, planes", 1, 1, 0, 3,
                {one, one, make_axis(7000, 1, 1, 1, 0, 0)}, ncx, oix},
        };
    }
    return {};
}

/// Algorithms run any layer when asked to; here they run those they are made for.
bool belongs(family f, std::string_view algorithm) {
    const bool narrow = algorithm.starts_with("narrow."), tiled = algorithm.starts_with("tiled."),
               winograd = algorithm.starts_with("winograd");
    switch (f) {
    case family::dense:
        return !narrow;
    case family::narrow:
        return !tiled && !winograd;
    case family::depthwise:
        return !narrow && !tiled && !winograd;
    case family::bias:
        break;
    }
    return true;
}

std::vector<named_problem> passes_of(const std::vector<layer> &layers, data_type type) {
    std::vector<named_problem> all;
    for (const layer &l : layers) {
        const auto add = [&](pass what, data_type out_type) {
            problem p = test::sized(what, type, l.mb, l.groups, l.ic, l.oc);
            p.out_type = out_type;
            p.x = l.x;
            if (what == pass::backward_bias) {
                p.diff_bias = conv::bias_gradient::from_dst;
                p.diff_bias_type = out_type;
            }
            test::set_layouts(p, l.data, l.weights, l.data);
            all.push_back({l.name, p});
        };
        if (l.ic == 0) {
            add(pass::backward_bias, type);
        } else {
            for (const pass what : {pass::forward, pass::backward_data, pass::backward_weights})
                add(what, type);
        }
        // 16-bit data also has f32 gradients of what is shared by all images.
        if (type != data_type::f32)
            add(l.ic == 0 ? pass::backward_bias : pass::backward_weights, data_type::f32);
    }
    return all;
}

}  // namespace

std::string_view to_string(family f) {
    constexpr std::string_view names[] = {"dense", "few channels", "depthwise", "bias gradient"};
    return names[static_cast<std::size_t>(f)];
}

std::vector<named_problem> problems_of(family f, data_type type) {
    return passes_of(layers_of(f), type);
}

std::vector<named_problem> engine_problems_of(family f, data_type type) {
    std::vector<named_problem> all = problems_of(f, type);
    for (named_problem &more : passes_of(engine_layers_of(f), type)) all.push_back(more);
    return all;
}

double longest_sum(const problem &p) {
    const bool of_taps = p.what == pass::forward || p.what == pass::backward_data;
    double terms = static_cast<double>(!of_taps ? p.mb : p.what == pass::forward ? p.ic : p.oc);
    for (const conv::axis &x : p.x) terms *= static_cast<double>(of_taps ? x.kernel : x.dst);
    return terms;
}

cpu::plan_limits limits_of(const method &m) {
    return {.max_isa = m.set, .threads = 1, .only_algorithm = m.algorithm};
}

std::vector<method> methods_for(family f, const problem &p) {
    std::vector<method> found;
    for (const std::string_view name : cpu::algorithm_names()) {
        if (!belongs(f, name)) continue;
        if (!found.empty() && found.back().algorithm == name) continue;
        for (const isa set : test::usable_isas())
            for (const math_mode math : {math_mode::accurate, math_mode::fast}) {
                if (math == math_mode::fast && (p.type != data_type::f32 || set != isa::amx_bf16))
                    continue;
                problem q = p;
                q.math = math;
                const method m{std::string(name), set, math};
                try {
                    if (cpu::make_plan(q, limits_of(m))->instruction_set() == set)
                        found.push_back(m);
                } catch (const error &e) {
                    if (e.code() != error_code::unsupported) throw;
                }
            }
    }
    return found;
}

std::string to_string(const method &m) {
    std::string text = m.algorithm + " " + std::string(convgrad::to_string(m.set));
    if (m.math == math_mode::fast) text += " fast";
    return text;
}

void for_each_subject(const std::vector<named_problem> &problems, std::uint64_t seeds,
    const std::function<void(const named_problem &, subject &)> &body) {
    test::sampler sample(11);
    for (const named_problem &n : problems)
        for (const flavour what : all_flavours)
            for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
                if (!sample.takes_next()) continue;
                subject s(n.p, what, seed);
                body(n, s);
            }
}

void for_each_subject(family f, data_type type, std::uint64_t seeds,
    const std::function<void(const named_problem &, subject &)> &body) {
    for_each_subject(problems_of(f, type), seeds, body);
}

}  // namespace convgrad::accuracy
