// convgrad bench --model: every algorithm that accepts a problem, measured beside what the cost
// model predicts, and what the choice costs where another would have been faster.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include <convgrad/error.hpp>

#include "bench.hpp"
#include "cpu/backend.hpp"
#include "engine/engine.hpp"
#include "output.hpp"
#include "runner.hpp"
#include "table.hpp"
#include "terminal.hpp"

namespace convgrad::cli {
namespace {

using clock = std::chrono::steady_clock;

constexpr double scan_seconds = 0.01;  // for each of many cases
constexpr std::size_t least_rounds = 5, most_rounds = 1000;
constexpr double close = 1.05;  // within this factor of the fastest the choice is right
/// Slower than the fastest by this factor: no need to know exactly. A first run takes long for many
/// reasons, and the second may be interrupted too.
constexpr double soon = 0.005;  // seconds: may be measured some times, whatever the first one said
constexpr double hopeless = 1.7, hopeless_second = 4, hopeless_first = 20;

/// One row of the list of algorithms that accepts the problem.
struct candidate {
    std::unique_ptr<const engines::plan> plan;
    bool chosen = false;
    double seconds = 0;  // the shortest seen
};

/// What every row that accepts a case predicts and takes.
struct model_result {
    op_case what;
    std::vector<candidate> rows;  // the fastest first

    [[nodiscard]] const candidate &chosen() const {
        return *std::ranges::find(rows, true, &candidate::chosen);
    }
    /// 1: nothing is faster than what was chosen.
    [[nodiscard]] double regret() const { return chosen().seconds / rows.front().seconds; }
};

/// The rows of a device's engine that accept a problem and keep its accuracy.
std::vector<candidate> device_candidates(const op_call &call, const engine &on) {
    std::vector<engines::verdict> others;
    const auto taken = any_plan_of(call, on, &others);
    std::vector<std::string> names = {std::string(taken->algorithm())};
    for (const engines::verdict &v : others)
        if (v.seconds > 0) names.emplace_back(v.algorithm);
    std::vector<candidate> rows;
    for (const std::string &name : names)
        rows.push_back(
            {on.get().backend->make_plan(call.problem, {.only_algorithm = name}, nullptr),
                name == taken->algorithm(), HUGE_VAL});
    return rows;
}

/// The rows that accept a problem under the limits of an engine and keep its accuracy.
std::vector<candidate> candidates(const op_call &call, const engine &on) {
    if (on.kind() != engine_kind::cpu) return device_candidates(call, on);
    const auto taken = plan_of(call, on);
    cpu::plan_limits limits = cpu::backend_of(on).limits({});
    std::vector<candidate> rows;
    for (const isa set : all_isas)
        for (const std::string_view name : cpu::algorithm_names()) {
            if (!cpu::capabilities(on.instruction_set()).include(set)) continue;
            limits.max_isa = set;
            limits.only_algorithm = name;
            try {
                auto plan = cpu::make_plan(call.problem, limits);
                if (plan->instruction_set() != set) continue;  // listed with the weaker set
                // Asked for by name each runs.
                if (!engines::is_allowed(plan->facts().kept, call.problem.math)) continue;
                const bool chosen = name == taken->algorithm() && set == taken->instruction_set();
                rows.push_back({std::move(plan), chosen, HUGE_VAL});
            } catch (const error &) {
                continue;  // refuses the problem
            }
        }
    return rows;
}

class model_bench {
public:
    explicit model_bench(double seconds) : seconds_(seconds) {}

    model_result measure(const op_case &c) {
        const engine &on = engines_.get(c.on);
        const op_call call = make_call(c, false);
        const double needed = bytes_of(call);
        if (needed > 0.85 * (available_memory() + store_.held()))
            throw error(error_code::out_of_memory, fmt::format("needs {}", bytes_text(needed)));
        const conv::buffers data = fill_tensors(call, store_, {filling::kind::reals, 1, 1});
        model_result r{c, candidates(call, on)};
        const plan_timer timer(call, data, on);
        double best = HUGE_VAL;
        const clock::time_point begin = clock::now();
        // Interleaved: what disturbs the machine disturbs all of them.
        for (std::size_t round = 0;
             round < least_rounds || (round < most_rounds && since(begin) < seconds_); ++round)
            for (candidate &row : r.rows) {
                const double most = round > 3   ? hopeless
                                    : round > 1 ? hopeless_second
                                                : hopeless_first;
                const bool costs_nothing = round <= 3 && row.seconds < soon;
                if (row.seconds > most * best && round > 0 && !costs_nothing) continue;
                const double seconds = timer.seconds(*row.plan);
                row.seconds = std::min(row.seconds, seconds);
                best = std::min(best, seconds);
            }
        std::ranges::stable_sort(r.rows, {}, &candidate::seconds);
        return r;
    }

private:
    static double since(clock::time_point start) {
        return std::chrono::duration<double>(clock::now() - start).count();
    }

    double seconds_;  // for each case
    engine_cache engines_;
    tensor_store store_;
};

std::string model_json(const model_result &r) {
    std::string rows;
    for (const candidate &row : r.rows)
        rows += fmt::format(
            R"({}{{"algorithm": {}, "isa": {}, "predicted_ms": {:.6g}, "min_ms": {:.6g}}})",
            rows.empty() ? "" : ", ", json_string(row.plan->algorithm()),
            json_string(row.plan->facts().uses), row.plan->facts().seconds * 1e3,
            row.seconds * 1e3);
    const candidate &taken = r.chosen();
    return fmt::format(R"({{{}, "isa": {}, "algorithm": {}, "regret": {:.4f}, "rows": [{}]}})",
        json_case(r.what), json_string(taken.plan->facts().uses),
        json_string(taken.plan->algorithm()), r.regret(), rows);
}

/// Predicted over measured time, as the mean factor between them and how far it spreads.
struct agreement {
    std::vector<double> logs;
    std::size_t chosen = 0;
};

class model_summary {
public:
    void add(const model_result &r) {
        const double regret = r.regret();
        ++cases_;
        if (regret <= close) ++close_;
        if (regret > worst_) worst_ = regret, worst_case_ = selecting_options(r.what, 1);
        for (const candidate &row : r.rows) {
            agreement &a =
                rows_[{std::string(row.plan->algorithm()), std::string(row.plan->facts().uses)}];
            a.chosen += row.chosen ? 1 : 0;
            if (row.plan->facts().seconds > 0)
                a.logs.push_back(std::log(row.plan->facts().seconds / row.seconds));
        }
    }
    [[nodiscard]] std::string text() const {
        table t;
        t.column("algorithm").column("isa");
        for (const char *title : {"cases", "chosen", "predicted / measured", "spread"})
            t.column(title, align::right);
        for (const auto &[key, a] : rows_) {
            const auto count = static_cast<double>(a.logs.size());
            double mean = 0, square = 0;
            for (const double v : a.logs) mean += v / count;
            for (const double v : a.logs) square += (v - mean) * (v - mean) / count;
            t.row({key.first, key.second, std::to_string(a.logs.size()), std::to_string(a.chosen),
                fmt::format("{:.2f}", std::exp(mean)),
                fmt::format("{:.2f}", std::exp(std::sqrt(square)))});
        }
        return t.text();
    }
    [[nodiscard]] std::string line() const {
        return fmt::format("{} cases: the choice is within 5 % of the fastest in {:.1f} %; "
                           "worst {:.2f} times as long ({})\n",
            cases_, 100.0 * static_cast<double>(close_) / static_cast<double>(cases_), worst_,
            worst_case_);
    }

private:
    std::size_t cases_ = 0, close_ = 0;
    double worst_ = 1;
    std::string worst_case_ = "none";
    std::map<std::pair<std::string, std::string>, agreement> rows_;
};

}  // namespace

int run_bench_model(const bench_options &options, const std::vector<op_case> &cases) {
    model_bench bench(options.scan > 0 ? scan_seconds : options.seconds);
    model_summary summary;
    progress bar(cases.size(), options.output.quiet);
    table t;
    t.column("op").column("dtype").column("layout").column("problem").column("algorithm");
    t.column("isa");
    for (const char *title : {"predicted ms", "measured ms", "of the fastest"})
        t.column(title, align::right);
    t.column("");
    bool failed = false, any = false;
    for (std::size_t i = 0; i < cases.size(); ++i) {
        const op_case &c = cases[i];
        const std::string text =
            fmt::format("{} {} {}", to_string(c.kind), to_string(c.type), to_text(*c.problem));
        bar.show(i, text);
        try {
            const model_result r = bench.measure(c);
            any = true;
            summary.add(r);
            if (options.json) {
                bar.clear();
                put("{}\n", model_json(r));
                flush_results();
                continue;
            }
            for (const candidate &row : r.rows)
                t.row({std::string(to_string(c.kind)), std::string(to_string(c.type)),
                    fmt::format("{} {}", to_string(c.data), to_string(c.weights)),
                    c.problem->name.empty() ? to_text(*c.problem) : c.problem->name,
                    std::string(row.plan->algorithm()), std::string(row.plan->facts().uses),
                    fmt::format("{:.3f}", row.plan->facts().seconds * 1e3),
                    fmt::format("{:.3f}", row.seconds * 1e3),
                    fmt::format("{:.2f}", row.seconds / r.rows.front().seconds),
                    row.chosen ? "chosen" : ""});
        } catch (const std::exception &e) {
            bar.clear();
            failed = true;
            message("convgrad: {}: {}\n", text, e.what());
        }
    }
    bar.clear();
    if (any && !options.json) put("{}\n{}\n{}", t.text(), summary.text(), summary.line());
    return failed ? 1 : 0;
}

}  // namespace convgrad::cli
