// convgrad bench: how long each case takes, and how close that is to what the machine can do.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data.hpp"
#include "engines.hpp"
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
    bool plan = false;     // measure the making of plans instead
    bool model = false;    // measure every algorithm, and compare with what is predicted
    int scan = 0;          // number of random problems around the selected ones; 0: no scan
    std::uint64_t seed = 1;
};

/// One measured case.
struct bench_result {
    op_case what;
    std::string algorithm;
    std::string uses;  // of the engine: the instruction set of the kernel that ran, "sm_90"
    int threads = 0;   // 0: not the host computed
    double min_seconds = 0, median_seconds = 0;
    limit bound;

    [[nodiscard]] double gflops() const { return bound.flops / min_seconds * 1e-9; }
    [[nodiscard]] double gigabytes() const { return bound.bytes / min_seconds * 1e-9; }
    /// Share of the roofline: 1 is the machine's limit.
    [[nodiscard]] double roofline() const { return bound.seconds() / min_seconds; }
};

/// Measures cases one after the other; memory, engines and peaks are kept between them.
class case_timer {
public:
    /// Executions for `seconds`, three at least, after one that warms up. `cold`: tensors are out
    /// of all caches before each. Throws out_of_memory for a case that does not fit.
    bench_result measure(const op_case &c, double seconds, bool cold);
    [[nodiscard]] engine_cache &engines() { return engines_; }
    [[nodiscard]] machine_peaks &peaks() { return peaks_; }

private:
    engine_cache engines_;
    tensor_store store_;
    machine_peaks peaks_;
};

void add_bench_options(CLI::App &app, bench_options &options);

/// Exit status: 0, or 1 if a case could not be run.
int run_bench(const bench_options &options);

/// What --plan, --model and --scan do instead, on the selected cases.
int run_bench_model(const bench_options &options, const std::vector<op_case> &cases);
int run_bench_plan(const bench_options &options, const std::vector<op_case> &cases);
int run_bench_scan(const bench_options &options, const std::vector<op_case> &points);

/// The text as a JSON string; bytes outside ASCII become '?', because they need not be UTF-8.
std::string json_string(std::string_view text);
/// The members of a JSON object that tell which case `c` is, from "op" to "name".
std::string json_case(const op_case &c);
/// One line of JSON, without newline.
std::string json_line(const bench_result &r);
/// All results as a table.
std::string table_text(const std::vector<bench_result> &results);

}  // namespace convgrad::cli
