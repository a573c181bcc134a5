// Data gradients to few channels by products with all taps at once (compute capability 9.0).
#pragma once

#include "cuda/general.hpp"

namespace convgrad::cuda {

/// Why a problem is none of these; empty if it is.
std::string refuse_fold(const conv::problem &p);
prediction predict_fold(
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);
std::unique_ptr<const engines::plan> make_fold_plan(std::string_view name, const conv::problem &p,
    const architecture &on, const engines::plan_limits &limits);

}  // namespace convgrad::cuda
