// What `convgrad train` prints.
#pragma once

#include <string>

#include "train/trainer.hpp"

namespace convgrad::cli {

/// Data, model and machine, before training.
std::string introduction(
    const train::settings &chosen, const train::dataset &data, const engine &on);
/// Titles of the lines that epoch_line() makes.
std::string epoch_title(const train::settings &chosen);
std::string epoch_line(const train::settings &chosen, int epoch, const train::epoch_record &r);
/// The result and, unless `brief`, the time by op.
std::string closing(const train::trainer &trainer, bool brief);

}  // namespace convgrad::cli
