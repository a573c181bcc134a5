// Depthwise kernels for 7×7 taps, by rings.
#include "ring_kernels.cuh"

CONVGRAD_RING_KERNEL(ring_data_k7_f32, 7, float, plain, data)
CONVGRAD_RING_KERNEL(ring_weights_k7_f32, 7, float, plain, weights)
