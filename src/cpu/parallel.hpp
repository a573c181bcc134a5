// The one seam to threads: executor::run(count, body).
#pragma once

#include <type_traits>

#include <convgrad/engine.hpp>

#include "cpu/machine/machine.hpp"

namespace convgrad::cpu {

/// Runs bodies on a pool, or inline when the pool is null or only one thread is wanted.
class executor {
public:
    executor(thread_pool *pool, int threads) : pool_(pool), threads_(threads < 1 ? 1 : threads) {}

    /// How many workers run() hands work to.
    [[nodiscard]] int threads() const { return threads_; }
    /// The same pool with at most `threads` workers.
    [[nodiscard]] executor limited(int threads) const {
        return {pool_, threads < threads_ ? threads : threads_};
    }

    /// Calls body(worker) for each worker in [0, workers), at most threads() of them, concurrently
    /// where the pool allows. Bodies do not throw. Every body sees the caller's floating-point
    /// modes (rounding, flushing of subnormals), whichever thread runs it: a result never depends
    /// on who computed which part.
    template <typename Body>
    void run(int workers, Body &&body) const {
        if (workers <= 1 || pool_ == nullptr) {
            for (int i = 0; i < workers; ++i) body(i);
            return;
        }
        using body_t = std::remove_reference_t<Body>;
        struct job {
            body_t *body;
            float_modes modes;
        } context{&body, read_float_modes()};
        pool_->run(
            workers,
            [](void *opaque, int i) {
                const job &mine = *static_cast<const job *>(opaque);
                const float_modes before = read_float_modes();
                const bool differ = before != mine.modes;
                if (differ) set_float_modes(mine.modes);
                (*mine.body)(i);
                if (differ) set_float_modes(before);
            },
            &context);
    }

private:
    thread_pool *pool_;
    int threads_;
};

}  // namespace convgrad::cpu
