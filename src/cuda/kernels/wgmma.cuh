// Products of a warpgroup (four warps) on Hopper's tensor cores: 64 rows by N columns, f32 sums.
//
// Operands in shared memory lie in rows of 128 bytes along the sum, eight rows to a swizzled atom
// of 1024 bytes, whose 16-byte pieces are exchanged by the low bits of the row.
#pragma once

#include "device.cuh"

// Bodies of kernels; code for other architectures is never launched.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define CONVGRAD_BODY(...) __VA_ARGS__
#else
#define CONVGRAD_BODY(...)
#endif

namespace convgrad::cuda::wgmma {

/// What the unit is told about an operand at a shared address.
__device__ inline std::uint64_t describe(unsigned address) {
    constexpr std::uint64_t next_atom = 1024 >> 4, swizzle_128 = 1;
    return static_cast<std::uint64_t>((address & 0x3ffffU) >> 4) | std::uint64_t{1} << 16
           | next_atom << 32 | swizzle_128 << 62;
}
/// To the next 32 bytes along the sum: what one instruction adds up.
constexpr std::uint64_t next_terms = 32 >> 4;

/// The same of an operand whose rows are terms of the sum: blocks of 64 columns, `block` bytes
/// each, eight rows to an atom.
__device__ inline std::uint64_t describe_turned(unsigned address, unsigned block) {
    constexpr std::uint64_t next_atom = 1024 >> 4, swizzle_128 = 1;
    return static_cast<std::uint64_t>((address & 0x3ffffU) >> 4)
           | static_cast<std::uint64_t>(block >> 4) << 16 | next_atom << 32 | swizzle_128 << 62;
}
constexpr std::uint64_t next_turned_terms = 16 * 128 >> 4;

__device__ inline void fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Until no more than `Pending` groups of products are under way.
template <int Pending = 0>
__device__ inline void await() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
/// Makes what this thread wrote to shared memory visible to the unit, after the next barrier.
__device__ inline void publish() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#define CONVGRAD_OUT_8(c, i)                                                                       \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]),    \
        "+f"(c[i + 6]), "+f"(c[i + 7])
#define CONVGRAD_OUT_16(c, i) CONVGRAD_OUT_8(c, i), CONVGRAD_OUT_8(c, i + 8)
#define CONVGRAD_OUT_32(c, i) CONVGRAD_OUT_16(c, i), CONVGRAD_OUT_16(c, i + 16)
#define CONVGRAD_OUT_64(c, i) CONVGRAD_OUT_32(c, i), CONVGRAD_OUT_32(c, i + 32)
#define CONVGRAD_OUT_128(c, i) CONVGRAD_OUT_64(c, i), CONVGRAD_OUT_64(c, i + 64)
#define CONVGRAD_NAMES_16 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}"
#define CONVGRAD_NAMES_32                                                                          \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"  \
    "%25,%26,%27,%28,%29,%30,%31}"
#define CONVGRAD_NAMES_64                                                                          \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"  \
    "%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"
#define CONVGRAD_NAMES_128                                                                         \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"          \
    "%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,"         \
    "%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,"         \
    "%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,"         \
    "%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,"            \
    "%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,"             \
    "%121,%122,%123,%124,%125,%126,%127}"

/// c += a·b, or c = a·b where `keep` is 0: both operands in shared memory.
template <typename T, int N>
struct product;
/// The same of operands whose rows are terms of the sum.
template <typename T, int N>
struct turned_product;
/// The same where the rows of one operand are.
template <typename T, int N>
struct left_turned_product;
template <typename T, int N>
struct right_turned_product;
/// The same of TF32, with a in registers.
template <int N>
struct tf32_product;

// The numbers of the operands behind the sums are part of the text.
#define CONVGRAD_PRODUCT(name, T, type, n, sums, a, b, keep, turned)                               \
    template <>                                                                                    \
    struct name<T, n> {                                                                            \
        static __device__ inline void add(                                                         \
            float (&c)[sums], std::uint64_t left, std::uint64_t right, int kept) {                 \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" keep ", 0;\n"                        \
                         "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type           \
                         " " CONVGRAD_NAMES_##sums ", %" a ", %" b ", p, 1, 1, " turned ";\n}"     \
                         : CONVGRAD_OUT_##sums(c, 0)                                               \
                         : "l"(left), "l"(right), "r"(kept));                                      \
        }                                                                                          \
    };
#define CONVGRAD_PRODUCTS(name, T, type, turned)                                                   \
    CONVGRAD_PRODUCT(name, T, type, 32, 16, "16", "17", "18", turned)                              \
    CONVGRAD_PRODUCT(name, T, type, 64, 32, "32", "33", "34", turned)                              \
    CONVGRAD_PRODUCT(name, T, type, 128, 64, "64", "65", "66", turned)                             \
    CONVGRAD_PRODUCT(name, T, type, 256, 128, "128", "129", "130", turned)
CONVGRAD_PRODUCTS(product, bf16, "bf16", "0, 0")
CONVGRAD_PRODUCTS(product, f16, "f16", "0, 0")
CONVGRAD_PRODUCTS(turned_product, bf16, "bf16", "1, 1")
CONVGRAD_PRODUCTS(turned_product, f16, "f16", "1, 1")
CONVGRAD_PRODUCTS(left_turned_product, bf16, "bf16", "1, 0")
CONVGRAD_PRODUCTS(left_turned_product, f16, "f16", "1, 0")
CONVGRAD_PRODUCTS(right_turned_product, bf16, "bf16", "0, 1")
CONVGRAD_PRODUCTS(right_turned_product, f16, "f16", "0, 1")
#undef CONVGRAD_PRODUCTS
#undef CONVGRAD_PRODUCT

#define CONVGRAD_PRODUCT(n, sums, a0, a1, a2, a3, b, keep)                                         \
    template <>                                                                                    \
    struct tf32_product<n> {                                                                       \
        static __device__ inline void add(                                                         \
            float (&c)[sums], const unsigned (&left)[4], std::uint64_t right, int kept) {          \
            asm volatile(                                                                          \
                "{\n.reg .pred p;\nsetp.ne.b32 p, %" keep ", 0;\n"                                 \
                "wgmma.mma_async.sync.aligned.m64n" #n "k8.f32.tf32.tf32"                          \
                " " CONVGRAD_NAMES_##sums ", {%" a0 ",%" a1 ",%" a2 ",%" a3 "}, %" b               \
                                          ", p, 1, 1;\n}"                                          \
                : CONVGRAD_OUT_##sums(c, 0)                                                        \
                : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(kept));  \
        }                                                                                          \
    };
CONVGRAD_PRODUCT(32, 16, "16", "17", "18", "19", "20", "21")
CONVGRAD_PRODUCT(64, 32, "32", "33", "34", "35", "36", "37")
CONVGRAD_PRODUCT(128, 64, "64", "65", "66", "67", "68", "69")
#undef CONVGRAD_PRODUCT
#undef CONVGRAD_OUT_8
#undef CONVGRAD_OUT_16
#undef CONVGRAD_OUT_32
#undef CONVGRAD_OUT_64
#undef CONVGRAD_OUT_128
#undef CONVGRAD_NAMES_16
#undef CONVGRAD_NAMES_32
#undef CONVGRAD_NAMES_64
#undef CONVGRAD_NAMES_128

}  // namespace convgrad::cuda::wgmma
