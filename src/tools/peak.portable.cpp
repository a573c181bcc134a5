// Plain C++: four lanes in the compiler's own vector type, multiplication and addition apart.
#include <cstring>

#include "tools/peak.hpp"

namespace convgrad::cpu {
namespace {

using vec = float __attribute__((vector_size(16)));
constexpr int lanes = 4;
inline vec constant(float v) {
    return vec{v, v, v, v};
}
inline vec madd(vec c, vec a, vec b) {
    return c + a * b;
}
inline vec join(vec a, const char *at) {
    using bits = std::uint32_t __attribute__((vector_size(16)));
    bits read;
    std::memcpy(&read, at, sizeof read);
    return reinterpret_cast<vec>(reinterpret_cast<bits>(a) | read);
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
