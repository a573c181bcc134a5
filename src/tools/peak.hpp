// Loops that do nothing but what a processor is best at: multiply-adds from registers, reads from
// memory. `convgrad bench` and `explain` measure the machine's limits with them.
#pragma once

#include <cstdint>

#include <convgrad/types.hpp>

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

/// The best loop of an instruction set up to `most` for a unit; null if none of them has the unit.
const peak_loop *find_peak(isa most, peak_unit unit);
read_loop find_read(isa most);

// One file per instruction set; they run only where the processor has it.
const peak_loop *peak_fma_portable();
const peak_loop *peak_fma_avx2();
const peak_loop *peak_fma_avx512();
const peak_loop *peak_dot2_avx512_bf16();
const peak_loop *peak_matrix_amx_bf16();
void read_portable(const void *data, dim bytes);
void read_avx2(const void *data, dim bytes);
void read_avx512(const void *data, dim bytes);

}  // namespace convgrad::cpu
