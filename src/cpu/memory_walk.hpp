// Memory described once: one walk over its pieces tells how much they take, or where they lie. A
// size and the pointers into it come from the same lines and cannot disagree.
#pragma once

#include <cstddef>

#include "cpu/geometry.hpp"

namespace convgrad::cpu {

class memory_walk {
public:
    /// Only measures.
    memory_walk() = default;
    /// Hands out addresses from `memory` on, which is aligned to a cache line.
    explicit memory_walk(void *memory) : at_(static_cast<char *>(memory)) {}

    /// `count` objects behind those before; their address, or null where nothing but the size is
    /// asked for.
    template <typename T>
    T *take(dim count) {
        return static_cast<T *>(advance(count * static_cast<dim>(sizeof(T))));
    }
    /// The same in whole cache lines.
    template <typename T>
    T *take_lines(dim count) {
        return static_cast<T *>(advance(round_up_to(count * static_cast<dim>(sizeof(T)), 64)));
    }

    /// Of all that was taken.
    [[nodiscard]] std::size_t bytes() const { return bytes_; }

private:
    void *advance(dim bytes) {
        void *piece = at_;
        if (at_ != nullptr) at_ += bytes;
        bytes_ += static_cast<std::size_t>(bytes);
        return piece;
    }

    char *at_ = nullptr;
    std::size_t bytes_ = 0;
};

/// What `describe(memory_walk &)` takes.
template <typename Describe>
std::size_t bytes_of_walk(Describe &&describe) {
    memory_walk walk;
    static_cast<void>(describe(walk));
    return walk.bytes();
}

}  // namespace convgrad::cpu
