// First layers: one group of 1 to 4 input channels, as whole pixels in shared memory.
#pragma once

#include "cuda/general.hpp"

namespace convgrad::cuda {

/// Shared memory that a block may have.
int pixels_shared(const architecture &on);

/// 16-bit types, on tensor cores.
std::string refuse_pixels(const conv::problem &p);
/// f32, by multiply-adds.
std::string refuse_pixels_f32(const conv::problem &p);
prediction predict_pixels(
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);
std::unique_ptr<const engines::plan> make_pixels_plan(std::string_view name, const conv::problem &p,
    const architecture &on, const engines::plan_limits &limits);

}  // namespace convgrad::cuda
