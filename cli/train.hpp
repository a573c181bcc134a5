// convgrad train: a network learns from handwritten digits, with this library's gradients.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "options.hpp"

namespace convgrad::cli {

/// As typed; what is left out comes from the checkpoint when resuming, else from defaults.
struct train_options {
    std::string model, type, engine_name, isa_name, math;
    std::string data, checkpoint, resume, html;
    std::optional<std::uint64_t> seed;
    std::optional<int> epochs, batch;
    int threads = 0;
    output_options output;
};

void add_train_options(CLI::App &app, train_options &options);

/// Exit status: 0, or 1 if training diverged.
int run_train(const train_options &options);

}  // namespace convgrad::cli
