// What products on tensor cores share: fragments, parts of f32 values.
#pragma once

#include "instructions.cuh"

namespace convgrad::cuda {

/// 16 bytes, or zeros.
__device__ inline void copy_16(unsigned to, const void *from, bool there) {
    copy_async<16>(to, from, there);
}

/// The nearest TF32 value: the unit would drop the low 13 bits.
__device__ inline unsigned round_tf32(unsigned x) {
    return (x + 0x1000U) & 0xffffe000U;
}
/// A fragment of what the unit takes: f32 rounded, 16-bit values as they are.
template <typename T>
__device__ inline void round_terms(unsigned (&x)[4]) {
    if constexpr (sizeof(T) == 4)
#pragma unroll
        for (int e = 0; e < 4; ++e) x[e] = round_tf32(x[e]);
}
/// The large part is rounded, the small one holds the rest.
__device__ inline void split(unsigned &large, unsigned &small) {
    const float x = __uint_as_float(large);
    large = round_tf32(large);
    small = __float_as_uint(x - __uint_as_float(large));
}
/// The same of a fragment.
__device__ inline void split(unsigned (&large)[4], unsigned (&small)[4]) {
#pragma unroll
    for (int e = 0; e < 4; ++e) split(large[e], small[e]);
}
/// Adds sums of a fragment, rounded.
__device__ inline void add(float (&sum)[4], const float (&part)[4]) {
#pragma unroll
    for (int e = 0; e < 4; ++e) sum[e] += part[e];
}

}  // namespace convgrad::cuda
