#include "injector.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <new>

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define CONVGRAD_TEST_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CONVGRAD_TEST_TSAN 1
#endif
#endif

namespace convgrad::test::injector {
namespace {

std::atomic<bool> armed{false};
std::atomic<long> requests{0}, first_failure{0}, blocks{0};
std::atomic<mode> kind{mode::once};

bool must_fail() {
    if (!armed.load(std::memory_order_relaxed)) return false;
    const long number = requests.fetch_add(1);
    return kind == mode::once ? number == first_failure : number >= first_failure;
}

void *allocate(std::size_t bytes, std::size_t alignment) {
    if (must_fail()) return nullptr;
    void *p = nullptr;
    const std::size_t least = alignof(std::max_align_t);
    if (posix_memalign(&p, std::max(alignment, least), std::max(bytes, std::size_t{1})) != 0)
        return nullptr;
    ++blocks;
    return p;
}

[[maybe_unused]] void *allocate_or_throw(std::size_t bytes, std::size_t alignment) {
    void *p = allocate(bytes, alignment);
    if (p == nullptr) throw std::bad_alloc();
    return p;
}

[[maybe_unused]] void release(void *p) {
    if (p == nullptr) return;
    --blocks;
    std::free(p);
}

}  // namespace

#ifdef CONVGRAD_TEST_TSAN
const bool available = false;
#else
const bool available = true;
#endif

void arm(long k, mode how) {
    requests = 0;
    first_failure = k;
    kind = how;
    armed = true;
}

long disarm() {
    armed = false;
    return requests;
}

long live() {
    return blocks;
}

}  // namespace convgrad::test::injector

namespace injector = convgrad::test::injector;

#ifndef CONVGRAD_TEST_TSAN

// All forms: those that are left out may be a sanitizer's own.
namespace {
std::size_t value_of(std::align_val_t alignment) {
    return static_cast<std::size_t>(alignment);
}
}  // namespace

void *operator new(std::size_t bytes) {
    return injector::allocate_or_throw(bytes, 1);
}
void *operator new[](std::size_t bytes) {
    return injector::allocate_or_throw(bytes, 1);
}
void *operator new(std::size_t bytes, std::align_val_t alignment) {
    return injector::allocate_or_throw(bytes, value_of(alignment));
}
void *operator new[](std::size_t bytes, std::align_val_t alignment) {
    return injector::allocate_or_throw(bytes, value_of(alignment));
}
void *operator new(std::size_t bytes, const std::nothrow_t &) noexcept {
    return injector::allocate(bytes, 1);
}
void *operator new[](std::size_t bytes, const std::nothrow_t &) noexcept {
    return injector::allocate(bytes, 1);
}
void *operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t &) noexcept {
    return injector::allocate(bytes, value_of(alignment));
}
void *operator new[](
    std::size_t bytes, std::align_val_t alignment, const std::nothrow_t &) noexcept {
    return injector::allocate(bytes, value_of(alignment));
}
void operator delete(void *p) noexcept {
    injector::release(p);
}
void operator delete(void *p, std::size_t) noexcept {
    injector::release(p);
}
void operator delete(void *p, std::align_val_t) noexcept {
    injector::release(p);
}
void operator delete(void *p, std::size_t, std::align_val_t) noexcept {
    injector::release(p);
}
void operator delete(void *p, const std::nothrow_t &) noexcept {
    injector::release(p);
}
void operator delete(void *p, std::align_val_t, const std::nothrow_t &) noexcept {
    injector::release(p);
}
void operator delete[](void *p) noexcept {
    injector::release(p);
}
void operator delete[](void *p, std::size_t) noexcept {
    injector::release(p);
}
void operator delete[](void *p, std::align_val_t) noexcept {
    injector::release(p);
}
void operator delete[](void *p, std::size_t, std::align_val_t) noexcept {
    injector::release(p);
}
void operator delete[](void *p, const std::nothrow_t &) noexcept {
    injector::release(p);
}
void operator delete[](void *p, std::align_val_t, const std::nothrow_t &) noexcept {
    injector::release(p);
}

extern "C" void *aligned_alloc(std::size_t alignment, std::size_t bytes) {
    void *p = nullptr;
    if (injector::must_fail() || posix_memalign(&p, alignment, bytes) != 0) return nullptr;
    return p;
}

// The kernel's own: a sanitizer's version would keep books that nothing here needs.
extern "C" void *mmap(
    void *address, std::size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
    if (injector::must_fail()) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    const long at = syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
    if (at == -1) return MAP_FAILED;
    ++injector::blocks;
    return reinterpret_cast<void *>(at);
}

extern "C" int munmap(void *address, std::size_t bytes) noexcept {
    --injector::blocks;
    return static_cast<int>(syscall(SYS_munmap, address, bytes));
}

// Where a sanitizer has a version of its own that ours hides.
extern "C" [[gnu::weak]] int __interceptor_pthread_create(
    pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

extern "C" int pthread_create(
    pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
    static const auto next = __interceptor_pthread_create != nullptr
                                 ? __interceptor_pthread_create
                                 : reinterpret_cast<decltype(&__interceptor_pthread_create)>(
                                     dlsym(RTLD_NEXT, "pthread_create"));
    return injector::must_fail() ? EAGAIN : next(thread, attributes, start, argument);
}

#endif
