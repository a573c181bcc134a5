// Depthwise kernels for 7×7 taps.
#include "depthwise.cuh"

CONVGRAD_DEPTHWISE_SET(7, f32, float, 3, 2)
CONVGRAD_DEPTHWISE_SET(7, bf16, bf16, 3, 2)
CONVGRAD_DEPTHWISE_SET(7, f16, f16, 3, 2)
