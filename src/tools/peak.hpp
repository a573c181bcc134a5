// Loops that do nothing but what a processor is best at: multiply-adds from registers, reads from
// memory. `convgrad bench` and `explain` measure the machine's limits with them.
#pragma once

#include <cstdint>

#include <convgrad/types.hpp>

#include "cpu/isa.hpp"

namespace convgrad::cpu {

/// The part of the processor that a loop keeps busy.
enum class peak_unit : std::uint8_t {
    fma,     // f32 multiply-adds in vectors
    dot2,    // bf16 pairs, VDPBF16PS
    matrix,  // bf16 tiles, TDPBF16PS
};

/// Independent operations on registers, as many as the latency asks for.
struct peak_loop {
    isa set;
    peak_unit unit;
    double flops;  // of one round
    void (*run)(dim rounds);
};

/// Reads `bytes` (a multiple of 512) from a 64-byte aligned address, with full vectors.
using read_loop = void (*)(const void *data, dim bytes);

/// The best loop that needs no more than `may_use` for a unit; null if none of them has the unit.
const peak_loop *find_peak(capabilities may_use, peak_unit unit);
read_loop find_read(capabilities may_use);

// Of each line of kernels.inc; they run only where the processor has the instruction set.
#define CONVGRAD_KERNELS(set, format) const peak_loop *peak_##format##_##set();
#include "cpu/kernels/kernels.inc"
#define CONVGRAD_FMA_KERNELS(set) void read_##set(const void *data, dim bytes);
#include "cpu/kernels/kernels.inc"

}  // namespace convgrad::cpu
