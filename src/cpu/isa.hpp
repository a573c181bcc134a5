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

/// Makes detected() answer `set` from now on, e.g. for tests under an emulator that hides what it
/// can execute. Engines that exist already keep what they saw.
void force_isa_for_testing(isa set);

}  // namespace convgrad::cpu
