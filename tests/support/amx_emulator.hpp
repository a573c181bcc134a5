// Runs AMX-BF16 machine code on processors without AMX.
//
// An AMX instruction raises SIGILL where the processor does not know it. install() puts a handler
// there that decodes the instruction, carries it out on tiles kept per thread and steps over it, so
// a kernel built with -mamx-tile -mamx-bf16 is tested as the very bytes that ship.
//
//     LDTILECFG STTILECFG TILERELEASE TILEZERO TILELOADD TILELOADDT1 TILESTORED TDPBF16PS
//
// The library picks its kernels by what the processor reports, so a test needs both halves:
//
//     const auto mode = amx_emulator::install();      // the instructions work now
//     forced_isa_for_testing() { return … }           // src/cpu/isa.hpp: the library uses them now
//     const auto before = amx_emulator::executed();
//     ... run the op, compare ...
//     if (mode == amx_emulator::mode::emulated) EXPECT_GT(amx_emulator::executed(), before);
//
// What hardware refuses is refused: #UD (an unconfigured thread, tile shapes that do not fit, equal
// operands) stays a SIGILL and goes to the handler that was there before, #GP (a bad LDTILECFG)
// becomes a SIGSEGV, and so does a tile load or store that leaves mapped memory.
//
// A trap costs one to ten microseconds: fine for tests, useless for timing. AMX instructions in a
// row share one trap. Sanitizers see the loads and stores; valgrind works but does not flush
// denormals.
#pragma once

#include <cstdint>

namespace convgrad::testing::amx_emulator {

enum class mode {
    native,    // the processor has AMX-BF16 and the kernel lets us use it: nothing was installed
    emulated,  // the handler is in place
};

/// Call before the threads that use AMX run. Calling again is harmless; if another SIGILL handler
/// came in between, the emulator goes in front of it and passes on to it what is not AMX.
mode install();

/// TDPBF16PS emulated so far by all threads; stays 0 in native mode.
std::uint64_t executed();

}  // namespace convgrad::testing::amx_emulator
