#include "cpu/scratch.hpp"

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>

#include <sys/mman.h>

#include <convgrad/error.hpp>

namespace convgrad::cpu {
namespace {

// Fresh memory costs a page fault per 4 KiB, more than a small layer takes. A few blocks for the
// whole process, not one per thread, so that a server with hundreds of threads keeps no more than
// 4 × 64 MiB. Slots are taken and given by exchange: no lock, and nothing for fork() to break.
constexpr std::size_t slot_count = 4;
constexpr std::size_t largest_kept = std::size_t{64} << 20;
constexpr std::size_t alignment = scratch_alignment;

// Larger blocks come from the kernel and go back to it. malloc, once it has seen a few of them
// freed, takes them from the heaps of whatever threads call, and keeps each heap at the largest
// size it ever had.
constexpr std::size_t smallest_mapped = std::size_t{256} << 10;

/// Starts each block; fills one alignment unit in front of what users see.
struct block {
    std::size_t capacity;
};
static_assert(sizeof(block) <= alignment);

std::array<std::atomic<block *>, slot_count> slots;

bool is_mapped(std::size_t capacity) {
    return capacity >= smallest_mapped;
}

block *header_of(void *data) {
    return static_cast<block *>(static_cast<void *>(static_cast<std::byte *>(data) - alignment));
}

void *data_of(block *b) {
    return static_cast<std::byte *>(static_cast<void *>(b)) + alignment;
}

void free_block(block *b) {
    if (b != nullptr && is_mapped(b->capacity))
        munmap(b, b->capacity + alignment);
    else
        std::free(b);
}

block *take_kept(std::size_t bytes) {
    for (std::atomic<block *> &slot : slots) {
        if (slot.load(std::memory_order_relaxed) == nullptr) continue;
        block *kept = slot.exchange(nullptr, std::memory_order_acquire);
        if (kept == nullptr) continue;
        if (kept->capacity >= bytes) return kept;
        free_block(kept);  // too small now, and the larger one will come back in its place
    }
    return nullptr;
}

/// Null if there is none.
void *allocate_bytes(std::size_t capacity) {
    if (!is_mapped(capacity)) return std::aligned_alloc(alignment, capacity + alignment);
    void *memory = mmap(
        nullptr, capacity + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
}

block *allocate(std::size_t bytes) {
    const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    void *memory = nullptr;
    if (rounded >= bytes && rounded + alignment > rounded) memory = allocate_bytes(rounded);
    if (memory == nullptr)
        throw error(error_code::out_of_memory,
            "execute: cannot allocate a workspace of " + std::to_string(bytes) + " bytes");
    auto *made = static_cast<block *>(memory);
    made->capacity = rounded;
    return made;
}

}  // namespace

void *take_scratch(std::size_t bytes) {
    block *b = take_kept(bytes);
    if (b == nullptr) b = allocate(bytes);
    return data_of(b);
}

void give_scratch_back(void *data) noexcept {
    block *b = header_of(data);
    if (b->capacity <= largest_kept)
        for (std::atomic<block *> &slot : slots) {
            block *none = nullptr;
            if (slot.compare_exchange_strong(none, b, std::memory_order_release)) return;
        }
    free_block(b);
}

std::shared_ptr<void> allocate_kept(std::size_t bytes) {
    return {data_of(allocate(bytes)), [](void *data) { free_block(header_of(data)); }};
}

void release_scratch() noexcept {
    for (std::atomic<block *> &slot : slots) free_block(slot.exchange(nullptr));
}

}  // namespace convgrad::cpu
