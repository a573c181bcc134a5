// The options that select what to work on and where, shared by verify, bench, explain and train.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "embedded_problems.hpp"
#include "op_case.hpp"

namespace convgrad::cli {

/// As typed; expand() makes sense of them.
struct selection_options {
    std::vector<std::string> problems, batches;
    std::string ops, types, data_formats, weights_formats, engines, threads, isas, math;
    std::string match;
    dim mb = 0;
    bool deconv = false, allow_empty = false;
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

/// What --engine names, without the settings that an engine has.
struct engine_place {
    engine_kind kind = engine_kind::cpu;
    int device = 0;
    bool cudnn = false;
    friend bool operator==(const engine_place &, const engine_place &) = default;
};
inline constexpr const char *engine_help =
    "cpu, cuda or cuda:N (a GPU's number), cuda+cudnn (cuDNN may compute too); default: cpu";
inline constexpr std::string_view cpu_settings_without_cpu =
    "--threads and --isa are for the CPU, which --engine does not name";
/// The one engine that a text names; empty: the CPU. Throws usage_error.
engine_place parse_one_engine(std::string_view text);
/// Throws usage_error that says what is missing, if this machine has no such engine.
void require_engine(const engine_place &place);

/// Whether the text as a whole is a decimal number, read the same way in every locale.
bool read_number(std::string_view text, double &value);
template <std::integral T>
bool read_number(std::string_view text, T &value) {
    const char *last = text.data() + text.size();
    const auto [end, status] = std::from_chars(text.data(), last, value);
    return status == std::errc{} && end == last;
}

/// For CLI::Option::transform(): a number of any type between two limits. In contrast to
/// CLI::Range, no NaN, nothing beyond 64 bits, no sign that wraps around, no octal.
template <typename T>
CLI::Validator number_between(T least, T most) {
    const auto judge = [=](std::string &text) {
        T value{};
        if (!read_number(text, value) || !(value >= least && value <= most))
            return fmt::format("'{}' is not a number from {} to {}", text, least, most);
        text = fmt::format("{}", value);
        return std::string();
    };
    return CLI::Validator(judge, "");
}

/// Any seed.
inline CLI::Validator seed_number() {
    return number_between<std::uint64_t>(0, std::numeric_limits<std::uint64_t>::max());
}

/// For CLI::Option::check(): names and lists, which cannot be empty.
CLI::Validator some_text();

/// Everything that was selected, in the order of the problems.
struct selection {
    std::vector<op_case> cases;
    /// Things worth telling that are no errors: ignored batch options, say.
    std::vector<std::string> notes;
};

/// Throws usage_error for anything that is misspelled, contradictory or not to be had here. `set`
/// is taken where no problem is given: `verify` in all layouts, both in all types.
selection expand(const selection_options &options, embedded_set set);

/// Tells that nothing was `done` because nothing was selected. The exit status: that is a mistake,
/// unless it was allowed.
int nothing_selected(const selection_options &options, std::string_view done);

/// An op by any of its names. Throws usage_error that proposes the nearest one.
op_kind parse_op(std::string_view name);

/// "3.2 GiB"
std::string bytes_text(double bytes);

/// The notes, each a line on stderr.
void print_notes(const std::vector<std::string> &notes, const output_options &output);

}  // namespace convgrad::cli
