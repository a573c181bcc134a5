#include "support/memory.hpp"

#include <new>

#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define CONVGRAD_TEST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define CONVGRAD_TEST_ASAN 1
#endif
#endif

namespace convgrad::test {
namespace {

constexpr std::size_t page = 4096;

// The sanitizer's shadow of a huge sparse block would not be sparse: those have guard pages only.
[[maybe_unused]] constexpr std::size_t largest_poisoned = std::size_t{1} << 28;

void mark_unusable([[maybe_unused]] std::byte *p, [[maybe_unused]] std::size_t bytes) {
#ifdef CONVGRAD_TEST_ASAN
    if (bytes <= largest_poisoned) __asan_poison_memory_region(p, bytes);
#endif
}

void mark_usable([[maybe_unused]] std::byte *p, [[maybe_unused]] std::size_t bytes) {
#ifdef CONVGRAD_TEST_ASAN
    if (bytes <= largest_poisoned) __asan_unpoison_memory_region(p, bytes);
#endif
}

}  // namespace

guarded_memory::guarded_memory(std::size_t capacity) {
    map(capacity);
}

guarded_memory::~guarded_memory() {
    unmap();
}

void guarded_memory::map(std::size_t capacity) {
    capacity_ = (capacity + page) / page * page;  // at least one page, also for empty buffers
    void *p = mmap(nullptr, capacity_ + 2 * page, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    mapping_ = static_cast<std::byte *>(p);
    mprotect(mapping_, page, PROT_NONE);
    mprotect(mapping_ + page + capacity_, page, PROT_NONE);
}

void guarded_memory::unmap() {
    mark_usable(mapping_ + page, capacity_);
    munmap(mapping_, capacity_ + 2 * page);
}

std::byte *guarded_memory::place(std::size_t bytes, side where) {
    if (bytes > capacity_) {
        unmap();
        map(bytes * 2);
    }
    std::byte *first = mapping_ + page;
    std::byte *p = where == side::end ? first + capacity_ - bytes : first;
    mark_unusable(first, capacity_);
    mark_usable(p, bytes);
    return p;
}

}  // namespace convgrad::test
