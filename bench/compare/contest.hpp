// Several ways to do the same thing, timed in turns.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace convgrad::compare {

struct contestant {
    std::function<void()> run;
    double best = 0;       // seconds of the fastest execution
    std::size_t runs = 0;  // timed executions
    bool active = true;    // takes part in the coming rounds
};

/// Waits until no thread of this process computes: after parallel work, threads of OpenMP and the
/// like go on spinning for a while, and would take a core away from whoever comes next.
void wait_until_quiet();

/// One turn for each active contestant: quiet, an execution to warm up, then executions for
/// `seconds`, one at least. A warm-up that takes longer than `too_long` counts itself.
void play_round(std::vector<contestant> &all, double seconds, double too_long);

}  // namespace convgrad::compare
