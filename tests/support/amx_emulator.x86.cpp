#include "amx_emulator.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <iterator>

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

namespace convgrad::testing::amx_emulator {
namespace {

// ---- Tile state ----

constexpr int max_tiles = 8, max_rows = 16, max_colsb = 64;

struct tile {
    alignas(64) std::uint8_t row[max_rows][max_colsb];
};

/// The memory operand of LDTILECFG and STTILECFG, byte for byte.
struct tile_config {
    std::uint8_t palette;
    std::uint8_t start_row;
    std::uint8_t reserved_0[14];
    std::uint16_t colsb[max_tiles];
    std::uint8_t reserved_1[16];
    std::uint8_t rows[max_tiles];
    std::uint8_t reserved_2[8];
};
static_assert(sizeof(tile_config) == 64);

/// All zero is the INIT state: palette 0, nothing configured.
struct tile_state {
    tile_config config;
    tile tiles[max_tiles];

    bool usable(int t) const { return config.palette == 1 && t < max_tiles && config.rows[t] != 0; }
};

// Constant initialisation and the initial-exec model keep the first access from a signal handler
// free of allocation.
constinit thread_local tile_state state __attribute__((tls_model("initial-exec"))){};

std::atomic<std::uint64_t> products{0};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// ---- TDPBF16PS ----

struct product {
    tile &dst;
    const tile &a, &b;
    int rows, depth, columns;  // of dst, in pairs of bf16, in floats
};

/// The order of operations of the architecture manual: even and odd elements accumulate from zero
/// over the whole depth, meet in one addition, and only then join dst. Columns past the tile hold
/// whatever; they are not stored.
[[gnu::always_inline]] inline void multiply_body(const product &p) {
    alignas(64) float b_even[max_rows][16], b_odd[max_rows][16];
    const auto low_as_float = [](std::uint32_t pair) {
        return __builtin_bit_cast(float, pair << 16);
    };
    const auto high_as_float = [](std::uint32_t pair) {
        return __builtin_bit_cast(float, pair & 0xffff0000u);
    };
    for (int k = 0; k < p.depth; ++k) {
        std::uint32_t pairs[16];
        std::memcpy(pairs, p.b.row[k], sizeof pairs);
        for (int n = 0; n < 16; ++n) {
            b_even[k][n] = low_as_float(pairs[n]);
            b_odd[k][n] = high_as_float(pairs[n]);
        }
    }
    for (int m = 0; m < p.rows; ++m) {
        alignas(64) float even[16] = {}, odd[16] = {}, dst[16];
        std::uint32_t pairs[16];
        std::memcpy(pairs, p.a.row[m], sizeof pairs);
        for (int k = 0; k < p.depth; ++k) {
            const float a_even = low_as_float(pairs[k]), a_odd = high_as_float(pairs[k]);
            for (int n = 0; n < 16; ++n) {
                even[n] = __builtin_fmaf(a_even, b_even[k][n], even[n]);
                odd[n] = __builtin_fmaf(a_odd, b_odd[k][n], odd[n]);
            }
        }
        std::memcpy(dst, p.dst.row[m], sizeof dst);
        for (int n = 0; n < 16; ++n) dst[n] += even[n] + odd[n];
        std::memset(p.dst.row[m], 0, max_colsb);
        std::memcpy(p.dst.row[m], dst, sizeof(float) * static_cast<std::size_t>(p.columns));
    }
    for (int m = p.rows; m < max_rows; ++m) std::memset(p.dst.row[m], 0, max_colsb);
}

[[gnu::target("avx2,fma"), gnu::noinline]] void multiply_fma(const product &p) {
    multiply_body(p);
}
[[gnu::noinline]] void multiply_generic(const product &p) {
    multiply_body(p);
}

using multiply_function = void (*)(const product &);
std::atomic<multiply_function> multiply{multiply_generic};

void multiply_flushing_denormals(const product &p) {
    constexpr unsigned all_masked = 0x1f80, flush_outputs = 0x8000, inputs_are_zero = 0x0040;
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(all_masked | flush_outputs | inputs_are_zero);
    // The call through a pointer is what keeps the arithmetic between the two writes of MXCSR.
    multiply.load(std::memory_order_relaxed)(p);
    _mm_setcsr(saved);
}

// ---- Decoding ----

enum class vex_prefix : std::uint8_t { none, x66, xf3, xf2 };

struct instruction {
    std::uint8_t opcode;
    vex_prefix prefix;
    int vvvv;
    int mod, reg, rm;  // with their extension bits
    bool has_sib;
    std::uint64_t address;  // base + displacement, for mod != 3
    std::uint64_t stride;   // index << scale, what tile loads and stores step by
    std::size_t length;
};

std::uint64_t general_register(const ucontext_t &context, int number) {
    static constexpr int slot[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI,
        REG_RDI, REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return static_cast<std::uint64_t>(context.uc_mcontext.gregs[slot[number]]);
}

template <typename T>
std::uint64_t read_signed(const std::uint8_t *&p) {
    T value;
    std::memcpy(&value, p, sizeof value);
    p += sizeof value;
    return static_cast<std::uint64_t>(std::int64_t{value});
}

/// p stands behind ModRM and ends behind the displacement.
void decode_memory_operand(
    const ucontext_t &context, instruction &i, bool x, bool b, const std::uint8_t *&p) {
    int base = i.rm & 7;
    i.has_sib = base == 4;
    if (i.has_sib) {
        const std::uint8_t sib = *p++;
        const int index = ((sib >> 3) & 7) | (x ? 8 : 0);
        if (index != 4) i.stride = general_register(context, index) << (sib >> 6);
        base = sib & 7;
    }
    const bool no_base = i.mod == 0 && base == 5;
    if (!no_base) i.address = general_register(context, base | (b ? 8 : 0));
    if (i.mod == 1) i.address += read_signed<std::int8_t>(p);
    if (i.mod == 2 || no_base) i.address += read_signed<std::int32_t>(p);
    // Without SIB the missing base means RIP, and RIP counts from the next instruction.
    if (no_base && !i.has_sib) i.address += reinterpret_cast<std::uintptr_t>(p);
}

/// Accepts VEX.128.0F38.W0 with one of the AMX opcodes; every such instruction has three bytes of
/// VEX. Bytes are read one at a time, for the next page may not be mapped.
bool decode(const ucontext_t &context, instruction &i) {
    const auto *const start =
        reinterpret_cast<const std::uint8_t *>(context.uc_mcontext.gregs[REG_RIP]);
    const std::uint8_t *p = start;
    if (*p++ != 0xc4) return false;
    const std::uint8_t rxb_map = *p++;
    if ((rxb_map & 0x1f) != 2) return false;
    const std::uint8_t w_vvvv_l_pp = *p++;
    if ((w_vvvv_l_pp & 0x84) != 0) return false;
    const bool r = (rxb_map & 0x80) == 0, x = (rxb_map & 0x40) == 0, b = (rxb_map & 0x20) == 0;
    i = {};
    i.opcode = *p++;
    if (i.opcode != 0x49 && i.opcode != 0x4b && i.opcode != 0x5c) return false;
    i.prefix = static_cast<vex_prefix>(w_vvvv_l_pp & 3);
    i.vvvv = (~w_vvvv_l_pp >> 3) & 15;
    const std::uint8_t modrm = *p++;
    i.mod = modrm >> 6;
    i.reg = ((modrm >> 3) & 7) | (r ? 8 : 0);
    i.rm = (modrm & 7) | (b ? 8 : 0);
    if (i.mod != 3) decode_memory_operand(context, i, x, b, p);
    i.length = static_cast<std::size_t>(p - start);
    return true;
}

// ---- Execution ----

enum class outcome { done, undefined, general_protection };

template <typename Bytes>
bool all_zero(const Bytes &bytes) {
    return std::all_of(std::begin(bytes), std::end(bytes), [](auto byte) { return byte == 0; });
}

bool valid(const tile_config &c) {
    if (c.palette != 1 || !all_zero(c.reserved_0) || !all_zero(c.reserved_1)
        || !all_zero(c.reserved_2))
        return false;
    for (int t = 0; t < max_tiles; ++t) {
        if (c.rows[t] > max_rows || c.colsb[t] > max_colsb) return false;
        if ((c.rows[t] == 0) != (c.colsb[t] == 0)) return false;
    }
    return true;
}

outcome load_config(std::uint64_t address) {
    tile_config config;
    std::memcpy(&config, reinterpret_cast<const void *>(address), sizeof config);
    if (config.palette != 0 && !valid(config)) return outcome::general_protection;
    std::memset(&state, 0, sizeof state);
    if (config.palette != 0) state.config = config;
    return outcome::done;
}

outcome configure(const instruction &i) {
    if (i.vvvv != 0) return outcome::undefined;
    if (i.mod != 3) {
        if (i.reg != 0) return outcome::undefined;
        const std::uint64_t address = i.address + i.stride;  // here the index is just an index
        if (i.prefix == vex_prefix::none) return load_config(address);
        if (i.prefix != vex_prefix::x66) return outcome::undefined;
        std::memcpy(reinterpret_cast<void *>(address), &state.config, sizeof state.config);
        return outcome::done;
    }
    if (i.prefix == vex_prefix::none && i.reg == 0 && i.rm == 0) {  // TILERELEASE
        std::memset(&state, 0, sizeof state);
        return outcome::done;
    }
    if (i.prefix == vex_prefix::xf2 && i.rm == 0 && state.usable(i.reg)) {  // TILEZERO
        std::memset(&state.tiles[i.reg], 0, sizeof(tile));
        state.config.start_row = 0;
        return outcome::done;
    }
    return outcome::undefined;
}

outcome load_or_store(const instruction &i) {
    if (i.vvvv != 0 || i.mod == 3 || !i.has_sib || i.prefix == vex_prefix::none
        || !state.usable(i.reg))
        return outcome::undefined;
    tile &t = state.tiles[i.reg];
    const unsigned rows = state.config.rows[i.reg], first = state.config.start_row;
    const std::size_t colsb = state.config.colsb[i.reg];
    const bool store = i.prefix == vex_prefix::xf3;
    for (unsigned m = first; m < rows; ++m) {
        auto *const memory = reinterpret_cast<std::uint8_t *>(i.address + m * i.stride);
        if (store) {
            std::memcpy(memory, t.row[m], colsb);
        } else {
            std::memset(t.row[m], 0, max_colsb);
            std::memcpy(t.row[m], memory, colsb);
        }
    }
    if (!store) std::memset(t.row[rows], 0, (max_rows - rows) * std::size_t{max_colsb});
    state.config.start_row = 0;
    return outcome::done;
}

outcome dot_product(const instruction &i) {
    const int d = i.reg, a = i.rm, b = i.vvvv;
    if (i.prefix != vex_prefix::xf3 || i.mod != 3) return outcome::undefined;
    if (!state.usable(d) || !state.usable(a) || !state.usable(b)) return outcome::undefined;
    const tile_config &c = state.config;
    const bool distinct = d != a && d != b && a != b;
    const bool whole = c.colsb[d] % 4 == 0 && c.colsb[a] % 4 == 0 && c.colsb[b] % 4 == 0;
    const bool fit =
        c.rows[d] == c.rows[a] && c.colsb[a] / 4 == c.rows[b] && c.colsb[d] == c.colsb[b];
    if (!distinct || !whole || !fit || c.start_row != 0) return outcome::undefined;
    multiply_flushing_denormals(
        {state.tiles[d], state.tiles[a], state.tiles[b], c.rows[d], c.rows[b], c.colsb[d] / 4});
    products.fetch_add(1, std::memory_order_relaxed);
    return outcome::done;
}

outcome execute(const instruction &i) {
    switch (i.opcode) {
    case 0x49:
        return configure(i);
    case 0x4b:
        return load_or_store(i);
    default:
        return dot_product(i);
    }
}

// ---- The signal ----

struct sigaction previous;

void pass_on(int signal, siginfo_t *info, void *context) {
    if ((previous.sa_flags & SA_SIGINFO) != 0) {
        previous.sa_sigaction(signal, info, context);
    } else if (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN) {
        // A fault cannot be ignored. Returning runs the instruction again, now with its default
        // end.
        std::signal(signal, SIG_DFL);
    } else {
        previous.sa_handler(signal);
    }
}

void on_illegal_instruction(int signal, siginfo_t *info, void *raw_context) {
    auto &context = *static_cast<ucontext_t *>(raw_context);
    instruction i;
    // A SIGILL that somebody sent says nothing about the code at RIP.
    const bool fault = info->si_code > 0;
    outcome result = fault && decode(context, i) ? execute(i) : outcome::undefined;
    if (result == outcome::undefined) return pass_on(signal, info, raw_context);
    // AMX instructions that follow directly are done in the same trap, for the trap costs more
    // than they do. An undefined one is left to trap by itself.
    while (result == outcome::done) {
        context.uc_mcontext.gregs[REG_RIP] += static_cast<greg_t>(i.length);
        if (!decode(context, i)) return;
        result = execute(i);
    }
    if (result == outcome::general_protection) std::raise(SIGSEGV);
}

[[gnu::target("xsave")]] bool system_saves_tiles() {
    constexpr std::uint64_t tile_components = 3u << 17;
    return (_xgetbv(0) & tile_components) == tile_components;
}

bool processor_has_amx_bf16() {
    constexpr unsigned osxsave = 1u << 27, amx_bf16 = 1u << 22, amx_tile = 1u << 24;
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & osxsave) == 0) return false;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
    return (d & amx_bf16) != 0 && (d & amx_tile) != 0 && system_saves_tiles();
}

/// Linux hands out tile data only on request.
bool permission_granted() {
    constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

}  // namespace

mode install() {
    static const bool native = processor_has_amx_bf16() && permission_granted();
    if (native) return mode::native;
    if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2")) multiply = multiply_fma;
    struct sigaction current {};
    sigaction(SIGILL, nullptr, &current);
    if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == on_illegal_instruction)
        return mode::emulated;
    previous = current;
    struct sigaction action {};
    action.sa_sigaction = on_illegal_instruction;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    sigaction(SIGILL, &action, nullptr);
    return mode::emulated;
}

std::uint64_t executed() {
    return products.load(std::memory_order_relaxed);
}

}  // namespace convgrad::testing::amx_emulator
