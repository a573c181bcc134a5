// Plain C++ for any CPU: rows of NCX planes to f32 and back.
#include <cstdint>
#include <type_traits>

#include "cpu/kernels/kernels.hpp"

namespace convgrad::cpu {
namespace {

#include "cpu/kernels/convert.inl"
#include "cpu/kernels/vector_portable.inl"

#include "cpu/kernels/pair_tails.inl"

#include "cpu/kernels/pair_portable.inl"

#include "cpu/kernels/plane_rows_vector.inl"

}  // namespace

bool widen_rows_portable(const plane_rows_args &args) {
    return widen_rows(args);
}
void narrow_rows_portable(const plane_store_args &args) {
    narrow_rows(args);
}
void sum_positions_portable(const position_sums_args &args) {
    sum_positions(args);
}

}  // namespace convgrad::cpu
