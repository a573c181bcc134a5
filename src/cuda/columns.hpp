// Convolutions of few channels as products of matrices: rows of what positions read.
#pragma once

#include "cuda/general.hpp"

namespace convgrad::cuda {

/// Why a problem is none of these; empty if it is.
std::string refuse_columns(const conv::problem &p);
prediction predict_columns(
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);
std::unique_ptr<const engines::plan> make_columns_plan(std::string_view name,
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);

}  // namespace convgrad::cuda
