// One case against the reference: exact on integers, then within a derived bound on real data.
#pragma once

#include <cstdint>
#include <string>

#include "data.hpp"
#include "op_case.hpp"

namespace convgrad::cli {

struct check_options {
    std::uint64_t seed = 1;
    /// Every output element, however long that takes; otherwise a sample where the problem is
    /// large.
    bool exhaustive = false;
    /// Also hash the output on real data, so that runs can be compared.
    bool want_bits = false;
};

enum class outcome : std::uint8_t { passed, failed, skipped };

struct check_result {
    outcome what = outcome::passed;
    std::string detail;      // why it failed or was skipped
    std::uint64_t bits = 0;  // see want_bits
};

/// Runs the case the way a user's graph would and compares. Does not throw.
check_result check_case(
    const op_case &c, const engine &on, tensor_store &store, const check_options &options);

/// How far a result may be from the exact value: f32 sums of `terms` products whose absolute values
/// add up to `magnitude`, rounded once to `type`.
double error_bound(
    const conv::reference_value &exact, data_type input, data_type output, math_mode math);

}  // namespace convgrad::cli
