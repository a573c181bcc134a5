// Plain C++: Winograd transforms and products.
#include <cstdint>
#include <type_traits>

#include "cpu/kernels/kernels.hpp"
#include "cpu/kernels/winograd.hpp"

namespace convgrad::cpu {
namespace {

#include "cpu/kernels/convert.inl"
#include "cpu/kernels/vector_portable.inl"

#include "cpu/kernels/winograd_vector.inl"

}  // namespace

const winograd_kernels *winograd_portable() {
    static constexpr winograd_kernels set = kernels_for(isa::portable);
    return &set;
}

}  // namespace convgrad::cpu
