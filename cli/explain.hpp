// convgrad explain: what the library would do with a problem, and why.
#pragma once

#include "options.hpp"

namespace convgrad::cli {

struct explain_options {
    selection_options select;
    output_options output;
    bool json = false;
};

void add_explain_options(CLI::App &app, explain_options &options);

/// Exit status 0; throws usage_error.
int run_explain(const explain_options &options);

}  // namespace convgrad::cli
