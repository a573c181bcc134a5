#include "tools/peak.hpp"

namespace convgrad::cpu {

const peak_loop *find_peak(isa most, peak_unit unit) {
    switch (unit) {
    case peak_unit::fma:
        if (most >= isa::avx512) return peak_fma_avx512();
        return most >= isa::avx2 ? peak_fma_avx2() : peak_fma_portable();
    case peak_unit::dot2:
        return most >= isa::avx512_bf16 ? peak_dot2_avx512_bf16() : nullptr;
    case peak_unit::matrix:
        return most >= isa::amx_bf16 ? peak_matrix_amx_bf16() : nullptr;
    }
    return nullptr;
}

read_loop find_read(isa most) {
    if (most >= isa::avx512) return read_avx512;
    return most >= isa::avx2 ? read_avx2 : read_portable;
}

}  // namespace convgrad::cpu
