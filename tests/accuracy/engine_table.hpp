// Errors of an engine that is not here: measured into a file where it is, shown as tables anywhere.
#pragma once

#include <string>
#include <vector>

namespace convgrad::accuracy {

/// Measures on "cpu", "cuda" or "cuda:N", with "+cudnn" behind it where cuDNN may compute too, and
/// writes a line for each type, kind of layers, pass, method and data. With `only` those algorithms
/// are measured, and their lines replaced in a file that has to be there. The exit status. Throws
/// what the engine throws, and std::runtime_error.
int measure_engine(
    const std::string &engine, const std::string &path, const std::vector<std::string> &only = {});

/// The tables of such a file. Throws std::runtime_error if it is none.
std::string engine_tables(const std::string &path);

}  // namespace convgrad::accuracy
