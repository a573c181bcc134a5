// Results that go past the caches are the same, bit for bit, as those that do not: every driver
// that writes so, on every instruction set, with all that may happen to a result on its way.
#include <limits>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include <convgrad/error.hpp>

#include "cpu/streaming.hpp"
#include "support/pools.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

/// Everything streams, or nothing does, until the end of a scope.
class limit {
public:
    explicit limit(std::size_t bytes) { cpu::stream_above() = bytes; }
    limit(const limit &) = delete;
    limit &operator=(const limit &) = delete;
    ~limit() { cpu::stream_above() = cpu::cache_sizes().l3; }
};
constexpr std::size_t all = 0, none = std::numeric_limits<std::size_t>::max();

struct size {
    std::string_view algorithm;
    dim mb, groups, ic, oc, height, width, kernel, stride;
};

// Channels and widths that lie on lines, and some that do not.
constexpr size sizes[] = {
    {"tiled.fma", 2, 1, 32, 64, 6, 16, 1, 1},
    {"tiled.fma", 1, 1, 300, 96, 5, 7, 1, 1},  // several chunks
    {"tiled.fma", 1, 1, 32, 32, 9, 32, 3, 2},
    {"tiled.fma", 1, 2, 24, 40, 5, 9, 3, 1},
    {"tiled.dot2", 2, 1, 32, 64, 6, 16, 1, 1},
    {"tiled.dot2", 1, 1, 64, 96, 5, 32, 3, 1},
    {"folded.fma", 1, 1, 3, 64, 9, 32, 3, 1},
    {"folded.dot2", 1, 1, 3, 64, 16, 32, 7, 2},
    {"narrow.fma", 2, 6, 8, 8, 9, 17, 3, 1},  // asks for memory only
    {"narrow.fma", 1, 1, 3, 16, 5, 128, 3, 1},
    {"narrow.fma", 2, 4, 8, 8, 5, 16, 3, 1},
    {"narrow.dot2", 1, 4, 8, 8, 5, 128, 3, 1},
    {"narrow.fma", 2, 1, 130, 3, 9, 17, 5, 2},
    {"narrow.dot2", 2, 6, 8, 8, 9, 17, 3, 1},
    {"pointwise.fma", 2, 1, 24, 48, 16, 16, 1, 1},
    {"pointwise.fma", 1, 1, 17, 9, 5, 13, 1, 1},
    {"depthwise.fma", 1, 64, 1, 1, 8, 9, 3, 1},
    {"depthwise.fma", 2, 80, 1, 1, 9, 8, 3, 2},
    {"planes.fma", 1, 5, 1, 1, 8, 64, 3, 1},
    {"planes.fma", 2, 3, 1, 1, 16, 32, 5, 2},
    {"winograd2x2.fma", 1, 1, 32, 64, 10, 12, 3, 1},
    {"winograd4x4.fma", 1, 1, 32, 64, 9, 32, 3, 1},
};

problem make(const size &s, pass what, data_type type, data_layout layout) {
    problem p;
    p.what = what;
    p.type = p.out_type = type;
    p.mb = s.mb;
    p.groups = s.groups;
    p.ic = s.ic;
    p.oc = s.oc;
    p.x[1] = make_axis(s.height, s.kernel, s.stride, 1, s.kernel / 2, s.kernel / 2);
    p.x[2] = make_axis(s.width, s.kernel, s.stride, 1, s.kernel / 2, s.kernel / 2);
    set_layouts(p, layout, all_weights_layouts[0], layout);
    return p;
}

/// Calls body(problem, size, seed) for all of them, plain and with extras.
template <typename Body>
void for_each_case(Body &&body) {
    std::uint64_t seed = 0;
    for (const size &s : sizes)
        for (const pass what : {pass::forward, pass::backward_data})
            for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
                for (const data_layout layout : {data_layout::nxc, data_layout::ncx})
                    for (int variant = 0; variant < 2; ++variant) {
                        problem p = make(s, what, type, layout);
                        rng random(++seed);
                        if (variant > 0) set_random_extras(random, p);
                        body(p, s, seed);
                        if (testing::Test::HasFatalFailure()) return;
                    }
}

/// Without tiles, whose results leave through the same stores.
std::vector<isa> vector_sets() {
    std::vector<isa> sets;
    for (const isa set : usable_isas())
        if (set != isa::amx_bf16) sets.push_back(set);
    return sets;
}

/// Empty if the driver does not take the problem.
std::vector<std::byte> outputs(workbench &bench, const run_options &how, std::size_t bytes) {
    const limit set(bytes);
    try {
        EXPECT_EQ(bench.run(how).algorithm, how.algorithm);
    } catch (const error &) {
        return {};
    }
    return bench.output_bytes();
}

TEST(streaming, same_bits) {
    workbench bench;
    std::map<std::string_view, int> ran;
    for_each_case([&](const problem &p, const size &s, std::uint64_t seed) {
        bench.load(p, fill::reals, seed, guarded_memory::side::begin);  // on a line
        for (const isa set : vector_sets()) {
            const run_options how{.max_isa = set, .algorithm = s.algorithm};
            const auto expected = outputs(bench, how, none);
            if (expected.empty()) continue;
            ASSERT_TRUE(outputs(bench, how, all) == expected)
                << to_text(p) << ", " << s.algorithm << ", " << to_string(set);
            ++ran[s.algorithm];
        }
    });
    for (const size &s : sizes)
        if (s.algorithm.find("dot2") == std::string_view::npos
            || vector_sets().back() == isa::avx512_bf16) {
            EXPECT_GT(ran[s.algorithm], 0) << s.algorithm;
        }
}

TEST(streaming, exact_on_integers_with_many_threads) {
    workbench bench;
    spawning_pool pool;
    for_each_case([&](const problem &p, const size &s, std::uint64_t seed) {
        if (s.algorithm.starts_with("winograd")) return;  // rounds even whole numbers
        bench.load(p, fill::integers, seed, guarded_memory::side::begin);
        bench.run_reference();
        const isa set = vector_sets().back();
        if (outputs(
                bench, {.max_isa = set, .threads = 3, .pool = &pool, .algorithm = s.algorithm}, all)
                .empty())
            return;
        ASSERT_EQ(bench.compare_exact(), "") << to_text(p) << ", " << s.algorithm;
    });
}

/// What is written once more, because values were not finite, is not overtaken by what streamed.
TEST(streaming, infinities) {
    workbench bench;
    for (const size &s : sizes)
        for (const data_type type : {data_type::f32, data_type::bf16}) {
            const problem p = make(s, pass::forward, type, data_layout::nxc);
            bench.load(p, fill::reals, 7, guarded_memory::side::begin);
            bench.write(role::src, p.src.x[1] * 3 + p.src.x[2] * 4,
                std::numeric_limits<double>::infinity());
            for (const isa set : vector_sets()) {
                const run_options how{.max_isa = set, .algorithm = s.algorithm};
                ASSERT_TRUE(outputs(bench, how, all) == outputs(bench, how, none))
                    << to_text(p) << ", " << s.algorithm << ", " << to_string(set);
            }
        }
}

}  // namespace
}  // namespace convgrad::test
