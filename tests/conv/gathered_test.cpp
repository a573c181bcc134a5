// Gathered planes, by name, on every instruction set: strides that do not divide, one row, patches,
// groups, gaps, images in several turns, infinities, and the same bits for any number of threads.
#include <limits>

#include <gtest/gtest.h>

#include <convgrad/error.hpp>

#include "support/named_runs.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

std::vector<named> algorithms_of(const problem &p) {
    return rows_of(p, "gathered.fma", "gathered.dot2");
}

/// Calls body(problem, seed) for each pass, type and size.
template <typename Body>
void for_each_case(Body &&body) {
    const conv::axis one;
    const struct {
        dim mb, groups, ic, oc;
        conv::axis d, h, w;
    } sizes[] = {
        {2, 1, 5, 7, one, make_axis(7, 1, 2, 1, 0, 0), make_axis(9, 1, 2, 1, 0, 0)},
        {3, 1, 17, 33, one, make_axis(8, 1, 2, 1, 0, 0), make_axis(38, 1, 3, 1, 0, 0)},
        {1, 1, 1, 1, one, one, make_axis(2, 1, 2, 1, 0, 0)},
        {1, 3, 4, 2, one, one, make_axis(41, 1, 5, 1, 0, 0)},
        // Planes of 1 KiB in f32, which the weights gradient lays apart.
        {2, 1, 5, 18, one, make_axis(32, 2, 2, 1, 0, 0), make_axis(32, 2, 2, 1, 0, 0)},
        {2, 1, 6, 20, one, make_axis(8, 2, 2, 1, 0, 0), make_axis(11, 2, 2, 1, 0, 0)},
        {1, 2, 3, 18, one, make_axis(12, 4, 4, 1, 0, 0), make_axis(9, 3, 4, 1, 0, 0)},
        {2, 1, 9, 16, make_axis(5, 2, 3, 1, 0, 0), make_axis(4, 1, 1, 1, 0, 0),
            make_axis(6, 2, 2, 1, 0, 0)},
        {1, 1, 40, 24, make_axis(3, 1, 2, 1, 0, 0), make_axis(7, 1, 2, 1, 0, 0),
            make_axis(5, 1, 2, 1, 0, 0)},
    };
    std::uint64_t seed = 0;
    for (const pass what : {pass::forward, pass::backward_data, pass::backward_weights})
        for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
            for (const auto &s : sizes)
                for (const bool view : {false, true}) {
                    problem p = sized(what, type, s.mb, s.groups, s.ic, s.oc);
                    p.x = {s.d, s.h, s.w};
                    rng random(++seed);
                    constexpr data_layout layout = data_layout::ncx;
                    const bool patches = s.d.kernel * s.h.kernel * s.w.kernel > 1;
                    set_layouts(p, layout,
                        patches
                            ? random.pick({weights_layout::oix, weights_layout::xio})
                            : all_weights_layouts[random.next() % std::size(all_weights_layouts)],
                        layout);
                    // Grouped filters with channels outside of the taps lie at unequal distances.
                    if (patches && s.groups > 1)
                        set_layouts(p, layout, weights_layout::oix, layout);
                    if (what != pass::backward_data) set_random_extras(random, p);
                    if (view) {  // more channels and rows lie between
                        p.src.n += 2 * p.src.c + 3;
                        p.dst.n += 5;
                    }
                    body(p, seed);
                    if (testing::Test::HasFatalFailure()) return;
                }
}

TEST(gathered, exact_on_integers) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::integers, seed);
        bench.run_reference();
        for (const named &a : algorithms_of(p)) expect_exact(bench, a);
    });
}

TEST(gathered, real_data_within_bounds) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::reals, seed);
        bench.run_reference();
        for (const named &a : algorithms_of(p)) {
            bench.run({.max_isa = a.set, .algorithm = a.algorithm});
            ASSERT_EQ(bench.compare_bounded(), "") << a.algorithm << ' ' << to_text(p);
        }
    });
}

TEST(gathered, infinities_and_nan) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::reals, seed);
        for (const role r : {role::src, role::weights, role::dst})
            if (r != output_of(p))
                bench.write(r, 0,
                    seed % 2 == 0 ? std::numeric_limits<double>::infinity()
                                  : std::numeric_limits<double>::quiet_NaN());
        bench.run_reference();
        for (const named &a : algorithms_of(p)) {
            bench.run({.max_isa = a.set, .algorithm = a.algorithm});
            ASSERT_EQ(bench.compare_bounded(), "") << a.algorithm << ' ' << to_text(p);
        }
    });
}

/// A layer whose planes do not go at once: 3 × 8 MiB.
problem in_turns(pass what) {
    problem p = sized(what, data_type::f32, 3, 1, 128, 2);
    p.x[2] = make_axis(32767, 1, 2, 1, 0, 0);
    set_layouts(p, data_layout::ncx, weights_layout::oix, data_layout::ncx);
    return p;
}

TEST(gathered, images_in_turns) {
    workbench bench;
    for (const pass what : {pass::forward, pass::backward_data, pass::backward_weights}) {
        const problem p = in_turns(what);
        bench.load(p, fill::integers, 5);
        bench.run_reference();
        bench.run({.max_isa = isa::avx2, .threads = 2, .algorithm = "gathered.fma"});
        ASSERT_EQ(bench.compare_exact(), "") << to_text(p);
    }
}

TEST(gathered, same_bits_for_any_number_of_threads) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        bench.load(p, fill::reals, seed);
        for (const named &a : algorithms_of(p)) {
            bench.run({.max_isa = a.set, .threads = 1, .algorithm = a.algorithm});
            const auto alone = bench.output_bytes();
            for (const int threads : {2, 16}) {
                bench.run({.max_isa = a.set, .threads = threads, .algorithm = a.algorithm});
                ASSERT_EQ(bench.output_bytes(), alone) << a.algorithm << ' ' << to_text(p);
            }
        }
    });
}

// Where there is no room for the planes, another driver runs.
TEST(gathered, small_workspace) {
    problem p = sized(pass::backward_weights, data_type::f32, 8, 1, 64, 128);
    p.x[1] = p.x[2] = make_axis(28, 1, 2, 1, 0, 0);
    set_layouts(p, data_layout::ncx, weights_layout::oix, data_layout::ncx);
    EXPECT_EQ(cpu::make_plan(p, {.max_isa = isa::avx2})->algorithm(), "gathered.fma");
    const auto plan = cpu::make_plan(p, {.max_isa = isa::avx2, .workspace = 256 << 10});
    EXPECT_NE(plan->algorithm(), "gathered.fma");
}

TEST(gathered, what_it_does_not_take) {
    const auto refused = [](problem p, data_layout layout) {
        set_layouts(p, layout, weights_layout::oix, layout);
        EXPECT_THROW((void)cpu::make_plan(p, {.only_algorithm = "gathered.fma"}), error)
            << to_text(p);
    };
    problem good = sized(pass::forward, data_type::f32, 1, 1, 4, 4);
    good.x[2] = make_axis(8, 2, 2, 1, 0, 0);
    refused(good, data_layout::nxc);
    problem p = good;
    p.x[2] = make_axis(8, 3, 2, 1, 0, 0);  // overlap
    refused(p, data_layout::ncx);
    p.x[2] = make_axis(8, 2, 2, 1, 1, 0);  // padding
    refused(p, data_layout::ncx);
    p.x[2] = make_axis(8, 1, 1, 1, 0, 0);  // no stride
    refused(p, data_layout::ncx);
    p = good;
    p.what = pass::backward_data;
    p.relu = true;
    refused(p, data_layout::ncx);
}

}  // namespace
}  // namespace convgrad::test
