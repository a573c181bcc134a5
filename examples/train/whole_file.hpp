// Files that are whole or not there: written beside, synchronised, then renamed.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace convgrad::train {

/// Writes these bytes to `path`, links followed. A regular file, or one that is not there yet, is
/// replaced: a kill or a crash at any moment leaves the old or the new one, and a failure leaves
/// nothing else behind. Everything else (devices, FIFOs, and stdout or stderr by whatever name) is
/// written to directly. Throws std::runtime_error.
void replace_file(const std::string &path, std::span<const std::uint8_t> bytes);

/// Whether replace_file() could begin, found out before the work whose result goes there. Throws
/// std::runtime_error as replace_file() does.
void check_replaceable(const std::string &path);

/// Removes what replace_file() is writing at this moment; for signal handlers that end the process.
void remove_unfinished_file() noexcept;

}  // namespace convgrad::train
