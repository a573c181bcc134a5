// The options that select what to work on, shared by verify, bench and explain.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/App.hpp>

#include "embedded_problems.hpp"
#include "op_case.hpp"

namespace convgrad::cli {

/// As typed; expand() makes sense of them.
struct selection_options {
    std::vector<std::string> problems, batches;
    std::string ops, types, data_formats, weights_formats, threads, isas, math;
    std::string match;
    dim mb = 0;
    bool deconv = false;
};

/// Output options that every subcommand has.
struct output_options {
    bool quiet = false;
};

/// Whether ops are chosen by --op, or by a positional argument that the subcommand adds itself.
enum class op_argument { option, positional };

void add_selection_options(
    CLI::App &app, selection_options &options, op_argument ops = op_argument::option);
void add_output_options(CLI::App &app, output_options &options);

/// Everything that was selected, in the order of the problems.
struct selection {
    std::vector<op_case> cases;
    /// Things worth telling that are no errors: ignored batch options, say.
    std::vector<std::string> notes;
};

/// Throws usage_error for anything that is misspelled, contradictory or not to be had here. `set`
/// is taken where no problem is given: `verify` in all layouts, both in all types.
selection expand(const selection_options &options, embedded_set set);

/// An op by any of its names. Throws usage_error that proposes the nearest one.
op_kind parse_op(std::string_view name);

/// "3.2 GiB"
std::string bytes_text(double bytes);

/// The notes, each a line on stderr.
void print_notes(const std::vector<std::string> &notes, const output_options &output);

}  // namespace convgrad::cli
