// Which Winograd kernels exist.
#include "cpu/kernels/winograd.hpp"

namespace convgrad::cpu {

const winograd_kernels *find_winograd(isa set) {
    switch (set) {
    case isa::portable:
        return winograd_portable();
    case isa::avx2:
        return winograd_avx2();
    case isa::avx512:
        return winograd_avx512();
    default:
        return nullptr;
    }
}

}  // namespace convgrad::cpu
