// AVX-512.
#include <immintrin.h>

#include "tools/peak.hpp"

namespace convgrad::cpu {
namespace {

using vec = __m512;
constexpr int lanes = 16;
inline vec constant(float v) {
    return _mm512_set1_ps(v);
}
inline vec madd(vec c, vec a, vec b) {
    return _mm512_fmadd_ps(a, b, c);
}
inline vec join(vec a, const char *at) {
    return _mm512_or_ps(a, _mm512_load_ps(at));
}

#include "tools/peak_vector.inl"

}  // namespace

const peak_loop *peak_fma_avx512() {
    static constexpr peak_loop loop{isa::avx512, peak_unit::fma, flops_per_round, run_fma};
    return &loop;
}

void read_avx512(const void *data, dim bytes) {
    run_read(data, bytes);
}

}  // namespace convgrad::cpu
