// Shell completion and manual page, both made from the command's own definitions.
#pragma once

#include <string>

#include <CLI/App.hpp>

namespace convgrad::cli {

/// A script for bash that completes subcommands, options and their values.
std::string bash_completion(const CLI::App &app);

/// The manual page convgrad(1), in troff.
std::string manual_page(const CLI::App &app);

}  // namespace convgrad::cli
