// Thread pools for tests.
#pragma once

#include <thread>
#include <vector>

#include <convgrad/engine.hpp>

namespace convgrad::test {

/// Runs bodies one after the other, the last one first: any order must do.
class reversing_pool : public thread_pool {
public:
    [[nodiscard]] int concurrency() const noexcept override { return 64; }
    void run(int count, void (*body)(void *context, int i), void *context) override {
        for (int i = count - 1; i >= 0; --i) body(context, i);
    }
};

/// Real threads, as many as bodies, started for each run: slow, but concurrent beyond doubt.
class spawning_pool : public thread_pool {
public:
    [[nodiscard]] int concurrency() const noexcept override { return 64; }
    void run(int count, void (*body)(void *context, int i), void *context) override {
        std::vector<std::jthread> threads;
        for (int i = 1; i < count; ++i) threads.emplace_back(body, context, i);
        if (count > 0) body(context, 0);
    }
};

}  // namespace convgrad::test
