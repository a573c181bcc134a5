// Depthwise kernels for 5×5 taps on planes.
#include "planes.cuh"

CONVGRAD_PLANES_SETS(5, 5, 5)
