// Depthwise kernels for 3×3 taps on planes.
#include "planes.cuh"

CONVGRAD_PLANES(3, f32, float)
CONVGRAD_PLANES(3, bf16, bf16)
CONVGRAD_PLANES(3, f16, f16)
