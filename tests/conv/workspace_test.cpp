// Workspaces: nothing is written beyond the size a plan states (guard page and canaries, see
// workbench), and a limit is met by a leaner plan with the same result, or refused.
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <convgrad/error.hpp>

#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::problem;

TEST(workspace, limit_is_met_or_refused) {
    workbench bench;
    int leaner = 0, refused = 0;
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        rng random(seed);
        const problem p = random_problem(random, 2e5);
        bench.load(p, fill::integers, seed);
        bench.run_reference();
        for (const isa set : affordable_isas(seed, 8))
            for (const int threads : {1, 4}) {
                const std::size_t free = bench.run({.max_isa = set, .threads = threads}).workspace;
                ASSERT_EQ(bench.compare_exact(), "");
                std::size_t smallest_granted = free;
                for (const std::size_t limit : {free, free - free / 4, free / 2, free / 8,
                         std::size_t{4096}, std::size_t{64}, std::size_t{0}}) {
                    try {
                        const auto report = bench.run(
                            {.max_isa = set, .threads = threads, .workspace_limit = limit});
                        ASSERT_LE(report.workspace, limit) << to_text(p);
                        ASSERT_EQ(bench.compare_exact(), "") << "limit " << limit;
                        leaner += report.workspace < free;
                        smallest_granted = std::min(smallest_granted, limit);
                    } catch (const error &e) {
                        ASSERT_EQ(e.code(), error_code::out_of_memory) << e.what();
                        ASSERT_LT(limit, free) << e.what();
                        // What was possible within less must be possible within more.
                        ASSERT_LT(limit, std::max<std::size_t>(smallest_granted, 1));
                        ++refused;
                    }
                }
            }
    }
    EXPECT_GT(leaner, 100);
    EXPECT_GT(refused, 100);
}

// Which blocks a limit leaves decides the order of sums, how many threads there are does not.
TEST(workspace, same_bits_for_any_threads_within_a_limit) {
    workbench bench;
    for (std::uint64_t seed = 501; seed <= 700; ++seed) {
        rng random(seed);
        const problem p = random_problem(random, 2e5);
        bench.load(p, fill::reals, seed);
        for (const isa set : affordable_isas(seed, 8)) {
            const std::size_t free = bench.run({.max_isa = set}).workspace;
            for (const std::size_t limit : {free, free / 2, free / 6}) {
                std::vector<std::byte> once;
                for (const int threads : {1, 3, 16}) {
                    try {
                        bench.run({.max_isa = set, .threads = threads, .workspace_limit = limit});
                    } catch (const error &e) {
                        ASSERT_EQ(e.code(), error_code::out_of_memory) << e.what();
                        break;
                    }
                    if (threads == 1) once = bench.output_bytes();
                    ASSERT_EQ(bench.output_bytes(), once)
                        << threads << " threads, limit " << limit << ", " << to_text(p);
                }
            }
        }
    }
}

/// The numbers in a text, in order.
std::vector<std::size_t> numbers_in(const std::string &text) {
    std::vector<std::size_t> found;
    for (std::size_t at = 0; (at = text.find_first_of("0123456789", at)) != std::string::npos;) {
        std::size_t length = 0;
        found.push_back(std::stoull(text.substr(at), &length));
        at += length;
    }
    return found;
}

// The message must tell the limit and what would have been enough; that must be enough indeed, and
// a byte less must not.
TEST(workspace, refusal_names_the_numbers) {
    problem p;
    p.what = conv::pass::backward_weights;
    p.mb = 4;
    p.ic = p.oc = 64;
    p.x[1] = p.x[2] = make_axis(28, 3, 1, 1, 1, 1);
    set_layouts(p, data_layout::nxc, weights_layout::xio, data_layout::nxc);
    for (const isa set : usable_isas()) {
        const auto needed = [&](std::size_t limit) -> std::size_t {
            try {
                cpu::make_plan(p, {.max_isa = set, .workspace = limit});
                return 0;
            } catch (const error &e) {
                EXPECT_EQ(e.code(), error_code::out_of_memory);
                const std::vector<std::size_t> numbers = numbers_in(e.what());
                if (numbers.size() < 2) throw std::runtime_error(std::string("two? ") + e.what());
                EXPECT_EQ(numbers[0], limit) << e.what();
                return numbers[1];
            }
        };
        const std::size_t enough = needed(1);
        ASSERT_GT(enough, 1U) << to_string(set) << ": no refusal";
        EXPECT_EQ(needed(enough), 0U) << to_string(set);
        EXPECT_EQ(needed(enough - 1), enough) << to_string(set);
    }
}

}  // namespace
}  // namespace convgrad::test
