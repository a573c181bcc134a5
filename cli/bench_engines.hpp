// Results of several engines side by side: where does a layer belong?
#pragma once

#include <string>
#include <vector>

#include "bench.hpp"

namespace convgrad::cli {

/// One case on all engines.
struct engine_row {
    const bench_result *first;    // any of its results, for what is measured
    std::vector<double> seconds;  // by engine; 0: not measured there

    /// The index of the fastest.
    [[nodiscard]] std::size_t fastest() const;
    /// How many times as fast as the next one it is; 0 if there is no other.
    [[nodiscard]] double lead() const;
};

struct engine_comparison {
    std::vector<std::string> names;
    std::vector<engine_row> rows;  // those measured on more than one engine
};

/// "cpu", "cuda:0"; where that is not enough to tell engines apart, with what they differ in. By
/// result.
std::vector<std::string> short_engine_names(
    const std::vector<bench_result> &results, engine_cache &engines);

/// `results` outlive what is returned.
engine_comparison compare_engines(const std::vector<bench_result> &results, engine_cache &engines);

/// A table and a line for each engine; empty where nothing ran on more than one.
std::string comparison_text(const engine_comparison &c);

}  // namespace convgrad::cli
