// XLA's threads as the library's.
#pragma once

#include <convgrad/engine.hpp>

#include "xla_abi.hpp"

namespace convgrad::xla {

/// The threads that XLA computes with, for the duration of one custom call.
///
/// The thread that calls works too and never waits for a body that no thread has begun: XLA may run
/// all its threads inside such calls at once, or run tasks late, and nothing waits in a circle.
class pool final : public thread_pool {
public:
    explicit pool(const call_frame &frame);

    [[nodiscard]] int concurrency() const noexcept override { return threads_; }
    void run(int count, void (*body)(void *context, int i), void *context) override;

private:
    /// Whether XLA took the task.
    bool schedule(void (*task)(void *data), void *data);
    /// True if there was none; it is destroyed.
    bool succeeded(error *result) const;

    const api &api_;
    execution_context *context_;
    int threads_ = 1;
};

}  // namespace convgrad::xla
