// The one seam to threads: executor::run(count, body).
#pragma once

#include <type_traits>

#include <xmmintrin.h>

#include <convgrad/engine.hpp>

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
            unsigned modes;
        } context{&body, _mm_getcsr()};
        pool_->run(
            workers,
            [](void *opaque, int i) {
                const job &mine = *static_cast<const job *>(opaque);
                const unsigned before = _mm_getcsr();
                const bool differ = ((before ^ mine.modes) & ~exception_flags) != 0;
                if (differ) _mm_setcsr(mine.modes);
                (*mine.body)(i);
                if (differ) _mm_setcsr(before);
            },
            &context);
    }

private:
    static constexpr unsigned exception_flags = 0x3f;

    thread_pool *pool_;
    int threads_;
};

}  // namespace convgrad::cpu
