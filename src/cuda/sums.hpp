// The bias gradient as a plan of its own (conv::pass::backward_bias).
#pragma once

#include "cuda/general.hpp"

namespace convgrad::cuda {

/// Why a problem is no bias gradient; empty if it is.
std::string refuse_sums(const conv::problem &p);
prediction predict_sums(
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);
std::unique_ptr<const engines::plan> make_sums_plan(std::string_view name, const conv::problem &p,
    const architecture &on, const engines::plan_limits &limits);

}  // namespace convgrad::cuda
