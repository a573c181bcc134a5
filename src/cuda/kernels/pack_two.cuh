// Results of 16-bit types, two at a time.
#pragma once

#include "device.cuh"

namespace convgrad::cuda {

/// Two neighbours as a word.
template <typename T>
__device__ inline unsigned pack_two(float low, float high);
template <>
__device__ inline unsigned pack_two<bf16>(float low, float high) {
    const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const unsigned *>(&v);
}
template <>
__device__ inline unsigned pack_two<f16>(float low, float high) {
    const __half2 v = __floats2half2_rn(low, high);
    return *reinterpret_cast<const unsigned *>(&v);
}

}  // namespace convgrad::cuda
