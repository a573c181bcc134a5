#include "train.hpp"

#include <filesystem>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cpu/isa.hpp"
#include "cpu/pool.hpp"
#include "engines.hpp"
#include "op/schema.hpp"
#include "output.hpp"
#include "report/report.hpp"
#include "table.hpp"
#include "terminal.hpp"
#include "train/checkpoint.hpp"
#include "train/trainer.hpp"
#include "train/whole_file.hpp"
#include "train_device.hpp"
#include "train_summary.hpp"
#include "usage_error.hpp"

namespace convgrad::cli {
namespace {

/// One of `choices` by its name. Throws usage_error that proposes the nearest.
template <typename T, std::size_t N>
T parse_choice(std::string_view option, std::string_view text, const T (&choices)[N]) {
    std::vector<std::string_view> names;
    for (T choice : choices) {
        if (ops::equal_ignoring_case(text, to_string(choice))) return choice;
        names.push_back(to_string(choice));
    }
    const std::string_view near = ops::nearest(text, names);
    throw usage_error(fmt::format("{} {}: expected {}{}", option, text, fmt::join(names, ", "),
        near.empty() ? "" : fmt::format(" (did you mean {}?)", near)));
}

engine_choice choose_engine(const train_options &options) {
    engine_choice chosen;
    const engine_place place = parse_one_engine(options.engine_name);
    chosen.kind = place.kind;
    chosen.device = place.device;
    chosen.cudnn = place.cudnn;
    if (chosen.kind != engine_kind::cpu && (options.threads != 0 || !options.isa_name.empty()))
        throw usage_error(std::string(cpu_settings_without_cpu));
    require_engine(place);
    chosen.threads = options.threads;
    if (!options.isa_name.empty())
        chosen.max_isa = parse_choice("--isa", options.isa_name, all_isas);
    if (!options.isa_name.empty() && !cpu::allowed().include(chosen.max_isa))
        throw usage_error(
            fmt::format("--isa {}: this machine (or CONVGRAD_MAX_ISA) allows {} at most",
                options.isa_name, to_string(cpu::name_of(cpu::allowed()))));
    if (!options.math.empty())
        chosen.math = parse_choice(
            "--math", options.math, {math_mode::strict, math_mode::accurate, math_mode::fast});
    return chosen;
}

/// Takes what was typed over what is there; with a checkpoint only the number of epochs may differ.
template <typename T>
void choose(T &value, const std::optional<T> &typed, bool fixed, std::string_view option) {
    if (!typed || *typed == value) return;
    if (fixed)
        throw usage_error(fmt::format("{} differs from what the checkpoint was made with", option));
    value = *typed;
}

train::settings make_settings(const train_options &options, std::optional<train::settings> saved) {
    using train::model_kind;
    train::settings chosen = saved.value_or(train::settings{});
    std::optional<model_kind> model;
    if (!options.model.empty())
        model = parse_choice(
            "--model", options.model, {model_kind::classifier, model_kind::autoencoder});
    std::optional<data_type> type;
    if (!options.type.empty())
        type = parse_choice(
            "--dtype", options.type, {data_type::f32, data_type::bf16, data_type::f16});
    const bool fixed = saved.has_value();
    choose(chosen.model, model, fixed, "--model");
    choose(chosen.type, type, fixed, "--dtype");
    choose(chosen.seed, options.seed, fixed, "--seed");
    choose(chosen.batch, options.batch, fixed, "--mb");
    constexpr int small_set = 15, large_set = 2;  // epochs
    if (!fixed) chosen.epochs = options.data.empty() ? small_set : large_set;
    choose(chosen.epochs, options.epochs, false, "--epochs");
    return chosen;
}

/// What changes while an epoch runs.
std::string live_text(const train::settings &chosen, const train::progress_report &now) {
    constexpr std::size_t cells = 20;
    const std::size_t full = now.step * cells / now.steps;
    const std::string accuracy = chosen.model == train::model_kind::classifier ? fmt::format(
                                     "  accuracy {:5.1f} %", now.so_far.accuracy * 100)
                                                                               : "";
    return fmt::format("epoch {}/{} [{:#<{}}{:.<{}}]  loss {:.4f}{}  {:.0f} images/s", now.epoch,
        chosen.epochs, "", full, "", cells - full, now.so_far.loss, accuracy,
        now.images_per_second);
}

void train_to_the_end(train::trainer &trainer, const train_options &options) {
    // The first state too: whether the file can be written shows before an epoch's work is lost.
    if (!options.checkpoint.empty()) train::write_checkpoint(options.checkpoint, trainer.save());
    status_line line(!options.output.quiet);
    if (!options.output.quiet) put("{}\n", epoch_title(trainer.chosen()));
    while (!trainer.finished()) {
        const train::epoch_record &record =
            trainer.run_epoch([&](const train::progress_report &now) {
                if (line.is_due()) line.show(live_text(trainer.chosen(), now));
            });
        line.clear();
        if (!options.checkpoint.empty())
            train::write_checkpoint(options.checkpoint, trainer.save());
        if (!options.output.quiet)
            put("{}\n",
                epoch_line(trainer.chosen(), static_cast<int>(trainer.history().size()), record));
        flush_results();
    }
}

/// Whether two names, the first of them to be written, are those of one regular file.
bool same_file(const std::string &written, const std::string &other) {
    namespace fs = std::filesystem;
    if (written.empty() || other.empty()) return false;
    std::error_code none;
    if (!fs::exists(written, none)) return fs::absolute(written, none) == fs::absolute(other, none);
    return fs::is_regular_file(written, none) && fs::equivalent(written, other, none);
}

void check_files(const train_options &options) {
    if (same_file(options.html, options.checkpoint))
        throw usage_error("--html and --checkpoint name the same file");
    if (same_file(options.html, options.resume))
        throw usage_error("--html and --resume name the same file");
    if (!options.html.empty()) train::check_replaceable(options.html);
}

}  // namespace

void add_train_options(CLI::App &app, train_options &options) {
    constexpr const char *what = "What to train";
    app.add_option("--model", options.model,
           "classifier (default), or autoencoder, whose decoder uses transposed convolutions")
        ->option_text("MODEL")
        ->group(what);
    app.add_option("--data", options.data,
           "Directory with IDX files as of MNIST; default: digits inside the program")
        ->check(some_text())
        ->option_text("DIR")
        ->group(what);
    app.add_option("--dtype", options.type,
           "Type of the convolutions: f32 (default), bf16 or f16; weights are kept in f32 too")
        ->option_text("TYPE")
        ->group(what);
    app.add_option("--epochs", options.epochs,
           "Passes over the training images; default: 15, with --data 2")
        ->transform(number_between(1, 100000))
        ->option_text("N")
        ->group(what);
    app.add_option("--mb", options.batch, "Batch size; default: 64")
        ->transform(number_between(2, 65536))
        ->option_text("N")
        ->group(what);
    app.add_option("--seed", options.seed,
           "Initial weights and order of images; same seed, same bits. Default: 1")
        ->transform(seed_number())
        ->option_text("N")
        ->group(what);
    app.add_option("--checkpoint", options.checkpoint, "Write the state here after every epoch")
        ->check(some_text())
        ->option_text("FILE")
        ->group(what);
    app.add_option("--resume", options.resume,
           "Continue from this checkpoint, with the settings stored in it")
        ->check(some_text())
        ->option_text("FILE")
        ->group(what);

    app.add_option("--html", options.html, "Also write a page with curves, charts and pictures")
        ->check(some_text())
        ->option_text("FILE")
        ->group(what);

    constexpr const char *where = "Where to run it";
    app.add_option("--engine", options.engine_name,
           std::string("Where the convolutions run, and nothing else: ") + engine_help)
        ->check(some_text())
        ->option_text("ENGINE")
        ->group(where);
    app.add_option("--threads", options.threads, "Number of threads; default: all cores")
        ->transform(number_between(1, cpu::max_threads))
        ->option_text("N")
        ->group(where);
    app.add_option("--isa", options.isa_name,
           "Highest instruction set: portable, avx2, avx512, avx512_bf16, amx_bf16 or neon; "
           "default: "
           "the best")
        ->option_text("ISA")
        ->group(where);
    app.add_option("--math", options.math,
           "Arithmetic for f32: strict, accurate or fast; default: accurate")
        ->option_text("MODE")
        ->group(where);
    add_output_options(app, options.output);
}

int run_train(const train_options &options) {
    check_files(options);
    std::optional<std::vector<std::uint8_t>> state;
    std::optional<train::settings> saved;
    if (!options.resume.empty()) {
        state = train::read_checkpoint(options.resume);
        saved = train::trainer::saved_settings(*state);
    }
    const train::settings chosen = make_settings(options, saved);
    const engine_choice where = choose_engine(options);
    engine_cache engines;
    const engine &on = engines.get(where);
    const train::dataset data =
        options.data.empty() ? train::embedded_digits() : train::read_directory(options.data);
    std::optional<gpu_device> gpu;
    if (on.kind() == engine_kind::cuda) gpu.emplace(on);
    train::trainer trainer(chosen, data, {on, gpu ? &*gpu : nullptr});
    if (state) trainer.restore(*state);
    try {
        if (!options.output.quiet) put("{}\n", introduction(chosen, data, on));
        train_to_the_end(trainer, options);
    } catch (const train::diverged &e) {
        message("convgrad: {}\n", e.what());
        return 1;
    }
    put("{}", closing(trainer, options.output.quiet));
    if (!options.html.empty()) {
        write_train_report(options.html, trainer, data, where);
        if (!options.output.quiet) message("report: {}\n", options.html);
    }
    return 0;
}

}  // namespace convgrad::cli
