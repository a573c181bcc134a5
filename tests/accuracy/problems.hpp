// The problems whose errors are measured: small, so that emulated instruction sets take part, yet
// with short and long sums, strides, dilation and tails.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "accuracy/subject.hpp"

namespace convgrad::accuracy {

/// By the algorithm that such layers run on.
enum class family : std::uint8_t { dense, narrow, depthwise, bias };
inline constexpr family all_families[] = {family::dense, family::narrow, family::depthwise};
/// Of engines that are measured through the seam: bias gradients have an algorithm of their own.
inline constexpr family engine_families[] = {
    family::dense, family::narrow, family::depthwise, family::bias};
std::string_view to_string(family f);

struct named_problem {
    std::string_view name;
    conv::problem p;
};
/// All three passes of every layer of a family.
std::vector<named_problem> problems_of(family f, data_type type);
/// These, and those that only kernels of other engines have a way of their own for.
std::vector<named_problem> engine_problems_of(family f, data_type type);

/// Products in the longest sum of a problem.
double longest_sum(const conv::problem &p);

/// A way to compute: an algorithm on an instruction set in a math mode.
struct method {
    std::string algorithm;
    isa set = isa::portable;
    math_mode math = math_mode::accurate;
    friend auto operator<=>(const method &, const method &) = default;
};
/// Every different way to compute a problem on this machine: each algorithm of the family on each
/// instruction set that has kernels of its own for it; math modes where they change the kernel.
std::vector<method> methods_for(family f, const conv::problem &p);
/// "tiled.amx amx_bf16 fast"
std::string to_string(const method &m);

cpu::plan_limits limits_of(const method &m);

/// Calls body for each combination. `seeds` sets of data per problem and flavour.
void for_each_subject(const std::vector<named_problem> &problems, std::uint64_t seeds,
    const std::function<void(const named_problem &, subject &)> &body);
void for_each_subject(family f, data_type type, std::uint64_t seeds,
    const std::function<void(const named_problem &, subject &)> &body);

}  // namespace convgrad::accuracy
