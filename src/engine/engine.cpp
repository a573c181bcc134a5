#include "engine/engine.hpp"

#include <string>

#include <convgrad/error.hpp>

#include "op/guard.hpp"

namespace convgrad {
inline namespace CONVGRAD_ABI {
namespace {

[[noreturn]] void refuse(const std::string &message) {
    throw error(error_code::invalid_argument, "engine: " + message);
}

const engines::backend_kind &find_kind(engine_kind kind) {
    std::string known;
    for (const engines::backend_kind &k : engines::backend_kinds()) {
        if (k.kind == kind) return k;
        known.append(known.empty() ? "" : ", ").append(k.name);
    }
    refuse(
        "kind is " + std::string(to_string(kind)) + "; this library has engines of kind " + known);
}

std::shared_ptr<const engine::impl> make_impl(const engine_options &options) {
    if (options.math > math_mode::fast)
        refuse("math has the value " + std::to_string(static_cast<int>(options.math))
               + ", which is no math mode");
    auto made = std::make_shared<engine::impl>();
    made->backend = find_kind(options.kind).make(options);
    made->math = options.math;
    made->workspace_limit = options.workspace_limit;
    return made;
}

}  // namespace

engine::engine() : engine(engine_options{}) {}
engine::engine(const engine_options &options)
    : impl_(guarded("engine", [&] { return make_impl(options); })) {}
engine_kind engine::kind() const noexcept {
    return impl_->backend->facts().kind;
}
int engine::threads() const noexcept {
    return impl_->backend->threads();
}
bool engine::shares_threads() const noexcept {
    return impl_->backend->shares_threads();
}
isa engine::instruction_set() const noexcept {
    return impl_->backend->facts().set;
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

stream::stream(const engine &on, void *native)
    : engine_(on), lane_(guarded("stream", [&] { return on.get().backend->open(native); })) {}

void stream::wait() const {
    guarded("stream::wait", [&] { lane_->wait(); });
}

void release_scratch() noexcept {
    for (const engines::backend_kind &k : engines::backend_kinds()) k.release_scratch();
}

}  // namespace CONVGRAD_ABI
}  // namespace convgrad
