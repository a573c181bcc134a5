// The one seam to threads: executor::run(count, body).
#pragma once

#include <type_traits>

#include <convgrad/engine.hpp>

namespace convgrad::cpu {

/// Runs bodies on a pool, or inline when the pool is null or only one thread is wanted.
class executor {
public:
    executor(thread_pool *pool, int threads) : pool_(pool), threads_(threads < 1 ? 1 : threads) {}

    /// How many workers run() hands work to.
    [[nodiscard]] int threads() const { return threads_; }

    /// Calls body(worker) for each worker in [0, workers), at most threads() of them, concurrently
    /// where the pool allows. Bodies do not throw.
    template <typename Body>
    void run(int workers, Body &&body) const {
        if (workers <= 1 || pool_ == nullptr) {
            for (int i = 0; i < workers; ++i) body(i);
            return;
        }
        using body_t = std::remove_reference_t<Body>;
        pool_->run(
            workers, [](void *context, int i) { (*static_cast<body_t *>(context))(i); },
            const_cast<void *>(static_cast<const void *>(&body)));
    }

private:
    thread_pool *pool_;
    int threads_;
};

}  // namespace convgrad::cpu
