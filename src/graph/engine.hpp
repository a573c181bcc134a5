// What an engine holds.
#pragma once

#include <convgrad/engine.hpp>

#include "conv/plan.hpp"
#include "cpu/parallel.hpp"
#include "cpu/pool.hpp"

namespace convgrad {

struct engine::impl {
    engine_kind kind = engine_kind::cpu;
    int threads = 1;
    isa set = isa::portable;
    math_mode math = math_mode::accurate;
    std::size_t workspace_limit = 0;
    std::shared_ptr<cpu::pool> own_pool;  // null when the caller brought one
    thread_pool *pool = nullptr;

    /// What a plan for this engine may use.
    [[nodiscard]] conv::plan_limits limits() const {
        return {.max_isa = set,
            .threads = threads,
            .workspace = workspace_limit,
            .only_algorithm = {},
            .save_threads = true};
    }
    /// Its threads, at most `most` of them: a plan has workspace for no more than it was made for.
    [[nodiscard]] cpu::executor threads_up_to(int most) const {
        return {pool, threads < most ? threads : most};
    }
};

}  // namespace convgrad
