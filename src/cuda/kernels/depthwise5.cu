// Depthwise kernels for 5×5 taps.
#include "depthwise.cuh"

CONVGRAD_DEPTHWISE_SET(5, f32, float, 4, 4)
CONVGRAD_DEPTHWISE_SET(5, bf16, bf16, 4, 4)
CONVGRAD_DEPTHWISE_SET(5, f16, f16, 4, 4)
