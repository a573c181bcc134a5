// AVX2 with FMA and F16C: batch normalisation.
#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "cpu/kernels/kernels.hpp"
#include "cpu/kernels/norm.hpp"

namespace convgrad::cpu {
namespace {

#include "cpu/kernels/convert.inl"
#include "cpu/kernels/vector_avx2.inl"

#include "cpu/kernels/norm_vector.inl"

}  // namespace

const norm_kernels &norm_avx2() {
    static constexpr norm_kernels kernels = vector_norm(isa::avx2);
    return kernels;
}

}  // namespace convgrad::cpu
