// Plans of the CPU backend: how a problem will run, with which kernels and on how many threads.
//
// Layer: behind engines::backend (backend.hpp). make_plan() (select.cpp) picks a row of
// the list in algorithms.cpp → plan::run() → driver → kernel.
#pragma once

#include "cpu/isa.hpp"
#include "cpu/joint_pass.hpp"
#include "cpu/parallel.hpp"
#include "cpu/work_cut.hpp"
#include "engine/backend.hpp"

namespace convgrad::cpu {

/// What a plan may use.
struct plan_limits {
    /// Kernels may need no more than this.
    capabilities max_isa = isa::best;
    int threads = 1;
    std::size_t workspace = std::numeric_limits<std::size_t>::max();
    /// Non-empty: only the algorithm of this name (tests, benchmarks, explain).
    std::string_view only_algorithm = {};
    /// Small problems run on fewer threads, down to the calling one, where waking more would cost
    /// more than it brings.
    bool save_threads = false;
    /// Not 0, in tests: predictions come from a hash of this number and the row instead of the cost
    /// model, so that rows run that would never be chosen.
    std::uint64_t random_estimates = 0;
};

/// The threads of a CPU's lane, for work that begins now.
executor threads_of(engines::lane &on);

/// What is of interest about a plan on a CPU, beside what every plan tells.
class plan : public engines::plan {
public:
    /// The instruction set of the kernel that runs.
    [[nodiscard]] isa instruction_set() const { return set_; }
    /// How an execution would share its work out to `threads` threads, no more than the plan was
    /// made for: for explain and tests.
    [[nodiscard]] virtual work_cut cut(int threads) const = 0;
    /// Computes; complete at return.
    virtual void run(const conv::buffers &data, void *workspace, const executor &threads) const = 0;

    /// See prepare(); complete at return.
    [[nodiscard]] virtual std::shared_ptr<const void> prepare_weights(
        const conv::buffers & /*data*/, void * /*workspace*/, const executor & /*threads*/) const {
        return nullptr;
    }

    /// Bytes that start() needs, whole cache lines; 0: this plan cannot go together with another.
    [[nodiscard]] virtual std::size_t joint_workspace() const = 0;
    /// Whether memory decides how long both gradients take, so that a joint pass is faster.
    [[nodiscard]] virtual bool worth_joining() const = 0;
    /// Starts this half of a joint pass; `data` must live until its end.
    virtual void start(const conv::buffers &data, void *workspace, const executor &threads,
        joint_pass &pass) const = 0;

    void execute(
        std::span<const conv::buffers> data, void *workspace, engines::lane &on) const final;
    [[nodiscard]] std::shared_ptr<const void> prepare(
        const conv::buffers &data, void *workspace, engines::lane &on) const final;

    /// What the choice of the plan's algorithm was made by.
    void set_choice(double seconds, engines::accuracy kept, double error) {
        facts_.seconds = seconds;
        facts_.kept = kept;
        facts_.error = error;
    }

protected:
    isa set_ = isa::portable;
};

/// See engines::backend::make_plan().
std::unique_ptr<const plan> make_plan(const conv::problem &p, const plan_limits &limits,
    std::vector<engines::verdict> *verdicts = nullptr);

/// Both gradients of a layer in one pass; null if that is no faster, or needs more than
/// `workspace_limit` bytes. Refers to both plans.
std::unique_ptr<const engines::plan> join_plans(
    const plan &data, const plan &weights, std::size_t workspace_limit);

/// Names of all algorithms on the list, in its order.
std::vector<std::string_view> algorithm_names();

}  // namespace convgrad::cpu
