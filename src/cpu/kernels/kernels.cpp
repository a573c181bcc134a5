// Which kernels exist for an instruction set, an operand format and an element type.
#include "cpu/kernels/kernels.hpp"

#include <iterator>

namespace convgrad::cpu {
namespace {

using find_function = const kernel_set *(*)(data_type type, math_mode math);

// In the order of kernel_lines.
constexpr find_function functions[] = {
#define CONVGRAD_KERNELS(set, format) format##_##set,
#include "cpu/kernels/kernels.inc"
};

}  // namespace

const kernel_set *find_kernels(isa set, operand_format format, data_type type, math_mode math) {
    for (std::size_t i = 0; i < std::size(kernel_lines); ++i)
        if (kernel_lines[i].set == set && kernel_lines[i].format == format)
            return functions[i](type, math);
    return nullptr;
}

const kernel_set *best_fma(capabilities may_use) {
    for (const kernel_line &line : kernel_lines)
        if (line.format == operand_format::fma && may_use.include(line.set))
            return find_kernels(line.set, line.format, data_type::f32, math_mode::strict);
    return nullptr;
}

}  // namespace convgrad::cpu
