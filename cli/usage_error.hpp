// What a user can get wrong: reported on stderr, exit status 2.
#pragma once

#include <stdexcept>
#include <string>

namespace convgrad::cli {

/// Bad arguments or bad files. The message says which, and what was expected.
struct usage_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace convgrad::cli
