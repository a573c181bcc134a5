// The trace of CONVGRAD_VERBOSE: one line per compile and execute, on standard output.
//
//   convgrad_verbose,exec,cpu,partition:0,Convolution:conv+ReLU:relu,tiled:avx512 tile
//   4x14,...,0.31
#pragma once

#include <chrono>
#include <string>

namespace convgrad::onednn {

/// CONVGRAD_VERBOSE is set and not 0. Read once.
bool is_verbose();

/// Milliseconds since it was made.
class stopwatch {
public:
    [[nodiscard]] double milliseconds() const {
        return std::chrono::duration<double, std::milli>(clock::now() - start_).count();
    }

private:
    using clock = std::chrono::steady_clock;
    clock::time_point start_ = clock::now();
};

/// Prints "convgrad_verbose,<event>,cpu,<text>,<milliseconds>".
void trace(const char *event, const std::string &text, double milliseconds);

/// Prints why a call was refused, if tracing.
void trace_error(const char *call, const char *message);

}  // namespace convgrad::onednn
