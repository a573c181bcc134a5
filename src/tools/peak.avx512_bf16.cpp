// VDPBF16PS: sixteen sums of two bf16 products each.
#include <immintrin.h>

#include "tools/peak.hpp"

namespace convgrad::cpu {
namespace {

constexpr int chains = 12;
constexpr int steps = 32;
constexpr double flops_per_round = 2.0 * 2 * 16 * chains * steps;

void run_dot2(dim rounds) {
    // Pairs of ones, and sums that stay normal numbers.
    const __m512bh one = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3f80));
    __m512 acc[chains];
    for (__m512 &a : acc) {
        a = _mm512_set1_ps(1.0F);
        __asm__ volatile("" : "+x"(a));  // the compiler must not see that the chains are all alike
    }
    for (dim i = 0; i < rounds * steps; ++i) {
#pragma GCC unroll 12
        for (__m512 &a : acc) a = _mm512_dpbf16_ps(a, one, one);
    }
    for (__m512 &a : acc) __asm__ volatile("" ::"x"(a));
}

}  // namespace

const peak_loop *peak_dot2_avx512_bf16() {
    static constexpr peak_loop loop{isa::avx512_bf16, peak_unit::dot2, flops_per_round, run_dot2};
    return &loop;
}

}  // namespace convgrad::cpu
