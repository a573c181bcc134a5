// AVX2 with FMA and F16C: depthwise passes.
#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "cpu/kernels/kernels.hpp"
#include "cpu/prefetch.hpp"

namespace convgrad::cpu {
namespace {

#include "cpu/kernels/convert.inl"
#include "cpu/kernels/vector_avx2.inl"

#include "cpu/kernels/pair_tails.inl"

#include "cpu/kernels/pair_avx2.inl"

#include "cpu/kernels/depthwise_vector.inl"

#include "cpu/kernels/depthwise_gradient.inl"

}  // namespace

void depthwise_avx2(const depthwise_args &args) {
    depthwise(args);
}
void depthwise_gradient_avx2(const depthwise_gradient_args &args) {
    depthwise_gradient(args);
}

}  // namespace convgrad::cpu
