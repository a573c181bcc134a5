// Weights that tiled data passes pack once for all workers: several chunks, groups, blocks wider
// than a worker would keep, last panels that are not whole, values that a format cannot hold in one
// panel only, small workspaces, and the same bits for any number of threads.
#include <algorithm>
#include <limits>
#include <string_view>

#include <gtest/gtest.h>

#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

/// Calls body(problem, seed) for each pass, type and size.
template <typename Body>
void for_each_case(Body &&body) {
    const conv::axis one;
    const struct {
        dim mb, groups, ic, oc;
        conv::axis h, w;
    } sizes[] = {
        {3, 1, 300, 200, one, make_axis(5, 1, 1, 1, 0, 0)},
        {2, 1, 70, 90, make_axis(4, 3, 1, 1, 1, 1), make_axis(5, 3, 2, 1, 1, 1)},
        {4, 2, 160, 150, one, make_axis(6, 1, 1, 1, 0, 0)},
        {1, 1, 600, 530, one, make_axis(5, 5, 1, 1, 2, 2)},
    };
    std::uint64_t seed = 0;
    for (const pass what : {pass::forward, pass::backward_data})
        for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
            for (const auto &s : sizes)
                for (const data_layout layout : {data_layout::nxc, data_layout::ncx}) {
                    problem p = sized(what, type, s.mb, s.groups, s.ic, s.oc);
                    p.x[1] = s.h;
                    p.x[2] = s.w;
                    rng random(++seed);
                    set_layouts(p, layout,
                        all_weights_layouts[random.next() % std::size(all_weights_layouts)],
                        layout);
                    if (seed % 3 == 0) set_random_extras(random, p);
                    body(p, seed);
                    if (testing::Test::HasFatalFailure()) return;
                }
}

std::string_view tiled_on(const problem &p) {
    return p.type == data_type::bf16 ? "tiled.dot2" : "tiled.fma";
}

bool can_run(const problem &p) {
    return p.type != data_type::bf16
           || std::ranges::find(usable_isas(), isa::avx512_bf16) != usable_isas().end();
}

TEST(shared_weights, exact_on_integers) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        if (!can_run(p)) return;
        bench.load(p, fill::integers, seed);
        bench.run_reference();
        for (const int threads : {1, 2, 5, 16}) {
            bench.run(
                {.max_isa = usable_isas().back(), .threads = threads, .algorithm = tiled_on(p)});
            ASSERT_EQ(bench.compare_exact(), "") << threads << ' ' << to_text(p);
        }
    });
}

TEST(shared_weights, same_bits_whatever_one_panel_holds) {
    workbench bench;
    for_each_case([&](const problem &p, std::uint64_t seed) {
        if (!can_run(p)) return;
        bench.load(p, fill::reals, seed);
        const double values[] = {1, 1e-39, std::numeric_limits<double>::infinity(),
            std::numeric_limits<double>::quiet_NaN()};
        bench.write(role::weights, static_cast<dim>(seed % 50), values[seed % 4]);
        bench.run({.max_isa = usable_isas().back(), .threads = 1, .algorithm = tiled_on(p)});
        const auto alone = bench.output_bytes();
        bench.run_reference();
        ASSERT_EQ(bench.compare_bounded(), "") << to_text(p);
        for (const int threads : {2, 3, 16}) {
            bench.run(
                {.max_isa = usable_isas().back(), .threads = threads, .algorithm = tiled_on(p)});
            ASSERT_EQ(bench.output_bytes(), alone) << threads << ' ' << to_text(p);
        }
    });
}

TEST(shared_weights, workspace_is_kept) {
    problem p = sized(pass::forward, data_type::f32, 16, 1, 2048, 512);
    p.x[2] = make_axis(49, 1, 1, 1, 0, 0);
    set_layouts(p, data_layout::nxc, weights_layout::xio, data_layout::nxc);
    const auto roomy = cpu::make_plan(p, {.threads = 2, .only_algorithm = "tiled.fma"});
    EXPECT_NE(roomy->describe().find("weights packed before"), std::string::npos);
    for (std::size_t limit = roomy->workspace(); limit > 64 << 10; limit -= limit / 4) {
        const auto plan =
            cpu::make_plan(p, {.threads = 2, .workspace = limit, .only_algorithm = "tiled.fma"});
        EXPECT_LE(plan->workspace(), limit);
    }
}

}  // namespace
}  // namespace convgrad::test
