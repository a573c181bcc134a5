// What every driver that is tested by name is asked for.
#pragma once

#include <gtest/gtest.h>

#include "support/workbench.hpp"

namespace convgrad::test {

/// On one thread and several the row itself runs, and agrees with the reference in every byte.
inline void expect_exact(workbench &bench, const named &row) {
    for (const int threads : {1, 3}) {
        const run_report ran =
            bench.run({.max_isa = row.set, .threads = threads, .algorithm = row.algorithm});
        ASSERT_EQ(ran.algorithm, row.algorithm);
        ASSERT_EQ(ran.set, row.set);
        ASSERT_EQ(bench.compare_exact(), "")
            << row.algorithm << ' ' << to_string(row.set) << " threads " << threads << ' '
            << to_text(bench.problem());
    }
}

/// On one thread it keeps the bound, on others it has the same bits.
inline void expect_bound_and_same_bits(workbench &bench, const named &row) {
    bench.run({.max_isa = row.set, .threads = 1, .algorithm = row.algorithm});
    ASSERT_EQ(bench.compare_bounded(), "")
        << row.algorithm << ' ' << to_string(row.set) << ' ' << to_text(bench.problem());
    const auto alone = bench.output_bytes();
    for (const int threads : {2, 16}) {
        bench.run({.max_isa = row.set, .threads = threads, .algorithm = row.algorithm});
        ASSERT_EQ(bench.output_bytes(), alone)
            << row.algorithm << ' ' << to_string(row.set) << " threads " << threads << ' '
            << to_text(bench.problem());
    }
}

}  // namespace convgrad::test
