#include "bench.hpp"

#include <algorithm>
#include <chrono>

#include <emmintrin.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <convgrad/error.hpp>

#include "engines.hpp"
#include "report/report.hpp"
#include "runner.hpp"
#include "table.hpp"
#include "terminal.hpp"

namespace convgrad::cli {
namespace {

using clock = std::chrono::steady_clock;

double since(clock::time_point start) {
    return std::chrono::duration<double>(clock::now() - start).count();
}

/// Drops a tensor from all caches.
void evict(const void *data, double bytes) {
    const auto *at = static_cast<const char *>(data);
    for (dim i = 0; i < static_cast<dim>(bytes); i += 64) _mm_clflush(at + i);
}

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
            try {
                results_.push_back(measure(c));
                if (options_.json) print_json(results_.back());
            } catch (const std::exception &e) {
                complain(c, e.what());
            }
        }
        bar_.clear();
        if (!options_.json && !results_.empty())
            fmt::print("{}{}", table_text(results_), summary());
        if (!options_.html.empty() && !results_.empty()) {
            write_bench_report(options_.html, results_, engines_, peaks_);
            if (!options_.output.quiet) fmt::print(stderr, "report: {}\n", options_.html);
        }
        return failed_ ? 1 : 0;
    }

private:
    bench_result measure(const op_case &c) {
        const engine &on = engines_.get(c.on);
        const op_call call = make_call(c, false);
        const double needed = bytes_of(call);
        if (needed > 0.85 * (available_memory() + store_.held()))
            throw error(error_code::out_of_memory, fmt::format("needs {}", bytes_text(needed)));
        const conv::buffers data = fill_tensors(call, store_, {filling::kind::reals, 1, 1});
        const runner ready(call, data, on);
        const auto plan = plan_of(call, on);
        bench_result r;
        r.what = c;
        r.algorithm = plan->algorithm();
        r.set = plan->instruction_set();
        r.threads = on.threads();
        r.bound = peaks_.limit_of(call, on);
        const std::vector<double> times = sample(ready, call, data);
        r.min_seconds = times.front();
        r.median_seconds = times[times.size() / 2];
        return r;
    }

    /// Sorted times of single executions.
    std::vector<double> sample(
        const runner &ready, const op_call &call, const conv::buffers &data) const {
        constexpr std::size_t least = 3, most = 10000;
        ready.execute();  // warm-up: pages, caches, clock frequency, threads
        const clock::time_point begin = clock::now();
        std::vector<double> times;
        while (times.size() < least || (since(begin) < options_.seconds && times.size() < most)) {
            if (options_.cold) evict_tensors(call, data);
            const clock::time_point start = clock::now();
            ready.execute();
            times.push_back(since(start));
        }
        std::sort(times.begin(), times.end());
        return times;
    }

    static void evict_tensors(const op_call &call, const conv::buffers &data) {
        const void *const slots[] = {data.src, data.weights, data.dst};
        const auto size = static_cast<double>(size_of(call.problem.type));
        for (role which : {role::src, role::weights, role::dst})
            evict(slots[static_cast<std::size_t>(which)],
                static_cast<double>(call.elements_of(which)) * size);
    }

    void print_json(const bench_result &r) {
        bar_.clear();
        fmt::print("{}\n", json_line(r));
        std::fflush(stdout);
    }

    void complain(const op_case &c, const char *why) {
        bar_.clear();
        failed_ = true;
        fmt::print(stderr, "convgrad: {} {} {}: {}\n", to_string(c.kind), to_string(c.type),
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
            const engine &on = engines_.get(c.on);
            text +=
                fmt::format("  {}, {} threads: fma {:.0f} GFLOP/s", to_string(on.instruction_set()),
                    on.threads(), peaks_.flops(cpu::peak_unit::fma, on) * 1e-9);
            if (const double v = peaks_.flops(cpu::peak_unit::dot2, on); v > 0)
                text += fmt::format(", bf16 dot {:.0f}", v * 1e-9);
            if (const double v = peaks_.flops(cpu::peak_unit::matrix, on); v > 0)
                text += fmt::format(", matrix engine {:.0f}", v * 1e-9);
            text += fmt::format("; memory {:.1f} GB/s\n", peaks_.bandwidth(1e12, on) * 1e-9);
        }
        return text;
    }

    const bench_options &options_;
    const std::vector<op_case> &cases_;
    progress bar_;
    engine_cache engines_;
    tensor_store store_;
    machine_peaks peaks_;
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

std::string json_line(const bench_result &r) {
    const op_case &c = r.what;
    return fmt::format(
        R"({{"op": {}, "dtype": {}, "data_format": {}, "weights_format": {}, "problem": {}, "name": {}, )"
        R"("isa": {}, "algorithm": {}, "threads": {}, "min_ms": {:.6g}, "median_ms": {:.6g}, )"
        R"("gflops": {:.6g}, "roofline": {:.4g}}})",
        json_string(to_string(c.kind)), json_string(to_string(c.type)),
        json_string(to_string(c.data)), json_string(to_string(c.weights)),
        json_string(to_text(*c.problem, false)), json_string(c.problem->name),
        json_string(to_string(r.set)), json_string(r.algorithm), r.threads, r.min_seconds * 1e3,
        r.median_seconds * 1e3, r.gflops(), r.roofline());
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
            fmt::format("{} {}", to_string(c.data), to_string(c.weights)),
            c.problem->name.empty() ? to_text(*c.problem) : c.problem->name, r.algorithm,
            std::string(to_string(r.set)), std::to_string(r.threads),
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
    app.add_option("--html", options.html, "Also write a page with charts and tables")
        ->option_text("FILE")
        ->group(how);
    app.add_flag("--cold", options.cold, "Tensors out of all caches before every execution")
        ->group(how);
    app.add_option("--seconds", options.seconds, "Time for each case; default: 0.3")
        ->check(CLI::Range(0.0, 3600.0))
        ->option_text("S")
        ->group(how);
    add_output_options(app, options.output);
}

int run_bench(const bench_options &options) {
    const selection selected = expand(options.select, embedded_set::bench);
    print_notes(selected.notes, options.output);
    return benchmark(options, selected.cases).run();
}

}  // namespace convgrad::cli
