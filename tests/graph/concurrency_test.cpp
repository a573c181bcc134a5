// Many threads at once, as servers and frameworks use the library: compiling and executing, one
// compiled partition for all, pools of the caller's, calls from inside of calls, fork() in the
// middle, engines that go while their plans live. Meant for the thread sanitizer too.
#include <atomic>
#include <barrier>
#include <functional>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "cpu/parallel.hpp"
#include "cpu/pool.hpp"
#include "graph/helpers.hpp"
#include "support/eager_call.hpp"
#include "support/pools.hpp"

namespace convgrad::test {
namespace {

/// An op on small tensors, with what it gives on one thread.
class job {
public:
    job(op_kind kind, dim channels, dim groups, dim stride)
        : kind_(kind),
          transpose_(kind >= op_kind::conv_transpose), attrs_{.strides = {stride, stride},
                                                           .pads_begin = {1, 1},
                                                           .pads_end = {1, 1},
                                                           .groups = groups},
          small_({2, 5, 6, channels}, 1), weights_({3, 3, channels / groups, channels}, 2) {
        large_ = buffer(infer_shape(op_kind::conv_transpose, small_.shape(), weights_.shape(),
                            {.strides = attrs_.strides,
                                .pads_begin = {1, 1},
                                .pads_end = {1, 1},
                                .groups = groups}),
            3);
        const engine alone(engine_options{.threads = 1});
        buffer out = blank();
        run(out, alone);
        expected_ = out.values();
    }

    [[nodiscard]] bool right(const engine &on) const {
        buffer out = blank();
        run(out, on);
        return out.values() == expected_;
    }
    [[nodiscard]] compiled_partition compiled(const engine &on) const {
        const auto [in0, in1] = inputs();
        return compile(kind_, {in0->described(0), in1->described(1)}, {blank().described(2)},
            attrs_, {.on = &on});
    }
    [[nodiscard]] bool right(const compiled_partition &c, const stream &on) const {
        const auto [in0, in1] = inputs();
        buffer out = blank();
        c.execute(on, {in0->view(), in1->view()}, {out.view()});
        return out.values() == expected_;
    }

private:
    [[nodiscard]] int which() const { return (static_cast<int>(kind_) - 13) % 3; }
    [[nodiscard]] const buffer &src() const { return transpose_ ? small_ : large_; }
    [[nodiscard]] const buffer &dst() const { return transpose_ ? large_ : small_; }
    [[nodiscard]] std::pair<const buffer *, const buffer *> inputs() const {
        return {which() == 1 ? &dst() : &src(), which() == 2 ? &dst() : &weights_};
    }
    [[nodiscard]] buffer blank() const {
        const dims &shape = which() == 0   ? dst().shape()
                            : which() == 1 ? src().shape()
                                           : weights_.shape();
        return buffer::filled(shape, 99.0F);
    }
    void run(buffer &out, const engine &on) const {
        const auto [in0, in1] = inputs();
        call_eager(kind_, in0->view(), in1->view(), {}, out.view(), attrs_, {.on = &on});
    }

    op_kind kind_;
    bool transpose_;
    attributes attrs_;
    buffer large_{{1}}, small_, weights_;
    std::vector<float> expected_;
};

/// All six ops in the forms that lead to each family of algorithms.
const std::vector<job> &all_jobs() {
    static const std::vector<job> jobs = [] {
        std::vector<job> made;
        for (const op_kind kind : convolution_op_kinds) {
            made.emplace_back(kind, 6, 6, 1);   // depthwise
            made.emplace_back(kind, 2, 1, 2);   // narrow
            made.emplace_back(kind, 20, 1, 1);  // tiled
        }
        return made;
    }();
    return jobs;
}

/// Runs `body(thread)` in so many threads, which start at the same moment.
void at_once(int threads, const std::function<void(int)> &body) {
    std::barrier start(threads);
    std::vector<std::jthread> running;
    for (int t = 0; t < threads; ++t)
        running.emplace_back([&, t] {
            start.arrive_and_wait();
            body(t);
        });
}

TEST(concurrency, compiles_and_executes_everywhere_at_once) {
    const std::vector<job> &jobs = all_jobs();
    std::atomic<int> wrong{0};
    at_once(12, [&](int t) {
        // Engines come and go, some share their threads with others.
        const engine on(engine_options{.threads = 1 + t % 4});
        for (std::size_t i = 0; i < jobs.size(); ++i) {
            const job &mine = jobs[(i + static_cast<std::size_t>(t) * 5) % jobs.size()];
            if (!mine.right(on)) ++wrong;
            if (!mine.right(mine.compiled(on), stream(on))) ++wrong;
            if (i % 7 == 0) release_scratch();
        }
    });
    EXPECT_EQ(wrong, 0);
}

TEST(concurrency, sixteen_threads_share_one_compiled_partition) {
    const engine on(engine_options{.threads = 3});
    for (const job &shared : all_jobs()) {
        const compiled_partition c = shared.compiled(on);
        std::atomic<int> wrong{0};
        at_once(16, [&](int t) {
            const engine own(engine_options{.threads = 1 + t % 3});
            for (int i = 0; i < 4; ++i)
                if (!shared.right(c, stream(i % 2 == 0 ? on : own))) ++wrong;
        });
        EXPECT_EQ(wrong, 0);
    }
}

TEST(concurrency, finds_the_default_engine_at_once) {
    // The first use of all, where this test runs alone.
    const engine *seen[8] = {};
    at_once(8, [&](int t) { seen[t] = &default_engine(); });
    for (const engine *e : seen) EXPECT_EQ(e, seen[0]);
}

TEST(concurrency, many_callers_on_one_pool_of_theirs) {
    spawning_pool pool;
    const engine on(engine_options{.threads = 3, .pool = &pool});
    std::atomic<int> wrong{0};
    at_once(6, [&](int t) {
        for (std::size_t i = 0; i < all_jobs().size(); i += 3)
            if (!all_jobs()[i + static_cast<std::size_t>(t) % 3].right(on)) ++wrong;
    });
    EXPECT_EQ(wrong, 0);
}

/// A caller's pool on the library's own: each of its bodies then runs on a worker of ours.
class borrowing_pool : public thread_pool {
public:
    [[nodiscard]] int concurrency() const noexcept override { return pool_->concurrency(); }
    void run(int count, void (*body)(void *context, int i), void *context) override {
        pool_->run(count, body, context);
    }

private:
    std::shared_ptr<cpu::pool> pool_ = cpu::pool::shared(3);
};

TEST(concurrency, calls_from_inside_of_workers) {
    borrowing_pool pool;
    const engine outer(engine_options{.threads = 3, .pool = &pool});
    const engine inner(engine_options{.threads = 2});
    std::atomic<int> wrong{0};
    // Two levels: a worker executes on the very pool that it belongs to, and on another.
    cpu::executor(&pool, 3).run(6, [&](int i) {
        const job &mine = all_jobs()[static_cast<std::size_t>(i) * 3];
        if (!mine.right(outer) || !mine.right(inner)) ++wrong;
        if (!mine.right(mine.compiled(inner), stream(outer))) ++wrong;
    });
    EXPECT_EQ(wrong, 0);
    for (const job &mine : all_jobs()) EXPECT_TRUE(mine.right(outer));
}

TEST(concurrency, engines_go_while_their_plans_run) {
    const std::vector<job> &jobs = all_jobs();
    for (int round = 0; round < 3; ++round) {
        std::vector<compiled_partition> plans;
        std::vector<stream> streams;
        {
            // The last engine of its size: its threads live on through the streams.
            const engine on(engine_options{.threads = 5 + round});
            for (const job &j : jobs) plans.push_back(j.compiled(on));
            streams.assign(4, stream(on));
        }
        std::atomic<int> wrong{0};
        at_once(4, [&](int t) {
            const stream mine = streams[static_cast<std::size_t>(t)];
            streams[static_cast<std::size_t>(t)] =
                stream(default_engine());  // and this one goes too
            for (std::size_t i = 0; i < jobs.size(); ++i)
                if (!jobs[i].right(plans[i], mine)) ++wrong;
        });
        EXPECT_EQ(wrong, 0);
    }
}

TEST(concurrency, one_graph_from_many_threads) {
    const layer l;
    const std::vector<float> diff_src = l.diff_src(), diff_weights = l.diff_weights();
    graph g;
    op data = padded(1, op_kind::convolution_backward_data);
    data.add_input(l.diff_dst.described(0)).add_input(l.weights.described(1));
    data.add_output(l.src.described(2));
    op weights = padded(2, op_kind::convolution_backward_weights);
    weights.add_input(l.src.described(3)).add_input(l.diff_dst.described(0));
    weights.add_output(l.weights.described(4));
    g.add(data).add(weights).finalize();
    std::atomic<int> wrong{0};
    at_once(8, [&](int t) {
        const engine on(engine_options{.threads = 1 + t % 2});
        for (int i = 0; i < 10; ++i) {
            const std::vector<partition> parts = g.partitions();
            buffer to_src(l.src.shape()), to_weights(l.weights.shape());
            parts[0].compile(on).execute(stream(on),
                {l.diff_dst.view(), l.weights.view(), l.src.view()},
                {to_src.view(), to_weights.view()});
            if (to_src.values() != diff_src || to_weights.values() != diff_weights) ++wrong;
        }
    });
    EXPECT_EQ(wrong, 0);
}

TEST(concurrency, forks_while_threads_compile_and_execute) {
    if (!can_fork) GTEST_SKIP();
    const std::vector<job> &jobs = all_jobs();
    const engine shared(engine_options{.threads = 3});
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::vector<std::jthread> busy;
    for (int t = 0; t < 3; ++t)
        busy.emplace_back([&, t] {
            for (std::size_t i = static_cast<std::size_t>(t); !stop; ++i) {
                const job &mine = jobs[i % jobs.size()];
                const engine own(engine_options{.threads = 1 + t});
                if (!mine.right(shared) || !mine.right(mine.compiled(own), stream(own))) ++wrong;
            }
        });
    for (int round = 0; round < 10; ++round) {
        const pid_t child = fork();
        if (child == 0) {
            bool good = true;
            for (std::size_t i = 0; i < jobs.size(); i += 4)
                good = good && jobs[i].right(shared)
                       && jobs[i].right(jobs[i].compiled(shared), stream(engine()));
            _exit(good ? 0 : 1);
        }
        int status = -1;
        waitpid(child, &status, 0);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    }
    stop = true;
    busy.clear();
    EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace convgrad::test
