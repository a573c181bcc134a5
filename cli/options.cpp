#include "options.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <limits>
#include <set>
#include <system_error>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <convgrad/error.hpp>

#include "batch_file.hpp"
#include "cpu/isa.hpp"
#include "cpu/pool.hpp"
#include "embedded_problems.hpp"
#include "match.hpp"
#include "op/schema.hpp"
#include "output.hpp"

namespace convgrad::cli {
namespace {

bool same_letters(std::string_view a, std::string_view b) {
    const auto same = [](unsigned char x, unsigned char y) {
        return std::tolower(x) == std::tolower(y);
    };
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

std::string unknown_value(
    std::string_view option, std::string_view value, const std::vector<std::string_view> &choices) {
    std::string text =
        fmt::format("{} {}: expected {}, or all", option, value, fmt::join(choices, ", "));
    const std::string_view near = ops::nearest(value, choices);
    return near.empty() ? text : fmt::format("{} (did you mean {}?)", text, near);
}

/// A comma list of names from `values`, or "all"; empty text: `fallback`.
template <typename T>
std::vector<T> parse_names(std::string_view option, std::string_view text,
    const std::vector<T> &values, std::vector<T> fallback) {
    if (text.empty()) return fallback;
    std::vector<std::string_view> names;
    for (T value : values) names.push_back(to_string(value));
    std::vector<T> chosen;
    bool all = false;
    for (const std::string &part : split_list(text)) {
        if (same_letters(part, "all")) {
            all = true;
            continue;
        }
        const auto match = std::find_if(names.begin(), names.end(),
            [&](std::string_view name) { return same_letters(name, part); });
        if (match == names.end()) throw usage_error(unknown_value(option, part, names));
        const T value = values[static_cast<std::size_t>(match - names.begin())];
        if (std::find(chosen.begin(), chosen.end(), value) == chosen.end()) chosen.push_back(value);
    }
    if (all) return values;
    if (chosen.empty()) throw usage_error(fmt::format("{} needs a value", option));
    return chosen;
}

std::vector<int> parse_threads(std::string_view text) {
    if (text.empty()) return {0};
    std::vector<int> list;
    for (const std::string &part : split_list(text)) {
        int n = 0;
        if (!read_number(part, n) || n < 1 || n > cpu::max_threads)
            throw usage_error(
                fmt::format("--threads {}: expected numbers from 1 to {}", part, cpu::max_threads));
        list.push_back(n);
    }
    if (list.empty()) throw usage_error("--threads needs a value");
    return list;
}

std::vector<isa> parse_isas(std::string_view text) {
    const cpu::capabilities allowed = cpu::allowed();
    const isa best = cpu::name_of(allowed);
    const std::vector<isa> all(std::begin(all_isas), std::end(all_isas));
    std::vector<isa> chosen = parse_names<isa>("--isa", text, all, {best});
    const std::vector<std::string> parts = split_list(text);
    const bool any = std::any_of(parts.begin(), parts.end(),
        [](const std::string &part) { return same_letters(part, "all"); });
    if (any) std::erase_if(chosen, [&](isa set) { return !allowed.include(set); });
    for (isa set : chosen)
        if (!allowed.include(set))
            throw usage_error(
                fmt::format("--isa {}: this machine (or CONVGRAD_MAX_ISA) allows {} at most",
                    to_string(set), to_string(best)));
    return chosen;
}

/// An engine by its name, without its settings.
engine_place parse_place(const std::string &part) {
    engine_place on;
    std::string text = part;
    if (text.size() > cudnn_suffix.size()
        && same_letters(text.substr(text.size() - cudnn_suffix.size()), cudnn_suffix)) {
        on.cudnn = true;
        text.resize(text.size() - cudnn_suffix.size());
    }
    const std::string name = text.substr(0, text.find(':'));
    const bool numbered = name.size() < text.size();
    bool known = same_letters(part, "cpu");
    if (same_letters(name, "cuda")) {
        on.kind = engine_kind::cuda;
        known = !numbered
                || (read_number(std::string_view(text).substr(name.size() + 1), on.device)
                    && on.device >= 0);
    }
    if (!known)
        throw usage_error(fmt::format(
            "--engine {}: expected cpu, cuda or cuda:N, a device from 0, or cuda+cudnn", part));
    return on;
}

std::vector<engine_place> parse_places(std::string_view text) {
    if (text.empty()) return {{}};
    std::vector<engine_place> list;
    for (const std::string &part : split_list(text)) {
        const engine_place on = parse_place(part);
        if (std::find(list.begin(), list.end(), on) == list.end()) list.push_back(on);
    }
    if (list.empty()) throw usage_error("--engine needs a value");
    return list;
}

const std::vector<op_kind> convolution_ops = {op_kind::convolution,
    op_kind::convolution_backward_data, op_kind::convolution_backward_weights};
const std::vector<op_kind> transposed_ops = {op_kind::conv_transpose,
    op_kind::conv_transpose_backward_data, op_kind::conv_transpose_backward_weights};
const std::vector<data_type> all_types = {data_type::f32, data_type::bf16, data_type::f16};

std::vector<op_kind> parse_ops(const selection_options &options) {
    std::vector<op_kind> kinds;
    bool all = false;
    for (const std::string &part : split_list(options.ops)) {
        if (same_letters(part, "all")) {
            all = true;
            continue;
        }
        const op_kind kind = parse_op(part);
        if (ops::schema_of(kind).epilogue)
            throw usage_error(fmt::format(
                "--op {}: it computes in graphs only, as part of a convolution's partition",
                to_string(kind)));
        if (options.deconv && !is_transposed(kind))
            throw usage_error(fmt::format("--op {} is not an op of transposed convolutions, which "
                                          "--deconv asks for",
                to_string(kind)));
        if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
    }
    if (all) return computed_ops();
    if (kinds.empty() && !options.ops.empty()) throw usage_error("--op needs a value");
    return kinds;
}

/// A problem text with what its source says about it.
struct request {
    std::string text, where;
    std::vector<op_kind> kinds;
    std::vector<data_type> types;
    dim mb = 0;
};

/// Lists after parsing; an empty `kinds` or `types` means that nothing was asked for.
struct choices {
    std::vector<op_kind> kinds;
    std::vector<data_type> types;
    std::vector<data_format> data;
    std::vector<weights_format> weights;
    std::vector<engine_choice> engines;
    std::optional<text_filter> match;
    dim mb = 0;
    bool all_layouts = false;  // where no format is asked for: all, not the default
};

choices parse_choices(const selection_options &options) {
    choices c;
    c.kinds = parse_ops(options);
    c.types = parse_names<data_type>("--dtype", options.types, all_types, {});
    c.data = parse_names<data_format>(
        "--data-format", options.data_formats, {data_format::nxc, data_format::ncx}, {});
    c.weights = parse_names<weights_format>("--weights-format", options.weights_formats,
        {weights_format::xio, weights_format::oix, weights_format::xoi, weights_format::iox}, {});
    const auto modes = parse_names<math_mode>("--math", options.math,
        {math_mode::strict, math_mode::accurate, math_mode::fast}, {math_mode::accurate});
    const std::vector<int> threads = parse_threads(options.threads);
    const std::vector<isa> sets = parse_isas(options.isas);
    const std::vector<engine_place> places = parse_places(options.engines);
    for (const engine_place &on : places) {
        if (on.kind == engine_kind::cpu)
            for (isa set : sets)
                for (math_mode mode : modes)
                    for (int n : threads) c.engines.push_back({n, set, mode, on.kind, on.device});
        else
            for (math_mode mode : modes)
                c.engines.push_back({0, isa::portable, mode, on.kind, on.device, on.cudnn});
    }
    const bool any_cpu = std::any_of(places.begin(), places.end(),
        [](const engine_place &on) { return on.kind == engine_kind::cpu; });
    if (!any_cpu && !(options.threads.empty() && options.isas.empty()))
        throw usage_error(std::string(cpu_settings_without_cpu));
    for (const engine_place &on : places) require_engine(on);  // before anything runs
    if (!options.match.empty()) c.match.emplace("--match", options.match);
    c.mb = options.mb;
    return c;
}

/// The weights formats of `kind` among those asked for; none asked for: the default, or both.
std::vector<weights_format> formats_for(op_kind kind, const choices &c) {
    const auto own = weights_formats_of(kind);
    if (c.weights.empty()) return c.all_layouts ? own : std::vector{own[0]};
    if (!has_weights(kind)) return own;
    std::vector<weights_format> formats;
    for (weights_format format : c.weights)
        if (format == own[0] || format == own[1]) formats.push_back(format);
    if (formats.empty())
        throw usage_error(fmt::format("--weights-format: {} takes {} or {}", to_string(kind),
            to_string(own[0]), to_string(own[1])));
    return formats;
}

/// The problem as `deconv` or convolution, with the batch size replaced where that was asked for.
std::shared_ptr<const problem_string> parse_request(
    const request &r, bool deconv, const choices &c) {
    try {
        problem_string p = parse_problem(r.text, deconv);
        const dim mb = c.mb != 0 ? c.mb : r.mb;
        if (mb == 0) return std::make_shared<problem_string>(std::move(p));
        p.mb = mb;  // parsed once more, because sizes may now overflow
        return std::make_shared<problem_string>(parse_problem(to_text(p), deconv));
    } catch (const problem_error &e) {
        const std::string where = r.where.empty() ? "" : r.where + ": ";
        throw usage_error(where + describe(e, r.text));
    }
}

void append_cases(selection &result, const request &r, const choices &c) {
    std::shared_ptr<const problem_string> parsed[2];
    const std::vector<data_type> types = c.types.empty() ? r.types : c.types;
    std::vector<data_format> data = c.data;
    if (data.empty()) data = {data_format::nxc};
    if (c.data.empty() && c.all_layouts) data.push_back(data_format::ncx);
    for (op_kind kind : c.kinds.empty() ? r.kinds : c.kinds) {
        const bool deconv = is_transposed(kind);
        if (!parsed[deconv]) parsed[deconv] = parse_request(r, deconv, c);
        for (data_type type : types)
            for (data_format format : data)
                for (weights_format weights : formats_for(kind, c))
                    for (const engine_choice &on : c.engines)
                        result.cases.push_back({parsed[deconv], kind, type, format, weights, on});
    }
}

request make_request(const batch_entry &entry, bool deconv) {
    request r{entry.text, entry.where, {}, {data_type::f32}, entry.mb};
    const auto &all = entry.deconv.value_or(deconv) ? transposed_ops : convolution_ops;
    for (op_kind kind : all) {
        const conv::pass pass = pass_of(kind);
        // Directions are those of the op as the user sees it, not of its canonical pass.
        const bool forward = kind == all.front(), weights = pass == conv::pass::backward_weights;
        if (!entry.dir || (forward && entry.dir->forward)
            || (weights && entry.dir->backward_weights)
            || (!forward && !weights && entry.dir->backward_data))
            r.kinds.push_back(kind);
    }
    if (entry.types) r.types = *entry.types;
    return r;
}

/// `count` problems were passed over because of what their --dt asks for.
std::string foreign_note(int count, const std::set<std::string> &types) {
    constexpr std::size_t most = 3;
    std::vector<std::string> shown;
    for (const std::string &text : types)
        if (shown.size() < most) shown.push_back("--dt=" + text);
    if (types.size() > most) shown.emplace_back("...");
    return fmt::format("passed over {} {} of batch files, whose types ({}) are not f32, bf16 or "
                       "f16 for all tensors alike; --dtype runs them in another type",
        count, count == 1 ? "problem" : "problems", fmt::join(shown, ", "));
}

void read_batches(std::vector<request> &requests, const selection_options &options,
    const choices &c, std::vector<std::string> &notes) {
    int foreign = 0;
    std::set<std::string> foreign_types;
    for (const std::string &name : options.batches) {
        std::error_code none;  // a name too long for a file is no file
        if (!std::filesystem::exists(name, none)) {
            // `--batch FILE PROBLEM`: the option takes any number of files, so tell them apart
            // here.
            try {
                parse_problem(name, options.deconv);
            } catch (const problem_error &) {
                throw usage_error(fmt::format("cannot read batch file '{}'", name));
            }
            requests.push_back(
                {name, {}, options.deconv ? transposed_ops : convolution_ops, {data_type::f32}, 0});
            continue;
        }
        const batch b = read_batch(name);
        for (const batch_entry &entry : b.entries) {
            if (c.types.empty() && entry.types && entry.types->empty()) {
                ++foreign;
                foreign_types.insert(entry.types_text);
            }
            requests.push_back(make_request(entry, options.deconv));
        }
        std::vector<std::string> ignored;
        for (const auto &[option, times] : b.ignored)
            ignored.push_back(fmt::format("{} ({})", option, times));
        if (!ignored.empty())
            notes.push_back(fmt::format(
                "{}: options without meaning here: {}", name, fmt::join(ignored, ", ")));
    }
    if (foreign > 0) notes.push_back(foreign_note(foreign, foreign_types));
}

}  // namespace

void add_selection_options(CLI::App &app, selection_options &options, op_argument ops_by) {
    constexpr const char *what = "What to work on";
    app.add_option("PROBLEM", options.problems,
           "Problems in benchdnn's syntax, e.g. mb8ic64ih56oc64kh3ph1; none: an embedded set")
        ->group(what);
    app.add_option("--batch", options.batches, "Files with problems, one or more a line")
        ->check(some_text())
        ->option_text("FILE ...")
        ->group(what);
    const auto list = [&](const char *name, std::string &value, const char *text,
                          const char *help) {
        app.add_option(name, value, help)->check(some_text())->option_text(text)->group(what);
    };
    if (ops_by == op_argument::option)
        list("--op", options.ops, "OP,...",
            "Ops; default: the three of convolution, with --deconv the three of transposed "
            "convolution");
    app.add_flag("--deconv", options.deconv, "The problems are transposed convolutions")
        ->group(what);
    list("--dtype", options.types, "TYPE,...", "f32, bf16, f16 or all; default: f32");
    list("--data-format", options.data_formats, "FORMAT,...", "NXC, NCX or all; default: NXC");
    list("--weights-format", options.weights_formats, "FORMAT,...",
        "XIO, OIX (transposed: XOI, IOX) or all; default: XIO (XOI)");
    app.add_option("--mb", options.mb, "Batch size, instead of the problems' own")
        ->transform(number_between<dim>(1, std::numeric_limits<dim>::max()))
        ->option_text("N")
        ->group(what);
    list("--match", options.match, "REGEX", "Only problems whose text matches");
    app.add_flag("--allow-empty", options.allow_empty,
           "Exit status 0 even if nothing was selected, or all of it skipped")
        ->group(what);

    constexpr const char *where = "Where to run it";
    const auto engine_list = [&](const char *name, std::string &value, const char *text,
                                 const char *help) {
        app.add_option(name, value, help)->check(some_text())->option_text(text)->group(where);
    };
    engine_list("--engine", options.engines, "ENGINE,...", engine_help);
    engine_list("--threads", options.threads, "N,...", "Numbers of threads; default: all cores");
    engine_list("--isa", options.isas, "ISA,...",
        "Highest instruction sets: portable, avx2, avx512, avx512_bf16, amx_bf16, neon or all "
        "(that "
        "this machine has); default: the best");
    engine_list("--math", options.math, "MODE,...",
        "Arithmetic for f32: strict, accurate, fast or all; default: accurate");
}

engine_place parse_one_engine(std::string_view text) {
    const std::vector<engine_place> places = parse_places(text);
    if (places.size() > 1) throw usage_error(fmt::format("--engine {}: expected one engine", text));
    return places.front();
}

void require_engine(const engine_place &place) {
    if (place.kind == engine_kind::cpu) return;
    try {
        const engine probe({.kind = place.kind, .device = place.device, .cudnn = place.cudnn});
    } catch (const error &e) {
        throw usage_error(fmt::format("--engine cuda:{}: {}", place.device, e.what()));
    }
}

void add_output_options(CLI::App &app, output_options &options) {
    app.add_flag("-q,--quiet", options.quiet, "Only results: no progress bar, no notes");
}

bool read_number(std::string_view text, double &value) {
    const char *last = text.data() + text.size();
    const auto [end, status] = std::from_chars(text.data(), last, value);
    return status == std::errc{} && end == last;
}

CLI::Validator some_text() {
    const auto judge = [](const std::string &text) {
        return std::string(text.empty() ? "the value is empty" : "");
    };
    return CLI::Validator(judge, "");
}

op_kind parse_op(std::string_view name) {
    for (op_kind kind : all_op_kinds)
        if (same_letters(name, to_string(kind))) return kind;
    try {
        return op_kind_from_name(name);
    } catch (const error &e) {
        throw usage_error(e.what());
    }
}

selection expand(const selection_options &options, embedded_set set) {
    selection result;
    const choices c = parse_choices(options);
    std::vector<request> requests;
    for (const std::string &text : options.problems)
        requests.push_back(
            {text, {}, options.deconv ? transposed_ops : convolution_ops, {data_type::f32}, 0});
    read_batches(requests, options, c, result.notes);
    const bool embedded = options.problems.empty() && options.batches.empty();
    if (embedded) {
        for (const embedded_problem &p : embedded_problems(set)) {
            if (options.deconv && !p.deconv) continue;
            requests.push_back({std::string(p.text), {},
                p.deconv ? transposed_ops : convolution_ops, all_types, 0});
            // A sum of the output: one of its ops where all are checked, or on demand.
            if (!p.deconv && (set == embedded_set::verify || !c.kinds.empty()))
                requests.back().kinds.push_back(op_kind::bias_add_backward);
            // An embedded problem has one reading: --op chooses among its own ops only.
            if (c.kinds.empty()) continue;
            std::erase_if(requests.back().kinds, [&](op_kind kind) {
                return std::find(c.kinds.begin(), c.kinds.end(), kind) == c.kinds.end();
            });
        }
    }
    choices applied = c;
    applied.all_layouts = embedded && set == embedded_set::verify;
    if (embedded) applied.kinds.clear();
    for (const request &r : requests)
        if (!c.match || c.match->accepts(r.text)) append_cases(result, r, applied);
    return result;
}

int nothing_selected(const selection_options &options, std::string_view done) {
    if (options.allow_empty) return 0;
    std::string why = "no problem was selected";
    if (!options.match.empty())
        why = fmt::format("no problem matches --match {}", options.match);
    else if (!options.batches.empty())
        why = fmt::format("no problem to be run is in {}", fmt::join(options.batches, ", "));
    message("convgrad: nothing was {}: {} (--allow-empty accepts that)\n", done, why);
    return 1;
}

std::string bytes_text(double bytes) {
    constexpr std::string_view units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    std::size_t i = 0;
    for (; bytes >= 1024 && i + 1 < std::size(units); ++i) bytes /= 1024;
    const bool whole = bytes == static_cast<double>(static_cast<dim>(bytes)) || bytes >= 100;
    return fmt::format("{:.{}f} {}", bytes, whole ? 0 : 1, units[i]);
}

void print_notes(const std::vector<std::string> &notes, const output_options &output) {
    if (output.quiet) return;
    for (const std::string &note : notes) message("note: {}\n", note);
}

}  // namespace convgrad::cli
