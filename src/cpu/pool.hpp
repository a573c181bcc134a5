// The library's own threads, and how many of them to use.
//
// Layer: below engines; drivers reach it through cpu::executor only.
#pragma once

#include <atomic>
#include <memory>

#include <convgrad/engine.hpp>

namespace convgrad::cpu {

/// Cores that this process may use: its affinity mask, cut down to the cgroup's CPU quota.
int available_cores();

/// Upper bound for the number of threads of an engine.
inline constexpr int max_threads = 1024;

/// CONVGRAD_NUM_THREADS, or 0 where it is not set. Throws invalid_argument when the variable is not
/// a number between 1 and max_threads.
int threads_by_environment();

/// A fixed number of threads, the caller's included, that run one job at a time.
///
/// A caller who finds the pool busy, or who is inside a job already, runs its work on its own
/// thread: nothing ever waits for a turn, so no order of calls can deadlock. Workers start with the
/// first job that needs them, and again in a child after fork().
class pool final : public thread_pool {
public:
    /// The pool of this size that all engines of the process share.
    static std::shared_ptr<pool> shared(int threads);

    explicit pool(int threads);
    ~pool() override;
    pool(const pool &) = delete;
    pool &operator=(const pool &) = delete;

    [[nodiscard]] int concurrency() const noexcept override { return threads_; }
    void run(int count, void (*body)(void *context, int i), void *context) override;

    /// Whether the calling thread runs a body of some pool of this class.
    static bool is_inside() noexcept;

private:
    struct crew;
    crew *current();

    int threads_;
    std::atomic<crew *> crew_{nullptr};
};

}  // namespace convgrad::cpu
