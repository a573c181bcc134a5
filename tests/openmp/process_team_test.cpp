// Work on the threads of an OpenMP runtime that the process has loaded, and everything that can be
// in the way of it: other regions, other callers, fork().
//
// CONVGRAD_TEST_OPENMP names the runtime, GNU's if it is not set; CMakeLists.txt runs LLVM's too.
#include <atomic>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include <dirent.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cpu/backend.hpp"
#include "graph/helpers.hpp"
#include "support/sanitizers.hpp"

namespace convgrad::test {
namespace {

/// The runtime's own entries, as a program that uses it calls them.
struct runtime {
    void (*parallel)(void (*)(void *), void *, unsigned, unsigned) = nullptr;
    void (*set_num_threads)(int) = nullptr;
    int (*get_max_threads)() = nullptr;

    /// Calls body() on every thread of a team.
    void region(const std::function<void()> &body) const {
        parallel([](void *opaque) { (*static_cast<const std::function<void()> *>(opaque))(); },
            const_cast<void *>(static_cast<const void *>(&body)), 0, 0);
    }
};

/// Threads of this process.
int existing_threads() {
    int count = 0;
    DIR *list = opendir("/proc/self/task");
    while (const dirent *entry = readdir(list))
        if (entry->d_name[0] != '.') ++count;
    closedir(list);
    return count;
}

class process_team : public testing::Test {
protected:
    void SetUp() override {
        if (is_thread_sanitized) GTEST_SKIP() << "it does not know OpenMP's barriers";
        const char *name = std::getenv("CONVGRAD_TEST_OPENMP");
        void *handle = dlopen(name != nullptr ? name : "libgomp.so.1", RTLD_NOW | RTLD_GLOBAL);
        if (handle == nullptr) GTEST_SKIP() << dlerror();
        const auto find = [&](auto &to, const char *entry) {
            to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(dlsym(handle, entry));
            ASSERT_NE(to, nullptr) << entry;
        };
        find(omp.parallel, "GOMP_parallel");
        find(omp.set_num_threads, "omp_set_num_threads");
        find(omp.get_max_threads, "omp_get_max_threads");
        omp.set_num_threads(3);
        on.emplace();
        ASSERT_TRUE(on->shares_threads());
    }

    /// The threads that `bodies` bodies of a job of the engine run on; each body waits until as
    /// many run as are expected at the same time.
    std::set<std::thread::id> threads_of_a_job(int bodies, int expected) const {
        std::set<std::thread::id> seen;
        std::mutex lock;
        std::atomic<int> arrived{0};
        cpu::backend_of(*on).executor_now().run(bodies, [&](int) {
            {
                const std::lock_guard guard(lock);
                seen.insert(std::this_thread::get_id());
            }
            ++arrived;
            while (arrived < expected) std::this_thread::yield();
        });
        return seen;
    }
    std::set<std::thread::id> threads_of_a_region() const {
        std::set<std::thread::id> seen;
        std::mutex lock;
        omp.region([&] {
            const std::lock_guard guard(lock);
            seen.insert(std::this_thread::get_id());
        });
        return seen;
    }

    runtime omp;
    std::optional<engine> on;
};

TEST_F(process_team, runs_on_the_threads_of_the_runtime) {
    const auto theirs = threads_of_a_region();
    EXPECT_EQ(theirs.size(), 3U);
    const int before = existing_threads();
    EXPECT_EQ(threads_of_a_job(3, 3), theirs);
    EXPECT_EQ(threads_of_a_region(), theirs);
    // More bodies than threads; one body runs on the caller.
    EXPECT_LE(threads_of_a_job(50, 1).size(), 3U);
    EXPECT_EQ(threads_of_a_job(1, 1), std::set{std::this_thread::get_id()});
    EXPECT_EQ(existing_threads(), before);
}

TEST_F(process_team, follows_the_runtimes_count_at_each_call) {
    for (int count : {1, 2, 8, 3}) {
        omp.set_num_threads(count);
        EXPECT_EQ(on->threads(), count);
        EXPECT_EQ(threads_of_a_job(count, count).size(), static_cast<std::size_t>(count));
        EXPECT_EQ(threads_of_a_job(100, 1).size() <= static_cast<std::size_t>(count), true);
        EXPECT_EQ(engine(engine_options{.threads = 2}).threads(), std::min(count, 2));
    }
}

TEST_F(process_team, is_left_alone_on_request) {
    const engine own(engine_options{.threads = 4, .own_threads = true});
    EXPECT_FALSE(own.shares_threads());
    EXPECT_EQ(own.threads(), 4);
    EXPECT_EQ(threads_of_a_region().size(), 3U);
}

/// A weights gradient with the work for several threads.
struct wide_layer {
    buffer src{{4, 26, 26, 48}, 1}, diff_dst{{4, 26, 26, 40}, 2};
    attributes attrs{.pads_begin = {1, 1}, .pads_end = {1, 1}};
    dims weights_shape{3, 3, 48, 40};

    [[nodiscard]] std::vector<float> gradient(const engine &on_engine) const {
        buffer out(weights_shape);
        convolution_backward_weights(
            src.view(), diff_dst.view(), out.view(), attrs, {.on = &on_engine});
        return out.values();
    }
    [[nodiscard]] std::vector<float> expected() const {
        return gradient(engine(engine_options{.threads = 1}));
    }
    [[nodiscard]] compiled_partition compiled(const engine &on_engine) const {
        return compile(op_kind::convolution_backward_weights,
            {src.described(0), diff_dst.described(1)}, {f32(2, weights_shape)}, attrs,
            {.on = &on_engine});
    }
};

TEST_F(process_team, gives_the_same_bits) {
    const wide_layer l;
    const std::vector<float> expected = l.expected();
    for (int count : {1, 2, 3, 8}) {
        omp.set_num_threads(count);
        EXPECT_EQ(l.gradient(*on), expected) << count;
    }
}

TEST_F(process_team, executes_what_was_compiled_for_fewer_or_more) {
    const wide_layer l;
    const std::vector<float> expected = l.expected();
    for (int planned : {1, 2, 8})
        for (int count : {8, 1, 3}) {
            omp.set_num_threads(planned);
            const compiled_partition c = l.compiled(*on);
            omp.set_num_threads(count);
            buffer out(l.weights_shape);
            c.execute(stream(*on), {l.src.view(), l.diff_dst.view()}, {out.view()});
            EXPECT_EQ(out.values(), expected) << planned << " " << count;
        }
}

TEST_F(process_team, works_alone_inside_a_region) {
    const int before = (threads_of_a_region(), existing_threads());
    std::atomic<int> strayed{0};
    omp.region([&] {
        const auto here = std::set{std::this_thread::get_id()};
        if (threads_of_a_job(5, 1) != here) ++strayed;
    });
    EXPECT_EQ(strayed, 0);
    EXPECT_EQ(existing_threads(), before);
}

TEST_F(process_team, works_alone_inside_a_job) {
    std::atomic<int> strayed{0};
    const auto nested = [&] {
        const auto here = std::set{std::this_thread::get_id()};
        if (threads_of_a_job(5, 1) != here) ++strayed;
    };
    cpu::backend_of(*on).executor_now().run(3, [&](int) { nested(); });
    cpu::pool own(3);
    cpu::executor(&own, 3).run(3, [&](int) { nested(); });
    EXPECT_EQ(strayed, 0);
}

TEST_F(process_team, other_callers_work_alone_meanwhile) {
    std::atomic<int> strayed{0};
    std::atomic<bool> done{false};
    cpu::backend_of(*on).executor_now().run(3, [&](int i) {
        if (i != 0) return;
        std::jthread other([&] {
            if (threads_of_a_job(5, 1) != std::set{std::this_thread::get_id()}) ++strayed;
            done = true;
        });
    });
    EXPECT_TRUE(done);
    EXPECT_EQ(strayed, 0);
}

TEST_F(process_team, serves_many_callers) {
    const wide_layer l;
    const std::vector<float> expected = l.expected();
    std::atomic<int> wrong{0};
    {
        std::vector<std::jthread> callers;
        for (int c = 0; c < 6; ++c)
            callers.emplace_back([&] {
                for (int i = 0; i < 10; ++i)
                    if (l.gradient(*on) != expected) ++wrong;
            });
    }
    EXPECT_EQ(wrong, 0);
}

/// Exit status of a child that runs `work`; 0 means that it returned true.
template <typename Work>
int in_child(Work &&work) {
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);  // GNU's runtime would wait for ever
        _exit(work() ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST_F(process_team, a_child_has_threads_of_its_own) {
    if (!can_fork) GTEST_SKIP();
    EXPECT_EQ(threads_of_a_job(3, 3).size(), 3U);
    const auto works = [&] {
        // As many as the runtime says, there too: LLVM's has forgotten, a data loader's worker
        // says 1.
        if (on->threads() != omp.get_max_threads()) return false;
        omp.set_num_threads(3);
        if (on->threads() != 3 || threads_of_a_job(3, 3).size() != 3) return false;
        omp.set_num_threads(1);
        if (on->threads() != 1 || threads_of_a_job(9, 1).size() != 1) return false;
        omp.set_num_threads(2);
        return threads_of_a_job(2, 2).size() == 2 && engine().threads() == 2;
    };
    EXPECT_EQ(in_child([&] { return works() && in_child(works) == 0; }), 0);
    EXPECT_EQ(threads_of_a_job(3, 3), threads_of_a_region());
}

TEST_F(process_team, children_of_a_busy_process_work) {
    if (!can_fork) GTEST_SKIP();
    std::atomic<bool> stop{false};
    std::jthread busy([&] {
        omp.set_num_threads(2);
        while (!stop) threads_of_a_job(4, 1);
    });
    for (int i = 0; i < 20; ++i)
        EXPECT_EQ(in_child([&] {
            omp.set_num_threads(3);
            return threads_of_a_job(3, 3).size() == 3;
        }),
            0);
    stop = true;
}

}  // namespace
}  // namespace convgrad::test
