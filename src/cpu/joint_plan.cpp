// Both gradients of a layer as one plan, and when that pays.
#include "cpu/driver_plan.hpp"

namespace convgrad::cpu {
namespace {

class joint_plan final : public engines::plan {
public:
    joint_plan(const cpu::plan &data, const cpu::plan &weights) : data_(data), weights_(weights) {
        facts_ = data.facts();
        facts_.workspace = data.joint_workspace() + weights.joint_workspace();
        facts_.kept = std::max(facts_.kept, weights.facts().kept);
        facts_.seconds += weights.facts().seconds;
    }

    [[nodiscard]] std::string describe() const override {
        return data_.describe() + ", together with " + weights_.describe();
    }
    void execute(
        std::span<const conv::buffers> data, void *workspace, engines::lane &on) const override {
        const executor threads = threads_of(on);
        auto *at = static_cast<char *>(workspace);
        joint_pass pass;
        data_.start(data[0], at, threads, pass);
        weights_.start(data[1], at + data_.joint_workspace(), threads, pass);
        run_joint(pass, threads);
    }

private:
    const cpu::plan &data_, &weights_;
};

}  // namespace

double joint_bytes(const conv::problem &p) {
    double src = static_cast<double>(p.ic), dst = static_cast<double>(p.oc);
    for (const conv::axis &x : p.x) {
        src *= static_cast<double>(x.src);
        dst *= static_cast<double>(x.dst);
    }
    return static_cast<double>(size_of(p.type)) * static_cast<double>(p.mb * p.groups)
           * (p.what == conv::pass::forward ? src + 2 * dst : 2 * src + dst);
}

/// Whether the tensors exceed what caches hold from one gradient to the other, the one that both
/// read is a fair share of them, and arithmetic does not take so much longer than memory that
/// nothing is left to gain. Groups that lie side by side are read in short runs, which costs memory
/// twice its time.
bool bound_by_memory(const conv::problem &p, const kernel_set &kernels) {
    constexpr double cached = 16 << 20, bytes_per_second = 12e9;
    const double memory = joint_bytes(p) / bytes_per_second;
    const double arithmetic = 2 * conv::macs(p) / nominal_speed(kernels);
    const bool scattered = p.groups > 1 && p.src.c == 1;
    const dim shared = p.what == conv::pass::forward ? p.ic : p.oc, other = p.ic + p.oc - shared;
    const bool depthwise = p.ic == 1;
    return joint_bytes(p) > cached && (depthwise || shared >= other)
           && arithmetic < (scattered ? 8 : 4) * memory;
}

std::unique_ptr<const engines::plan> join_plans(
    const plan &data, const plan &weights, std::size_t workspace_limit) {
    std::size_t bytes = 0;
    for (const plan *p : {&data, &weights}) {
        const std::size_t own = p->joint_workspace();
        if (own == 0 || !p->worth_joining()) return nullptr;
        bytes += own;
    }
    if (bytes > workspace_limit) return nullptr;
    return std::make_unique<joint_plan>(data, weights);
}

}  // namespace convgrad::cpu
