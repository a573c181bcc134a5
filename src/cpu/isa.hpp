// What the processor offers: instruction sets and cache sizes.
//
// Layer: the bottom of src/cpu; knows nothing of problems or plans.
#pragma once

#include <cstddef>

#include <convgrad/types.hpp>

namespace convgrad::cpu {

/// The best instruction set that the processor and the operating system offer (for AMX that means:
/// the kernel granted this process the tile state). Asked once, then remembered.
isa detected();

/// detected(), capped by the environment variable CONVGRAD_MAX_ISA, which is read once. Throws
/// invalid_argument when the variable names no instruction set.
isa max_allowed();

/// Bytes of data cache as one core sees it; l2 and l3 may be shared with other cores.
struct caches {
    std::size_t l1d, l2, l3;
};
const caches &cache_sizes();

/// What detected() answers instead, if not negative: only programs of the tests define it, which
/// run under an emulator (tests/support). In the library it is null.
[[gnu::weak]] int forced_isa_for_testing();

}  // namespace convgrad::cpu
