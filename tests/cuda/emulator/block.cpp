#include "block.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>

namespace convgrad::emulator {

index3 block_size, grid_size;

namespace {

constexpr std::size_t stack_bytes = 128 * 1024;

alignas(1024) unsigned char dynamic_memory[most_shared];

struct named_barrier {
    int arrived = 0;
    std::uint64_t generation = 0;
};

/// The block that runs.
struct state {
    std::vector<thread> threads;
    std::vector<warp> warps;
    std::vector<std::unique_ptr<unsigned char[]>> stacks;
    thread *current = nullptr;
    void *scheduler = nullptr;  // its stack pointer
    const std::function<void()> *kernel = nullptr;
    int alive = 0, arrived = 0;
    std::uint64_t generation = 0, steps = 0;  // steps: of anybody, to see that something happens
    bool any = false, any_before = false;
    named_barrier named[16];
    std::uint64_t launches = 0;
};

state &all() {
    static state s;
    return s;
}

[[noreturn]] void stop(const char *why) {
    std::fprintf(stderr, "emulator: %s\n", why);
    for (const thread &t : all().threads)
        if (!t.done && t.lane == 0)
            std::fprintf(stderr, "  warp of thread %u: %d of %d lanes at %s\n", t.at.x,
                t.its_warp->arrived, t.its_warp->lanes,
                t.its_warp->what == nullptr ? "-" : t.its_warp->what);
    std::abort();
}

extern "C" void convgrad_emulator_switch(void **save, void *to);
asm(".text\n"
    ".type convgrad_emulator_switch,@function\n"
    "convgrad_emulator_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size convgrad_emulator_switch, .-convgrad_emulator_switch\n");

extern "C" void convgrad_emulator_body() {
    state &s = all();
    (*s.kernel)();
    s.current->done = true;
    --s.alive;
    ++s.steps;
    // Who has left is not waited for.
    if (s.alive > 0 && s.arrived == s.alive) {
        s.arrived = 0;
        ++s.generation;
    }
    void *unused = nullptr;
    convgrad_emulator_switch(&unused, s.scheduler);
    std::abort();
}

void prepare(thread &t, unsigned char *stack) {
    auto top = reinterpret_cast<std::uintptr_t>(stack + stack_bytes) & ~std::uintptr_t{15};
    auto *at = reinterpret_cast<void **>(top);
    *--at = nullptr;  // where body() would return to: it does not
    *--at = reinterpret_cast<void *>(&convgrad_emulator_body);
    for (int i = 0; i < 6; ++i) *--at = nullptr;
    t.stack_pointer = at;
}

/// Lets a thread run until it waits.
void resume(thread &t) {
    state &s = all();
    s.current = &t;
    convgrad_emulator_switch(&s.scheduler, t.stack_pointer);
}

void run_block(index3 block) {
    state &s = all();
    const auto count = static_cast<std::size_t>(block_size.x);
    s.threads.assign(count, {});
    s.warps.assign((count + warp_size - 1) / warp_size, {});
    while (s.stacks.size() < count)
        s.stacks.push_back(std::make_unique<unsigned char[]>(stack_bytes));
    for (std::size_t i = 0; i < count; ++i) {
        thread &t = s.threads[i];
        t.at.x = static_cast<unsigned>(i);
        t.block = block;
        t.lane = static_cast<int>(i % warp_size);
        t.its_warp = &s.warps[i / warp_size];
        ++t.its_warp->lanes;
        t.groups.emplace_back();
        prepare(t, s.stacks[i].get());
    }
    s.alive = static_cast<int>(count);
    s.arrived = 0;
    for (named_barrier &b : s.named) b = {};
    const bool backwards = s.launches % 2 == 1;
    while (s.alive > 0) {
        const std::uint64_t before = s.steps;
        for (std::size_t w = 0; w < s.warps.size(); ++w) {
            // One warp goes as far as it can before the next starts.
            const std::size_t first = (backwards ? s.warps.size() - 1 - w : w) * warp_size;
            for (std::uint64_t seen = ~before; seen != s.steps;) {
                seen = s.steps;
                for (std::size_t i = first; i < std::min(count, first + warp_size); ++i)
                    if (!s.threads[i].done) resume(s.threads[i]);
            }
        }
        if (s.steps == before) stop("threads wait for each other");
    }
}

std::map<std::string, entry> &kernels() {
    static std::map<std::string, entry> known;
    return known;
}

}  // namespace

thread &here() {
    return *all().current;
}
unsigned char *shared_memory() {
    return dynamic_memory;
}

void yield() {
    state &s = all();
    thread &mine = *s.current;
    convgrad_emulator_switch(&mine.stack_pointer, s.scheduler);
    s.current = &mine;
}

bool sync_threads(bool any_of) {
    state &s = all();
    s.any = s.any || any_of;
    const std::uint64_t mine = s.generation;
    ++s.steps;
    if (++s.arrived == s.alive) {
        s.arrived = 0;
        s.any_before = s.any;
        s.any = false;
        ++s.generation;
        return s.any_before;
    }
    while (s.generation == mine) yield();
    return s.any_before;
}

void sync_named(int which, int count) {
    state &s = all();
    named_barrier &b = s.named[which];
    const std::uint64_t mine = b.generation;
    ++s.steps;
    if (++b.arrived == count) {
        b.arrived = 0;
        ++b.generation;
        return;
    }
    while (b.generation == mine) yield();
}

void together(const char *what, void *mine, void (*do_all)(void **arguments, int lanes)) {
    state &s = all();
    warp &w = *here().its_warp;
    if (w.arrived > 0 && std::strcmp(w.what, what) != 0) {
        std::fprintf(stderr, "emulator: lanes of a warp at %s and at %s\n", w.what, what);
        stop("lanes of a warp went apart");
    }
    w.what = what;
    w.arguments[here().lane] = mine;
    const std::uint64_t generation = w.generation;
    ++s.steps;
    if (++w.arrived == w.lanes) {
        do_all(w.arguments, w.lanes);
        w.arrived = 0;
        ++w.generation;
        return;
    }
    while (w.generation == generation) yield();
}

bool copies_are_late() {
    return all().launches / 2 % 2 == 0;
}

void run(index3 grid, index3 block, std::size_t shared, const std::function<void()> &kernel) {
    state &s = all();
    if (shared > most_shared || block.y != 1 || block.z != 1) stop("a launch that no device has");
    grid_size = grid;
    block_size = block;
    s.kernel = &kernel;
    for (unsigned i = 0; i < grid.x; ++i) {
        // Nobody may rely on what was there.
        std::memset(dynamic_memory, 0xff, shared);
        run_block({i, 0, 0});
    }
    ++s.launches;
}

void add_kernels(const registered *first, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) kernels()[first[i].name] = first[i].call;
}
entry find_kernel(const char *name) {
    const auto found = kernels().find(name);
    return found == kernels().end() ? nullptr : found->second;
}

}  // namespace convgrad::emulator
