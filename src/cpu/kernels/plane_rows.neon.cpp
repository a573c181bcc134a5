// NEON: rows of NCX planes to f32 and back.
#include <arm_neon.h>

#include <cstdint>
#include <type_traits>

#include "cpu/kernels/kernels.hpp"

namespace convgrad::cpu {
namespace {

#include "cpu/kernels/convert.inl"
#include "cpu/kernels/vector_neon.inl"

#include "cpu/kernels/pair_tails.inl"

#include "cpu/kernels/pair_neon.inl"

#include "cpu/kernels/plane_rows_vector.inl"

}  // namespace

bool widen_rows_neon(const plane_rows_args &args) {
    return widen_rows(args);
}
void narrow_rows_neon(const plane_store_args &args) {
    narrow_rows(args);
}
void sum_positions_neon(const position_sums_args &args) {
    sum_positions(args);
}

}  // namespace convgrad::cpu
