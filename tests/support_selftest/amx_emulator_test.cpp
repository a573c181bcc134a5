// Every instruction goes in as assembly text: no compiler flags, no intrinsics, and the addressing
// form is the one written here.
#include "../support/amx_emulator.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cfenv>
#include <cmath>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace amx = convgrad::testing::amx_emulator;

namespace {

struct shape {
    int rows = 0, colsb = 0;
};

struct alignas(64) config_bytes : std::array<std::uint8_t, 64> {};

config_bytes config_of(std::initializer_list<shape> shapes) {
    config_bytes c{};
    c[0] = 1;
    std::size_t t = 0;
    for (const shape &s : shapes) {
        c[16 + 2 * t] = static_cast<std::uint8_t>(s.colsb);
        c[48 + t++] = static_cast<std::uint8_t>(s.rows);
    }
    return c;
}

void load_config(const config_bytes &c) {
    asm volatile("ldtilecfg %0" ::"m"(c) : "memory");
}

config_bytes store_config() {
    config_bytes c;
    c.fill(0xff);
    asm volatile("sttilecfg %0" : "=m"(c)::"memory");
    return c;
}

void release() {
    asm volatile("tilerelease" ::: "memory");
}

using tile_bytes = std::array<std::uint8_t, 1024>;

template <int T>
void load(const void *p, std::int64_t stride = 64) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(T) : "memory");
}

template <int T>
void store(void *p, std::int64_t stride = 64) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(stride), "i"(T) : "memory");
}

template <int T>
tile_bytes stored() {
    tile_bytes bytes;
    bytes.fill(0xee);  // shows what the store left alone
    store<T>(bytes.data());
    return bytes;
}

tile_bytes random_bytes(unsigned seed) {
    std::mt19937 random(seed);
    tile_bytes bytes;
    for (auto &b : bytes) b = static_cast<std::uint8_t>(random());
    return bytes;
}

/// rows × colsb of source at the given stride, the rest as stored() leaves it.
tile_bytes expected_tile(const std::uint8_t *source, std::ptrdiff_t stride, shape s) {
    tile_bytes bytes;
    bytes.fill(0xee);
    for (int m = 0; m < s.rows; ++m)
        std::memcpy(&bytes[static_cast<std::size_t>(m) * 64], source + m * stride,
            static_cast<std::size_t>(s.colsb));
    return bytes;
}

float bf16_to_float(std::uint16_t v) {
    const std::uint32_t bits = std::uint32_t{v} << 16;
    float f;
    std::memcpy(&f, &bits, sizeof f);
    return f;
}

std::uint16_t float_to_bf16(float f) {
    std::uint32_t bits;
    std::memcpy(&bits, &f, sizeof bits);
    return static_cast<std::uint16_t>(bits >> 16);
}

/// dst rows × n, a rows × 2·depth, b depth × 2·n, each row 64 bytes apart.
struct matrices {
    int rows, depth, n;
    std::array<std::array<std::uint16_t, 32>, 16> a{}, b{};
    std::array<std::array<float, 16>, 16> dst{};

    matrices(int rows_, int depth_, int n_, unsigned seed = 1) : rows(rows_), depth(depth_), n(n_) {
        std::mt19937 random(seed);
        std::normal_distribution<float> normal;
        for (auto *m : {&a, &b})
            for (auto &row : *m)
                for (auto &v : row) v = float_to_bf16(normal(random));
        for (auto &row : dst)
            for (auto &v : row) v = normal(random);
    }

    config_bytes config() const {
        return config_of({{rows, 4 * n}, {rows, 4 * depth}, {depth, 4 * n}});
    }

    /// Ignores denormals: tests that have them compute their own expectation.
    float expected(int m, int j) const {
        const auto sm = static_cast<std::size_t>(m), sj = static_cast<std::size_t>(j);
        float even = 0, odd = 0;
        for (std::size_t k = 0; k < static_cast<std::size_t>(depth); ++k) {
            even = std::fma(bf16_to_float(a[sm][2 * k]), bf16_to_float(b[k][2 * sj]), even);
            odd = std::fma(bf16_to_float(a[sm][2 * k + 1]), bf16_to_float(b[k][2 * sj + 1]), odd);
        }
        const float sum = even + odd;
        return dst[sm][sj] + sum;
    }

    /// What the instruction makes of dst.
    std::array<std::array<float, 16>, 16> multiplied() const {
        load_config(config());
        load<0>(dst.data());
        load<1>(a.data());
        load<2>(b.data());
        asm volatile("tdpbf16ps %%tmm2, %%tmm1, %%tmm0" ::: "memory");
        std::array<std::array<float, 16>, 16> result{};
        store<0>(result.data());
        return result;
    }
};

thread_local sigjmp_buf escape;
thread_local bool armed = false;
std::atomic<int> caught{0};

void escaping_handler(int signal, siginfo_t *, void *) {
    ++caught;
    if (!armed) {
        std::signal(signal, SIG_DFL);
        return;
    }
    armed = false;
    siglongjmp(escape, 1);
}

/// Whether f raises signal; the rest of f is abandoned.
template <typename F>
bool raises(F f) {
    if (sigsetjmp(escape, 1) != 0) return true;
    armed = true;
    f();
    armed = false;
    return false;
}

class amx_emulator : public testing::Test {
protected:
    // The handlers stand before install(), as those of a program would.
    static void SetUpTestSuite() {
        struct sigaction action {};
        action.sa_sigaction = escaping_handler;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGILL, &action, &old_ill);
        sigaction(SIGSEGV, &action, &old_segv);
        mode = amx::install();
    }
    static void TearDownTestSuite() {
        sigaction(SIGILL, &old_ill, nullptr);
        sigaction(SIGSEGV, &old_segv, nullptr);
    }
    void TearDown() override { release(); }

    static inline struct sigaction old_ill, old_segv;
    static inline amx::mode mode;
};

TEST_F(amx_emulator, installs_once) {
    EXPECT_EQ(amx::install(), mode);
    EXPECT_TRUE(raises([] { asm volatile("ud2"); }));
}

TEST_F(amx_emulator, config_round_trip) {
    const config_bytes zero{};
    EXPECT_EQ(store_config(), zero);
    const auto c = config_of({{16, 64}, {3, 8}, {0, 0}, {1, 2}, {0, 0}, {7, 60}, {2, 4}, {9, 13}});
    load_config(c);
    EXPECT_EQ(store_config(), c);
    load_config(zero);
    EXPECT_EQ(store_config(), zero);
    load_config(c);
    release();
    EXPECT_EQ(store_config(), zero);
}

config_bytes rip_relative_config = config_of({{5, 12}});

TEST_F(amx_emulator, config_addressing_forms) {
    asm volatile("ldtilecfg %0" ::"m"(rip_relative_config) : "memory");
    EXPECT_EQ(store_config(), rip_relative_config);

    std::array<config_bytes, 4> many{};
    many[2] = config_of({{6, 20}});
    const auto *const base = many.data();
    asm volatile("mov %0, %%r13\n ldtilecfg 128(%%r13)" ::"r"(base) : "r13", "memory");
    EXPECT_EQ(store_config(), many[2]);
    asm volatile("mov %0, %%r12\n sttilecfg (%%r12)" ::"r"(many.data()) : "r12", "memory");
    EXPECT_EQ(many[0], many[2]);
    asm volatile("mov %0, %%r9\n mov $16, %%r10\n sttilecfg 64(%%r9,%%r10,8)" ::"r"(many.data())
                 : "r9", "r10", "memory");
    // A plain memory operand is base + index·scale + displacement.
    EXPECT_EQ(many[3], many[2]);
}

TEST_F(amx_emulator, bad_configs_are_protection_faults) {
    const auto good = config_of({{16, 64}});
    load_config(good);
    std::vector<config_bytes> bad{
        config_of({{17, 64}}), config_of({{16, 65}}), config_of({{0, 4}}), config_of({{4, 0}})};
    for (const auto &[byte, value] :
        {std::pair{0, 2}, {2, 1}, {15, 1}, {32, 1}, {47, 1}, {56, 1}, {63, 1}, {17, 1}}) {
        bad.push_back(good);
        bad.back()[static_cast<std::size_t>(byte)] = static_cast<std::uint8_t>(value);
    }
    for (const auto &c : bad) EXPECT_TRUE(raises([&] { load_config(c); }));
    EXPECT_EQ(store_config(), good);
}

TEST_F(amx_emulator, load_store_zero) {
    const tile_bytes source = random_bytes(1);
    const shape full{16, 64}, part{5, 20}, odd{1, 3};
    load_config(config_of({full, part, odd, full, full, full, full, part}));
    EXPECT_EQ(stored<0>(), expected_tile(tile_bytes{}.data(), 64, full)) << "config zeroes tiles";
    load<0>(source.data());
    load<1>(source.data());
    load<2>(source.data());
    load<7>(source.data(), 100);
    EXPECT_EQ(stored<0>(), source);
    EXPECT_EQ(stored<1>(), expected_tile(source.data(), 64, part));
    EXPECT_EQ(stored<2>(), expected_tile(source.data(), 64, odd));
    EXPECT_EQ(stored<7>(), expected_tile(source.data(), 100, part));
    asm volatile("tilezero %%tmm7" ::: "memory");
    EXPECT_EQ(stored<7>(), expected_tile(tile_bytes{}.data(), 64, part));
    EXPECT_EQ(stored<0>(), source) << "the others stay";
    load_config(config_of({full}));
    EXPECT_EQ(stored<0>(), tile_bytes{});
}

TEST_F(amx_emulator, store_strides) {
    const tile_bytes source = random_bytes(2);
    const shape s{4, 8};
    load_config(config_of({s}));
    load<0>(source.data());
    std::array<std::uint8_t, 64> packed{};
    store<0>(packed.data() + 24, -8);
    for (std::size_t m = 0; m < 4; ++m)
        EXPECT_EQ(std::memcmp(&packed[24 - 8 * m], &source[64 * m], 8), 0) << m;
    EXPECT_TRUE(std::all_of(packed.begin() + 32, packed.end(), [](auto v) { return v == 0; }));
}

class amx_addressing : public amx_emulator {
protected:
    static constexpr shape full{16, 64};
    const tile_bytes source = random_bytes(3);
    const std::uint8_t *const p = source.data();
    std::array<std::uint8_t, 2048> wide{};

    void SetUp() override {
        load_config(config_of({full, full, full, full, full, full, full, full}));
        std::mt19937 random(4);
        for (auto &b : wide) b = static_cast<std::uint8_t>(random());
    }
};

TEST_F(amx_addressing, loads) {
    asm volatile("mov $64, %%rcx\n tileloadd (%0,%%rcx), %%tmm0" ::"r"(p) : "rcx", "memory");
    EXPECT_EQ(stored<0>(), source);
    asm volatile("mov %0, %%r12\n mov $64, %%r13\n tileloadd (%%r12,%%r13), %%tmm1" ::"r"(p)
                 : "r12", "r13", "memory");
    EXPECT_EQ(stored<1>(), source);
    asm volatile("mov %0, %%r13\n mov $64, %%r12\n tileloadd (%%r13,%%r12), %%tmm2" ::"r"(p)
                 : "r12", "r13", "memory");
    EXPECT_EQ(stored<2>(), source);
    asm volatile(
        "mov %0, %%r15\n mov $8, %%r14\n tileloadd -16(%%r15,%%r14,8), %%tmm3" ::"r"(p + 16)
        : "r14", "r15", "memory");
    EXPECT_EQ(stored<3>(), source);
    asm volatile("mov $32, %%r8\n tileloadd -100000(%0,%%r8,2), %%tmm4" ::"r"(p + 100000)
                 : "r8", "memory");
    EXPECT_EQ(stored<4>(), source);
    asm volatile("mov $16, %%rsi\n tileloaddt1 0x12345(%0,%%rsi,4), %%tmm5" ::"r"(p - 0x12345)
                 : "rsi", "memory");
    EXPECT_EQ(stored<5>(), source);
    asm volatile("tileloaddt1 (%0), %%tmm6" ::"r"(p) : "memory");
    EXPECT_EQ(stored<6>(), expected_tile(p, 0, full)) << "no index, stride 0";
    load<7>(wide.data() + 64, 101);
    EXPECT_EQ(stored<7>(), expected_tile(wide.data() + 64, 101, full));
    load<7>(wide.data() + 1900, -101);
    EXPECT_EQ(stored<7>(), expected_tile(wide.data() + 1900, -101, full));
}

TEST_F(amx_addressing, loads_from_the_stack_and_frame_pointer) {
    // The copy lies below what this function may keep under its stack pointer.
    asm volatile(
        "sub $2048, %%rsp\n lea 64(%%rsp), %%rdi\n mov %0, %%rsi\n mov $1024, %%ecx\n"
        "rep movsb\n mov $64, %%ecx\n tileloadd 64(%%rsp,%%rcx), %%tmm0\n"
        "lea 64(%%rsp), %%rdi\n tileloadd 64(%%rsp,%%rcx), %%tmm2\n add $2048, %%rsp" ::"r"(p)
        : "rdi", "rsi", "rcx", "memory");
    EXPECT_EQ(stored<0>(), source);
    EXPECT_EQ(stored<2>(), source);
    asm volatile("mov %%rbp, %%r11\n mov %0, %%rbp\n mov $64, %%eax\n"
                 "tileloadd (%%rbp,%%rax), %%tmm1\n mov %%r11, %%rbp" ::"r"(p)
                 : "rax", "r11", "memory");
    EXPECT_EQ(stored<1>(), source);
}

TEST_F(amx_addressing, loads_and_stores_without_base) {
    void *const fixed = mmap(reinterpret_cast<void *>(0x10000000), 4096, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (fixed == MAP_FAILED) GTEST_SKIP() << "the address is taken";
    std::memcpy(fixed, p, source.size());
    asm volatile("mov $64, %%ecx\n tileloadd 0x10000000(,%%rcx,1), %%tmm0\n"
                 "tilestored %%tmm0, 0x10000400(,%%rcx,1)" ::
                     : "rcx", "memory");
    EXPECT_EQ(stored<0>(), source);
    EXPECT_EQ(std::memcmp(static_cast<char *>(fixed) + 1024, p, 1024), 0);
    munmap(fixed, 4096);
}

TEST_F(amx_addressing, stores) {
    load<6>(p);
    const auto check = [&](const char *what) {
        EXPECT_EQ(std::memcmp(wide.data() + 512, p, 1024), 0) << what;
        wide.fill(0);
    };
    auto *const to = wide.data() + 512;
    asm volatile(
        "mov %0, %%r13\n mov $16, %%r9\n tilestored %%tmm6, 96(%%r13,%%r9,4)" ::"r"(to - 96)
        : "r9", "r13", "memory");
    check("disp8, high registers");
    asm volatile(
        "mov %0, %%r12\n mov $64, %%rbx\n tilestored %%tmm6, 512(%%r12,%%rbx)" ::"r"(to - 512)
        : "r12", "rbx", "memory");
    check("disp32, r12");
}

TEST_F(amx_emulator, products_of_full_and_partial_tiles) {
    unsigned seed = 10;
    for (const auto &[rows, depth, n] : {std::array{16, 16, 16}, {1, 1, 1}, {5, 3, 7}, {16, 1, 16},
             {1, 16, 9}, {13, 16, 2}, {2, 2, 16}}) {
        const matrices x(rows, depth, n, ++seed);
        const auto before = amx::executed();
        const auto result = x.multiplied();
        EXPECT_EQ(amx::executed() - before, mode == amx::mode::emulated ? 1u : 0u);
        for (int m = 0; m < 16; ++m)
            for (int j = 0; j < 16; ++j)
                EXPECT_EQ(result[static_cast<std::size_t>(m)][static_cast<std::size_t>(j)],
                    m < rows && j < n ? x.expected(m, j) : 0.f)
                    << rows << 'x' << depth << 'x' << n << " at " << m << ',' << j;
    }
}

TEST_F(amx_emulator, product_of_high_tiles_accumulates) {
    const matrices x(16, 16, 16);
    const shape full{16, 64};
    load_config(config_of({full, full, full, full, full, full, full, full}));
    load<7>(x.a.data());
    load<3>(x.b.data());
    asm volatile("tdpbf16ps %%tmm3, %%tmm7, %%tmm5\n tdpbf16ps %%tmm3, %%tmm7, %%tmm5" ::
                     : "memory");
    std::array<std::array<float, 16>, 16> result;
    store<5>(result.data());
    for (std::size_t m = 0; m < 16; ++m)
        for (std::size_t j = 0; j < 16; ++j) {
            const float once = x.expected(static_cast<int>(m), static_cast<int>(j)) - x.dst[m][j];
            EXPECT_NEAR(result[m][j], 2 * once, 1e-4);
        }
}

constexpr std::uint16_t one = 0x3f80, smallest_normal = 0x0080, denormal = 0x0001, half = 0x3f00,
                        infinity = 0x7f80;

matrices single(std::uint16_t a, std::uint16_t b, float dst) {
    matrices x(1, 1, 1);
    x.a[0] = {a, 0};
    x.b[0] = {b, 0};
    x.dst[0][0] = dst;
    return x;
}

TEST_F(amx_emulator, denormals_are_zero) {
    const float tiny = std::numeric_limits<float>::min();
    EXPECT_EQ(single(denormal, 0x7000, 0).multiplied()[0][0], 0.f) << "input a";
    EXPECT_EQ(single(0x7000, denormal, 0).multiplied()[0][0], 0.f) << "input b";
    EXPECT_EQ(single(0, 0, tiny / 2).multiplied()[0][0], 0.f) << "dst";
    EXPECT_EQ(single(smallest_normal, half, 0).multiplied()[0][0], 0.f) << "output";
    EXPECT_EQ(single(smallest_normal, one, 0).multiplied()[0][0], tiny);
    EXPECT_EQ(single(smallest_normal, one, -1.5f * tiny).multiplied()[0][0], 0.f) << "sum";
    EXPECT_EQ(single(infinity, one, 1).multiplied()[0][0], std::numeric_limits<float>::infinity());
    EXPECT_TRUE(std::isnan(single(infinity, 0, 1).multiplied()[0][0]));
}

TEST_F(amx_emulator, rounding_mode_and_flags_of_the_thread_do_not_matter) {
    const matrices x(16, 16, 16, 33);
    const auto nearest = x.multiplied();
    std::fesetround(FE_UPWARD);
    std::feclearexcept(FE_ALL_EXCEPT);
    const auto upward = x.multiplied();
    const int flags = std::fetestexcept(FE_ALL_EXCEPT), rounding = std::fegetround();
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(upward, nearest);
    EXPECT_EQ(flags, 0);
    EXPECT_EQ(rounding, FE_UPWARD);
}

TEST_F(amx_emulator, infinite_columns_do_not_leak_past_the_tile) {
    matrices x(2, 2, 3);
    for (auto &v : x.a[0]) v = infinity;
    const auto result = x.multiplied();
    EXPECT_EQ(result[0][3], 0.f);
    load_config(config_of({{16, 64}}));
    EXPECT_EQ(stored<0>(), tile_bytes{});
}

#define EXPECT_ILLEGAL(text) EXPECT_TRUE(raises([] { asm volatile(text ::: "memory"); })) << text

TEST_F(amx_emulator, what_hardware_refuses) {
    EXPECT_ILLEGAL("tilezero %%tmm0");
    EXPECT_ILLEGAL("tileloadd (%%rsp), %%tmm0");
    EXPECT_ILLEGAL("tdpbf16ps %%tmm2, %%tmm1, %%tmm0");
    load_config(config_of({{4, 16}, {4, 8}, {2, 16}, {5, 8}, {0, 0}, {2, 12}, {4, 10}, {3, 16}}));
    EXPECT_FALSE(raises([] { asm volatile("tdpbf16ps %%tmm2, %%tmm1, %%tmm0" ::: "memory"); }));
    EXPECT_ILLEGAL("tilezero %%tmm4");
    EXPECT_ILLEGAL("tilestored %%tmm4, (%%rsp)");
    EXPECT_ILLEGAL("tdpbf16ps %%tmm2, %%tmm3, %%tmm0");    // rows of dst and a
    EXPECT_ILLEGAL("tdpbf16ps %%tmm5, %%tmm1, %%tmm0");    // columns of dst and b
    EXPECT_ILLEGAL("tdpbf16ps %%tmm7, %%tmm1, %%tmm0");    // depth of a and b
    EXPECT_ILLEGAL("tdpbf16ps %%tmm2, %%tmm6, %%tmm0");    // columns not whole pairs
    EXPECT_ILLEGAL("tdpbf16ps %%tmm2, %%tmm1, %%tmm4");    // not configured
    EXPECT_ILLEGAL(".byte 0xc4, 0xe2, 0x6a, 0x5c, 0xd1");  // tmm2, tmm1, tmm2
    EXPECT_ILLEGAL(".byte 0xc4, 0x62, 0x6a, 0x5c, 0xc1");  // tmm8
    EXPECT_ILLEGAL(".byte 0xc4, 0xe2, 0x7b, 0x4b, 0x00");  // a load without SIB
    EXPECT_ILLEGAL(".byte 0xc4, 0xe2, 0x7b, 0x49, 0xc1");  // TILEZERO with rm
}

TEST_F(amx_emulator, loads_from_unmapped_memory_fault) {
    const auto die = [] {
        load_config(config_of({{1, 4}}));
        load<0>(reinterpret_cast<const void *>(16));
    };
    EXPECT_EXIT(die(), testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(amx_emulator, faults_inside_a_run_of_instructions) {
    const auto good = config_of({{4, 16}}), bad = config_of({{17, 64}});
    const auto run = [&](const config_bytes &second) {
        asm volatile("ldtilecfg %0\n tilezero %%tmm0\n ldtilecfg %1" ::"m"(good), "m"(second)
                     : "memory");
    };
    EXPECT_FALSE(raises([&] { run(good); }));
    EXPECT_TRUE(raises([&] { run(bad); }));
    EXPECT_EQ(store_config(), good);
    EXPECT_ILLEGAL("tilezero %%tmm0\n tilezero %%tmm1");
    EXPECT_ILLEGAL("tilezero %%tmm0\n ud2");
}

TEST_F(amx_emulator, other_illegal_instructions_reach_the_previous_handler) {
    const int before = caught;
    EXPECT_ILLEGAL("ud2");
    EXPECT_EQ(caught, before + 1);
    EXPECT_TRUE(raises([] { std::raise(SIGILL); }));
    EXPECT_EQ(caught, before + 2);
}

TEST_F(amx_emulator, previous_default_action_still_kills) {
    const auto die = [] {
        std::signal(SIGILL, SIG_DFL);
        amx::install();
        asm volatile("ud2");
    };
    EXPECT_EXIT(die(), testing::KilledBySignal(SIGILL), "");
}

TEST_F(amx_emulator, plain_previous_handler_is_called) {
    const auto leave = [] {
        std::signal(SIGILL, [](int) { _exit(42); });
        amx::install();
        load_config(config_of({{1, 4}}));
        asm volatile("ud2");
    };
    EXPECT_EXIT(leave(), testing::ExitedWithCode(42), "");
}

TEST_F(amx_emulator, threads_have_their_own_tiles) {
    const auto before = amx::executed();
    constexpr int threads = 4, rounds = 200;
    std::atomic<int> wrong{0};
    std::vector<std::thread> pool;
    for (unsigned t = 0; t < threads; ++t)
        pool.emplace_back([&wrong, t] {
            if (store_config() != config_bytes{}) ++wrong;
            const matrices x(static_cast<int>(4 * t + 1), 16, 16, 50 + t);
            for (int round = 0; round < rounds; ++round) {
                const auto result = x.multiplied();
                for (int m = 0; m < x.rows; ++m)
                    if (result[static_cast<std::size_t>(m)][3] != x.expected(m, 3)) ++wrong;
            }
            release();
        });
    for (auto &thread : pool) thread.join();
    EXPECT_EQ(wrong, 0);
    if (mode == amx::mode::emulated) {
        EXPECT_EQ(amx::executed() - before, static_cast<std::uint64_t>(threads) * rounds);
    }
}

TEST_F(amx_emulator, vector_registers_survive) {
    load_config(config_of({{1, 4}, {1, 4}, {1, 4}}));
    double in = 1.25, out = 0;
    asm volatile("movsd %1, %%xmm7\n tdpbf16ps %%tmm2, %%tmm1, %%tmm0\n movsd %%xmm7, %0"
                 : "=m"(out)
                 : "m"(in)
                 : "xmm7", "memory");
    EXPECT_EQ(out, in);
}

}  // namespace
