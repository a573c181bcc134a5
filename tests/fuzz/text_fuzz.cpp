// What users type: problem strings, batch files and the options that select cases. The answer is a
// result or a usage_error. A problem that was read is written and read again as the same.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include <convgrad/error.hpp>

#include "batch_file.hpp"
#include "fuzz/input.hpp"
#include "fuzz/scratch_directory.hpp"
#include "op_case.hpp"
#include "options.hpp"
#include "problem_string.hpp"

namespace convgrad::fuzz {
namespace {

void check_problem(const std::string &text, bool deconv) {
    try {
        const cli::problem_string p = cli::parse_problem(text, deconv);
        const std::string again = cli::to_text(p);
        require(cli::parse_problem(again, deconv) == p, "a problem changed in writing");
    } catch (const cli::problem_error &e) {
        require(!cli::describe(e, text).empty(), "an error without a message");
    }
}

void check_batch(const std::string &text) {
    // Names of other files must not lead out of the directory.
    if (text.find('/') != std::string::npos || text.find("..") != std::string::npos) return;
    static const scratch_directory here;
    const std::filesystem::path file = here.path() / "batch";
    std::ofstream(file, std::ios::binary) << text;
    try {
        const cli::batch read = cli::read_batch(file);
        for (const cli::batch_entry &e : read.entries)
            check_problem(e.text, e.deconv.value_or(false));
    } catch (const cli::usage_error &e) {
        require(e.what()[0] != '\0', "an error without a message");
    }
}

void check_selection(input &in) {
    cli::selection_options chosen;
    chosen.deconv = in.chance(2);
    chosen.mb = in.chance(4) ? in.number() : 0;
    for (std::string *text : {&chosen.ops, &chosen.types, &chosen.data_formats,
             &chosen.weights_formats, &chosen.threads, &chosen.isas, &chosen.math, &chosen.match})
        if (in.chance(2)) *text = in.text(40);
    chosen.problems.push_back(in.text(80));
    if (in.chance(4)) chosen.problems.push_back(in.text(80));
    try {
        const cli::selection found = cli::expand(chosen, cli::embedded_set::verify);
        for (std::size_t i = 0; i < std::min<std::size_t>(found.cases.size(), 4); ++i) {
            const cli::op_case &c = found.cases[i];
            require(!cli::selecting_options(c, 1).empty(), "nothing selects a case");
            const cli::op_call call = cli::make_call(c, true);
            require(cli::bytes_of(call) >= 0, "negative bytes");
        }
    } catch (const cli::usage_error &e) {
        require(e.what()[0] != '\0', "an error without a message");
    } catch (const error &e) {
        require(e.what()[0] != '\0', "an error without a message");
    }
}

void run(input &in) {
    const std::uint8_t what = in.byte();
    if (what % 4 == 3) return check_selection(in);
    const auto rest = in.remaining();
    const std::string text(rest.begin(), rest.end());
    if (what % 4 == 2) return check_batch(text);
    check_problem(text, what % 4 == 1);
}

}  // namespace
}  // namespace convgrad::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    convgrad::fuzz::input in(data, size);
    convgrad::fuzz::run(in);
    return 0;
}
