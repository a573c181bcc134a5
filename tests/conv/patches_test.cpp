// Patches: kernel and stride the same, no padding, channels side by side. Their taps along a row
// become channels (conv::simplify), whatever else a problem has, and in every driver.
#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "conv/simplify.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

problem patches(pass what, dim ic, dim oc, weights_layout weights = weights_layout::xio) {
    problem p = sized(what, data_type::f32, 2, 1, ic, oc);
    p.x[1] = make_axis(12, 4, 4, 1, 0, 0);
    p.x[2] = make_axis(20, 4, 4, 1, 0, 0);
    set_layouts(p, data_layout::nxc, weights, data_layout::nxc);
    return p;
}

TEST(patches, taps_of_a_row_become_channels) {
    for (const pass what : {pass::forward, pass::backward_data, pass::backward_weights})
        for (const dim ic : {1, 3}) {
            const problem p = conv::simplify(patches(what, ic, 5));
            EXPECT_EQ(p.ic, 4 * ic);
            EXPECT_EQ(p.x[1].kernel, 4);
            EXPECT_EQ(p.x[2], (conv::axis{5, 5}));
            EXPECT_EQ(p.src.x[2], 4 * ic);
            EXPECT_EQ(p.src.c, 1);
            EXPECT_EQ(p.weights.i, 5);
        }
}

TEST(patches, what_stays_as_it_is) {
    const auto stays = [](const problem &p) {
        EXPECT_EQ(conv::simplify(p).ic, p.ic) << to_text(p);
    };
    stays(patches(pass::forward, 3, 5, weights_layout::oix));
    problem p = patches(pass::forward, 3, 5);
    p.x[2] = make_axis(20, 4, 4, 1, 2, 2);  // padding
    stays(p);
    p = patches(pass::forward, 3, 5);
    p.x[2] = make_axis(20, 3, 4, 1, 0, 0);  // a gap
    stays(p);
    p = patches(pass::backward_data, 3, 5);
    p.x[2] = make_axis(21, 4, 4, 1, 0, 0);  // a column of zeros
    stays(p);
    p = patches(pass::backward_data, 3, 5);
    p.bias = true;  // of src's channels
    stays(p);
    p = patches(pass::backward_weights, 3, 5);
    p.diff_bias = conv::bias_gradient::from_src;
    stays(p);
    p = patches(pass::forward, 3, 5);
    set_layouts(p, data_layout::ncx, weights_layout::xio, data_layout::ncx);
    stays(p);
}

/// Calls body(problem, seed) for each pass, type, size and pair of layouts.
template <typename Body>
void for_each_case(Body &&body) {
    const conv::axis one;
    const struct {
        dim mb, groups, ic, oc;
        conv::axis d, h, w;
    } sizes[] = {
        {2, 1, 3, 19, one, make_axis(12, 4, 4, 1, 0, 0), make_axis(20, 4, 4, 1, 0, 0)},
        {1, 1, 1, 33, one, make_axis(9, 3, 3, 1, 0, 0), make_axis(16, 2, 2, 1, 0, 0)},
        {3, 1, 5, 7, one, make_axis(7, 3, 2, 1, 1, 1), make_axis(23, 3, 3, 1, 0, 0)},  // rest
        {2, 1, 2, 4, make_axis(4, 2, 2, 1, 0, 0), make_axis(6, 2, 2, 1, 0, 0),
            make_axis(2, 2, 2, 1, 0, 0)},  // one patch in a row: rows are channels as well
        {2, 2, 4, 6, one, one, make_axis(10, 2, 2, 1, 0, 0)},
        {0, 1, 3, 4, one, one, make_axis(6, 3, 3, 1, 0, 0)},
    };
    std::uint64_t seed = 0;
    for (const pass what : {pass::forward, pass::backward_data, pass::backward_weights})
        for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
            for (const auto &s : sizes)
                for (const data_layout src : {data_layout::nxc, data_layout::nxc_gaps})
                    for (const data_layout dst : {data_layout::nxc, data_layout::ncx})
                        for (const weights_layout weights :
                            {weights_layout::xio, weights_layout::oix}) {
                            problem p = sized(what, type, s.mb, s.groups, s.ic, s.oc);
                            p.x = {s.d, s.h, s.w};
                            rng random(++seed);
                            set_layouts(p, src, weights, dst);
                            set_random_extras(random, p);
                            body(p, seed);
                            if (testing::Test::HasFatalFailure()) return;
                        }
}

/// The choice, and drivers that would not be chosen.
constexpr std::string_view algorithms[] = {"", "tiled.fma", "narrow.fma", "folded.fma"};

TEST(patches, exact_on_integers) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::integers, seed);
        bench.run_reference();
        for (const isa set : usable_isas())
            for (const std::string_view algorithm : algorithms) {
                if (!algorithm.empty() && set == isa::amx_bf16) continue;
                bench.run({.max_isa = set, .threads = 2, .algorithm = algorithm});
                ASSERT_EQ(bench.compare_exact(), "")
                    << algorithm << ' ' << to_string(set) << ' ' << to_text(p);
            }
    });
}

TEST(patches, infinities_and_nan) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        if (p.mb == 0) return;
        bench.load(p, fill::reals, seed);
        for (const role r : {role::src, role::weights, role::dst})
            if (r != output_of(p))
                bench.write(r, 0,
                    seed % 2 == 0 ? std::numeric_limits<double>::infinity()
                                  : std::numeric_limits<double>::quiet_NaN());
        bench.run_reference();
        for (const isa set : usable_isas()) {
            bench.run({.max_isa = set, .threads = 2});
            ASSERT_EQ(bench.compare_bounded(), "") << to_string(set) << ' ' << to_text(p);
        }
    });
}

}  // namespace
}  // namespace convgrad::test
