#include "cpu/bias_plan.hpp"

namespace convgrad::cpu {

bias_plan::bias_plan(std::string_view name, const conv::problem &p, const plan_limits &limits,
    const kernel_set &kernels)
    : threads_(
        limits.save_threads ? worthwhile_threads(p, kernels, limits.threads) : limits.threads),
      worthwhile_(cut_threads(p, kernels)), sums_(p, kernels, {}, limits.workspace) {
    set_ = kernels.set;
    facts_.algorithm = name;
    facts_.uses = to_string(set_);
    facts_.workspace = sums_.workspace();
}

work_cut bias_plan::cut(int threads) const {
    work_list work;
    sums_.add_work(work, threads_);
    work_cut cut = cut_work(work, threads);
    cut.worthwhile = worthwhile_;
    return cut;
}

void bias_plan::run(const conv::buffers &data, void *workspace, const executor &threads) const {
    sums_.execute(data, static_cast<char *>(workspace), threads.limited(threads_));
}

}  // namespace convgrad::cpu
