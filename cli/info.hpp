// convgrad info: the library, the machine, and what the one uses of the other.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include <convgrad/engine.hpp>

namespace convgrad::cli {

using fact = std::pair<std::string, std::string>;
/// Names and values: version, processor, instruction sets, threads and so on, of the machine and
/// the engines that are used on it; none: the default one.
std::vector<fact> environment_facts(std::span<const engine> used);

/// Exit status 0.
int run_info();

}  // namespace convgrad::cli
