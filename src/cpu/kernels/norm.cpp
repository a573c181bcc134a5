#include "cpu/kernels/norm.hpp"

namespace convgrad::cpu {

const norm_kernels &best_norm(capabilities may_use) {
#define CONVGRAD_FMA_KERNELS(set)                                                                  \
    if (may_use.include(isa::set)) return norm_##set();
#include "cpu/kernels/kernels.inc"
    return norm_portable();
}

}  // namespace convgrad::cpu
