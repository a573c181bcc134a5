// Many random problems, each against the reference.
#pragma once

#include <cstdint>

#include <gtest/gtest.h>

#include "support/workbench.hpp"

namespace convgrad::test {

/// Seeds from `first` on, `count` of them, of which every `step`th is taken.
struct seeds {
    std::uint64_t first, count, step = 1;
};

/// Calls run(seed) for random problems that are loaded and have their reference. Ends at the first
/// that fails.
template <typename Run>
void for_random_problems(
    workbench &bench, const seeds &from, fill how, double max_macs, Run &&run) {
    for (std::uint64_t seed = from.first; seed < from.first + from.count; seed += from.step) {
        rng random(seed);
        bench.load(random_problem(random, max_macs), how, seed);
        bench.run_reference();
        run(seed);
        if (testing::Test::HasFailure()) return;
    }
}

}  // namespace convgrad::test
