#include "graph/engine.hpp"

#include <algorithm>
#include <string>

#include <convgrad/error.hpp>

#include "cpu/isa.hpp"
#include "op/guard.hpp"

namespace convgrad {
namespace {

[[noreturn]] void refuse(const std::string &message) {
    throw error(error_code::invalid_argument, "engine: " + message);
}

int thread_count(const engine_options &options) {
    if (options.threads < 0 || options.threads > cpu::max_threads)
        refuse("threads is " + std::to_string(options.threads) + "; it must be between 0 and "
               + std::to_string(cpu::max_threads));
    if (options.pool == nullptr)
        return options.threads > 0 ? options.threads : cpu::default_threads();
    const int offered = std::clamp(options.pool->concurrency(), 1, cpu::max_threads);
    return options.threads > 0 ? std::min(options.threads, offered) : offered;
}

std::shared_ptr<const engine::impl> make_impl(const engine_options &options) {
    if (options.kind != engine_kind::cpu)
        refuse("kind is gpu; this library computes on engines of kind cpu only");
    if (options.max_isa > isa::amx_bf16)
        refuse("max_isa has the value " + std::to_string(static_cast<int>(options.max_isa))
               + ", which is no instruction set");
    if (options.math > math_mode::fast)
        refuse("math has the value " + std::to_string(static_cast<int>(options.math))
               + ", which is no math mode");
    auto made = std::make_shared<engine::impl>();
    made->kind = options.kind;
    made->threads = thread_count(options);
    made->set = std::min(options.max_isa, cpu::max_allowed());
    made->math = options.math;
    made->workspace_limit = options.workspace_limit;
    if (options.pool == nullptr) made->own_pool = cpu::pool::shared(made->threads);
    made->pool = options.pool != nullptr ? options.pool : made->own_pool.get();
    return made;
}

}  // namespace

thread_pool::~thread_pool() = default;

engine::engine() : engine(engine_options{}) {}
engine::engine(const engine_options &options)
    : impl_(guarded("engine", [&] { return make_impl(options); })) {}
engine_kind engine::kind() const noexcept {
    return impl_->kind;
}
int engine::threads() const noexcept {
    return impl_->threads;
}
isa engine::instruction_set() const noexcept {
    return impl_->set;
}
math_mode engine::math() const noexcept {
    return impl_->math;
}
std::size_t engine::workspace_limit() const noexcept {
    return impl_->workspace_limit;
}

const engine &default_engine() {
    // Never destroyed: objects with static lifetime may still compute while the program ends.
    static const auto *shared = guarded("default_engine", [] { return new engine; });
    return *shared;
}

stream::stream(const engine &on) : engine_(on) {}

isa detected_isa() {
    return cpu::detected();
}

}  // namespace convgrad
