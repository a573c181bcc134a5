// NEON.
#include <arm_neon.h>

#include "tools/peak.hpp"

namespace convgrad::cpu {
namespace {

using vec = float32x4_t;
constexpr int lanes = 4;
inline vec constant(float v) {
    return vdupq_n_f32(v);
}
inline vec madd(vec c, vec a, vec b) {
    return vfmaq_f32(c, a, b);
}
inline vec join(vec a, const char *at) {
    const uint32x4_t read =
        vreinterpretq_u32_u8(vld1q_u8(reinterpret_cast<const std::uint8_t *>(at)));
    return vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(a), read));
}

#include "tools/peak_vector.inl"

}  // namespace

const peak_loop *peak_fma_neon() {
    static constexpr peak_loop loop{isa::neon, peak_unit::fma, flops_per_round, run_fma};
    return &loop;
}

void read_neon(const void *data, dim bytes) {
    run_read(data, bytes);
}

}  // namespace convgrad::cpu
