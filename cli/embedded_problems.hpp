// The problems that subcommands take when they are given none.
#pragma once

#include <span>
#include <string_view>

namespace convgrad::cli {

struct embedded_problem {
    std::string_view text;
    bool deconv;
};

enum class embedded_set {
    verify,  // small, one or two of every kind
    bench,   // layers of well-known networks
    scan,    // training shapes of all kinds, as centres for random ones
};

std::span<const embedded_problem> embedded_problems(embedded_set set);

}  // namespace convgrad::cli
