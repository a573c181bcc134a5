#include "engines.hpp"

#include <fmt/format.h>

#include "engine/engine.hpp"

namespace convgrad::cli {

const engine &engine_cache::get(const engine_choice &choice) {
    const auto found = engines_.find(choice);
    if (found != engines_.end()) return found->second;
    engine_options options;
    options.kind = choice.kind;
    options.device = choice.device;
    options.cudnn = choice.cudnn;
    if (choice.kind == engine_kind::cpu) {
        options.threads = choice.threads;
        options.max_isa = choice.max_isa;
    }
    options.math = choice.math;
    return engines_.emplace(choice, engine(options)).first->second;
}

std::string engine_label(const engine &on) {
    const std::string mode =
        on.math() == math_mode::accurate ? "" : fmt::format(", {}", to_string(on.math()));
    if (on.kind() == engine_kind::cuda) return fmt::format("{}{}", on.get().backend->name(), mode);
    return fmt::format("{}, {} thread{}{}", to_string(on.instruction_set()), on.threads(),
        on.threads() == 1 ? "" : "s", mode);
}

}  // namespace convgrad::cli
