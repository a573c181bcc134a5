#include "cpu/process_team.hpp"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include <dlfcn.h>
#include <pthread.h>

#include "cpu/pool.hpp"

namespace convgrad::cpu {
namespace {

// Entries of GNU's runtime, which LLVM's and Intel's have too.
using parallel_entry = void(void (*body)(void *), void *data, unsigned threads, unsigned flags);
using count_entry = int();

std::atomic<parallel_entry *> parallel_of{nullptr};
std::atomic<count_entry *> in_parallel_of{nullptr};
std::atomic<count_entry *> max_threads_of{nullptr};  // OpenMP's
std::atomic<count_entry *> torch_threads_of{nullptr};

/// A job of some thread runs on its team.
std::atomic<bool> busy{false};

/// A runtime was loaded when this process, or one that it descends from, was forked.
std::atomic<bool> lost{false};

/// What has been opened already; never closed, so that the entries stay valid.
void *opened(const char *name) {
    return dlopen(name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

/// The runtime that PyTorch's own references are bound to: the first one of the process, else the
/// one that came with it.
void *symbol_of_runtime(void *torch, const char *name) {
    void *symbol = dlsym(RTLD_DEFAULT, name);
    return symbol != nullptr || torch == nullptr ? symbol : dlsym(torch, name);
}

void *opened_torch() {
    return opened("libtorch_cpu.so");
}

bool is_loaded() {
    return symbol_of_runtime(opened_torch(), "GOMP_parallel") != nullptr;
}

/// Whether this process was made by fork() and has not executed a program since, as Linux says.
bool is_forked() {
    std::ifstream file("/proc/self/stat");
    std::string text;
    std::getline(file, text);
    const std::size_t name_end = text.rfind(')');
    if (name_end == std::string::npos) return false;
    std::istringstream fields(text.substr(name_end + 1));
    std::string skipped;
    for (int i = 0; i < 6; ++i) fields >> skipped;  // state to tpgid
    constexpr unsigned forked_without_exec = 0x40;
    unsigned flags = 0;
    return fields >> flags && (flags & forked_without_exec) != 0;
}

bool loaded_at_fork = false;

/// At load, before any thread can fork behind our back.
const bool watching = [] {
    // A child that loads this library late may have inherited a runtime whose threads are gone.
    if (is_loaded() && is_forked()) lost.store(true);
    return pthread_atfork([] { loaded_at_fork = is_loaded(); }, nullptr,
               [] {
                   if (loaded_at_fork) lost.store(true);
               })
           == 0;
}();

struct job {
    void (*body)(void *, int);
    void *context;
    int count;
    std::atomic<int> next{0};
};

void work(void *opaque) {
    job &mine = *static_cast<job *>(opaque);
    for (int i = mine.next.fetch_add(1, std::memory_order_relaxed); i < mine.count;
         i = mine.next.fetch_add(1, std::memory_order_relaxed))
        mine.body(mine.context, i);
}

/// The library's own threads, in a process that has lost its team.
void run_on_own(int threads, int count, void (*body)(void *, int), void *context) {
    // No lock that a thread could hold while another forks; pools of a size are shared.
    thread_local std::shared_ptr<pool> mine;
    if (mine == nullptr || mine->concurrency() != threads) mine = pool::shared(threads);
    mine->run(count, body, context);
}

}  // namespace

void process_team::look() {
    if (!watching) return;  // no memory for a fork handler: a child could not be told
    void *torch = opened_torch();
    if (torch != nullptr)
        torch_threads_of.store(
            reinterpret_cast<count_entry *>(dlsym(torch, "_ZN2at15get_num_threadsEv")));
    if (parallel_of.load() != nullptr) return;
    void *parallel = symbol_of_runtime(torch, "GOMP_parallel");
    void *in_parallel = symbol_of_runtime(torch, "omp_in_parallel");
    void *count = symbol_of_runtime(torch, "omp_get_max_threads");
    if (parallel == nullptr || in_parallel == nullptr || count == nullptr) return;
    Dl_info where{};
    if (dladdr(parallel, &where) != 0 && where.dli_fname != nullptr) opened(where.dli_fname);
    in_parallel_of.store(reinterpret_cast<count_entry *>(in_parallel));
    max_threads_of.store(reinterpret_cast<count_entry *>(count));
    parallel_of.store(reinterpret_cast<parallel_entry *>(parallel));
}

process_team *process_team::found() noexcept {
    static process_team team;
    return parallel_of.load(std::memory_order_acquire) != nullptr ? &team : nullptr;
}

int process_team::concurrency() const noexcept {
    count_entry *torch = torch_threads_of.load(std::memory_order_relaxed);
    const int threads =
        torch != nullptr ? torch() : max_threads_of.load(std::memory_order_relaxed)();
    return std::clamp(threads, 1, cpu::max_threads);
}

void process_team::run(int count, void (*body)(void *context, int i), void *context) {
    const bool alone =
        count <= 1 || pool::is_inside() || in_parallel_of.load(std::memory_order_relaxed)() != 0;
    const int threads = alone ? 1 : concurrency();
    if (threads > 1 && lost.load(std::memory_order_relaxed))
        return run_on_own(threads, count, body, context);
    if (threads > 1 && !busy.exchange(true, std::memory_order_acquire)) {
        job mine{.body = body, .context = context, .count = count};
        // Always the whole team: when its size changes, GNU's runtime ends threads and starts new
        // ones.
        constexpr unsigned whole_team = 0, no_flags = 0;
        parallel_of.load(std::memory_order_relaxed)(work, &mine, whole_team, no_flags);
        busy.store(false, std::memory_order_release);
        return;
    }
    for (int i = 0; i < count; ++i) body(context, i);
}

}  // namespace convgrad::cpu
