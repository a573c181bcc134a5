// Depthwise kernels for 5×5 taps, by rings.
#include "ring_kernels.cuh"

CONVGRAD_RING(5, f32, float)
CONVGRAD_RING(5, bf16, bf16)
CONVGRAD_RING(5, f16, f16)

CONVGRAD_RING_KERNEL(ring_data_k5s2_f32, 5, float, strided, data)
CONVGRAD_RING_KERNEL(ring_data_k5s2_bf16, 5, bf16, strided, data)
CONVGRAD_RING_KERNEL(ring_data_k5s2_f16, 5, f16, strided, data)
