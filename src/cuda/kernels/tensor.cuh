// What products on tensor cores share: copies to shared memory, fragments, parts of f32 values.
#pragma once

#include "device.cuh"

namespace convgrad::cuda {

/// 16 bytes, or zeros.
__device__ inline void copy_16(unsigned to, const void *from, bool there) {
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0));
}
__device__ inline void load_matrices(unsigned at, unsigned (&r)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

/// The same, each matrix turned.
__device__ inline void load_matrices_turned(unsigned at, unsigned (&r)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}
/// Four matrices of 8 by 8 16-bit values, as sums hold them; lanes name their rows.
__device__ inline void store_matrices(unsigned at, const unsigned (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(at),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}
/// The same, each matrix turned.
__device__ inline void store_matrices_turned(unsigned at, const unsigned (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(at),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

__device__ inline unsigned load_word(unsigned at) {
    unsigned v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(at));
    return v;
}

template <typename T>
__device__ inline void multiply(float (&c)[4], const unsigned (&a)[4], const unsigned *b);
template <>
__device__ inline void multiply<bf16>(float (&c)[4], const unsigned (&a)[4], const unsigned *b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
__device__ inline void multiply<f16>(float (&c)[4], const unsigned (&a)[4], const unsigned *b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
__device__ inline void multiply<float>(float (&c)[4], const unsigned (&a)[4], const unsigned *b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
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
