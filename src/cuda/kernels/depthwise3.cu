// Depthwise kernels for 3×3 taps.
#include "depthwise.cuh"

CONVGRAD_DEPTHWISE_SET(3, f32, float, 5, 5)
CONVGRAD_DEPTHWISE_SET(3, bf16, bf16, 5, 5)
CONVGRAD_DEPTHWISE_SET(3, f16, f16, 5, 5)
