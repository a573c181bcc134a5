// Instructions that C++ has no words for, one function each: copies to shared memory, matrices of
// 8 by 8 values, products of a warp. tests/cuda/emulator has them in plain C++, so that kernels
// can be tested without a GPU.
#pragma once

#include "device.cuh"

#ifdef CONVGRAD_EMULATED
#include "emulated_instructions.hpp"
#else

namespace convgrad::cuda {

/// The shared memory that a launch asked for.
__device__ inline unsigned char *dynamic_shared() {
    extern __shared__ __align__(128) unsigned char convgrad_shared[];
    return convgrad_shared;
}
__device__ inline unsigned shared_address(const void *p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

/// A number of which nothing can be worked out ahead, to be kept in registers that are scarce.
__device__ inline unsigned opaque(unsigned v) {
    asm volatile("" : "+r"(v));
    return v;
}

/// 4, 8 or 16 bytes to shared memory, or zeros.
template <int Bytes>
__device__ inline void copy_async(unsigned to, const void *from, bool there) {
    if constexpr (Bytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
            "r"(there ? 16 : 0));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from),
                     "n"(Bytes), "r"(there ? Bytes : 0)
                     : "memory");
}
template <int Bytes>
__device__ inline void copy_async(unsigned to, const void *from) {
    if constexpr (Bytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(Bytes));
}
/// 16 bytes where `taken` is not 0; zeros where `there` is. Bits of masks are tested at once.
__device__ inline void copy_async_if(
    unsigned to, const void *from, unsigned there, unsigned taken = 1) {
    asm volatile("{\n"
                 ".reg .pred none, takes;\n"
                 "setp.eq.u32 none, %2, 0;\n"
                 "setp.ne.u32 takes, %3, 0;\n"
                 "@takes cp.async.cg.shared.global [%0], [%1], 16, none;\n"
                 "}" ::"r"(to),
        "l"(from), "r"(there), "r"(taken));
}
/// 16 bytes, the first few of which are there; the others are zeros.
__device__ inline void copy_async_part(unsigned to, const void *from, int there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there));
}
/// What a thread has copied since the last call is one group.
__device__ inline void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Until no more than so many groups of this thread are under way.
template <int Pending>
__device__ inline void await_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}
/// Until all copies of this thread are there, in groups or not.
__device__ inline void await_all_copies() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/// Four matrices of 8 by 8 16-bit values: lanes name their rows.
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
/// Two of them, named by the first 16 lanes.
template <bool Turned>
__device__ inline void load_two_matrices(unsigned at, unsigned (&r)[2]) {
    if constexpr (Turned)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                     : "=r"(r[0]), "=r"(r[1])
                     : "r"(at));
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                     : "=r"(r[0]), "=r"(r[1])
                     : "r"(at));
}
/// As sums hold them.
__device__ inline void store_matrices(unsigned at, const unsigned (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(at),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}
__device__ inline void store_two_matrices(unsigned at, const unsigned (&r)[2]) {
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1,%2};" ::"r"(at), "r"(r[0]), "r"(r[1])
        : "memory");
}
__device__ inline void store_matrices_turned(unsigned at, const unsigned (&r)[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
    // Without the instruction each lane asks for the rows of its values, and stores them.
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const unsigned row = __shfl_sync(~0U, at, i / 2 * 8 + lane % 4 * 2 + i % 2);
        asm volatile("st.shared.b16 [%0], %1;" ::"r"(row + lane / 4 * 2),
                     "h"(static_cast<unsigned short>(r[i / 2] >> i % 2 * 16))
                     : "memory");
    }
#else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(at),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
#endif
}

__device__ inline unsigned load_word(unsigned at) {
    unsigned v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(at));
    return v;
}
__device__ inline void store_words(unsigned to, const unsigned (&v)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]),
                 "r"(v[3])
                 : "memory");
}

/// c += a · b: 16 rows by 8 columns, 16 terms (f32, as TF32: 8).
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
/// The same of 16-bit values, 8 terms.
template <typename T>
__device__ inline void multiply_half(float (&c)[4], const unsigned (&a)[2], unsigned b);
template <>
__device__ inline void multiply_half<bf16>(float (&c)[4], const unsigned (&a)[2], unsigned b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b));
}
template <>
__device__ inline void multiply_half<f16>(float (&c)[4], const unsigned (&a)[2], unsigned b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b));
}

/// Two values that are stored; `mark` is changed if one of them is not finite.
template <typename T>
__device__ inline void mark_special(unsigned &mark, unsigned pair);
template <>
__device__ inline void mark_special<bf16>(unsigned &mark, unsigned pair) {
    asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(mark) : "r"(pair), "r"(0));
}
template <>
__device__ inline void mark_special<f16>(unsigned &mark, unsigned pair) {
    asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(mark) : "r"(pair), "r"(0));
}
/// Whether a mark, which was 0 at first, has changed: it is NaN then, and else a zero.
__device__ inline bool is_marked(unsigned mark) {
    return (mark & 0x7fff7fffU) != 0;
}

}  // namespace convgrad::cuda

#endif
