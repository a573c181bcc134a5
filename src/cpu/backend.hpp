// The CPU as an engine: threads, instruction sets, and the plans in algorithms.cpp.
#pragma once

#include "cpu/plan.hpp"
#include "cpu/thread_source.hpp"

namespace convgrad::cpu {

/// The lane of a CPU: nothing is ever left to wait for. Lives as long as its backend.
class lane final : public engines::lane {
public:
    explicit lane(const thread_source &threads) : threads_(threads) {}
    /// For work that begins now.
    [[nodiscard]] executor threads() const { return threads_.now(); }

    void wait() override {}
    void check() const override {}
    void *take(std::size_t bytes) override;
    void give_back(void *scratch, std::size_t bytes) noexcept override;

private:
    const thread_source &threads_;
};

class backend final : public engines::backend {
public:
    /// Throws invalid_argument.
    explicit backend(const engine_options &options);

    /// What its plans may use.
    [[nodiscard]] plan_limits limits(const engines::plan_limits &asked) const {
        return {.max_isa = may_use_,
            .threads = threads(),
            .workspace = asked.workspace,
            .only_algorithm = asked.only_algorithm,
            .save_threads = true};
    }
    [[nodiscard]] executor executor_now() const { return threads_.now(); }

    [[nodiscard]] int threads() const noexcept override { return threads_.now().threads(); }
    [[nodiscard]] bool shares_threads() const noexcept override { return threads_.is_shared(); }
    [[nodiscard]] std::unique_ptr<const engines::plan> make_plan(const conv::problem &p,
        const engines::plan_limits &limits, std::vector<engines::verdict> *verdicts) const override;
    [[nodiscard]] std::unique_ptr<const engines::plan> join(const engines::plan &data,
        const engines::plan &weights, const engines::plan_limits &limits) const override;
    [[nodiscard]] bool accepts(const engines::backend &other) const override;
    [[nodiscard]] const char *refuse_memory(const void *) const noexcept override {
        return nullptr;
    }
    [[nodiscard]] std::shared_ptr<engines::lane> open(void *native) const override;
    [[nodiscard]] std::string name() const override;

private:
    capabilities may_use_;
    thread_source threads_;
    mutable lane lane_;  // all streams share it: it has no state
};

std::shared_ptr<const engines::backend> make_backend(const engine_options &options);

/// The backend of a CPU engine, for what asks for more than every engine offers: the command,
/// benchmarks and tests.
const backend &backend_of(const engine &on);

}  // namespace convgrad::cpu
