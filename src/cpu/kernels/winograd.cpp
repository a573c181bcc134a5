// Which Winograd kernels exist.
#include "cpu/kernels/winograd.hpp"

namespace convgrad::cpu {

const winograd_kernels *find_winograd(isa set) {
    switch (set) {
#define CONVGRAD_FMA_KERNELS(name)                                                                 \
    case isa::name:                                                                                \
        return winograd_##name();
#include "cpu/kernels/kernels.inc"
    default:
        return nullptr;
    }
}

}  // namespace convgrad::cpu
