// Errors of an engine that is not here: measured into a file where it is, shown as tables anywhere.
#pragma once

#include <string>

namespace convgrad::accuracy {

/// Measures on "cpu", "cuda" or "cuda:N" and writes a line for each type, kind of layers, pass,
/// method and data. The exit status. Throws what the engine throws, and std::runtime_error.
int measure_engine(const std::string &engine, const std::string &path);

/// The tables of such a file. Throws std::runtime_error if it is none.
std::string engine_tables(const std::string &path);

}  // namespace convgrad::accuracy
