// x86-64: what the processor has, and its caches.
#include <cstdint>

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/machine/machine.hpp"

namespace convgrad::cpu {
namespace {

struct registers {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

/// All zero for a leaf that the processor does not have, so that every feature bit reads as absent.
registers cpuid(unsigned leaf, unsigned subleaf = 0) {
    registers r;
    if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
    return r;
}

bool bit(std::uint64_t word, int index) {
    return ((word >> index) & 1) != 0;
}

/// Which register states the operating system saves. The instruction itself, because the intrinsic
/// would need this file to be compiled for processors that have it.
std::uint64_t read_xcr0() {
    std::uint32_t low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (std::uint64_t{high} << 32) | low;
}

/// Linux hands out the 8 KiB of tile state only on request; children and threads inherit it.
bool request_tile_permission() {
    constexpr long arch_req_xcomp_perm = 0x1023;
    constexpr long xfeature_xtiledata = 18;
    return syscall(SYS_arch_prctl, arch_req_xcomp_perm, xfeature_xtiledata) == 0;
}

#ifdef CONVGRAD_MODEL_TILES
constexpr bool tiles_are_modelled = true;
#else
constexpr bool tiles_are_modelled = false;
#endif

}  // namespace

capabilities ask_processor() {
    const registers basic = cpuid(1);
    const bool os_saves_states = bit(basic.ecx, 27);
    if (!os_saves_states) return {};
    const std::uint64_t xcr0 = read_xcr0();
    const registers extended = cpuid(7, 0);
    const registers extended1 = extended.eax >= 1 ? cpuid(7, 1) : registers{};

    capabilities found;
    const bool ymm = (xcr0 & 0x6) == 0x6;
    const bool fma = bit(basic.ecx, 12), f16c = bit(basic.ecx, 29), avx = bit(basic.ecx, 28);
    if (!(ymm && avx && fma && f16c && bit(extended.ebx, 5))) return found;
    found = found | capabilities::avx2;

    const bool zmm = (xcr0 & 0xe0) == 0xe0;
    const bool f = bit(extended.ebx, 16), dq = bit(extended.ebx, 17);
    const bool bw = bit(extended.ebx, 30), vl = bit(extended.ebx, 31);
    if (!(zmm && f && dq && bw && vl)) return found;
    found = found | capabilities::avx512;
    if (bit(extended1.eax, 5)) found = found | capabilities::avx512_bf16;

    // Leaf 0x1D (the palette) is not asked: hypervisors hide it while the instructions work,
    // and palette 1 is architectural.
    const bool tiles = bit(xcr0, 17) && bit(xcr0, 18);
    const bool amx_tile = bit(extended.edx, 24), amx_bf16 = bit(extended.edx, 22);
    if (tiles_are_modelled || (tiles && amx_tile && amx_bf16 && request_tile_permission()))
        found = found | capabilities::amx_bf16;
    return found;
}

/// Intel describes caches in leaf 4, AMD, in the same form, in 0x8000001D.
caches ask_caches() {
    const bool amd_form = bit(cpuid(0x80000001).ecx, 22);
    caches found{0, 0, 0};
    for (unsigned leaf : {4U, 0x8000001DU}) {
        if (leaf == 0x8000001DU && !amd_form) continue;
        for (unsigned i = 0; i < 16; ++i) {
            const registers r = cpuid(leaf, i);
            const unsigned type = r.eax & 0x1f, level = (r.eax >> 5) & 0x7;
            if (type == 0) break;
            constexpr unsigned instruction_cache = 2;
            if (type == instruction_cache) continue;
            const std::size_t line = (r.ebx & 0xfff) + 1, partitions = ((r.ebx >> 12) & 0x3ff) + 1;
            const std::size_t ways = (r.ebx >> 22) + 1, sets = std::size_t{r.ecx} + 1;
            const std::size_t bytes = line * partitions * ways * sets;
            if (level == 1) found.l1d = bytes;
            if (level == 2) found.l2 = bytes;
            if (level == 3) found.l3 = bytes;
        }
        if (found.l1d != 0) break;
    }
    return found;
}

}  // namespace convgrad::cpu
