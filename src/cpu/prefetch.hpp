// Lines that will be needed soon, into L2. The memory need not exist.
#pragma once

#include "cpu/machine/machine.hpp"

namespace convgrad::cpu {

[[gnu::always_inline]] inline void expect_read(const char *p, dim bytes) {
    for (dim i = 0; i < bytes; i += 64) __builtin_prefetch(p + i, 0, 2);
}

/// Without this a store of a whole line still waits for the line.
[[gnu::always_inline]] inline void expect_write(const char *p, dim bytes) {
    for (dim i = 0; i < bytes; i += 64) expect_write_line(p + i);
}

}  // namespace convgrad::cpu
