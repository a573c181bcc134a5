// f32 on Hopper's tensor cores: one TF32 product, or three whose sum is as exact as f32.
#pragma once

#include "tensor.cuh"
#include "wgmma.cuh"

namespace convgrad::cuda::wgmma {

/// Adds the products of 32 terms: `a` in registers, as f32, eight terms to a group; b at a shared
/// address, split into large and small parts where products are exact. load() is called while they
/// are under way. The unit cuts sums off, it does not round them: exact ones are of 16 terms, which
/// start at zero, and products with small parts come first, while the sum is 2^-11 of what it will
/// be.
template <int N, bool Exact, typename Load>
__device__ inline void add_tf32(float (&sum)[N / 2], unsigned (&a)[4][4], unsigned b_at,
    [[maybe_unused]] unsigned b_small_at, Load &&load) {
    const std::uint64_t b = describe(b_at);
    const auto at = [](int k) { return static_cast<unsigned>(k) * next_terms; };
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
        constexpr int steps = 2;  // of eight terms
#pragma unroll
        for (int from = 0; from < 4; from += steps) {
            fence();
#pragma unroll
            for (int k = from; k < from + steps; ++k) {
                tf32_product<N>::add(part, small[k], b + at(k), k == from ? 0 : 1);
                tf32_product<N>::add(part, a[k], b_small + at(k), 1);
            }
#pragma unroll
            for (int k = from; k < from + steps; ++k)
                tf32_product<N>::add(part, a[k], b + at(k), 1);
            commit();
            if (from == 0) load();
            await();
#pragma unroll
            for (int i = 0; i < N / 2; ++i) sum[i] += part[i];
        }
    } else {
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
            for (int e = 0; e < 4; ++e) a[k][e] = round_tf32(a[k][e]);
        fence();
#pragma unroll
        for (int k = 0; k < 4; ++k) tf32_product<N>::add(sum, a[k], b + at(k), 1);
        commit();
        load();
        await();
    }
}

}  // namespace convgrad::cuda::wgmma
