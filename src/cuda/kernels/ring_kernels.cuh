// The kernels of a size and type.
#pragma once

#include "ring_data.cuh"
#include "ring_weights.cuh"

#define CONVGRAD_RING_KERNEL(name, K, T, mode, body)                                               \
    namespace convgrad::cuda {                                                                     \
    extern "C" __global__ void __launch_bounds__(                                                  \
        ring_threads_at_once(K, ring_shape_of(K, staged_mode::mode, sizeof(T)).channels))          \
        name(const __grid_constant__ ring_args a) {                                                \
        ring::body<T, K, staged_mode::mode>(a);                                                    \
    }                                                                                              \
    }
#define CONVGRAD_RING(K, type, T)                                                                  \
    CONVGRAD_RING_KERNEL(ring_data_k##K##_##type, K, T, plain, data)                               \
    CONVGRAD_RING_KERNEL(ring_back_k##K##s2_##type, K, T, back, data)                              \
    CONVGRAD_RING_KERNEL(ring_weights_k##K##_##type, K, T, plain, weights)                         \
    CONVGRAD_RING_KERNEL(ring_weights_k##K##s2_##type, K, T, strided, weights)
