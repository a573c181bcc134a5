// Engines by their settings, each made once.
#pragma once

#include <map>
#include <string>

#include <convgrad/engine.hpp>

#include "op_case.hpp"

namespace convgrad::cli {

class engine_cache {
public:
    const engine &get(const engine_choice &choice);

private:
    std::map<engine_choice, engine> engines_;
};

/// "avx512, 2 threads", "cuda device 0 (NVIDIA H200), fast".
std::string engine_label(const engine &on);

}  // namespace convgrad::cli
