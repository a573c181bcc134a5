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
    }
    return true;
}

}  // namespace

std::string_view to_string(family f) {
    constexpr std::string_view names[] = {"dense", "few channels", "depthwise"};
    return names[static_cast<std::size_t>(f)];
}

std::vector<named_problem> problems_of(family f, data_type type) {
    std::vector<named_problem> all;
    for (const layer &l : layers_of(f))
        for (const pass what : {pass::forward, pass::backward_data, pass::backward_weights}) {
            problem p = test::sized(what, type, l.mb, l.groups, l.ic, l.oc);
            p.x = l.x;
            test::set_layouts(p, l.data, l.weights, l.data);
            all.push_back({l.name, p});
            // 16-bit data also has f32 weights gradients.
            if (what != pass::backward_weights || type == data_type::f32) continue;
            p.out_type = data_type::f32;
            all.push_back({l.name, p});
        }
    return all;
}

double longest_sum(const problem &p) {
    double terms = static_cast<double>(p.what == pass::forward         ? p.ic
                                       : p.what == pass::backward_data ? p.oc
                                                                       : p.mb);
    for (const conv::axis &x : p.x)
        terms *= static_cast<double>(p.what == pass::backward_weights ? x.dst : x.kernel);
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

void for_each_subject(family f, data_type type, std::uint64_t seeds,
    const std::function<void(const named_problem &, subject &)> &body) {
    test::sampler sample(11);
    for (const named_problem &n : problems_of(f, type))
        for (const flavour what : all_flavours)
            for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
                if (!sample.takes_next()) continue;
                subject s(n.p, what, seed);
                body(n, s);
            }
}

}  // namespace convgrad::accuracy
