// The bias gradient as a plan of its own (conv::pass::backward_bias).
#pragma once

#include "cpu/channel_sums.hpp"
#include "cpu/plan.hpp"

namespace convgrad::cpu {

class bias_plan final : public plan {
public:
    /// `kernels` of format fma.
    bias_plan(std::string_view name, const conv::problem &p, const plan_limits &limits,
        const kernel_set &kernels);

    [[nodiscard]] std::string describe() const override { return sums_.describe(); }
    [[nodiscard]] work_cut cut(int threads) const override;
    void run(const conv::buffers &data, void *workspace, const executor &threads) const override;

    [[nodiscard]] std::size_t joint_workspace() const override { return 0; }
    [[nodiscard]] bool worth_joining() const override { return false; }
    void start(const conv::buffers &, void *, const executor &, joint_pass &) const override {}

private:
    int threads_, worthwhile_;
    channel_sums sums_;
};

}  // namespace convgrad::cpu
