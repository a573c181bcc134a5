// AVX-512: depthwise passes.
#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "cpu/kernels/kernels.hpp"
#include "cpu/prefetch.hpp"

namespace convgrad::cpu {
namespace {

#include "cpu/kernels/convert.inl"
#include "cpu/kernels/vector_avx512.inl"

inline V::acc V::madd(acc c, unit a, unit b) {
    return _mm512_fmadd_ps(a, b, c);
}

#include "cpu/kernels/pair_avx512.inl"

#include "cpu/kernels/depthwise_vector.inl"

#include "cpu/kernels/depthwise_gradient.inl"

}  // namespace

void depthwise_avx512(const depthwise_args &args) {
    depthwise(args);
}
void depthwise_gradient_avx512(const depthwise_gradient_args &args) {
    depthwise_gradient(args);
}

}  // namespace convgrad::cpu
