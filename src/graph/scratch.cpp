#include "graph/scratch.hpp"

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>

#include <convgrad/engine.hpp>
#include <convgrad/error.hpp>

namespace convgrad {
namespace {

// Fresh memory costs a page fault per 4 KiB, more than a small layer takes. A few blocks for the
// whole process, not one per thread, so that a server with hundreds of threads keeps no more than
// 4 × 64 MiB. Slots are taken and given by exchange: no lock, and nothing for fork() to break.
constexpr std::size_t slot_count = 4;
constexpr std::size_t largest_kept = std::size_t{64} << 20;
constexpr std::size_t alignment = 64;

/// Starts each block; fills one alignment unit in front of what users see.
struct block {
    std::size_t capacity;
};
static_assert(sizeof(block) <= alignment);

std::array<std::atomic<block *>, slot_count> slots;

block *header_of(void *data) {
    return static_cast<block *>(static_cast<void *>(static_cast<std::byte *>(data) - alignment));
}

void *data_of(block *b) {
    return static_cast<std::byte *>(static_cast<void *>(b)) + alignment;
}

block *take_kept(std::size_t bytes) {
    for (std::atomic<block *> &slot : slots) {
        if (slot.load(std::memory_order_relaxed) == nullptr) continue;
        block *kept = slot.exchange(nullptr, std::memory_order_acquire);
        if (kept == nullptr) continue;
        if (kept->capacity >= bytes) return kept;
        std::free(kept);  // too small now, and the larger one will come back in its place
    }
    return nullptr;
}

block *allocate(std::size_t bytes) {
    const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    void *memory = nullptr;
    if (rounded >= bytes && rounded + alignment > rounded)
        memory = std::aligned_alloc(alignment, rounded + alignment);
    if (memory == nullptr)
        throw error(error_code::out_of_memory,
            "execute: cannot allocate a workspace of " + std::to_string(bytes) + " bytes");
    auto *made = static_cast<block *>(memory);
    made->capacity = rounded;
    return made;
}

}  // namespace

scratch::scratch(std::size_t bytes) {
    if (bytes == 0) return;
    block *b = take_kept(bytes);
    if (b == nullptr) b = allocate(bytes);
    data_ = data_of(b);
    capacity_ = b->capacity;
}

scratch::~scratch() {
    if (data_ == nullptr) return;
    block *b = header_of(data_);
    if (capacity_ <= largest_kept)
        for (std::atomic<block *> &slot : slots) {
            block *none = nullptr;
            if (slot.compare_exchange_strong(none, b, std::memory_order_release)) return;
        }
    std::free(b);
}

void release_scratch() noexcept {
    for (std::atomic<block *> &slot : slots) std::free(slot.exchange(nullptr));
}

}  // namespace convgrad
