// Executions whose tasks go through the batch from its first image to its last can go side by side:
// the tasks of all of them, in the order of the images, as one list. A tensor that several of them
// read comes from memory once and from a cache after that. The tasks are the same and so are all
// bits.
#pragma once

#include <functional>
#include <vector>

#include "cpu/parallel.hpp"

namespace convgrad::cpu {

/// One such execution, started: what remains are its tasks and, after the last of them, finish().
struct batch_walk {
    dim tasks = 0;
    int workers = 1;  // at most
    std::function<void(int worker, dim task)> run;
    std::function<void(const executor &threads)> finish;  // empty: nothing is left to do
};

/// Runs all walks to their ends.
void run_walks(const std::vector<batch_walk> &walks, const executor &threads);

}  // namespace convgrad::cpu
