// f32 on Hopper's tensor cores: one TF32 product, or three whose sum is as exact as f32.
#pragma once

#include "tensor.cuh"
#include "wgmma.cuh"

namespace convgrad::cuda::wgmma {

/// Adds the products of 32 terms: `a` in registers, as f32, eight terms to a group; b at a shared
/// address, split into large and small parts where products are exact. load() is called while they
/// are under way. Sums inside the unit are cut off, not rounded: exact ones start at zero.
template <int N, bool Exact, typename Load>
__device__ inline void add_tf32(float (&sum)[N / 2], unsigned (&a)[4][4], unsigned b_at,
    [[maybe_unused]] unsigned b_small_at, Load &&load) {
    const std::uint64_t b = describe(b_at);
    if constexpr (Exact) {
        unsigned small[4][4];
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                split(a[k][e], small[k][e]);
                small[k][e] = round_tf32(small[k][e]);
            }
        const std::uint64_t b_small = describe(b_small_at);
        float part[N / 2];
        fence();
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const std::uint64_t at = static_cast<unsigned>(k) * next_terms;
            tf32_product<N>::add(part, small[k], b + at, k == 0 ? 0 : 1);
            tf32_product<N>::add(part, a[k], b_small + at, 1);
            tf32_product<N>::add(part, a[k], b + at, 1);
        }
        commit();
        load();
        await();
#pragma unroll
        for (int i = 0; i < N / 2; ++i) sum[i] += part[i];
    } else {
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
            for (int e = 0; e < 4; ++e) a[k][e] = round_tf32(a[k][e]);
        fence();
#pragma unroll
        for (int k = 0; k < 4; ++k)
            tf32_product<N>::add(sum, a[k], b + static_cast<unsigned>(k) * next_terms, 1);
        commit();
        load();
        await();
    }
}

}  // namespace convgrad::cuda::wgmma
