// One self-contained HTML page about measurements: data as JSON, charts drawn by its own script.
#pragma once

#include <string>
#include <vector>

#include "bench.hpp"
#include "engines.hpp"
#include "train/trainer.hpp"

namespace convgrad::cli {

/// About cases of `bench`. `engines` and `peaks` are those of the run. Throws std::runtime_error if
/// the file cannot be written.
void write_bench_report(const std::string &path, const std::vector<bench_result> &results,
    engine_cache &engines, machine_peaks &peaks);

/// About a training that is finished, on the engine of `on`. Measures the machine's limits.
void write_train_report(const std::string &path, train::trainer &trainer,
    const train::dataset &data, const engine_choice &on);

/// The time of each op of each layer as a case of bench: its fastest call as minimum, its mean in
/// place of the median.
std::vector<bench_result> layer_results(const train::trainer &trainer, const engine_choice &on,
    const engine &used, machine_peaks &peaks);

}  // namespace convgrad::cli
