// AVX2 with FMA.
#include <immintrin.h>

#include "tools/peak.hpp"

namespace convgrad::cpu {
namespace {

using vec = __m256;
constexpr int lanes = 8;
inline vec constant(float v) {
    return _mm256_set1_ps(v);
}
inline vec madd(vec c, vec a, vec b) {
    return _mm256_fmadd_ps(a, b, c);
}
inline vec join(vec a, const char *at) {
    return _mm256_or_ps(a, _mm256_load_ps(reinterpret_cast<const float *>(at)));
}

#include "tools/peak_vector.inl"

}  // namespace

const peak_loop *peak_fma_avx2() {
    static constexpr peak_loop loop{isa::avx2, peak_unit::fma, flops_per_round, run_fma};
    return &loop;
}

void read_avx2(const void *data, dim bytes) {
    run_read(data, bytes);
}

}  // namespace convgrad::cpu
