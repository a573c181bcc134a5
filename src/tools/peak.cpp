#include "tools/peak.hpp"

namespace convgrad::cpu {
namespace {

struct reader {
    isa set;
    read_loop read;
};

}  // namespace

const peak_loop *find_peak(capabilities may_use, peak_unit unit) {
    for (const peak_loop *loop : {
#define CONVGRAD_KERNELS(set, format) peak_##format##_##set(),
#include "cpu/kernels/kernels.inc"
         })
        if (loop->unit == unit && may_use.include(loop->set)) return loop;
    return nullptr;
}

read_loop find_read(capabilities may_use) {
    for (const reader &r : {
#define CONVGRAD_FMA_KERNELS(set) reader{isa::set, read_##set},
#include "cpu/kernels/kernels.inc"
         })
        if (may_use.include(r.set)) return r.read;
    return nullptr;
}

}  // namespace convgrad::cpu
