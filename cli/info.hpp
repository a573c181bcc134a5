// convgrad info: the library, the machine, and what the one uses of the other.
#pragma once

namespace convgrad::cli {

/// Exit status 0.
int run_info();

}  // namespace convgrad::cli
