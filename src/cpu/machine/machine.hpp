// What differs from one kind of processor to the next outside kernels: control words, hints,
// detection. One header and one source per kind, of which a build has one; nothing else in the
// library names a processor's instructions.
//
// Layer: the bottom of src/cpu. Kernel files include this too: whatever stands in these headers is
// inlined always, so that nothing compiled for an instruction set is ever picked for other callers.
#pragma once

#include "cpu/isa.hpp"

#if defined(__x86_64__)
#include "cpu/machine/x86.hpp"
#elif defined(__aarch64__)
#include "cpu/machine/aarch64.hpp"
#else
#error "src/cpu/machine has no file for this kind of processor yet"
#endif

namespace convgrad::cpu {

/// What the processor can do and the operating system consents to.
capabilities ask_processor();

/// What the processor tells about its caches; 0 where it keeps it to itself.
caches ask_caches();

}  // namespace convgrad::cpu
