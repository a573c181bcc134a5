// What every x86-64 has: SSE2, multiplication and addition apart.
#include <emmintrin.h>

#include "tools/peak.hpp"

namespace convgrad::cpu {
namespace {

using vec = __m128;
constexpr int lanes = 4;
inline vec constant(float v) {
    return _mm_set1_ps(v);
}
inline vec madd(vec c, vec a, vec b) {
    return _mm_add_ps(c, _mm_mul_ps(a, b));
}
inline vec join(vec a, const char *at) {
    return _mm_or_ps(a, _mm_load_ps(reinterpret_cast<const float *>(at)));
}

#include "tools/peak_vector.inl"

}  // namespace

const peak_loop *peak_fma_portable() {
    static constexpr peak_loop loop{isa::portable, peak_unit::fma, flops_per_round, run_fma};
    return &loop;
}

void read_portable(const void *data, dim bytes) {
    run_read(data, bytes);
}

}  // namespace convgrad::cpu
