// AVX-512: rows of NCX planes to f32 and back.
#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "cpu/kernels/kernels.hpp"

namespace convgrad::cpu {
namespace {

#include "cpu/kernels/convert.inl"
#include "cpu/kernels/vector_avx512.inl"

inline V::acc V::madd(acc c, unit a, unit b) {
    return _mm512_fmadd_ps(a, b, c);
}

#include "cpu/kernels/pair_avx512.inl"

#include "cpu/kernels/plane_rows_vector.inl"

}  // namespace

bool widen_rows_avx512(const plane_rows_args &args) {
    return widen_rows(args);
}
void narrow_rows_avx512(const plane_store_args &args) {
    narrow_rows(args);
}
void sum_positions_avx512(const position_sums_args &args) {
    sum_positions(args);
}

}  // namespace convgrad::cpu
