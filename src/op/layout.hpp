// Strides of one tensor: checked, and made canonical.
#pragma once

#include <array>

#include "op/lower.hpp"

namespace convgrad::ops {

/// Checks strides (one per dimension, positive where they matter) and that the tensor's bytes can
/// be counted in 64 bits; throws invalid_shape. Unknown dimensions are let pass.
void check_layout(
    const parsed_attributes &attrs, std::string_view name, const logical_tensor &tensor);

/// Throws invalid_shape if two elements of an output share memory: they would be written in no
/// order. Axes may interleave in any way that keeps all elements apart; that is decided exactly,
/// except for strides so entangled that a search of a few milliseconds does not tell, which are
/// refused. Unknown dimensions are let pass. Call check_layout first.
void check_elements_apart(
    const parsed_attributes &attrs, std::string_view name, const logical_tensor &tensor);

/// The strides of a known tensor that check_layout lets pass. Those of axes with at most one
/// element mean nothing; they become what they would be in a packed tensor.
std::array<dim, 5> canonical_strides(const logical_tensor &tensor);

/// Those of `axes` spatial axes from dimension `first` on, with unit axes in front: strides as
/// packed unit axes would have them.
std::array<dim, 3> three_axes(
    const std::array<dim, 5> &strides, const dims &shape, std::size_t first, int axes);

/// Those of a data tensor, by what the dimensions are.
conv::data_strides data_strides_of(
    const parsed_attributes &attrs, int axes, const logical_tensor &tensor);

/// The same of a tensor that is repeated to make up `shape` (see broadcasts_to): strides are 0
/// along axes that it does not have.
conv::data_strides repeated_strides_of(
    const parsed_attributes &attrs, int axes, const logical_tensor &tensor, const dims &shape);

}  // namespace convgrad::ops
