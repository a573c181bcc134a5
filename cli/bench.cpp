#include "bench.hpp"

#include <algorithm>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bench_engines.hpp"
#include "bench_scan_points.hpp"
#include "output.hpp"
#include "report/report.hpp"
#include "table.hpp"
#include "terminal.hpp"
#include "train/whole_file.hpp"

namespace convgrad::cli {
namespace {

/// Runs every selected case and hands the results on.
class benchmark {
public:
    benchmark(const bench_options &options, const std::vector<op_case> &cases)
        : options_(options), cases_(cases), bar_(cases.size(), options.output.quiet) {}

    int run() {
        for (std::size_t i = 0; i < cases_.size(); ++i) {
            const op_case &c = cases_[i];
            bar_.show(i,
                fmt::format("{} {} {}", to_string(c.kind), to_string(c.type), to_text(*c.problem)));
            if (measure(c) && options_.json) print_json(results_.back());
        }
        bar_.clear();
        if (!options_.json && !results_.empty())
            put("{}{}{}", table_text(results_),
                comparison_text(compare_engines(results_, timer_.engines())), summary());
        if (!options_.html.empty() && !results_.empty()) {
            write_bench_report(options_.html, results_, timer_.engines(), timer_.peaks());
            if (!options_.output.quiet) message("report: {}\n", options_.html);
        }
        return failed_ ? 1 : 0;
    }

private:
    bool measure(const op_case &c) {
        try {
            results_.push_back(timer_.measure(c, options_.seconds, options_.cold));
            return true;
        } catch (const std::exception &e) {
            complain(c, e.what());
            return false;
        }
    }

    void print_json(const bench_result &r) {
        bar_.clear();
        put("{}\n", json_line(r));
        flush_results();
    }

    void complain(const op_case &c, const char *why) {
        bar_.clear();
        failed_ = true;
        message("convgrad: {} {} {}: {}\n", to_string(c.kind), to_string(c.type),
            to_text(*c.problem), why);
    }

    /// The peaks behind the roofline, once for each combination that occurred.
    std::string summary() {
        if (options_.output.quiet) return {};
        std::string text = "\nPeaks measured in this run:\n";
        std::vector<engine_choice> seen;
        for (const op_case &c : cases_) {
            if (std::find(seen.begin(), seen.end(), c.on) != seen.end()) continue;
            seen.push_back(c.on);
            text += fmt::format("  {}\n", timer_.peaks().describe(timer_.engines().get(c.on)));
        }
        return text;
    }

    const bench_options &options_;
    const std::vector<op_case> &cases_;
    progress bar_;
    case_timer timer_;
    std::vector<bench_result> results_;
    bool failed_ = false;
};

}  // namespace

std::string json_string(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\')
            out += fmt::format("\\{}", c);
        else if (c < ' ' || c > '~')
            out += '?';
        else
            out += c;
    }
    return out + "\"";
}

std::string json_case(const op_case &c) {
    return fmt::format(
        R"("op": {}, "dtype": {}, "data_format": {}, "weights_format": {}, "problem": {}, "name": {}, "engine": {}, "math": {})",
        json_string(to_string(c.kind)), json_string(to_string(c.type)),
        json_string(to_string(c.data)), json_string(weights_text(c)),
        json_string(to_text(*c.problem, false)), json_string(c.problem->name),
        json_string(engine_name(c.on)), json_string(to_string(c.on.math)));
}

std::string json_line(const bench_result &r) {
    return fmt::format(
        R"({{{}, "isa": {}, "algorithm": {}, "threads": {}, "min_ms": {:.6g}, "median_ms": {:.6g}, )"
        R"("gflops": {:.6g}, "roofline": {:.4g}}})",
        json_case(r.what), json_string(r.uses), json_string(r.algorithm), r.threads,
        r.min_seconds * 1e3, r.median_seconds * 1e3, r.gflops(), r.roofline());
}

std::string table_text(const std::vector<bench_result> &results) {
    table t;
    t.column("op")
        .column("dtype")
        .column("layout")
        .column("problem")
        .column("algorithm")
        .column("isa");
    for (const char *title : {"threads", "min ms", "median ms", "GFLOP/s", "GB/s", "roofline"})
        t.column(title, align::right);
    t.column("limit");
    for (const bench_result &r : results) {
        const op_case &c = r.what;
        t.row({std::string(to_string(c.kind)), std::string(to_string(c.type)),
            fmt::format("{} {}", to_string(c.data), weights_text(c)),
            c.problem->name.empty() ? to_text(*c.problem) : c.problem->name, r.algorithm, r.uses,
            r.threads > 0 ? std::to_string(r.threads) : "",
            fmt::format("{:.3f}", r.min_seconds * 1e3),
            fmt::format("{:.3f}", r.median_seconds * 1e3), fmt::format("{:.1f}", r.gflops()),
            fmt::format("{:.1f}", r.gigabytes()), fmt::format("{:.0f} %", r.roofline() * 100),
            r.bound.compute_bound() ? "compute" : "memory"});
    }
    return t.text();
}

void add_bench_options(CLI::App &app, bench_options &options) {
    add_selection_options(app, options.select);
    constexpr const char *how = "How to measure";
    app.add_flag("--json", options.json, "One JSON object per line instead of a table")->group(how);
    CLI::Option *html =
        app.add_option("--html", options.html, "Also write a page with charts and tables")
            ->check(some_text())
            ->option_text("FILE")
            ->group(how);
    CLI::Option *cold =
        app.add_flag("--cold", options.cold, "Tensors out of all caches before every execution")
            ->group(how);
    CLI::Option *seconds =
        app.add_option("--seconds", options.seconds, "Time for each case; default: 0.3")
            ->transform(number_between(0.0, 3600.0))
            ->option_text("S")
            ->group(how);
    constexpr const char *instead = "What to measure instead";
    CLI::Option *plan =
        app.add_flag("--plan", options.plan, "How long the making of each plan takes")
            ->group(instead);
    CLI::Option *model =
        app.add_flag("--model", options.model,
               "Every algorithm that accepts a case: predicted and measured times, and what the "
               "choice costs")
            ->group(instead);
    CLI::Option *scan =
        app.add_flag("--scan{1000}", options.scan,
               "N random problems around the selected ones, all types and layouts; flags each case "
               "that is more than three times below its neighbours; default N: 1000")
            ->transform(number_between(1, 10000000))
            ->group(instead);
    app.add_option("--seed", options.seed, "Of the scan's random numbers; default: 1")
        ->transform(seed_number())
        ->option_text("N")
        ->group(instead)
        ->needs(scan);
    // What would have no effect is refused.
    plan->excludes(html)->excludes(cold)->excludes(seconds);
    scan->excludes(html)->excludes(seconds);
    model->excludes(html)->excludes(cold)->excludes(plan);
    add_output_options(app, options.output);
}

int run_bench(const bench_options &options) {
    selection_options select = options.select;
    if (options.scan > 0)
        for (std::string *list : {&select.types, &select.data_formats, &select.weights_formats})
            if (list->empty()) *list = "all";
    const selection selected =
        expand(select, options.scan > 0 ? embedded_set::scan : embedded_set::bench);
    print_notes(selected.notes, options.output);
    if (selected.cases.empty()) return nothing_selected(select, "measured");
    if (!options.html.empty()) train::check_replaceable(options.html);
    if (options.scan == 0) {
        if (options.plan) return run_bench_plan(options, selected.cases);
        if (options.model) return run_bench_model(options, selected.cases);
        return benchmark(options, selected.cases).run();
    }
    const auto points =
        scan_points(selected.cases, static_cast<std::size_t>(options.scan), options.seed);
    if (points.empty()) {
        message("convgrad: nothing was measured: no problem near the selected ones is large enough "
                "(--allow-empty accepts that)\n");
        return select.allow_empty ? 0 : 1;
    }
    if (options.plan) return run_bench_plan(options, points);
    return options.model ? run_bench_model(options, points) : run_bench_scan(options, points);
}

}  // namespace convgrad::cli
