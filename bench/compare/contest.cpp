#include "contest.hpp"

#include <chrono>
#include <ctime>
#include <thread>

namespace convgrad::compare {
namespace {

using clock = std::chrono::steady_clock;

double since(clock::time_point start) {
    return std::chrono::duration<double>(clock::now() - start).count();
}

/// Processor time of all threads.
double cpu_seconds() {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

double timed(const contestant &c) {
    const clock::time_point start = clock::now();
    c.run();
    return since(start);
}

void count(contestant &c, double seconds) {
    if (c.runs == 0 || seconds < c.best) c.best = seconds;
    ++c.runs;
}

}  // namespace

void wait_until_quiet() {
    constexpr auto pause = std::chrono::microseconds(500);
    constexpr double idle = 100e-6, patience = 1;  // longer than any runtime's default spins
    const clock::time_point begin = clock::now();
    while (since(begin) < patience) {
        const double before = cpu_seconds();
        std::this_thread::sleep_for(pause);
        if (cpu_seconds() - before < idle) return;
    }
}

void play_round(std::vector<contestant> &all, double seconds, double too_long) {
    for (contestant &c : all) {
        if (!c.active) continue;
        wait_until_quiet();
        const double warm_up = timed(c);
        if (warm_up > too_long) {
            count(c, warm_up);
            continue;
        }
        const clock::time_point begin = clock::now();
        do count(c, timed(c));
        while (since(begin) < seconds);
    }
}

}  // namespace convgrad::compare
