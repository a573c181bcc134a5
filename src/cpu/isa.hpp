// What the processor offers: instruction sets and cache sizes.
//
// Layer: the bottom of src/cpu; knows nothing of problems or plans.
#pragma once

#include <cstddef>
#include <cstdint>

#include <convgrad/types.hpp>

namespace convgrad::cpu {

/// What kernels need and processors have, as a set: processors combine features as they like, so
/// that instruction sets form no order. Kernels run where the machine's set includes theirs.
class capabilities {
public:
    enum feature : std::uint32_t {
        avx2 = 1U << 0,    // with FMA and F16C
        avx512 = 1U << 1,  // F, BW, DQ and VL
        avx512_bf16 = 1U << 2,
        amx_bf16 = 1U << 3,  // and tiles
        neon = 1U << 4,
    };

    constexpr capabilities() = default;
    // Implicit, so that functions which take a set are called with a name or a feature too.
    constexpr capabilities(feature one) : bits_(one) {}
    /// What kernels of this name may use; all there is for isa::best.
    constexpr capabilities(isa name) : bits_(bits_of(name)) {}

    [[nodiscard]] constexpr bool include(capabilities others) const {
        return (others.bits_ & ~bits_) == 0;
    }
    friend constexpr capabilities operator&(capabilities a, capabilities b) {
        a.bits_ &= b.bits_;
        return a;
    }
    friend constexpr capabilities operator|(capabilities a, capabilities b) {
        a.bits_ |= b.bits_;
        return a;
    }
    friend constexpr bool operator==(capabilities a, capabilities b) = default;

private:
    static constexpr std::uint32_t bits_of(isa name) {
        switch (name) {
        case isa::best:
            return ~0U;
        case isa::portable:
            return 0;
        case isa::avx2:
            return avx2;
        case isa::avx512:
            return avx2 | avx512;
        case isa::avx512_bf16:
            return avx2 | avx512 | avx512_bf16;
        case isa::amx_bf16:
            return avx2 | avx512 | avx512_bf16 | amx_bf16;
        case isa::neon:
            return neon;
        }
        return 0;
    }

    std::uint32_t bits_ = 0;
};

/// The last instruction set of `all_isas` that is included.
isa name_of(capabilities has);

/// What the processor and the operating system offer (for AMX that means: the kernel granted this
/// process the tile state). Asked once, then remembered.
capabilities detected();

/// detected(), as far as the environment variable CONVGRAD_MAX_ISA, which is read once, allows.
/// Throws invalid_argument when the variable names no instruction set.
capabilities allowed();

/// Bytes of data cache as one core sees it; l2 and l3 may be shared with other cores.
struct caches {
    std::size_t l1d, l2, l3;
};
const caches &cache_sizes();

/// The number of the instruction set that detected() answers instead, if not negative: only
/// programs of the tests define it, which run under an emulator (tests/support). In the library it
/// is null.
[[gnu::weak]] int forced_isa_for_testing();

}  // namespace convgrad::cpu
