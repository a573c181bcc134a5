// NEON: Winograd transforms and products.
#include <arm_neon.h>

#include <cstdint>
#include <type_traits>

#include "cpu/kernels/kernels.hpp"
#include "cpu/kernels/winograd.hpp"

namespace convgrad::cpu {
namespace {

#include "cpu/kernels/convert.inl"
#include "cpu/kernels/vector_neon.inl"

#include "cpu/kernels/winograd_vector.inl"

}  // namespace

const winograd_kernels *winograd_neon() {
    static constexpr winograd_kernels set = kernels_for(isa::neon);
    return &set;
}

}  // namespace convgrad::cpu
