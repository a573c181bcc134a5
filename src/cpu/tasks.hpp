// Handing numbered tasks to workers.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "cpu/machine/machine.hpp"
#include "cpu/parallel.hpp"

namespace convgrad::cpu {

/// Where the range of tasks begins that a worker starts with; worker `workers` begins at the end.
inline dim first_task(dim count, int worker, int workers) {
    return count * worker / workers;
}

/// Tasks [base, base + count), count < 2^32.
template <typename Body>
void run_tasks(const executor &threads, dim base, dim count, const Body &body) {
    const int workers = static_cast<int>(std::min<dim>(threads.threads(), count));
    if (workers <= 1) {
        for (dim task = 0; task < count; ++task) body(0, base + task);
        settle_stores();
        return;
    }
    struct alignas(64) range {
        // next in the high half, end in the low half: taking from either side is one exchange.
        std::atomic<std::uint64_t> state;
    };
    std::vector<range> ranges(static_cast<std::size_t>(workers));
    for (int w = 0; w < workers; ++w) {
        const auto first = static_cast<std::uint64_t>(first_task(count, w, workers));
        const auto last = static_cast<std::uint64_t>(first_task(count, w + 1, workers));
        ranges[static_cast<std::size_t>(w)].state.store(
            first << 32 | last, std::memory_order_relaxed);
    }
    const auto take = [&](range &from, bool own) -> dim {
        std::uint64_t seen = from.state.load(std::memory_order_relaxed);
        for (;;) {
            const std::uint64_t next = seen >> 32, end = seen & 0xffffffffU;
            if (next >= end) return -1;
            const std::uint64_t want = own ? (next + 1) << 32 | end : next << 32 | (end - 1);
            if (from.state.compare_exchange_weak(seen, want, std::memory_order_relaxed))
                return static_cast<dim>(own ? next : end - 1);
        }
    };
    threads.run(workers, [&](int worker) {
        for (dim task; (task = take(ranges[static_cast<std::size_t>(worker)], true)) >= 0;)
            body(worker, base + task);
        for (;;) {
            range *longest = nullptr;
            std::uint64_t most = 0;
            for (range &r : ranges) {
                const std::uint64_t seen = r.state.load(std::memory_order_relaxed);
                const std::uint64_t next = seen >> 32, end = seen & 0xffffffffU;
                if (next < end && end - next > most) most = end - next, longest = &r;
            }
            if (longest == nullptr) return settle_stores();
            const dim task = take(*longest, false);
            if (task >= 0) body(worker, base + task);
        }
    });
}

/// Calls body(worker, task) once for each task in [0, count). Each worker starts with a contiguous
/// range of tasks, so that what it packed for one serves the next; a worker that runs dry takes
/// tasks from the end of the longest remaining range (a slow neighbour does not hold up the rest).
/// Results must not depend on who runs a task.
template <typename Body>
void for_each_task(const executor &threads, dim count, const Body &body) {
    constexpr dim at_once = dim{1} << 31;
    for (dim base = 0; base < count; base += at_once)
        run_tasks(threads, base, std::min(at_once, count - base), body);
}

}  // namespace convgrad::cpu
