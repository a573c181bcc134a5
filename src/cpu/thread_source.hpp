// Whose threads an engine computes on, and how many: asked anew by each call.
#pragma once

#include "cpu/parallel.hpp"
#include "cpu/pool.hpp"

namespace convgrad::cpu {

/// The caller's pool; else the threads that the process computes with already, if it has any; else
/// the library's own.
class thread_source {
public:
    /// Throws invalid_argument.
    explicit thread_source(const engine_options &options);

    /// For work that begins now.
    [[nodiscard]] executor now() const;
    /// Whether that is the process's OpenMP runtime.
    [[nodiscard]] bool is_shared() const noexcept;

private:
    [[nodiscard]] thread_pool *pool_now() const noexcept;

    thread_pool *given_;         // the caller's
    bool own_only_;              // never the process's
    int most_;                   // threads
    std::shared_ptr<pool> own_;  // null when the caller brought one
};

}  // namespace convgrad::cpu
