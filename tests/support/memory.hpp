// Memory between guard pages, so that one element too far is a crash and not a lucky read.
#pragma once

#include <cstddef>

namespace convgrad::test {

/// A block of memory with an unreadable page on either side. Buffers are placed flush against one
/// of them. Pages count only once touched, so that a huge block costs nothing by itself.
///
/// Under AddressSanitizer everything outside the placed buffer is poisoned instead, which is exact
/// on both sides at once.
class guarded_memory {
public:
    enum class side { end, begin };

    explicit guarded_memory(std::size_t capacity);
    ~guarded_memory();
    guarded_memory(const guarded_memory &) = delete;
    guarded_memory &operator=(const guarded_memory &) = delete;

    /// `bytes` bytes that end at the rear guard page or begin right after the front one. The buffer
    /// placed before is gone. Grows the block if need be.
    std::byte *place(std::size_t bytes, side where = side::end);

private:
    void map(std::size_t capacity);
    void unmap();

    std::byte *mapping_ = nullptr;  // with both guard pages
    std::size_t capacity_ = 0;      // without them
};

}  // namespace convgrad::test
