// convgrad bench --plan: what it costs to decide how a problem will run.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>

#include <fmt/format.h>

#include "bench.hpp"
#include "output.hpp"
#include "runner.hpp"
#include "table.hpp"
#include "terminal.hpp"

namespace convgrad::cli {
namespace {

constexpr std::size_t repeats = 25;

/// Microseconds.
struct plan_times {
    double first = 0, least = 0, median = 0;
};

plan_times time_plan(const op_call &call, const engine &on) {
    using clock = std::chrono::steady_clock;
    std::vector<double> times;
    for (std::size_t i = 0; i < repeats; ++i) {
        const clock::time_point start = clock::now();
        const auto plan = any_plan_of(call, on);
        times.push_back(std::chrono::duration<double, std::micro>(clock::now() - start).count());
    }
    const double first = times.front();
    std::sort(times.begin(), times.end());
    return {first, times.front(), times[repeats / 2]};
}

std::string plan_json(
    const op_case &c, const engines::plan &plan, int threads, const plan_times &t) {
    return fmt::format(R"({{{}, "isa": {}, "algorithm": {}, "threads": {}, "plan_us": {:.3f}, )"
                       R"("plan_median_us": {:.3f}, "plan_first_us": {:.3f}}})",
        json_case(c), json_string(plan.facts().uses), json_string(plan.algorithm()), threads,
        t.least, t.median, t.first);
}

/// What the plans of one op and algorithm cost.
struct plan_summary {
    std::vector<double> times;
    double worst = 0;
    std::string worst_case;
};

}  // namespace

int run_bench_plan(const bench_options &options, const std::vector<op_case> &cases) {
    engine_cache engines;
    progress bar(cases.size(), options.output.quiet);
    std::map<std::pair<std::string, std::string>, plan_summary> groups;
    for (std::size_t i = 0; i < cases.size(); ++i) {
        const op_case &c = cases[i];
        bar.show(i, fmt::format("{} {}", to_string(c.kind), to_text(*c.problem)));
        const engine &on = engines.get(c.on);
        const op_call call = make_call(c, false);
        const plan_times t = time_plan(call, on);
        const auto plan = any_plan_of(call, on);
        plan_summary &g = groups[{std::string(to_string(c.kind)), std::string(plan->algorithm())}];
        g.times.push_back(t.median);
        if (t.median > g.worst) {
            g.worst = t.median;
            g.worst_case = selecting_options(c, on.threads());
        }
        if (!options.json) continue;
        bar.clear();
        put("{}\n", plan_json(c, *plan, on.threads(), t));
    }
    bar.clear();
    if (options.json || groups.empty()) return 0;
    table t;
    t.column("op").column("algorithm");
    for (const char *title : {"plans", "median us", "slowest us"}) t.column(title, align::right);
    t.column("slowest case");
    double worst = 0;
    for (auto &[key, g] : groups) {
        std::sort(g.times.begin(), g.times.end());
        worst = std::max(worst, g.worst);
        t.row({key.first, key.second, std::to_string(g.times.size()),
            fmt::format("{:.1f}", g.times[g.times.size() / 2]), fmt::format("{:.1f}", g.worst),
            g.worst_case});
    }
    put("{}\n{} plans; the slowest takes {:.1f} us (median of {})\n", t.text(), cases.size(), worst,
        repeats);
    return 0;
}

}  // namespace convgrad::cli
