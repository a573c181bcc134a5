// Depthwise kernels for 7×7 taps on planes.
#include "planes.cuh"

CONVGRAD_PLANES_SETS(7, 4, 3)
