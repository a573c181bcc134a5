// Engines, their settings and the environment.
#include <cstdlib>

#include "cpu/isa.hpp"
#include "cpu/pool.hpp"
#include "graph/helpers.hpp"
#include "support/pools.hpp"

namespace convgrad::test {
namespace {

using enum error_code;

TEST(engine, has_working_defaults) {
    const engine &e = default_engine();
    EXPECT_EQ(e.kind(), engine_kind::cpu);
    EXPECT_GE(e.threads(), 1);
    EXPECT_TRUE(cpu::detected().include(e.instruction_set()));
    EXPECT_EQ(e.math(), math_mode::accurate);
    EXPECT_EQ(&e, &default_engine());
}

TEST(engine, takes_settings) {
    reversing_pool pool;
    const engine e(engine_options{.threads = 3,
        .pool = &pool,
        .max_isa = isa::portable,
        .math = math_mode::strict,
        .workspace_limit = 12345});
    EXPECT_EQ(e.threads(), 3);
    EXPECT_EQ(e.instruction_set(), isa::portable);
    EXPECT_EQ(e.math(), math_mode::strict);
    EXPECT_EQ(e.workspace_limit(), 12345U);
    EXPECT_EQ(engine(engine_options{.pool = &pool}).threads(), pool.concurrency());
    EXPECT_EQ(engine(engine_options{.threads = 1000, .pool = &pool}).threads(), pool.concurrency());
    EXPECT_EQ(stream(e).get_engine().threads(), 3);
}

TEST(engine, refuses_settings_out_of_range) {
    const auto make = [](const engine_options &options) { const engine e(options); };
    expect_error(invalid_argument, {"engine", "kind", "cpu", "cuda"},
        [&] { make({.kind = static_cast<engine_kind>(7)}); });
    expect_error(invalid_argument, {"threads", "-1", "1024"}, [&] { make({.threads = -1}); });
    expect_error(invalid_argument, {"threads", "5000", "1024"}, [&] { make({.threads = 5000}); });
    expect_error(
        invalid_argument, {"max_isa", "77"}, [&] { make({.max_isa = static_cast<isa>(77)}); });
    expect_error(
        invalid_argument, {"math", "9"}, [&] { make({.math = static_cast<math_mode>(9)}); });
}

TEST(engine, obeys_the_thread_variable) {
    const char *before = std::getenv("CONVGRAD_NUM_THREADS");
    const std::string saved = before == nullptr ? "" : before;
    setenv("CONVGRAD_NUM_THREADS", "3", 1);
    EXPECT_EQ(engine().threads(), 3);
    EXPECT_EQ(engine(engine_options{.threads = 2}).threads(), 2);
    for (const char *bad : {"0", "-2", "many", "3x", "99999999999"}) {
        setenv("CONVGRAD_NUM_THREADS", bad, 1);
        expect_error(invalid_argument, {"CONVGRAD_NUM_THREADS", bad, "between 1 and"},
            [] { const engine e; });
    }
    unsetenv("CONVGRAD_NUM_THREADS");
    EXPECT_EQ(engine().threads(), cpu::available_cores());
    if (!saved.empty()) setenv("CONVGRAD_NUM_THREADS", saved.c_str(), 1);
}

// The variable is read once: each case needs a process of its own, which these tests start.
int exit_status_with(const char *value, isa expected) {
    setenv("CONVGRAD_MAX_ISA", value, 1);
    try {
        return engine().instruction_set() == expected ? 0 : 1;
    } catch (const error &e) {
        const std::string message = e.what();
        const bool good = e.code() == invalid_argument
                          && message.find("CONVGRAD_MAX_ISA") != std::string::npos
                          && message.find(value) != std::string::npos
                          && message.find("avx512_bf16") != std::string::npos;
        return good ? 2 : 3;
    }
}

TEST(engine_death_test, obeys_the_instruction_set_variable) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        std::_Exit(exit_status_with("portable", isa::portable)), testing::ExitedWithCode(0), "");
    EXPECT_EXIT(std::_Exit(exit_status_with("", detected_isa())), testing::ExitedWithCode(0), "");
    EXPECT_EXIT(
        std::_Exit(exit_status_with("sse9", isa::portable)), testing::ExitedWithCode(2), "");
}

TEST(cpu, knows_caches) {
    const cpu::caches &c = cpu::cache_sizes();
    EXPECT_GE(c.l1d, 8U << 10);
    EXPECT_GE(c.l2, c.l1d);
    EXPECT_GE(c.l3, c.l2);
    EXPECT_GE(cpu::available_cores(), 1);
}

}  // namespace
}  // namespace convgrad::test
