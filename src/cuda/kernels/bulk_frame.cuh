// The frame of kernels that the copy engine feeds: who copies and who multiplies, and the loop over
// the stages of a tile.
#pragma once

#include "bulk.cuh"
#include "wgmma.cuh"

namespace convgrad::cuda::bulk {

/// A block's stages begin where swizzled atoms do.
__device__ inline unsigned stages_at(const unsigned char *shared) {
    return (static_cast<unsigned>(__cvta_generic_to_shared(shared)) + 1023U) & ~1023U;
}

/// Calls copy(tile) in one thread for each tile of the block, and multiply(tile) in two warpgroups,
/// which get registers of those that do nothing.
template <int Threads, int CopyRegisters, int Registers, typename Copy, typename Multiply>
__device__ inline void in_roles(unsigned tiles, Copy &&copy, Multiply &&multiply) {
    constexpr bool moves_registers = Threads == 384;
    if (threadIdx.x >= 256) {
        if constexpr (moves_registers) shrink<CopyRegisters>();
        if (threadIdx.x == 256)
            for (unsigned i = blockIdx.x; i < tiles; i += gridDim.x) copy(i);
    } else {
        if constexpr (moves_registers) grow<Registers>();
        for (unsigned i = blockIdx.x; i < tiles; i += gridDim.x) multiply(i);
    }
}

/// Adds the products of so many stages to sums that start at zero; add(sum) queues those of the
/// stage that the ring is at.
template <int M, int Sums, int Stages, typename Add>
__device__ inline void sum_stages(
    float (&sum)[M][Sums], int steps, ring<Stages> &stages, Add &&add) {
    const bool speaks = threadIdx.x % 32 == 0;
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
        for (int k = 0; k < Sums; ++k) sum[m][k] = 0;
    unsigned before = 0;
    for (int step = 0; step < steps; ++step) {
        wait(stages.is_full(), stages.parity);
        wgmma::fence();
        add(sum);
        wgmma::commit();
        // The products before these are done: what they read may be overwritten.
        wgmma::await<1>();
        if (step > 0 && speaks) arrive(before);
        before = stages.is_empty();
        stages.next();
    }
    wgmma::await();
    if (steps > 0 && speaks) arrive(before);
}

}  // namespace convgrad::cuda::bulk
