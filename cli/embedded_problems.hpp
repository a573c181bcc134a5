// The problems that `convgrad verify` takes when it is given none: one or two of every kind.
#pragma once

#include <span>
#include <string_view>

namespace convgrad::cli {

struct embedded_problem {
    std::string_view text;
    bool deconv;
};

std::span<const embedded_problem> embedded_problems();

}  // namespace convgrad::cli
