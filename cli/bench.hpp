// convgrad bench: how long each case takes, and how close that is to what the machine can do.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "options.hpp"
#include "peaks.hpp"

namespace convgrad::cli {

struct bench_options {
    selection_options select;
    output_options output;
    bool json = false;
    std::string html;  // file for the report; empty: none
    bool cold = false;
    double seconds = 0.3;  // for each case, at least
};

/// One measured case.
struct bench_result {
    op_case what;
    std::string algorithm;
    isa set = isa::portable;  // of the kernel that ran
    int threads = 0;
    double min_seconds = 0, median_seconds = 0;
    limit bound;

    [[nodiscard]] double gflops() const { return bound.flops / min_seconds * 1e-9; }
    [[nodiscard]] double gigabytes() const { return bound.bytes / min_seconds * 1e-9; }
    /// Share of the roofline: 1 is the machine's limit.
    [[nodiscard]] double roofline() const { return bound.seconds() / min_seconds; }
};

void add_bench_options(CLI::App &app, bench_options &options);

/// Exit status: 0, or 1 if a case could not be run.
int run_bench(const bench_options &options);

/// The text as a JSON string; bytes outside ASCII become '?', because they need not be UTF-8.
std::string json_string(std::string_view text);
/// One line of JSON, without newline.
std::string json_line(const bench_result &r);
/// All results as a table.
std::string table_text(const std::vector<bench_result> &results);

}  // namespace convgrad::cli
