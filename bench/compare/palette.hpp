// AMX palettes that a hypervisor hides.
//
// CPUID leaf 0x1D describes the matrix engine's palettes. Some hypervisors leave it empty although
// the instructions work; software that believes the leaf, oneDNN among it, then does without the
// matrix engine. Palette 1 is architectural, so it can be told: the kernel is asked to make CPUID
// fault in this thread, and the fault's handler answers for the hidden leaf.
#pragma once

#include <signal.h>

namespace convgrad::compare {

/// Whether the processor has AMX but no palette in leaf 0x1D.
bool palette_hidden();

/// While it lives, CPUID shows palette 1 to the thread that made it.
class shown_palette {
public:
    /// Throws usage_error where processor, hypervisor or kernel cannot make CPUID fault.
    shown_palette();
    ~shown_palette();
    shown_palette(const shown_palette &) = delete;
    shown_palette &operator=(const shown_palette &) = delete;
};

/// Answers a fault at a CPUID instruction and steps over it; anything else dies as it would have.
void answer_cpuid(int signal, siginfo_t *info, void *context);

}  // namespace convgrad::compare
