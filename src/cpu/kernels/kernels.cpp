// Which kernels exist for an instruction set, an operand format and an element type.
#include "cpu/kernels/kernels.hpp"

namespace convgrad::cpu {

const kernel_set *find_kernels(isa set, operand_format format, data_type type, math_mode math) {
    switch (format) {
    case operand_format::fma:
        if (set == isa::portable) return fma_portable();
        if (set == isa::avx2) return fma_avx2();
        if (set == isa::avx512) return fma_avx512();
        return nullptr;
    case operand_format::dot2:
        return set == isa::avx512_bf16 && type == data_type::bf16 ? dot2_avx512_bf16() : nullptr;
    case operand_format::amx:
        return set == isa::amx_bf16 ? amx_bf16(type, math) : nullptr;
    }
    return nullptr;
}

const kernel_set *best_fma(isa most) {
    for (isa set : {isa::avx512, isa::avx2, isa::portable})
        if (set <= most) return find_kernels(set, operand_format::fma, data_type::f32, {});
    return nullptr;
}

}  // namespace convgrad::cpu
