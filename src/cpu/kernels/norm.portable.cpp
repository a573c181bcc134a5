// Plain C++ for any CPU: batch normalisation.
#include <cstdint>
#include <type_traits>

#include "cpu/kernels/kernels.hpp"
#include "cpu/kernels/norm.hpp"

namespace convgrad::cpu {
namespace {

#include "cpu/kernels/convert.inl"
#include "cpu/kernels/vector_portable.inl"

#include "cpu/kernels/norm_vector.inl"

}  // namespace

const norm_kernels &norm_portable() {
    static constexpr norm_kernels kernels = vector_norm(isa::portable);
    return kernels;
}

}  // namespace convgrad::cpu
