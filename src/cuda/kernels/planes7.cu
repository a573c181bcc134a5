// Depthwise kernels for 7×7 taps on planes.
#include "planes.cuh"

CONVGRAD_PLANES(7, f32, float)
CONVGRAD_PLANES(7, bf16, bf16)
CONVGRAD_PLANES(7, f16, f16)
