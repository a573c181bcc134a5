// Dense layers by an installed cuDNN 9, where the caller allows it.
#pragma once

#include "cuda/general.hpp"

namespace convgrad::cuda {

bool has_cudnn(const architecture &on);
/// Why a problem is none of these; empty if it is.
std::string refuse_cudnn(const conv::problem &p);
prediction predict_cudnn(
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);
/// Null if cuDNN has no engine that is wanted (see cudnn_device::find()).
std::unique_ptr<const engines::plan> make_cudnn_plan(std::string_view name, const conv::problem &p,
    const architecture &on, const engines::plan_limits &limits);

}  // namespace convgrad::cuda
