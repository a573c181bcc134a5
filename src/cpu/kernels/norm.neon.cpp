// NEON: batch normalisation.
#include <arm_neon.h>

#include <cstdint>
#include <type_traits>

#include "cpu/kernels/kernels.hpp"
#include "cpu/kernels/norm.hpp"

namespace convgrad::cpu {
namespace {

#include "cpu/kernels/convert.inl"
#include "cpu/kernels/vector_neon.inl"

#include "cpu/kernels/norm_vector.inl"

}  // namespace

const norm_kernels &norm_neon() {
    static constexpr norm_kernels kernels = vector_norm(isa::neon);
    return kernels;
}

}  // namespace convgrad::cpu
