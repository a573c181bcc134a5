// Depthwise kernels for 3×3 taps on planes.
#include "planes.cuh"

CONVGRAD_PLANES_SETS(3, 7, 6)
