// What `convgrad train` prints.
#pragma once

#include <string>
#include <vector>

#include "train/trainer.hpp"

namespace convgrad::cli {

/// What a part of the training steps took.
struct time_share {
    std::string name, what;
    long calls = 0;  // 0: no op of the library
    double seconds = 0;
    double flops = 0, bytes = 0;  // computed; copied
};
/// Seconds of all steps of this run.
double training_seconds(const train::trainer &trainer);
/// Ops, what a device costs beside them, everything else; together all of it.
std::vector<time_share> time_shares(const train::trainer &trainer);

/// Data, model and machine, before training.
std::string introduction(
    const train::settings &chosen, const train::dataset &data, const engine &on);
/// Titles of the lines that epoch_line() makes.
std::string epoch_title(const train::settings &chosen);
std::string epoch_line(const train::settings &chosen, int epoch, const train::epoch_record &r);
/// The result and, unless `brief`, the time by op.
std::string closing(const train::trainer &trainer, bool brief);

}  // namespace convgrad::cli
