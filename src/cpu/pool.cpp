#include "cpu/pool.hpp"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

#include <pthread.h>

#include "cpu/machine/machine.hpp"

namespace convgrad::cpu {
namespace {

/// Set while a thread runs bodies: work that it starts then stays on it.
thread_local bool inside_job = false;

/// How often to look before sleeping, about 30 µs: layers follow each other faster than a sleeping
/// thread wakes, yet an idle library must not heat the machine.
constexpr int spins_before_sleep = 2000;

/// Grows by one in each fork()ed child, where the threads of the parent do not exist.
std::atomic<unsigned> fork_generation{0};

/// Needs neither construction nor destruction: engines may outlive static objects.
constinit std::mutex registry_mutex;
static_assert(std::is_trivially_destructible_v<std::mutex>);

void watch_forks() {
    static const bool watching = [] {
        // The registry is locked across fork(), so that a child never inherits it half changed.
        const int failure =
            pthread_atfork([] { registry_mutex.lock(); }, [] { registry_mutex.unlock(); },
                [] {
                    registry_mutex.unlock();
                    fork_generation.fetch_add(1);
                });
        if (failure != 0) throw std::bad_alloc();  // and the next call tries again
        return true;
    }();
    static_cast<void>(watching);
}

/// Waits while `word` has the value `old`.
template <typename T>
void await_change(const std::atomic<T> &word, T old, int spins) {
    for (int i = 0; i < spins; ++i) {
        if (word.load(std::memory_order_acquire) != old) return;
        relax();
    }
    word.wait(old, std::memory_order_acquire);
}

/// Signals belong to the caller's threads: workers start with all of them blocked.
class signals_blocked {
public:
    signals_blocked() {
        sigset_t all;
        sigfillset(&all);
        // A thread's own faults must reach the process's handlers: blocked, they kill it silently.
        for (int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP}) sigdelset(&all, fault);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~signals_blocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    signals_blocked(const signals_blocked &) = delete;
    signals_blocked &operator=(const signals_blocked &) = delete;

private:
    sigset_t before_;
};

}  // namespace

/// Workers and the job that they share. A forked child abandons its parent's crew, whose threads it
/// does not have and whose state it may have copied at any moment, and makes a new one.
struct pool::crew {
    explicit crew(int threads)
        : generation(fork_generation.load()),
          spins(threads <= available_cores() ? spins_before_sleep : 0) {}
    crew(const crew &) = delete;
    crew &operator=(const crew &) = delete;

    ~crew() {
        stopping.store(true);
        wake.fetch_add(1);
        wake.notify_all();
        for (std::thread &worker : workers) worker.join();
    }

    /// Runs what is left of the current job. A ticket holds the job's number and how many of its
    /// bodies are unclaimed, in one word: a late worker's exchange fails when the job is over, and
    /// succeeds only while that very job waits for the body it claimed. Job data is read after
    /// that.
    void work() {
        std::uint64_t seen = ticket.load(std::memory_order_acquire);
        while ((seen & unclaimed_mask) != 0) {
            if (!ticket.compare_exchange_weak(
                    seen, seen - 1, std::memory_order_acq_rel, std::memory_order_acquire))
                continue;
            body(context, static_cast<int>((seen & unclaimed_mask) - 1));
            if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) pending.notify_one();
            seen = ticket.load(std::memory_order_acquire);
        }
    }

    void worker_loop() {
        inside_job = true;
        std::uint32_t seen = 0;
        while (!stopping.load(std::memory_order_acquire)) {
            work();
            await_change(wake, seen, spins);
            seen = wake.load(std::memory_order_acquire);
        }
    }

    /// As many as wanted, or as many as the system gives: the caller can do all the work alone.
    void start_workers(int wanted) {
        if (static_cast<int>(workers.size()) >= wanted) return;
        const signals_blocked guard;
        try {
            while (static_cast<int>(workers.size()) < wanted) {
                workers.emplace_back([this] { worker_loop(); });
                pthread_setname_np(workers.back().native_handle(), "convgrad");
            }
        } catch (const std::system_error &) {
        } catch (const std::bad_alloc &) {
        }
    }

    void run(int count, int threads, void (*job_body)(void *, int), void *job_context) {
        start_workers(std::min(count, threads) - 1);
        body = job_body;
        context = job_context;
        pending.store(count, std::memory_order_relaxed);
        const std::uint64_t job = (ticket.load(std::memory_order_relaxed) | unclaimed_mask) + 1;
        ticket.store(job + static_cast<std::uint64_t>(count), std::memory_order_release);
        wake.fetch_add(1, std::memory_order_release);
        wake.notify_all();
        inside_job = true;
        work();
        inside_job = false;
        for (int left = pending.load(std::memory_order_acquire); left != 0;
             left = pending.load(std::memory_order_acquire))
            await_change(pending, left, spins);
    }

    static constexpr std::uint64_t unclaimed_mask = 0xffffffff;

    const unsigned generation;
    const int spins;
    std::vector<std::thread> workers;
    std::atomic<bool> busy{false};
    std::atomic<bool> stopping{false};
    void (*body)(void *, int) = nullptr;
    void *context = nullptr;
    // Apart, because workers look at each of them at different times.
    alignas(64) std::atomic<std::uint64_t> ticket{0};
    alignas(64) std::atomic<int> pending{0};
    alignas(64) std::atomic<std::uint32_t> wake{0};
};

std::shared_ptr<pool> pool::shared(int threads) {
    watch_forks();
    static auto *registry = new std::map<int, std::weak_ptr<pool>>;
    const std::lock_guard lock(registry_mutex);
    std::weak_ptr<pool> &entry = (*registry)[threads];
    std::shared_ptr<pool> found = entry.lock();
    if (found == nullptr) entry = found = std::make_shared<pool>(threads);
    return found;
}

pool::pool(int threads) : threads_(std::clamp(threads, 1, max_threads)) {
    watch_forks();
}

pool::~pool() {
    crew *mine = crew_.load();
    if (mine != nullptr && mine->generation == fork_generation.load()) delete mine;
}

/// The crew of this process, or null where there is no memory for one. No lock is involved that
/// another thread could hold while forking.
pool::crew *pool::current() try {
    crew *mine = crew_.load(std::memory_order_acquire);
    if (mine != nullptr && mine->generation == fork_generation.load(std::memory_order_relaxed))
        return mine;
    auto fresh = std::make_unique<crew>(threads_);
    if (crew_.compare_exchange_strong(mine, fresh.get(), std::memory_order_acq_rel))
        return fresh.release();
    return mine;
} catch (const std::bad_alloc &) {
    return nullptr;
}

bool pool::is_inside() noexcept {
    return inside_job;
}

void pool::run(int count, void (*body)(void *context, int i), void *context) {
    if (count > 1 && threads_ > 1 && !inside_job) {
        crew *mine = current();
        if (mine != nullptr && !mine->busy.exchange(true, std::memory_order_acquire)) {
            mine->run(count, threads_, body, context);
            mine->busy.store(false, std::memory_order_release);
            return;
        }
    }
    for (int i = 0; i < count; ++i) body(context, i);
}

}  // namespace convgrad::cpu
