// Whether all elements of a strided tensor lie apart.
#pragma once

#include <convgrad/types.hpp>

namespace convgrad::ops {

enum class layout_kind : std::uint8_t {
    apart,        // no two elements share memory
    overlapping,  // some do
    unclear,      // the search was given up
};

/// For positive strides (of axes longer than one element), one per dimension.
///
/// Two elements share memory if Σ dᵢ·strideᵢ = 0 for some distances dᵢ, not all zero, with
/// |dᵢ| < lengthᵢ. Where each stride exceeds the sum of all lower axes' extents (after those that
/// continue each other are merged) there are none: every ordinary tensor and view. Otherwise
/// distances along the larger strides are tried, and the last two follow from each other.
layout_kind judge_layout(const dims &shape, const dims &strides);

}  // namespace convgrad::ops
