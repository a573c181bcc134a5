// The library's own threads: every body once, from anywhere, and in a forked child.
#include <atomic>
#include <cfenv>
#include <csignal>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "cpu/parallel.hpp"
#include "cpu/pool.hpp"
#include "graph/helpers.hpp"

namespace convgrad::test {
namespace {

/// Runs `count` bodies and checks that each index came exactly once.
bool each_once(const cpu::executor &threads, int count) {
    std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
    threads.run(count, [&](int i) { ++seen[static_cast<std::size_t>(i)]; });
    return std::all_of(seen.begin(), seen.end(), [](const std::atomic<int> &n) { return n == 1; });
}

TEST(pool, runs_each_body_once) {
    for (int threads : {1, 2, 3, 8}) {
        const auto pool = cpu::pool::shared(threads);
        EXPECT_EQ(pool->concurrency(), threads);
        const cpu::executor on(pool.get(), threads);
        for (int count : {0, 1, 2, 7, 8, 100})
            for (int repeat = 0; repeat < 50; ++repeat) EXPECT_TRUE(each_once(on, count));
    }
}

/// A caller's pool that is out of order at times.
class failing_pool final : public thread_pool {
public:
    enum class failure { none, runtime, memory };
    failure next = failure::none;

    [[nodiscard]] int concurrency() const noexcept override { return 4; }
    void run(int count, void (*body)(void *, int), void *context) override {
        for (int i = 0; i < count; ++i) {
            if (next == failure::runtime && i > 0) throw std::runtime_error("the pool is closed");
            if (next == failure::memory && i > 0) throw std::bad_alloc();
            body(context, i);
        }
    }
};

TEST(pool, exceptions_of_a_callers_pool_leave_the_call) {
    failing_pool pool;
    const engine on({.threads = 4, .pool = &pool});
    const dims shape{8, 64, 64, 16}, kernel{3, 3, 16, 16};
    const buffer src(shape), weights(kernel), dst(shape);
    const attributes attrs{.pads_begin = {1, 1}, .pads_end = {1, 1}};
    const std::vector<logical_tensor> inputs = {src.described(0), weights.described(1)};
    const logical_tensor output = dst.described(2);
    const compiled_partition layer =
        compile(op_kind::convolution, inputs, {&output, 1}, attrs, {.on = &on});
    const auto run = [&] {
        layer.execute(stream(on), std::vector{src.view(), weights.view()}, std::vector{dst.view()});
        return dst.values();
    };
    const std::vector<float> expected = run();
    for (int round = 0; round < 3; ++round) {
        pool.next = failing_pool::failure::runtime;
        EXPECT_THROW(run(), std::runtime_error);
        pool.next = failing_pool::failure::memory;
        expect_error(error_code::out_of_memory, {}, [&] { run(); });
        pool.next = failing_pool::failure::none;
        EXPECT_EQ(run(), expected);
    }
}

TEST(pool, is_shared_by_size) {
    const auto a = cpu::pool::shared(2), b = cpu::pool::shared(2), c = cpu::pool::shared(3);
    EXPECT_EQ(a, b);
    EXPECT_NE(a, c);
}

TEST(pool, runs_bodies_on_several_threads) {
    // Two bodies that wait for each other can only end if both run. (The library's own bodies never
    // wait; a pool that is idle must be able to do it nevertheless.)
    cpu::pool pool(2);
    const cpu::executor on(&pool, 2);
    std::atomic<int> arrived{0};
    on.run(2, [&](int) {
        ++arrived;
        while (arrived < 2) std::this_thread::yield();
    });
    EXPECT_EQ(arrived, 2);
}

TEST(pool, serves_many_callers_at_once) {
    const auto pool = cpu::pool::shared(2);
    const cpu::executor on(pool.get(), 2);
    std::atomic<int> wrong{0};
    {
        std::vector<std::jthread> callers;
        for (int c = 0; c < 16; ++c)
            callers.emplace_back([&] {
                for (int i = 0; i < 500; ++i)
                    if (!each_once(on, 3)) ++wrong;
            });
    }
    EXPECT_EQ(wrong, 0);
}

TEST(pool, runs_nested_work_inline) {
    const auto two = cpu::pool::shared(2), three = cpu::pool::shared(3);
    const cpu::executor outer(two.get(), 2), other(three.get(), 3);
    std::atomic<int> inner{0}, strayed{0};
    outer.run(2, [&](int) {
        const auto here = std::this_thread::get_id();
        for (const cpu::executor *nested : {&outer, &other})
            nested->run(4, [&](int) {
                ++inner;
                if (std::this_thread::get_id() != here) ++strayed;
            });
    });
    EXPECT_EQ(inner, 2 * 2 * 4);
    EXPECT_EQ(strayed, 0);
    EXPECT_TRUE(each_once(outer, 5));
}

TEST(pool, comes_and_goes) {
    for (int i = 0; i < 50; ++i) {
        cpu::pool pool(3);
        EXPECT_TRUE(each_once(cpu::executor(&pool, 3), 3));
    }
}

TEST(pool, wakes_after_sleeping) {
    const auto pool = cpu::pool::shared(2);
    for (int i = 0; i < 5; ++i) {
        EXPECT_TRUE(each_once(cpu::executor(pool.get(), 2), 4));
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}

TEST(pool, hands_the_callers_floating_point_modes_to_workers) {
    cpu::pool pool(2);
    const cpu::executor on(&pool, 2);
    on.run(2, [](int) {});  // workers exist before the mode changes
    const cpu::float_modes before = cpu::read_float_modes();
    cpu::set_float_modes(before | cpu::flush_subnormal_results);
    std::atomic<int> arrived{0}, flushing{0};
    on.run(2, [&](int) {
        ++arrived;
        while (arrived < 2) std::this_thread::yield();
        if ((cpu::read_float_modes() & cpu::flush_subnormal_results) != 0) ++flushing;
    });
    cpu::set_float_modes(before);
    EXPECT_EQ(flushing, 2);
}

TEST(pool, leaves_signals_to_the_caller) {
    cpu::pool pool(2);
    std::atomic<int> arrived{0}, open{0};
    const auto caller = std::this_thread::get_id();
    cpu::executor(&pool, 2).run(2, [&](int) {
        ++arrived;
        while (arrived < 2) std::this_thread::yield();
        sigset_t blocked;
        pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
        if (std::this_thread::get_id() != caller && sigismember(&blocked, SIGUSR1) == 0) ++open;
    });
    EXPECT_EQ(open, 0);
}

/// Exit status of a child that runs `work`; 0 means that it returned true.
template <typename Work>
int in_child(Work &&work) {
    const pid_t child = fork();
    if (child == 0) _exit(work() ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(fork, child_has_working_threads) {
    if (!can_fork) GTEST_SKIP();
    cpu::pool pool(2);
    const cpu::executor on(&pool, 2);
    const auto both_run = [&] {
        std::atomic<int> arrived{0};
        on.run(2, [&](int) {
            ++arrived;
            while (arrived < 2) std::this_thread::yield();
        });
        return arrived == 2;
    };
    EXPECT_TRUE(both_run());
    EXPECT_EQ(in_child([&] {
        // A grandchild too.
        return both_run() && in_child(both_run) == 0 && each_once(on, 9);
    }),
        0);
    EXPECT_TRUE(both_run());
}

TEST(fork, while_other_threads_compute) {
    if (!can_fork) GTEST_SKIP();
    const layer l;
    const std::vector<float> expected = l.diff_weights();
    const engine two(engine_options{.threads = 2});
    const auto correct = [&] {
        buffer out(l.weights.shape());
        convolution_backward_weights(
            l.src.view(), l.diff_dst.view(), out.view(), l.attrs, {.on = &two});
        return out.values() == expected;
    };
    std::atomic<bool> stop{false};
    std::jthread busy([&] {
        while (!stop) EXPECT_TRUE(correct());
    });
    for (int i = 0; i < 20; ++i)
        EXPECT_EQ(in_child([&] {
            const engine fresh(engine_options{.threads = 2});
            return correct() && fresh.threads() == 2 && correct();
        }),
            0);
    stop = true;
}

}  // namespace
}  // namespace convgrad::test
