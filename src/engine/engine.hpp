// What an engine holds.
#pragma once

#include <convgrad/engine.hpp>

#include "engine/backend.hpp"

namespace convgrad {

struct engine::impl {
    std::shared_ptr<const engines::backend> backend;
    math_mode math = math_mode::accurate;
    std::size_t workspace_limit = 0;

    /// What a plan for this engine may use.
    [[nodiscard]] engines::plan_limits limits() const { return {.workspace = workspace_limit}; }
};

namespace engines {

/// A kind of engine and what makes its backends. Makers check the options that are theirs, and
/// throw invalid_argument.
struct backend_kind {
    engine_kind kind;
    std::string_view name;
    std::shared_ptr<const backend> (*make)(const engine_options &options);
    void (*release_scratch)() noexcept;
};

/// All kinds of engines of this build.
std::span<const backend_kind> backend_kinds();

}  // namespace engines
}  // namespace convgrad
