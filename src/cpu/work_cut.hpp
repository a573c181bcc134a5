// How the work of an execution is cut: what each thread gets, on a machine of any size.
//
// Drivers list the parallel stages of execute() and what each task costs, with the functions that
// execute() itself uses; cut_work() plays the hand-out of tasks (tasks.hpp) through for N threads.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "conv/problem.hpp"

namespace convgrad::cpu {

struct kernel_set;
struct axis_walk;
struct axis_phase;

/// What a task costs, as modelled: good enough to compare tasks, not to predict times.
struct task_cost {
    double macs = 0;               // multiply-adds, unused lanes counted
    double read = 0, written = 0;  // bytes of tensors and of partial sums
};

/// One call of for_each_task, or (one task) a piece that runs on the calling thread.
struct work_stage {
    std::string_view name;
    dim tasks = 0;
    int workers = 1;  // at most
    /// `before` is the task that the same worker ran last, -1 if none: it may have left something.
    std::function<task_cost(dim task, dim before)> cost;
};

struct work_list {
    double macs_per_second = 1;  // of one core
    std::vector<work_stage> stages;
    dim parts = 1;           // partial sums of each output element
    double parts_bytes = 0;  // of all of them; 0: the sum is not split
};

/// Of threads: the one with the least, all on average, the one with the most.
struct spread {
    double least = 0, mean = 0, most = 0;
};

struct work_cut {
    struct stage {
        std::string_view name;
        dim tasks = 0;
        spread tasks_per_thread, seconds, read, written;
    };
    int threads = 1;
    std::vector<stage> stages;
    dim parts = 1;
    double parts_bytes = 0;
    int worthwhile = 1;  // threads that the problem has the work for, at most most_cut_threads

    /// Work of all threads, as if each ran alone.
    [[nodiscard]] double total_seconds() const;
    /// Stages one after the other, each as long as its busiest thread.
    [[nodiscard]] double elapsed_seconds() const;
    /// 1: no thread ever waits for another.
    [[nodiscard]] double balance() const;
};

work_cut cut_work(const work_list &work, int threads);

/// Drivers cut for up to this many threads, and their cut never depends on how many there are:
/// tiles decide which values share a format's limits, parts the order of a sum.
inline constexpr int most_cut_threads = 64;

/// The threads, from 1 to `most`, that a problem keeps busy for some time each.
int worthwhile_threads(const conv::problem &p, const kernel_set &kernels, int most);
/// The least that an execution takes on one thread of a nominal core.
double least_seconds(const conv::problem &p, const kernel_set &kernels);
/// What each thread should have to do where a cut is made for many. Finer cuts cost: small
/// tiles overlap, and narrow blocks of a weights gradient pack both operands again.
constexpr double worthwhile_seconds(conv::pass what) {
    return what == conv::pass::backward_weights ? 100e-6 : 60e-6;
}
/// The same for two, of which otherwise one would be idle.
inline constexpr double worthwhile_for_two = 30e-6;
/// The threads to cut for: a problem "has the work" for so many.
int cut_threads(const conv::problem &p, const kernel_set &kernels);

/// The worst balance on any number of threads up to `threads` that cut_work() may find for `tasks`
/// tasks, the largest of which is `skew` times the mean: a lower bound. `mean`: of what it goes
/// through.
double fair_share(dim tasks, double skew, int threads, double *mean = nullptr);
/// The same on exactly `threads` threads.
double fair_share_on(dim tasks, double skew, int threads);
/// The same for `parts` parts of `units` equal units, each of which makes `blocks` tasks, the
/// largest `skew` times the mean.
double share_of_parts(dim parts, dim units, dim blocks, double skew, int threads);
/// The fewest parts, at most `most`, that a reduction over `units` equal units must be cut into so
/// that fair_share() is satisfied, if each part makes `blocks` tasks, the largest `skew` times the
/// mean; where none satisfies, the best.
dim fair_parts(dim units, dim blocks, double skew, dim most, int threads);
/// What fair_share() should reach where there is a choice.
inline constexpr double fair_enough = 0.93;

/// Bytes per second of a nominal core, to and from memory.
inline constexpr double nominal_bytes = 8e9;
/// Multiply-adds per second of a nominal core of 3 GHz with these kernels.
double nominal_speed(const kernel_set &kernels);

/// Pairs of a position in [t0, t0 + length) of a phase and a tap that lies inside the input.
double inside_pairs(const axis_walk &walk, const axis_phase &phase, dim t0, dim length);

}  // namespace convgrad::cpu
