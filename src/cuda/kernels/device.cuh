// What all kernels share: element types, rounding, the end of a data pass.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "args.hpp"

namespace convgrad::cuda {

using bf16 = __nv_bfloat16;
using f16 = __half;

__device__ inline float to_f32(float v) {
    return v;
}
__device__ inline float to_f32(bf16 v) {
    return __bfloat162float(v);
}
__device__ inline float to_f32(f16 v) {
    return __half2float(v);
}
__device__ inline void round_to(float &to, float v) {
    to = v;
}
__device__ inline void round_to(bf16 &to, float v) {
    to = __float2bfloat16_rn(v);
}
__device__ inline void round_to(f16 &to, float v) {
    to = __float2half_rn(v);
}

/// max(0, v); NaN stays NaN, and no zero is negative.
__device__ inline float relu_of(float v) {
    return v > 0 || v != v ? v : 0.0f;
}

/// Padding is no number: a tap beside the input adds nothing, even if its weight is infinite. Tiles
/// multiply by zero there, so that a sum which is not finite is computed again with care.
__device__ inline bool is_finite(float v) {
    return fabsf(v) <= 3.402823466e+38f;
}

/// Bias, add, previous value, ReLU: in this order, as on every engine.
template <typename T>
__device__ inline float finish_sum(
    const epilogue_args &e, float v, wide channel, wide out_at, wide add_at) {
    if (e.bias != nullptr) v += to_f32(static_cast<const T *>(e.bias)[channel * e.bias_stride]);
    if (e.add != nullptr) v += to_f32(static_cast<const T *>(e.add)[add_at]);
    if (e.accumulate != 0) v += to_f32(static_cast<const T *>(e.out)[out_at]);
    if (e.relu != 0) v = relu_of(v);
    return v;
}

/// The same, rounded and stored.
template <typename T>
__device__ inline void store_result(
    const epilogue_args &e, float v, wide channel, wide out_at, wide add_at) {
    round_to(static_cast<T *>(e.out)[out_at], finish_sum<T>(e, v, channel, out_at, add_at));
}

/// Two neighbours, at an address that is aligned for both.
__device__ inline void store_pair(float *to, const float (&v)[2]) {
    *reinterpret_cast<float2 *>(to) = make_float2(v[0], v[1]);
}
__device__ inline void store_pair(bf16 *to, const bf16 (&v)[2]) {
    *reinterpret_cast<__nv_bfloat162 *>(to) = __halves2bfloat162(v[0], v[1]);
}
__device__ inline void store_pair(f16 *to, const f16 (&v)[2]) {
    *reinterpret_cast<__half2 *>(to) = __halves2half2(v[0], v[1]);
}

}  // namespace convgrad::cuda
