#include "cuda/sums.hpp"

#include "cuda/plan.hpp"

namespace convgrad::cuda {
namespace {

class sums_plan final : public plan {
public:
    sums_plan(std::string_view name, const conv::problem &p, const architecture &on,
        const engines::plan_limits &limits)
        : problem_(p), sums_(p, 1, limits) {
        facts_.algorithm = name;
        facts_.uses = code_for(on);
        facts_.workspace = sums_.workspace();
    }
    [[nodiscard]] std::string describe() const override { return "sums of channels"; }

protected:
    // There are no weights: of a weights gradient's end only the bias gradient remains.
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        sums_.finish(problem_, data, workspace, on);
    }

private:
    conv::problem problem_;
    gradient_sums sums_;
};

}  // namespace

std::string refuse_sums(const conv::problem &p) {
    return p.what == conv::pass::backward_bias ? "" : "computes bias gradients only";
}

prediction predict_sums(
    const conv::problem &p, const architecture &, const engines::plan_limits &limits) {
    return {0, gradient_sums(p, 1, limits).workspace()};
}

std::unique_ptr<const engines::plan> make_sums_plan(std::string_view name, const conv::problem &p,
    const architecture &on, const engines::plan_limits &limits) {
    return std::make_unique<sums_plan>(name, p, on, limits);
}

}  // namespace convgrad::cuda
