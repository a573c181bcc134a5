// Plain C++ for any CPU: depthwise passes.
#include <cstdint>
#include <type_traits>

#include "cpu/kernels/kernels.hpp"
#include "cpu/prefetch.hpp"

namespace convgrad::cpu {
namespace {

#include "cpu/kernels/convert.inl"
#include "cpu/kernels/vector_portable.inl"

#include "cpu/kernels/pair_tails.inl"

#include "cpu/kernels/pair_portable.inl"

#include "cpu/kernels/depthwise_vector.inl"

#include "cpu/kernels/depthwise_gradient.inl"

}  // namespace

void depthwise_portable(const depthwise_args &args) {
    depthwise(args);
}
void depthwise_gradient_portable(const depthwise_gradient_args &args) {
    depthwise_gradient(args);
}

}  // namespace convgrad::cpu
