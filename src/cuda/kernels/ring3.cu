// Depthwise kernels for 3×3 taps, by rings.
#include "ring_kernels.cuh"

CONVGRAD_RING(3, f32, float)
CONVGRAD_RING(3, bf16, bf16)
CONVGRAD_RING(3, f16, f16)
