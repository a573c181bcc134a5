// Depthwise kernels for 5×5 taps, through shared memory.
#include "staged.cuh"

CONVGRAD_STAGED_SETS(5, 2)
