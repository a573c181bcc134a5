// Plans: how a problem will run. Selection is first fit from one ordered list of algorithms.
//
// Layer: src/op makes a problem → make_plan() → plan::execute() → driver in src/cpu → kernel.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "conv/problem.hpp"
#include "cpu/joint_pass.hpp"
#include "cpu/parallel.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::conv {

/// What a plan may use.
struct plan_limits {
    isa max_isa = isa::amx_bf16;
    int threads = 1;
    std::size_t workspace = std::numeric_limits<std::size_t>::max();
    /// Non-empty: only the algorithm of this name (tests, benchmarks, explain).
    std::string_view only_algorithm = {};
    /// Small problems run on fewer threads, down to the calling one, where waking more would cost
    /// more than it brings.
    bool save_threads = false;
};

/// An immutable decision; execute() may be called from many threads at once.
class plan {
public:
    virtual ~plan() = default;
    /// E.g. "tiled".
    [[nodiscard]] virtual std::string_view algorithm() const = 0;
    /// The instruction set of the kernel that runs.
    [[nodiscard]] virtual isa instruction_set() const = 0;
    /// Bytes that execute() needs, 64-byte aligned.
    [[nodiscard]] virtual std::size_t workspace() const = 0;
    /// Blocks and tiles, for explain and logs: "tile 4x14 oc 64 ic 64".
    [[nodiscard]] virtual std::string describe() const = 0;
    /// How execute() would share its work out to `threads` threads, no more than the plan was made
    /// for: for explain and tests.
    [[nodiscard]] virtual cpu::work_cut cut(int threads) const = 0;
    virtual void execute(
        const buffers &data, void *workspace, const cpu::executor &threads) const = 0;

    /// Bytes that start() needs, whole cache lines; 0: this plan cannot go together with another.
    [[nodiscard]] virtual std::size_t joint_workspace() const = 0;
    /// Whether memory decides how long both gradients take, so that a joint pass is faster.
    [[nodiscard]] virtual bool worth_joining() const = 0;
    /// Starts this half of a joint pass; `data` must live until its end.
    virtual void start(const buffers &data, void *workspace, const cpu::executor &threads,
        cpu::joint_pass &pass) const = 0;
};

/// Why an algorithm was not chosen.
struct refusal {
    std::string_view algorithm;
    isa set;
    std::string reason;
};

/// Never fails for a legal problem, except with out_of_memory when `limits.workspace` is below what
/// the leanest plan needs. Costs microseconds. `refusals` (optional) receives the reasons.
std::unique_ptr<const plan> make_plan(
    const problem &p, const plan_limits &limits, std::vector<refusal> *refusals = nullptr);

/// Names of all algorithms on the list, in order of preference.
std::vector<std::string_view> algorithm_names();

}  // namespace convgrad::conv
