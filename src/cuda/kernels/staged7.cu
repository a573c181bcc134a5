// Depthwise kernels for 7×7 taps, through shared memory.
#include "staged.cuh"

CONVGRAD_STAGED_SETS(7, 2)
