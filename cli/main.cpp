// The command `convgrad`: reads the arguments and hands over to one subcommand.
#include <algorithm>
#include <exception>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <convgrad/error.hpp>
#include <convgrad/version.hpp>

#include "bench.hpp"
#include "completion.hpp"
#include "explain.hpp"
#include "info.hpp"
#include "op/schema.hpp"
#include "ops.hpp"
#include "output.hpp"
#include "terminal.hpp"
#include "train.hpp"
#include "usage_error.hpp"
#include "verify.hpp"

namespace convgrad::cli {
namespace {

constexpr int exit_usage = 2;

constexpr const char *exit_codes = R"(Exit status:
  0  all is well
  1  a check failed, a case could not be measured, nothing was selected, or training diverged
  2  bad arguments or files, or results could not be written; the message is on stderr

Environment:
  CONVGRAD_MAX_ISA      highest instruction set to use
  CONVGRAD_NUM_THREADS  default number of threads
  NO_COLOR              if set, no colours)";

constexpr const char *verify_examples = R"(Examples:
  convgrad verify
      an embedded set of all kinds of problems, six ops, three types, all layouts
  convgrad verify mb8ic64ih56oc64kh3ph1 --dtype all --data-format all
  convgrad verify --batch shapes.txt --op ConvolutionBackwardWeights --dtype bf16 --threads 1,2
      with several numbers of threads, results must also agree bit for bit
  convgrad verify --deconv mb4ic64ih64oc64oh128kh3sh2ph1

Ends with the line 'N passed, M failed' (and ', K skipped' if some did not fit into memory). If none
passed and none failed, nothing was checked: exit status 1, unless --allow-empty is given.)";

constexpr const char *bench_examples = R"(Examples:
  convgrad bench
      layers of well-known networks, all ops and types
  convgrad bench mb16ic64ih56oc64kh3ph1 --dtype all --threads 1,2
  convgrad bench --batch shapes.txt --op ConvolutionBackwardWeights --json > results.json
  convgrad bench --deconv mb32ic256ih8oc128kh4sh2ph1 --isa all --cold
  convgrad bench --engine cpu,cuda --dtype bf16 --html report.html
      both engines of one machine side by side, as a page too: where does a layer belong?
  convgrad bench --plan --batch shapes.txt --dtype all
      how long it takes to make plans
  convgrad bench --model --batch shapes.txt --threads 1
      every algorithm that can run a layer: predicted and measured times
  convgrad bench --scan=500 --threads 1
      500 random problems around training shapes: is one far slower than its neighbours?

GFLOP/s count two for each multiply-add, padded taps included; GB/s count each tensor once. The
roofline is the share of the time that arithmetic or memory traffic needs at the peaks measured in
the same run. With --json: op, dtype, data_format, weights_format, problem, name, engine,
math, isa, algorithm, threads, min_ms, median_ms, gflops, roofline.)";

constexpr const char *explain_examples = R"(Examples:
  convgrad explain ConvolutionBackwardWeights mb16ic64ih56oc64kh3ph1
  convgrad explain ConvTranspose mb32ic256ih8oc128kh4sh2ph1 --dtype bf16 --isa all)";

constexpr const char *train_examples = R"(Examples:
  convgrad train
      a classifier of handwritten digits, which are part of the program
  convgrad train --model autoencoder --dtype bf16
  convgrad train --engine cuda
      convolutions on the first GPU, everything else on the CPU; tells what the copies take
  convgrad train --data mnist --epochs 2 --checkpoint state
      on MNIST's files, unpacked in the directory mnist; the state is written after every epoch
  convgrad train --resume state --checkpoint state
      continues, with the bits that an uninterrupted run would have

The closing lines tell the test accuracy, a hash of all weights (the same for the same seed, whatever
the number of threads) and the time by op.)";

constexpr const char *ops_examples = R"(Examples:
  convgrad ops
  convgrad ops ConvolutionBackwardWeights)";

constexpr const char *info_examples = R"(Example:
  CONVGRAD_MAX_ISA=avx2 convgrad info)";

/// CLI11 would only say that a subcommand is required.
void check_subcommand(const CLI::App &app, std::string_view word) {
    if (word.empty() || word.starts_with("-")) return;
    std::vector<std::string> names;
    for (const CLI::App *sub : app.get_subcommands({})) names.push_back(sub->get_name());
    if (std::find(names.begin(), names.end(), word) != names.end()) return;
    const std::vector<std::string_view> views(names.begin(), names.end());
    const std::string_view near = ops::nearest(word, views);
    throw usage_error(fmt::format("there is no subcommand '{}'; {}", word,
        near.empty() ? fmt::format("expected {}", fmt::join(names, ", "))
                     : fmt::format("did you mean {}?", near)));
}

constexpr const char *completion_examples = R"(Examples:
  source <(convgrad completion bash)
  convgrad completion bash > ~/.local/share/bash-completion/completions/convgrad)";

constexpr const char *manual_examples = R"(Example:
  convgrad man | man -l -)";

/// CLI11 would only say that an option was not expected.
[[noreturn]] void refuse_extras(const CLI::App &app) {
    const CLI::App *at = &app;
    while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
    const std::vector<std::string> extras = at->remaining();
    const std::string word = extras.empty() ? "" : extras.front();
    if (!word.starts_with("-"))
        throw usage_error(fmt::format("{}: unexpected argument '{}'", at->get_name(), word));
    std::vector<std::string> names;
    for (const CLI::Option *o : at->get_options())
        for (const std::string &name : o->get_lnames()) names.push_back("--" + name);
    const std::vector<std::string_view> views(names.begin(), names.end());
    const std::string_view near = ops::nearest(word.substr(0, word.find('=')), views);
    throw usage_error(fmt::format("{} has no option '{}'; {}", at->get_name(), word,
        near.empty() ? fmt::format("convgrad {} --help lists them", at->get_name())
                     : fmt::format("did you mean {}?", near)));
}

int run(int argc, char **argv) {
    CLI::App app("Convolutions and their gradients on CPUs", "convgrad");
    app.set_version_flag("--version", CONVGRAD_VERSION_STRING);
    app.require_subcommand(1);
    app.footer(exit_codes);
    app.get_formatter()->column_width(34);
    int status = 0;

    verify_options verify;
    CLI::App *verify_app =
        app.add_subcommand("verify", "Check results against the plain reference");
    add_verify_options(*verify_app, verify);
    verify_app->footer(verify_examples);
    verify_app->callback([&] { status = run_verify(verify); });

    bench_options bench;
    CLI::App *bench_app =
        app.add_subcommand("bench", "Measure time, and share of the machine's limits");
    add_bench_options(*bench_app, bench);
    bench_app->footer(bench_examples);
    bench_app->callback([&] { status = run_bench(bench); });

    explain_options explain;
    CLI::App *explain_app =
        app.add_subcommand("explain", "Show the plan for a problem, and why it is that one");
    add_explain_options(*explain_app, explain);
    explain_app->footer(explain_examples);
    explain_app->callback([&] { status = run_explain(explain); });

    std::string op_name;
    CLI::App *ops_app =
        app.add_subcommand("ops", "List the ops, or show one with inputs, outputs and attributes");
    ops_app->add_option(
        "OP", op_name, "Name of an op; older names and versions (-1) are understood");
    ops_app->footer(ops_examples);
    ops_app->callback([&] { status = run_ops(op_name); });

    CLI::App *info_app =
        app.add_subcommand("info", "Show version, processor, threads and algorithms");
    info_app->footer(info_examples);
    info_app->callback([&] { status = run_info(); });

    train_options train;
    CLI::App *train_app =
        app.add_subcommand("train", "Train a network on handwritten digits with these ops");
    add_train_options(*train_app, train);
    train_app->footer(train_examples);
    train_app->callback([&] { status = run_train(train); });

    std::string shell;
    CLI::App *completion_app =
        app.add_subcommand("completion", "Print a script that completes this command in a shell");
    completion_app->add_option("SHELL", shell, "bash")->required()->check(CLI::IsMember({"bash"}));
    completion_app->footer(completion_examples);
    completion_app->callback([&] { put("{}", bash_completion(app)); });

    CLI::App *manual_app = app.add_subcommand("man", "Print the manual page");
    manual_app->footer(manual_examples);
    manual_app->callback([&] { put("{}", manual_page(app)); });

    try {
        check_subcommand(app, argc > 1 ? argv[1] : "");
        app.parse(argc, argv);
    } catch (const CLI::ExtrasError &) {
        refuse_extras(app);
    } catch (const CLI::ParseError &e) {
        std::ostringstream out, err;
        const int asked = app.exit(e, out, err);
        put_result(out.str());
        message("{}", err.str());
        return asked == 0 ? 0 : exit_usage;
    }
    return status;
}

}  // namespace
}  // namespace convgrad::cli

int main(int argc, char **argv) {
    using namespace convgrad;
    cli::occupy_standard_streams();
    cli::end_cleanly_on_signals();
    try {
        const int status = cli::run(argc, argv);
        cli::close_results();
        return status;
    } catch (const error &e) {
        cli::message("convgrad: {}: {}\n", to_string(e.code()), e.what());
    } catch (const std::exception &e) {
        cli::message("convgrad: {}\n", e.what());
    }
    return cli::exit_usage;
}
