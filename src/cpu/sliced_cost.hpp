// Which lanes the slices of a problem have, and what they take.
#pragma once

#include "cpu/cost_model.hpp"
#include "cpu/sliced.hpp"

namespace convgrad::cpu {

struct sliced_choice {
    slice_lanes along;
    double seconds;
};
sliced_choice choose_slices(const problem_sizes &s, const kernel_set &kernels);

}  // namespace convgrad::cpu
