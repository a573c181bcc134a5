// Random legal problems around given ones, for `convgrad bench --scan`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "op_case.hpp"

namespace convgrad::cli {

/// `count` problems, each one a centre among `centres` with up to three of its sizes changed and
/// made so small that it takes milliseconds; each with all of the centre's ops and types, in
/// layouts drawn from the centre's. The same arguments give the same points.
std::vector<op_case> scan_points(
    const std::vector<op_case> &centres, std::size_t count, std::uint64_t seed);

/// A point in the space in which neighbours are looked for: logarithms of all sizes.
using scan_position = std::array<double, 9>;
scan_position position_of(const op_case &c);

/// How far two points of one op are apart: a factor of two in one size counts 1, another type or
/// layout 1/2.
double distance(
    const op_case &a, const scan_position &at_a, const op_case &b, const scan_position &at_b);

}  // namespace convgrad::cli
