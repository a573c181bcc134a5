// convgrad_soak SECONDS [SEED]: random layers for a long time, and nothing may change: neither a
// bit of any result, nor what the process holds.
//
// convgrad_soak --sums LAYERS THREADS: the hash of each of the first layers, for comparing
// processes.
//
// Time is cut into periods. In each, a few client threads start, run random layers through eager
// calls, compiled ops and graphs, on engines of 1 to 16 threads that they create and drop, and end.
// Some periods run beside processes that spin, some on one core only, some both. The first result
// for a layer is kept; every later one must have the same hash. Between periods nothing runs: what
// the process holds then is compared over time.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <thread>

#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "case.hpp"
#include "watch.hpp"

namespace convgrad::soak {
namespace {

using clock = std::chrono::steady_clock;

constexpr int clients = 3;
constexpr std::size_t arena_bytes = std::size_t{24} << 20;

/// Of what the process holds. In the first minutes the heaps of new threads still find their size.
double tolerance(double seconds) {
    return seconds < 600 ? 0.1 : 0.01;
}

/// The first hash of each layer. Never grows.
class ledger {
public:
    explicit ledger(std::size_t layers) : sums_(layers) {}
    [[nodiscard]] std::size_t size() const { return sums_.size(); }
    /// False if the layer gave another result before.
    bool agree(std::size_t number, std::uint64_t sum) {
        std::uint64_t before = 0;
        if (sums_[number].compare_exchange_strong(before, sum)) {
            ++first_;
            return true;
        }
        ++repeated_;
        return before == sum;
    }
    [[nodiscard]] std::uint64_t first() const { return first_; }
    [[nodiscard]] std::uint64_t repeated() const { return repeated_; }

private:
    std::vector<std::atomic<std::uint64_t>> sums_;
    std::atomic<std::uint64_t> first_{0}, repeated_{0};
};

/// Processes that only burn time, until destroyed.
class neighbours {
public:
    explicit neighbours(int count) {
        for (int i = 0; i < count; ++i) {
            const pid_t child = fork();
            if (child == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                for (std::atomic<unsigned> spin{0};;) ++spin;
            }
            if (child > 0) children_.push_back(child);
        }
    }
    ~neighbours() {
        for (const pid_t child : children_) {
            kill(child, SIGKILL);
            waitpid(child, nullptr, 0);
        }
    }
    neighbours(const neighbours &) = delete;
    neighbours &operator=(const neighbours &) = delete;

private:
    std::vector<pid_t> children_;
};

/// This thread, and threads that it starts, on one core of those it had, until destroyed.
class one_core {
public:
    explicit one_core(unsigned which) {
        sched_getaffinity(0, sizeof all_, &all_);
        cpu_set_t one;
        CPU_ZERO(&one);
        int skip = static_cast<int>(which % static_cast<unsigned>(CPU_COUNT(&all_)));
        for (int core = 0; core < CPU_SETSIZE; ++core)
            if (CPU_ISSET(core, &all_) && skip-- == 0) CPU_SET(core, &one);
        sched_setaffinity(0, sizeof one, &one);
    }
    ~one_core() { sched_setaffinity(0, sizeof all_, &all_); }
    one_core(const one_core &) = delete;
    one_core &operator=(const one_core &) = delete;

private:
    cpu_set_t all_;
};

class soak_run {
public:
    soak_run(double seconds, std::uint64_t seed)
        : seconds_(seconds), period_(std::clamp(seconds / 240, 0.25, 10.0)), seed_(seed),
          // Each layer comes round many times.
          results_(static_cast<std::size_t>(std::clamp(seconds * 50, 500.0, 100000.0))),
          busy_(samples()), idle_(samples()) {
        for (auto &m : memory_) m = std::make_unique<arena>(arena_bytes);
    }

    int run() {
        const auto start = clock::now();
        const auto elapsed = [&] {
            return std::chrono::duration<double>(clock::now() - start).count();
        };
        double next_line = 0;
        for (unsigned period = 0; elapsed() < seconds_ && failures_ == 0; ++period) {
            disturbed(period, start
                                  + std::chrono::duration_cast<clock::duration>(
                                      std::chrono::duration<double>(elapsed() + period_)));
            busy_.add(look(elapsed()));
            release_scratch();
            idle_.add(look(elapsed()));
            if (elapsed() < next_line) continue;
            print_line(idle_.last());
            next_line += seconds_ / 60;
        }
        return report(elapsed());
    }

private:
    [[nodiscard]] std::size_t samples() const {
        return static_cast<std::size_t>(seconds_ / period_) + 1;
    }

    /// One period in one of four surroundings.
    void disturbed(unsigned period, clock::time_point end) {
        const neighbours spinning(period % 2 == 1 ? 2 : 0);
        if (period % 4 < 2) return run_clients(period, end);
        const one_core reduced(period / 4);
        run_clients(period, end);
    }

    void run_clients(unsigned period, clock::time_point end) {
        std::vector<std::thread> threads;
        for (int c = 0; c < clients; ++c)
            threads.emplace_back([this, period, c, end] {
                test::rng random(seed_ + period * 64U + static_cast<unsigned>(c));
                while (clock::now() < end && failures_ == 0)
                    run_one(random, *memory_[static_cast<std::size_t>(c)]);
            });
        for (std::thread &t : threads) t.join();
    }

    void run_one(test::rng &random, arena &memory) {
        const std::uint64_t number = random.next() % results_.size();
        const visit v = draw_visit(random);
        try {
            if (results_.agree(number, soak::run(number, draw_layer(number), v, memory))) return;
            std::printf("layer %llu gave other bits (route %d, %d threads)\n",
                static_cast<unsigned long long>(number), static_cast<int>(v.how), v.threads);
        } catch (const std::exception &e) {
            std::printf("layer %llu (route %d, %d threads): %s\n",
                static_cast<unsigned long long>(number), static_cast<int>(v.how), v.threads,
                e.what());
        }
        ++failures_;
    }

    void print_line(const holdings &now) const {
        std::printf(
            "%6.0f s  %9llu runs  resident %.2f MiB  heap %.3f MiB  files %zu  threads %zu\n",
            now.seconds, static_cast<unsigned long long>(results_.first() + results_.repeated()),
            now.rss / 0x1p20, now.heap / 0x1p20, now.files, now.threads);
        std::fflush(stdout);
    }

    int report(double seconds) {
        std::printf("%.0f s: %llu layers, run %llu times again, %d failed\n", seconds,
            static_cast<unsigned long long>(results_.first()),
            static_cast<unsigned long long>(results_.repeated()), failures_.load());
        std::printf("with scratch memory kept:     %s\n", busy_.summary().c_str());
        std::printf("with scratch memory released: %s\n", idle_.summary().c_str());
        for (const std::string &complaint : idle_.complaints(tolerance(seconds_))) {
            std::printf("FAIL: %s\n", complaint.c_str());
            ++failures_;
        }
        if (results_.repeated() == 0) {
            std::printf("FAIL: nothing was run twice\n");
            ++failures_;
        }
        std::printf("%s\n", failures_ == 0 ? "passed" : "FAILED");
        return failures_ == 0 ? 0 : 1;
    }

    const double seconds_, period_;
    const std::uint64_t seed_;
    ledger results_;
    std::array<std::unique_ptr<arena>, clients> memory_;
    trend busy_, idle_;
    std::atomic<int> failures_{0};
};

int print_sums(std::uint64_t layers, int threads) {
    arena memory(arena_bytes);
    test::rng random(static_cast<std::uint64_t>(threads));
    for (std::uint64_t number = 0; number < layers; ++number) {
        visit v = draw_visit(random);
        v.threads = threads;
        std::printf("%llu %016llx\n", static_cast<unsigned long long>(number),
            static_cast<unsigned long long>(run(number, draw_layer(number), v, memory)));
    }
    return 0;
}

}  // namespace
}  // namespace convgrad::soak

int main(int count, char **arguments) {
    if (count == 4 && std::string_view(arguments[1]) == "--sums")
        return convgrad::soak::print_sums(
            std::strtoull(arguments[2], nullptr, 10), std::atoi(arguments[3]));
    const double seconds = count > 1 ? std::atof(arguments[1]) : 0;
    if (!(seconds > 0) || count > 3) {
        std::fprintf(stderr, "usage: convgrad_soak SECONDS [SEED]\n"
                             "       convgrad_soak --sums LAYERS THREADS\n");
        return 2;
    }
    const std::uint64_t seed = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1;
    return convgrad::soak::soak_run(seconds, seed).run();
}
