// 64-bit ARM: see machine.hpp.
#pragma once

#include <cstdint>

namespace convgrad::cpu {

/// The modes in a thread's control word: rounding, flushing of subnormals, which exceptions trap.
using float_modes = std::uint64_t;

inline constexpr float_modes default_float_modes = 0;
inline constexpr float_modes flush_subnormal_results = std::uint64_t{1} << 24;  // and operands
inline constexpr float_modes subnormals_are_zero = flush_subnormal_results;

[[gnu::always_inline]] inline float_modes read_float_modes() {
    std::uint64_t modes = 0;
    __asm__ volatile("mrs %0, fpcr" : "=r"(modes));
    return modes;
}
[[gnu::always_inline]] inline void set_float_modes(float_modes modes) {
    __asm__ volatile("msr fpcr, %0" : : "r"(modes));
}

/// In a loop that waits for another thread. Processors take YIELD for nothing; ISB waits some ten
/// cycles, as long as a loop of this kind should.
[[gnu::always_inline]] inline void relax() {
    __asm__ volatile("isb");
}

/// A line that will be written soon.
[[gnu::always_inline]] inline void expect_write_line(const char *p) {
    __builtin_prefetch(p, 1, 2);
}

/// What was written past the caches comes before all later stores: there is no such thing here.
[[gnu::always_inline]] inline void settle_stores() {}

/// Out of all caches.
[[gnu::always_inline]] inline void evict_line(const char *p) {
    __asm__ volatile("dc civac, %0" : : "r"(p) : "memory");
}

}  // namespace convgrad::cpu
