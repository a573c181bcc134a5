// Strides of one tensor: checked, and made canonical.
#pragma once

#include <array>

#include "op/lower.hpp"

namespace convgrad::ops {

/// Checks strides (one per dimension, positive where they matter) and that the tensor's bytes can
/// be counted in 64 bits; throws invalid_shape. Unknown dimensions are let pass.
void check_layout(
    const parsed_attributes &attrs, std::string_view name, const logical_tensor &tensor);

/// The strides of a known tensor that check_layout lets pass. Those of axes with at most one
/// element mean nothing; they become what they would be in a packed tensor.
std::array<dim, 5> canonical_strides(const logical_tensor &tensor);

}  // namespace convgrad::ops
