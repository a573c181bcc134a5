// x86-64: see machine.hpp.
#pragma once

#include <emmintrin.h>

namespace convgrad::cpu {

/// The modes in a thread's control word: rounding, flushing of subnormals, which exceptions trap.
using float_modes = unsigned;

inline constexpr float_modes default_float_modes = 0x1f80;
inline constexpr float_modes flush_subnormal_results = 0x8000;
inline constexpr float_modes subnormals_are_zero = 0x0040;

[[gnu::always_inline]] inline float_modes read_float_modes() {
    constexpr unsigned exception_flags = 0x3f;
    return _mm_getcsr() & ~exception_flags;
}
[[gnu::always_inline]] inline void set_float_modes(float_modes modes) {
    _mm_setcsr(modes);
}

/// In a loop that waits for another thread.
[[gnu::always_inline]] inline void relax() {
    _mm_pause();
}

/// A line that will be written soon. As an instruction: the compiler takes it only with -mprfchw,
/// and processors without it do nothing.
[[gnu::always_inline]] inline void expect_write_line(const char *p) {
    __asm__ volatile("prefetchw %0" : : "m"(*p));
}

/// What was written past the caches comes before all later stores.
[[gnu::always_inline]] inline void settle_stores() {
    _mm_sfence();
}

/// Out of all caches.
[[gnu::always_inline]] inline void evict_line(const char *p) {
    _mm_clflush(p);
}

}  // namespace convgrad::cpu
