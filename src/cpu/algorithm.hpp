// What a row of the list of algorithms consists of. The list is in algorithms.cpp; select.cpp picks
// a row.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "cpu/cost_model.hpp"
#include "cpu/plan.hpp"

namespace convgrad::cpu {

/// One way to compute, for any kernels that it has.
struct method {
    /// How exact its results are.
    engines::accuracy (*keeps)(const conv::problem &p, const kernel_set &kernels);
    /// Whether it can compute the problem; never a matter of speed. If not, the reason goes to
    /// `why`, unless that is null.
    bool (*fits)(const problem_sizes &s, const kernel_set &kernels, std::string *why);
    /// By the cost model; only for what fits.
    prediction (*predict)(const problem_sizes &s, const kernel_set &kernels);
    /// Throws out_of_memory where the workspace limit does not suffice.
    std::unique_ptr<plan> (*build)(std::string_view name, const conv::problem &p,
        const plan_limits &limits, const kernel_set &kernels);
    /// Root mean square error in terms of a plain f32 sum's, where the class leaves it open and it
    /// was measured; may be null.
    double (*error)(const conv::problem &p) = nullptr;
    /// Whether the problem fills more than half of the vectors; may be null: it does. Where it does
    /// not, shorter ones that it fills do the same in as many steps.
    bool (*fills)(const problem_sizes &s, const kernel_set &kernels) = nullptr;
};

/// A method with its kernels.
struct algorithm {
    std::string_view name;  // of the method, and of the format: "tiled.fma"
    const method *how;
    operand_format format;
    isa set;
};

/// In the order that decides where nothing else does. Some row fits every legal problem.
std::span<const algorithm> all_algorithms();

}  // namespace convgrad::cpu
