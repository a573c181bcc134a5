#include "palette.hpp"

#include <array>

#include <asm/prctl.h>
#include <cpuid.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "usage_error.hpp"

namespace convgrad::compare {
namespace {

constexpr unsigned palette_leaf = 0x1d;
constexpr unsigned amx_tile = 1U << 24;  // of leaf 7, edx

using registers = std::array<unsigned, 4>;

registers cpuid(unsigned leaf, unsigned subleaf) {
    registers r{};
    __cpuid_count(leaf, subleaf, r[0], r[1], r[2], r[3]);
    return r;
}

bool let_cpuid_work(bool works) {
    return syscall(SYS_arch_prctl, ARCH_SET_CPUID, works ? 1 : 0) == 0;
}

/// Palette 1: 8 tiles of 1 KiB, 16 rows of 64 bytes.
registers palette(unsigned subleaf) {
    if (subleaf == 0) return {1, 0, 0, 0};
    if (subleaf == 1) return {8192 | 1024U << 16, 64 | 8U << 16, 16, 0};
    return {};
}

struct sigaction before;

}  // namespace

void answer_cpuid(int signal, siginfo_t *, void *context) {
    greg_t *at = static_cast<ucontext_t *>(context)->uc_mcontext.gregs;
    const auto *code = reinterpret_cast<const unsigned char *>(at[REG_RIP]);
    if (code[0] != 0x0f || code[1] != 0xa2) {
        sigaction(signal, &before, nullptr);  // the instruction is run again, and dies
        return;
    }
    const auto leaf = static_cast<unsigned>(at[REG_RAX]);
    const auto subleaf = static_cast<unsigned>(at[REG_RCX]);
    registers r;
    if (leaf == palette_leaf) {
        r = palette(subleaf);
    } else {
        let_cpuid_work(true);
        r = cpuid(leaf, subleaf);
        // The palette's leaf must not lie beyond the highest one.
        if (leaf == 0 && r[0] < palette_leaf) r[0] = palette_leaf;
        let_cpuid_work(false);
    }
    constexpr int names[] = {REG_RAX, REG_RBX, REG_RCX, REG_RDX};
    for (std::size_t i = 0; i < r.size(); ++i) at[names[i]] = r[i];
    at[REG_RIP] += 2;
}

bool palette_hidden() {
    const unsigned highest = cpuid(0, 0)[0];
    if (highest < 7 || (cpuid(7, 0)[3] & amx_tile) == 0) return false;
    return highest < palette_leaf || cpuid(palette_leaf, 0)[0] == 0;
}

shown_palette::shown_palette() {
    struct sigaction mine {};
    mine.sa_sigaction = answer_cpuid;
    mine.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &mine, &before);
    if (let_cpuid_work(false)) return;
    sigaction(SIGSEGV, &before, nullptr);
    throw cli::usage_error("--amx-palette: this machine cannot make CPUID fault (no cpuid_fault "
                           "among the flags in /proc/cpuinfo); a oneDNN whose get_max_palette() "
                           "returns 1 is the other way");
}

shown_palette::~shown_palette() {
    let_cpuid_work(true);
    sigaction(SIGSEGV, &before, nullptr);
}

}  // namespace convgrad::compare
