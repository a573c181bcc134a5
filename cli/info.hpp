// convgrad info: the library, the machine, and what the one uses of the other.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <convgrad/engine.hpp>

namespace convgrad::cli {

/// Names and values: version, processor, instruction sets, threads and so on.
std::vector<std::pair<std::string, std::string>> environment_facts(const engine &on);

/// Exit status 0.
int run_info();

}  // namespace convgrad::cli
