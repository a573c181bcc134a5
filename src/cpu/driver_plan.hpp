// A driver behind the interface of a plan.
#pragma once

#include <algorithm>
#include <utility>

#include "conv/simplify.hpp"
#include "cpu/channel_sums.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/plan.hpp"
#include "cpu/scratch.hpp"

namespace convgrad::cpu {

/// Bytes of both gradients of a layer: the tensor that they share, and the other, read and written.
double joint_bytes(const conv::problem &p);
/// Whether the data gradient `p` and the weights gradient of its layer gain by a joint pass.
bool bound_by_memory(const conv::problem &p, const kernel_set &kernels);

/// A driver behind the interface of a plan, and the bias gradient beside it.
template <typename Driver>
class driver_plan final : public plan {
public:
    template <typename... Args>
    driver_plan(std::string_view name, const conv::problem &p, const plan_limits &limits,
        const kernel_set &kernels, Args... exact)
        : threads_(threads_for(p, limits, kernels)), worthwhile_(cut_threads(p, kernels)),
          driver_(conv::simplify(p), kernels, exact..., threads_, limits.workspace),
          bias_(p, *best_fma(kernels.set), sums_of(driver_), limits.workspace),
          bytes_(joint_bytes(p)),
          worth_joining_(p.what == conv::pass::backward_weights || bound_by_memory(p, kernels)) {
        if constexpr (requires { driver_.dense(); })
            worthwhile_ = std::min(worthwhile_, cut_threads(driver_.dense(), kernels));
        set_ = kernels.set;
        facts_.algorithm = name;
        facts_.uses = to_string(set_);
        // The two run one after the other in the same memory.
        facts_.workspace = std::max(driver_.workspace(), bias_.workspace());
        if constexpr (can_prepare)
            if (p.constant_weights) facts_.prepared = driver_.prepared_bytes();
    }

    [[nodiscard]] std::string describe() const override { return driver_.describe(); }
    [[nodiscard]] work_cut cut(int threads) const override {
        work_list work = driver_.work();
        bias_.add_work(work, threads_);
        work_cut cut = cut_work(work, threads);
        cut.worthwhile = worthwhile_;
        return cut;
    }
    void run(const conv::buffers &data, void *workspace, const executor &threads) const override {
        const executor mine = threads.limited(threads_);
        driver_.execute(data, static_cast<char *>(workspace), mine);
        bias_.execute(data, static_cast<char *>(workspace), mine);
    }

    [[nodiscard]] std::shared_ptr<const void> prepare_weights(
        const conv::buffers &data, void *workspace, const executor &threads) const override {
        if (facts_.prepared == 0) return nullptr;
        std::shared_ptr<void> made = allocate_kept(facts_.prepared);
        if constexpr (can_prepare)
            driver_.prepare(
                data, made.get(), static_cast<char *>(workspace), threads.limited(threads_));
        return made;
    }

    [[nodiscard]] std::size_t joint_workspace() const override {
        if constexpr (requires { driver_.joins(); })
            if (driver_.joins() && balanced(sums_of(driver_)) && bias_.follows())
                return driver_bytes() + whole_lines(bias_.workspace() + 64);
        return 0;
    }
    [[nodiscard]] bool worth_joining() const override { return worth_joining_; }
    void start(const conv::buffers &data, void *workspace, const executor &threads,
        joint_pass &pass) const override {
        char *memory = static_cast<char *>(workspace);
        if constexpr (requires { driver_.sums(); }) {
            pass.sums = driver_.start(data, memory, threads.limited(threads_));
            start_bias(data, memory + driver_bytes(), pass.sums);
        } else if constexpr (requires { driver_.joins(); }) {
            pass.data = driver_.start(data, memory, threads.limited(threads_));
            pass.bytes = bytes_;
        }
    }

private:
    static constexpr bool can_prepare = requires(const Driver &d) { d.prepared_bytes(); };

    static std::size_t whole_lines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
    [[nodiscard]] std::size_t driver_bytes() const { return whole_lines(driver_.workspace()); }

    static sum_cut sums_of(const Driver &driver) {
        if constexpr (requires { driver.sums(); })
            if (driver.joins()) return driver.sums();
        return {};
    }
    /// Whether the parts of a weights gradient, which a joint pass hands out, keep all threads
    /// busy.
    [[nodiscard]] bool balanced(const sum_cut &cut) const {
        return cut.parts == 0 || threads_ == 1
               || fair_share(cut.parts * cut.groups, 1, threads_) >= fair_enough;
    }
    void start_bias(const conv::buffers &data, char *memory, sum_walk &sums) const {
        auto run = std::move(sums.run);
        sums.run = [this, &data, memory, run = std::move(run)](
                       int worker, dim part, dim group, dim first, dim last) {
            run(worker, part, group, first, last);
            bias_.add_piece(data, memory, part, group, first, last);
        };
        auto finish = std::move(sums.finish);
        sums.finish = [this, &data, memory, finish = std::move(finish)](const executor &pool) {
            finish(pool);
            bias_.finish(data, memory);
        };
    }
    static int threads_for(
        const conv::problem &p, const plan_limits &limits, const kernel_set &kernels) {
        if (!limits.save_threads) return limits.threads;
        return worthwhile_threads(p, kernels, limits.threads);
    }

    int threads_;
    int worthwhile_;
    Driver driver_;
    channel_sums bias_;
    double bytes_;        // of a joint pass
    bool worth_joining_;  // the data gradient decides
};

}  // namespace convgrad::cpu
