// A block of threads of a GPU on one thread of the host: each is a fiber with a stack of its own,
// which runs until it has to wait for others. Launches differ in the order of their warps and in
// when copies arrive, so that a barrier that is missing shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace convgrad::emulator {

constexpr int warp_size = 32;
constexpr std::size_t most_shared = 227 * 1024;

struct index3 {
    unsigned x = 0, y = 0, z = 0;
};

/// A copy to shared memory that has not arrived.
struct pending_copy {
    void *to;
    const void *from;
    int bytes;
    bool there;
};

struct warp {
    int lanes = 0, arrived = 0;
    std::uint64_t generation = 0;
    const char *what = nullptr;  // that its lanes are at
    void *arguments[warp_size] = {};
};

/// A thread of the GPU.
struct thread {
    index3 at, block;
    int lane = 0;
    warp *its_warp = nullptr;
    std::vector<std::vector<pending_copy>> groups;  // the last one is open
    // Of its fiber:
    void *stack_pointer = nullptr;
    bool done = false;
};

/// The thread that runs now, and sizes of the launch.
thread &here();
extern index3 block_size, grid_size;
/// Shared memory that the launch asked for, and how much of it.
unsigned char *shared_memory();

/// Lets others run.
void yield();
/// Until all threads of the block are here; whether any (all) of them said so.
bool sync_threads(bool any_of);
/// Until `count` threads are at this barrier.
void sync_named(int which, int count);

/// All lanes of a warp at the same instruction: the last to come does it for all.
void together(const char *what, void *mine, void (*all)(void **arguments, int lanes));

/// Whether copies of this launch arrive at once, or as late as they may.
bool copies_are_late();

/// Runs all blocks of a launch.
void run(index3 grid, index3 block, std::size_t shared, const std::function<void()> &kernel);

/// How a kernel is called: with what cuLaunchKernel is given.
using entry = void (*)(void **arguments);
struct registered {
    const char *name;
    entry call;
};
/// Every kernel that this program has.
void add_kernels(const registered *first, std::size_t count);
entry find_kernel(const char *name);

}  // namespace convgrad::emulator
