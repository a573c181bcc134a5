// Engines by their settings, each made once.
#pragma once

#include <map>

#include <convgrad/engine.hpp>

#include "op_case.hpp"

namespace convgrad::cli {

class engine_cache {
public:
    const engine &get(const engine_choice &choice) {
        const auto found = engines_.find(choice);
        if (found != engines_.end()) return found->second;
        engine_options options;
        options.kind = choice.kind;
        options.device = choice.device;
        if (choice.kind == engine_kind::cpu) {
            options.threads = choice.threads;
            options.max_isa = choice.max_isa;
        }
        options.math = choice.math;
        return engines_.emplace(choice, engine(options)).first->second;
    }

private:
    std::map<engine_choice, engine> engines_;
};

}  // namespace convgrad::cli
