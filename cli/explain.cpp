#include "explain.hpp"

#include <algorithm>
#include <limits>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bench.hpp"
#include "cpu/pool.hpp"
#include "engine/engine.hpp"
#include "engines.hpp"
#include "output.hpp"
#include "peaks.hpp"
#include "runner.hpp"
#include "table.hpp"
#include "terminal.hpp"

namespace convgrad::cli {
namespace {

std::string_view pass_name(conv::pass pass) {
    switch (pass) {
    case conv::pass::forward:
        return "forward";
    case conv::pass::backward_data:
        return "backward data";
    case conv::pass::backward_weights:
        return "backward weights";
    case conv::pass::backward_bias:
        break;
    }
    return "backward bias";
}

std::string limit_text(const limit &l) {
    const std::string compute = fmt::format("{:.3g} ms of arithmetic at {:.0f} GFLOP/s ({})",
        l.compute_seconds() * 1e3, l.peak_flops * 1e-9, l.unit);
    const std::string memory = fmt::format("{:.3g} ms of memory traffic at {:.1f} GB/s",
        l.memory_seconds() * 1e3, l.peak_bandwidth * 1e-9);
    return l.compute_bound() ? fmt::format("compute: {}, against {}", compute, memory)
                             : fmt::format("memory: {}, against {}", memory, compute);
}

std::string_view accuracy_name(engines::accuracy kept) {
    return to_string(engines::mode_of(kept));
}

std::string accuracy_text(engines::accuracy kept, double error) {
    if (error == 0) return std::string(accuracy_name(kept));
    return fmt::format("{}; rms error {:.2f} of a plain f32 sum's", accuracy_name(kept), error);
}

/// Everything about one case.
struct explanation {
    op_case what;
    op_call call;
    std::vector<engines::verdict> refusals;
    std::unique_ptr<const engines::plan> plan;
    std::string where;  // the engine in words
    limit bound;
    int bound_threads;  // this machine's, if the case asks for more than it has
    cpu::work_cut cut;
    int threads;
    math_mode math;
};

/// Those that could have run first, the fastest of them before the others.
void sort_by_speed(std::vector<engines::verdict> &verdicts) {
    std::ranges::stable_sort(verdicts, {}, [](const engines::verdict &v) {
        return v.seconds > 0 ? v.seconds : std::numeric_limits<double>::infinity();
    });
}

explanation examine(const op_case &c, engine_cache &engines, machine_peaks &peaks) {
    const engine &on = engines.get(c.on);
    engine_choice here = c.on;
    here.threads = std::min(on.threads(), cpu::available_cores());
    explanation e{
        c, make_call(c, false), {}, {}, {}, {}, here.threads, {}, on.threads(), on.math()};
    e.bound = peaks.limit_of(e.call, engines.get(here));
    if (c.on.kind == engine_kind::cuda) {
        e.where = fmt::format("{}, math {}", on.get().backend->name(), to_string(on.math()));
        e.plan = any_plan_of(e.call, on, &e.refusals);
        sort_by_speed(e.refusals);
        return e;
    }
    e.where = fmt::format("{}, {} threads, math {}", to_string(on.instruction_set()), on.threads(),
        to_string(on.math()));
    std::unique_ptr<const cpu::plan> plan = plan_of(e.call, on, &e.refusals);
    sort_by_speed(e.refusals);
    e.cut = plan->cut(on.threads());
    e.plan = std::move(plan);
    return e;
}

/// "fast 1.53": the class, and the error in terms of a plain f32 sum's where it is measured.
std::string short_accuracy(const engines::verdict &r) {
    if (r.error == 0) return std::string(accuracy_name(r.kept));
    return fmt::format("{} {:.2f}", accuracy_name(r.kept), r.error);
}

/// "2 / 2.5 / 3", or one number where all are equal.
std::string spread_text(const cpu::spread &s, std::string (*text)(double)) {
    if (s.least == s.most) return text(s.most);
    return fmt::format("{} / {} / {}", text(s.least), text(s.mean), text(s.most));
}

/// How the work is shared out: for each stage what the least busy thread, a thread on average and
/// the busiest one do.
void print_cut(const cpu::work_cut &cut) {
    const auto number = [](double v) { return fmt::format("{:.4g}", v); };
    table t;
    t.column(fmt::format("cut for {} threads", cut.threads)).column("tasks", align::right);
    t.column("per thread").column("reads").column("writes").column("balance", align::right);
    for (const cpu::work_cut::stage &s : cut.stages)
        t.row(
            {std::string(s.name), std::to_string(s.tasks), spread_text(s.tasks_per_thread, number),
                spread_text(s.read, bytes_text), spread_text(s.written, bytes_text),
                fmt::format("{:.0f} %", 100 * s.seconds.mean / s.seconds.most)});
    if (t.empty()) return;
    put("\n{}", t.text(2));
    put("  balance of all {:.1f} %, {}; work for {}\n", 100 * cut.balance(),
        cut.parts > 1 ? fmt::format(
            "reduction of {} partial sums, {} together", cut.parts, bytes_text(cut.parts_bytes))
                      : "no partial sums",
        cut.worthwhile == 1 ? "one thread"
        : cut.worthwhile == cpu::most_cut_threads
            ? fmt::format("{} or more threads", cut.worthwhile)
            : fmt::format("{} threads", cut.worthwhile));
}

std::string json_spread(const char *name, const cpu::spread &s) {
    return fmt::format(R"("{}": [{:.6g}, {:.6g}, {:.6g}])", name, s.least, s.mean, s.most);
}

std::string json_text(const explanation &e) {
    std::string stages, refused;
    for (const cpu::work_cut::stage &s : e.cut.stages)
        stages += fmt::format(R"({}{{"name": {}, "tasks": {}, {}, {}, {}, {}}})",
            stages.empty() ? "" : ", ", json_string(s.name), s.tasks,
            json_spread("tasks_per_thread", s.tasks_per_thread), json_spread("seconds", s.seconds),
            json_spread("read_bytes", s.read), json_spread("written_bytes", s.written));
    for (const engines::verdict &r : e.refusals)
        refused += fmt::format(
            R"({}{{"algorithm": {}, "isa": {}, "predicted_seconds": {:.6g}, "accuracy": "{}", )"
            R"("error": {:.3g}, "reason": {}}})",
            refused.empty() ? "" : ", ", json_string(r.algorithm), json_string(r.uses), r.seconds,
            accuracy_name(r.kept), r.error, json_string(r.reason));
    return fmt::format(
        R"({{"op": {}, "dtype": {}, "data_format": {}, "weights_format": {}, "problem": {}, "name": {}, )"
        R"("isa": {}, "algorithm": {}, "predicted_seconds": {:.6g}, "accuracy": "{}", )"
        R"("error": {:.3g}, "math": "{}", "threads": {}, "blocks": {}, "workspace": {}, "gflop": {:.6g}, )"
        R"("bytes": {:.6g}, "limit": "{}", "balance": {:.4f}, "seconds": {:.6g}, "parts": {}, )"
        R"("parts_bytes": {:.6g}, "worthwhile_threads": {}, "stages": [{}], "refused": [{}]}})",
        json_string(to_string(e.what.kind)), json_string(to_string(e.what.type)),
        json_string(to_string(e.what.data)), json_string(weights_text(e.what)),
        json_string(to_text(*e.what.problem, false)), json_string(e.what.problem->name),
        json_string(e.plan->facts().uses), json_string(e.plan->algorithm()),
        e.plan->facts().seconds, accuracy_name(e.plan->facts().kept), e.plan->facts().error,
        to_string(e.math), e.threads, json_string(e.plan->describe()), e.plan->workspace(),
        e.bound.flops * 1e-9, e.bound.bytes, e.bound.compute_bound() ? "compute" : "memory",
        e.cut.balance(), e.cut.elapsed_seconds(), e.cut.parts, e.cut.parts_bytes, e.cut.worthwhile,
        stages, refused);
}

void print_text(const explanation &e) {
    const op_case &c = e.what;
    const op_call &call = e.call;
    const limit &l = e.bound;
    put("{}\n", paint(fmt::format("{} {} {} {} {}", to_string(c.kind), to_string(c.type),
                          to_string(c.data), weights_text(c), to_text(*c.problem)),
                    colour::bold));
    table t;
    t.column("").column("");
    t.row({"pass", fmt::format("{}, {} outputs of {} products each", pass_name(call.problem.what),
                       call.elements_of(call.output), terms_of(call.problem))});
    const engines::plan_facts &facts = e.plan->facts();
    t.row({"engine", e.where});
    t.row({"algorithm", fmt::format("{}, {}", e.plan->algorithm(), facts.uses)});
    t.row({"accuracy", accuracy_text(facts.kept, facts.error)});
    t.row({"predicted",
        fmt::format("{:.3g} ms{}", facts.seconds * 1e3,
            c.on.kind == engine_kind::cpu ? " on one thread of a nominal core" : "")});
    t.row({"blocks", e.plan->describe()});
    t.row({"workspace", bytes_text(static_cast<double>(e.plan->workspace()))});
    t.row({"work", fmt::format("{:.4g} GFLOP, {} of tensors, {:.3g} FLOP per byte", l.flops * 1e-9,
                       bytes_text(l.bytes), l.flops / l.bytes)});
    t.row(
        {e.bound_threads < e.threads ? fmt::format("limit on {} cores", e.bound_threads) : "limit",
            limit_text(l)});
    put("{}", t.text(2));
    if (c.on.kind == engine_kind::cpu) print_cut(e.cut);

    table others;
    others.column("other algorithms").column("isa").column("predicted ms", align::right);
    others.column("accuracy").column("why not");
    for (const engines::verdict &r : e.refusals) {
        const bool weighed = r.seconds > 0;
        others.row({std::string(r.algorithm), std::string(r.uses),
            weighed ? fmt::format("{:.3g}", r.seconds * 1e3) : "", weighed ? short_accuracy(r) : "",
            r.reason});
    }
    if (!others.empty()) put("\n{}", others.text(2));
}

}  // namespace

void add_explain_options(CLI::App &app, explain_options &options) {
    app.add_option("OP", options.select.ops, "Ops, a comma list, or all")
        ->check(some_text())
        ->required();
    add_selection_options(app, options.select, op_argument::positional);
    add_output_options(app, options.output);
    app.add_flag("--json", options.json, "One object per line");
}

int run_explain(const explain_options &options) {
    if (options.select.problems.empty() && options.select.batches.empty())
        throw usage_error(
            "explain needs a problem, e.g. convgrad explain Convolution mb8ic64ih56oc64kh3ph1");
    const selection selected = expand(options.select, embedded_set::verify);
    print_notes(selected.notes, options.output);
    if (selected.cases.empty()) return nothing_selected(options.select, "explained");
    engine_cache engines;
    machine_peaks peaks;
    bool first = true;
    for (const op_case &c : selected.cases) {
        const explanation e = examine(c, engines, peaks);
        if (options.json) {
            put("{}\n", json_text(e));
            continue;
        }
        if (!first) put("\n");
        first = false;
        print_text(e);
    }
    return 0;
}

}  // namespace convgrad::cli
