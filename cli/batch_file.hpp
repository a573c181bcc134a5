// benchdnn's batch files: problems and options, separated by white space, `#` comments.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <convgrad/types.hpp>

namespace convgrad::cli {

/// What one direction (`--dir`) asks for; several may be set.
struct directions {
    bool forward = false, backward_data = false, backward_weights = false;
};

/// One problem of a batch file, with the options that were in force where it stood.
struct batch_entry {
    std::string text;
    std::string where;  // "file:line"
    std::optional<bool> deconv;
    std::optional<directions> dir;
    /// Types of `--dt` that are ours; given but empty: the entry asks only for others.
    std::optional<std::vector<data_type>> types;
    std::string types_text;  // what --dt says
    dim mb = 0;              // 0: as the problem says
};

struct batch {
    std::vector<batch_entry> entries;
    /// Options that mean nothing here, and how often they occurred.
    std::map<std::string, int> ignored;
};

/// Reads `file` and the batch files it names. Honoured options: --batch, --reset, --dir, --dt,
/// --mb,
/// --match, --conv, --deconv. Throws usage_error with file and line.
batch read_batch(const std::filesystem::path &file);

/// Splits at commas; no empty parts.
std::vector<std::string> split_list(std::string_view text);

}  // namespace convgrad::cli
