// convgrad verify: results against the reference.
#pragma once

#include <cstdint>

#include "options.hpp"

namespace convgrad::cli {

struct verify_options {
    selection_options select;
    output_options output;
    bool exhaustive = false;
    std::uint64_t seed = 1;
};

void add_verify_options(CLI::App &app, verify_options &options);

/// Exit status: 0, or 1 if any check failed or none was made.
int run_verify(const verify_options &options);

}  // namespace convgrad::cli
