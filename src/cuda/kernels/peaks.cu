// What a device can do at most: loops that do nothing else.
#include "device.cuh"

namespace convgrad::cuda {

/// Keeps results alive without storing them.
__device__ inline void use(const peak_args &p, float v) {
    if (v == 0x1p100f) *p.out = v;
}

}  // namespace convgrad::cuda

extern "C" __global__ void __launch_bounds__(convgrad::cuda::peak_threads)
    peak_fma(const __grid_constant__ convgrad::cuda::peak_args p) {
    using namespace convgrad::cuda;
    float v[peak_fma_chains];
#pragma unroll
    for (int i = 0; i < peak_fma_chains; ++i) v[i] = static_cast<float>(threadIdx.x + i);
    for (int r = 0; r < p.rounds; ++r)
#pragma unroll
        for (int u = 0; u < peak_unroll; ++u)
#pragma unroll
            for (int i = 0; i < peak_fma_chains; ++i) v[i] = fmaf(v[i], 0.999f, 0.5f);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < peak_fma_chains; ++i) sum += v[i];
    use(p, sum);
}

extern "C" __global__ void __launch_bounds__(convgrad::cuda::peak_threads)
    peak_mma(const __grid_constant__ convgrad::cuda::peak_args p) {
    using namespace convgrad::cuda;
    float v[peak_mma_chains][4] = {};
    const unsigned a = 0x3f803f80U + threadIdx.x, b = 0x3c003c00U + threadIdx.x;
    for (int r = 0; r < p.rounds; ++r)
#pragma unroll
        for (int i = 0; i < peak_mma_chains; ++i)
            asm volatile(
                "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%4,%5,%5}, "
                "{%6,%6}, {%0,%1,%2,%3};"
                : "+f"(v[i][0]), "+f"(v[i][1]), "+f"(v[i][2]), "+f"(v[i][3])
                : "r"(a), "r"(a + 1), "r"(b));
    float sum = 0;
#pragma unroll
    for (int i = 0; i < peak_mma_chains; ++i) sum += v[i][0] + v[i][1] + v[i][2] + v[i][3];
    use(p, sum);
}

/// All blocks read all of the data, each from another place on.
extern "C" __global__ void __launch_bounds__(convgrad::cuda::peak_threads)
    peak_read(const __grid_constant__ convgrad::cuda::peak_args p) {
    using namespace convgrad::cuda;
    const auto *const data = static_cast<const float4 *>(p.data);
    const unsigned count = static_cast<unsigned>(p.bytes / sizeof(float4));
    const unsigned all = gridDim.x * peak_threads, first = blockIdx.x * peak_threads + threadIdx.x;
    float sum = 0;
    for (int r = 0; r < p.rounds; ++r)
#pragma unroll 4
        for (unsigned i = first; i < count; i += all) {
            float4 v;  // past the first-level cache
            asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];"
                         : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                         : "l"(data + i));
            sum += v.x + v.y + v.z + v.w;
        }
    use(p, sum);
}
