// Which algorithm is chosen: predictions, accuracy classes, ties, limits; and, with predictions
// that are drawn, that every row of the list may be chosen.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include <convgrad/error.hpp>

#include "cpu/algorithm.hpp"
#include "support/sanitizers.hpp"
#include "support/winograd_bound.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;
using engines::accuracy;

constexpr math_mode modes[] = {math_mode::strict, math_mode::accurate, math_mode::fast};

bool allows(math_mode mode, accuracy kept) {
    return static_cast<int>(kept) <= static_cast<int>(mode);
}

TEST(selection, every_row_that_fits_predicts_a_time) {
    std::set<std::string_view> seen;
    for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
        rng random(seed);
        const problem p = random_problem(random);
        const cpu::problem_sizes sizes(p);
        for (const cpu::algorithm &row : cpu::all_algorithms()) {
            const cpu::kernel_set *kernels = cpu::find_kernels(row.set, row.format, p.type, p.math);
            std::string why;
            if (kernels == nullptr) continue;
            const bool fits = row.how->fits(sizes, *kernels, &why);
            ASSERT_EQ(fits, row.how->fits(sizes, *kernels, nullptr));
            ASSERT_EQ(fits, why.empty()) << row.name << ": " << why;
            if (!fits) continue;
            seen.insert(row.name);
            const cpu::prediction cost = row.how->predict(sizes, *kernels);
            ASSERT_TRUE(std::isfinite(cost.seconds) && cost.seconds > 0)
                << row.name << ' ' << to_string(row.set) << ' ' << cost.seconds << ' '
                << to_text(p);
            ASSERT_TRUE(std::isfinite(cost.bytes) && cost.bytes >= 0) << row.name << to_text(p);
        }
    }
    EXPECT_EQ(seen.size() + 1, cpu::algorithm_names().size());  // bias gradients are none of them
}

TEST(selection, the_plan_tells_what_it_was_chosen_by) {
    for (std::uint64_t seed = 1; seed <= 500; ++seed) {
        rng random(seed);
        const problem p = random_problem(random);
        for (const isa set : usable_isas()) {
            std::vector<engines::verdict> others;
            const auto plan = cpu::make_plan(p, {.max_isa = set}, &others);
            const engines::plan_facts &facts = plan->facts();
            ASSERT_GT(facts.seconds, 0);
            ASSERT_TRUE(allows(p.math, facts.kept));
            ASSERT_EQ(others.size() + 1, cpu::all_algorithms().size());
            for (const engines::verdict &v : others) {
                ASSERT_FALSE(v.reason.empty()) << v.algorithm;
                if (v.seconds > 0 && v.reason != "the same with shorter vectors"
                    && v.reason != "would leave its vectors half empty") {
                    // By so much at most does it count how threads share the work.
                    ASSERT_GE(1.02 * 1.5 * v.seconds, facts.seconds)
                        << v.algorithm << ' ' << v.reason << ' ' << to_text(p);
                }
            }
            // Asking for reasons changes nothing.
            const auto again = cpu::make_plan(p, {.max_isa = set});
            ASSERT_EQ(again->algorithm(), plan->algorithm());
            ASSERT_EQ(again->instruction_set(), plan->instruction_set());
            ASSERT_EQ(again->facts().seconds, facts.seconds);
        }
    }
}

TEST(selection, threads_never_move_a_choice) {
    for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
        rng random(seed);
        const problem p = random_problem(random);
        for (const isa set : usable_isas()) {
            const auto one = cpu::make_plan(p, {.max_isa = set, .threads = 1});
            for (const int threads : {2, 7, 64}) {
                const auto many = cpu::make_plan(p, {.max_isa = set, .threads = threads});
                ASSERT_EQ(many->algorithm(), one->algorithm()) << threads << ' ' << to_text(p);
                ASSERT_EQ(many->instruction_set(), one->instruction_set()) << to_text(p);
            }
        }
    }
}

TEST(selection, vectors_that_are_half_empty_are_replaced_by_shorter_ones) {
    const auto all = usable_isas();
    const auto has = [&](isa set) { return std::find(all.begin(), all.end(), set) != all.end(); };
    if (!has(isa::avx512) || !has(isa::avx2)) GTEST_SKIP() << "needs AVX-512";
    const auto depthwise = [](dim channels, data_type type, conv::pass what) {
        problem p;
        p.what = what;
        p.type = p.out_type = type;
        p.mb = 2;
        p.groups = channels;
        p.ic = p.oc = 1;
        for (std::size_t a = 1; a < 3; ++a) p.x[a] = {28, 28, 3, 1, 1, 1};
        p.src = p.dst = {28 * 28 * channels, 1, {0, 28 * channels, channels}};
        p.weights = {1, 1, 1, {9 * channels, 3 * channels, channels}};
        return p;
    };
    for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
        for (const conv::pass what : {conv::pass::forward, conv::pass::backward_weights})
            for (const dim channels : {8, 9, 15, 16, 17, 24, 48}) {
                const problem p = depthwise(channels, type, what);
                const auto chosen = cpu::make_plan(p, {.max_isa = isa::avx512});
                if (chosen->algorithm() != "depthwise.fma") continue;
                // Weights gradients take pairs, or one vector; others leave either incomplete.
                const bool half_empty =
                    (channels == 8 || channels == 16) && what == conv::pass::backward_weights;
                EXPECT_EQ(chosen->instruction_set(), half_empty ? isa::avx2 : isa::avx512)
                    << channels;
                const auto asked =
                    cpu::make_plan(p, {.max_isa = isa::avx512, .only_algorithm = "depthwise.fma"});
                EXPECT_EQ(asked->instruction_set(), isa::avx512) << channels;
            }
}

TEST(selection, a_mode_takes_its_own_class_and_stricter_ones) {
    int split = 0;
    for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
        rng random(seed);
        problem p = random_problem(random);
        for (const math_mode mode : modes)
            for (std::uint64_t estimates = 0; estimates <= 15; ++estimates) {
                p.math = mode;
                const auto plan = cpu::make_plan(
                    p, {.max_isa = usable_isas().back(), .random_estimates = estimates});
                ASSERT_TRUE(allows(mode, plan->facts().kept))
                    << plan->algorithm() << ' ' << to_text(p);
                if (p.type == data_type::f32 && mode == math_mode::strict) {
                    ASSERT_TRUE(cpu::capabilities(isa::avx512).include(plan->instruction_set()))
                        << plan->algorithm();
                }
                if (plan->facts().kept != accuracy::strict) ++split;
            }
    }
    if (usable_isas().back() == isa::amx_bf16) {
        EXPECT_GT(split, 100);
    }
}

// A sum of fewer than eight products of split values is less exact than a plain one.
TEST(selection, short_split_sums_are_fast_only) {
    problem p;
    p.mb = 4;
    p.oc = 64;
    p.x[1] = p.x[2] = make_axis(14, 1, 1, 1, 0, 0);
    for (const dim ic : {7, 8}) {
        p.ic = ic;
        set_layouts(p, data_layout::nxc, weights_layout::xio, data_layout::nxc);
        for (const math_mode mode : {math_mode::accurate, math_mode::fast})
            for (const cpu::algorithm &row : cpu::all_algorithms()) {
                p.math = mode;
                const cpu::kernel_set *kernels =
                    cpu::find_kernels(row.set, row.format, p.type, p.math);
                if (kernels == nullptr || row.name != "tiled.amx") continue;
                EXPECT_EQ(row.how->keeps(p, *kernels),
                    ic < 8 || mode == math_mode::fast ? accuracy::fast : accuracy::accurate);
            }
    }
}

// Less memory than the fastest takes is no reason to fail while another row does with it.
TEST(selection, a_row_that_needs_less_is_found) {
    int other = 0;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        rng random(seed);
        const problem p = random_problem(random);
        const auto best = cpu::make_plan(p, {});
        std::size_t least = best->workspace();
        for (const std::string_view name : cpu::algorithm_names()) {
            std::size_t low = 0, high = least;
            const auto possible = [&](std::size_t limit) {
                try {
                    const auto named =
                        cpu::make_plan(p, {.workspace = limit, .only_algorithm = name});
                    // By name it need not be as exact as the math mode asks for.
                    return engines::is_allowed(named->facts().kept, p.math)
                           && named->workspace() <= limit;
                } catch (const error &) {
                    return false;
                }
            };
            if (!possible(high)) continue;
            while (low < high) {
                const std::size_t middle = low + (high - low) / 2;
                (possible(middle) ? high : low) = possible(middle) ? middle : middle + 1;
            }
            least = std::min(least, high);
        }
        const auto lean = cpu::make_plan(p, {.workspace = least});
        EXPECT_LE(lean->workspace(), least) << to_text(p);
        if (lean->algorithm() != best->algorithm()) ++other;
    }
    EXPECT_GT(other, 0);
}

/// How exact a result has to be by its class: f32 sums by the derived bound, fast ones by that of
/// two parts.
std::string compare(const workbench &bench, fill how, const run_report &did) {
    if (did.kept == accuracy::fast)
        return bench.compare_bounded(leniency_of(bench, did.algorithm, {.product_error = 0x1p-15}));
    if (how == fill::integers) return compare_integers(bench, did.algorithm);
    return bench.compare_bounded(leniency_of(bench, did.algorithm));
}

/// 1×1 (with a stride or without) or 3×3 taps of as many channels as Winograd's tiles are accurate
/// for, or groups of eight: few random problems are such.
problem ordinary_layer(rng &random) {
    problem p;
    p.what = random.pick({pass::forward, pass::backward_data, pass::backward_weights});
    p.type = p.out_type = random.pick({data_type::f32, data_type::bf16, data_type::f16});
    p.mb = 1;
    p.ic = random.between(16, 20);
    p.oc = random.between(16, 20);
    if (random.chance(0.2)) {
        p.groups = 2;
        p.ic = p.oc = 8;
    }
    const dim taps = random.pick({1, 3}), stride = taps == 1 ? random.pick({1, 2}) : 1;
    for (std::size_t a = 1; a < 3; ++a)
        p.x[a] = make_axis(random.between(3, 7), taps, stride, 1, taps / 2, taps / 2);
    const data_layout layout = random.pick({data_layout::nxc, data_layout::ncx});
    set_layouts(p, layout, weights_layout::xio, layout);
    return p;
}

// Rows that no prediction would take run too, each within its class.
void run_by_chance(fill how, std::uint64_t first, std::uint64_t count) {
    workbench bench;
    std::map<std::pair<std::string, std::string_view>, int> ran;
    const std::uint64_t end = first + sampled<std::uint64_t>(count, 8);
    for (std::uint64_t seed = first; seed < end; ++seed) {
        rng random(seed);
        problem p = seed % 5 == 0 ? ordinary_layer(random) : random_problem(random, 2e4);
        p.math = modes[seed % 3];
        bench.load(p, how, seed);
        bench.run_reference();
        for (const isa set : affordable_isas(seed, 4))
            for (std::uint64_t draw = 1; draw <= 3; ++draw) {
                const run_report did =
                    bench.run({.max_isa = set, .random_estimates = seed * 4 + draw});
                ++ran[{did.algorithm, to_string(did.set)}];
                ASSERT_TRUE(allows(p.math, did.kept)) << did.algorithm;
                ASSERT_EQ(compare(bench, how, did), "")
                    << did.algorithm << ' ' << to_string(did.set) << " seed " << seed;
            }
    }
    if (sampled<std::uint64_t>(count, 8) < count) return;
    for (const cpu::algorithm &row : cpu::all_algorithms()) {
        const std::pair key(std::string(row.name), to_string(row.set));
        if (cpu::capabilities(usable_isas().back()).include(row.set) && row.name != "sums.fma") {
            EXPECT_GT(ran[key], 0) << key.first;
        }
    }
}

TEST(selection, integers_by_chance) {
    run_by_chance(fill::integers, 1, 4000);
}
TEST(selection, reals_by_chance) {
    run_by_chance(fill::reals, 100001, 4000);
}

}  // namespace
}  // namespace convgrad::test
