#include "explain.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "engines.hpp"
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
        break;
    }
    return "backward weights";
}

std::string limit_text(const limit &l) {
    const std::string compute = fmt::format("{:.3g} ms of arithmetic at {:.0f} GFLOP/s ({})",
        l.compute_seconds() * 1e3, l.peak_flops * 1e-9, l.unit);
    const std::string memory = fmt::format("{:.3g} ms of memory traffic at {:.1f} GB/s",
        l.memory_seconds() * 1e3, l.peak_bandwidth * 1e-9);
    return l.compute_bound() ? fmt::format("compute: {}, against {}", compute, memory)
                             : fmt::format("memory: {}, against {}", memory, compute);
}

void explain(const op_case &c, const engine &on, machine_peaks &peaks) {
    const op_call call = make_call(c, false);
    std::vector<conv::refusal> refusals;
    const auto plan = plan_of(call, on, &refusals);
    const limit l = peaks.limit_of(call, on);

    fmt::print("{}\n", paint(fmt::format("{} {} {} {} {}", to_string(c.kind), to_string(c.type),
                                 to_string(c.data), to_string(c.weights), to_text(*c.problem)),
                           colour::bold));
    table t;
    t.column("").column("");
    t.row({"pass", fmt::format("{}, {} outputs of {} products each", pass_name(call.problem.what),
                       call.elements_of(call.output), terms_of(call.problem))});
    t.row({"engine", fmt::format("{}, {} threads, math {}", to_string(on.instruction_set()),
                         on.threads(), to_string(on.math()))});
    t.row({"algorithm",
        fmt::format("{}, {}", plan->algorithm(), to_string(plan->instruction_set()))});
    t.row({"blocks", plan->describe()});
    t.row({"workspace", bytes_text(static_cast<double>(plan->workspace()))});
    t.row({"work", fmt::format("{:.4g} GFLOP, {} of tensors, {:.3g} FLOP per byte", l.flops * 1e-9,
                       bytes_text(l.bytes), l.flops / l.bytes)});
    t.row({"limit", limit_text(l)});
    fmt::print("{}", t.text(2));

    table others;
    others.column("other algorithms").column("isa").column("why not");
    for (const conv::refusal &r : refusals)
        others.row({std::string(r.algorithm), std::string(to_string(r.set)), r.reason});
    if (!others.empty()) fmt::print("\n{}", others.text(2));
}

}  // namespace

void add_explain_options(CLI::App &app, explain_options &options) {
    app.add_option("OP", options.select.ops, "Ops, a comma list, or all")->required();
    add_selection_options(app, options.select, op_argument::positional);
    add_output_options(app, options.output);
}

int run_explain(const explain_options &options) {
    if (options.select.problems.empty() && options.select.batches.empty())
        throw usage_error(
            "explain needs a problem, e.g. convgrad explain Convolution mb8ic64ih56oc64kh3ph1");
    const selection selected = expand(options.select, embedded_set::verify);
    print_notes(selected.notes, options.output);
    engine_cache engines;
    machine_peaks peaks;
    bool first = true;
    for (const op_case &c : selected.cases) {
        if (!first) fmt::print("\n");
        first = false;
        explain(c, engines.get(c.on), peaks);
    }
    return 0;
}

}  // namespace convgrad::cli
