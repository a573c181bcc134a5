#include "xla_pool.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <new>

#include "cpu/machine/machine.hpp"

namespace convgrad::xla {
namespace {

/// Bodies of one run(), claimed by a counter. Lives until the last task has looked at it, which may
/// be long after run() has returned: a task that comes late finds nothing to do.
class job {
public:
    job(int count, void (*body)(void *, int), void *context)
        : count_(count), body_(body), context_(context) {}

    /// Runs what nobody else has begun.
    void work() {
        for (int i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) {
            body_(context_, i);
            if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) done_.notify_all();
        }
    }

    /// Returns when every body has returned; call work() before.
    void wait() const {
        int seen = done_.load(std::memory_order_acquire);
        for (int spins = 0; seen != count_ && spins < spins_before_sleep; ++spins) {
            cpu::relax();
            seen = done_.load(std::memory_order_acquire);
        }
        while (seen != count_) {
            done_.wait(seen, std::memory_order_acquire);
            seen = done_.load(std::memory_order_acquire);
        }
    }

    void hold() { holders_.fetch_add(1, std::memory_order_relaxed); }
    void let_go() {
        if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }

private:
    // About as long as a thread takes to wake up.
    static constexpr int spins_before_sleep = 2000;

    ~job() = default;

    const int count_;
    void (*const body_)(void *, int);
    void *const context_;
    std::atomic<int> next_{0}, done_{0}, holders_{1};
};

}  // namespace

pool::pool(const call_frame &frame) : api_(*frame.api), context_(frame.context) {
    if (!has(api_, &api::thread_count)) return;
    std::int64_t count = 1;
    thread_count_args args{sizeof(thread_count_args), nullptr, context_, &count};
    if (succeeded(api_.thread_count(&args)))
        threads_ =
            static_cast<int>(std::clamp<std::int64_t>(count, 1, std::numeric_limits<int>::max()));
}

void pool::run(int count, void (*body)(void *context, int i), void *context) {
    const int helpers = std::min(count, threads_) - 1;
    job *shared = helpers > 0 ? new (std::nothrow) job(count, body, context) : nullptr;
    if (shared == nullptr) {
        for (int i = 0; i < count; ++i) body(context, i);
        return;
    }
    const auto help = [](void *data) {
        job *mine = static_cast<job *>(data);
        mine->work();
        mine->let_go();
    };
    for (int i = 0; i < helpers; ++i) {
        shared->hold();
        if (schedule(help, shared)) continue;
        shared->let_go();
        break;
    }
    shared->work();
    shared->wait();
    shared->let_go();
}

bool pool::schedule(void (*task)(void *data), void *data) {
    if (!has(api_, &api::schedule)) return false;
    schedule_args args{sizeof(schedule_args), nullptr, context_, task, data};
    return succeeded(api_.schedule(&args));
}

bool pool::succeeded(error *result) const {
    if (result == nullptr) return true;
    error_destroy_args args{sizeof(error_destroy_args), nullptr, result};
    api_.error_destroy(&args);
    return false;
}

}  // namespace convgrad::xla
