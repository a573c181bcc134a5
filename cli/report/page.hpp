// The page's fixed parts, and how data comes into it.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "bench.hpp"
#include "engines.hpp"

namespace convgrad::cli {

/// The page with `data` in it; "title" of the data is also the page's.
std::string page_with(const nlohmann::json &data);

/// "engines", "results" and "environment" of the data.
void add_results(nlohmann::json &data, const std::vector<bench_result> &results,
    engine_cache &engines, machine_peaks &peaks);

/// Writes the page; never leaves half a file.
void write_page(const std::string &path, const nlohmann::json &data);

}  // namespace convgrad::cli
