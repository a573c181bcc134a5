// convgrad ops: the op schemas as tables.
#pragma once

#include <string>

namespace convgrad::cli {

/// All ops, or the one named (any of its names). Exit status 0; throws usage_error.
int run_ops(const std::string &name);

}  // namespace convgrad::cli
