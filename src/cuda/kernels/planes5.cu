// Depthwise kernels for 5×5 taps on planes.
#include "planes.cuh"

CONVGRAD_PLANES(5, f32, float)
CONVGRAD_PLANES(5, bf16, bf16)
CONVGRAD_PLANES(5, f16, f16)
