// Lines that will be needed soon, into L2. The memory need not exist.
#pragma once

#include "cpu/machine/machine.hpp"

namespace convgrad::cpu {

[[gnu::always_inline]] inline void expect_read(const char *p, dim bytes) {
    for (dim i = 0; i < bytes; i += 64) __builtin_prefetch(p + i, 0, 2);
}

/// Where a pair of lines begins that holds a run of 128 bytes, but for what the run before it has
/// touched. Runs that begin within a line are on three: the third was waited for in each step.
[[gnu::always_inline]] inline const char *new_lines(const char *run) {
    return run + 63;
}

/// Without this a store of a whole line still waits for the line.
[[gnu::always_inline]] inline void expect_write(const char *p, dim bytes) {
    for (dim i = 0; i < bytes; i += 64) expect_write_line(p + i);
}

}  // namespace convgrad::cpu
