// Products on tensor cores: 16-bit types, and f32 by three TF32 products, in `fast` by one.
#pragma once

#include "cuda/general.hpp"

namespace convgrad::cuda {

/// Why a problem is none of these; empty if it is.
std::string refuse_dense(const conv::problem &p);
prediction predict_dense(
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);
std::unique_ptr<const engines::plan> make_dense_plan(std::string_view name, const conv::problem &p,
    const architecture &on, const engines::plan_limits &limits);

/// The same of weights gradients, which the ones above end in.
std::string refuse_dense_weights(const conv::problem &p);
prediction predict_dense_weights(
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);
std::unique_ptr<const engines::plan> make_dense_weights_plan(std::string_view name,
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);

}  // namespace convgrad::cuda
