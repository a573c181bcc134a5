// Depthwise kernels for 3×3 taps, through shared memory.
#include "staged.cuh"

CONVGRAD_STAGED_SETS(3, 3)
