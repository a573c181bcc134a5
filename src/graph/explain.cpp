// What would be done with an op, and why.
#include <convgrad/explain.hpp>

#include <cstdio>

#include "graph/compiled.hpp"
#include "graph/tensors.hpp"
#include "op/guard.hpp"
#include "op/message.hpp"

namespace convgrad {
inline namespace CONVGRAD_ABI {
namespace {

explanation explain_op(op_kind kind, std::span<const logical_tensor> inputs,
    std::span<const logical_tensor> outputs, const attributes &attrs, const compile_options &opts) {
    if (inputs.empty() || !inputs[0].shape)
        ops::fail(error_code::invalid_shape, kind, {},
            "explain needs the whole shape of every input; input 0 has none");
    const ops::parsed_attributes parsed =
        ops::parse(kind, attrs, inputs[0].shape->size(), flags_of(opts));
    explanation made;
    made.kind = kind;
    made.outputs.assign(outputs.begin(), outputs.end());
    std::vector<logical_tensor> ins(inputs.begin(), inputs.end());
    if (opts.add && ins.size() == 3) ins.insert(ins.begin() + 2, logical_tensor{});  // no bias
    ops::check_arguments(parsed, ins, made.outputs);
    ops::infer_shapes(parsed, ins, made.outputs);
    conv::problem problem = ops::lower(parsed, ins, made.outputs);
    const engine::impl &where = engine_of(opts).get();
    problem.math = where.math;
    std::vector<engines::verdict> verdicts;
    const auto plan = where.backend->make_plan(problem, where.limits(), &verdicts);
    made.algorithm = plan->algorithm();
    made.uses = plan->facts().uses;
    made.blocks = plan->describe();
    made.threads = where.backend->threads();
    made.workspace = plan->workspace();
    made.constants = plan->facts().prepared;
    made.seconds = plan->facts().seconds;
    made.flops = 2 * conv::macs(problem);
    for (const engines::verdict &v : verdicts)
        made.others.push_back({std::string(v.algorithm), std::string(v.uses), v.seconds, v.reason});
    return made;
}

std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.6g", value);
    return text;
}

}  // namespace

explanation explain(op_kind kind, list_view<logical_tensor> inputs,
    list_view<logical_tensor> outputs, const attributes &attrs, const compile_options &opts) {
    return guarded("explain", [&] { return explain_op(kind, inputs, outputs, attrs, opts); });
}

std::string to_string(const explanation &what) {
    return guarded("explain", [&] {
        std::string text = ops::cat(to_string(what.kind), " ->");
        for (const logical_tensor &lt : what.outputs) text += ops::cat(" ", describe(lt));
        text += ops::cat("\n  algorithm  ", what.algorithm, ", ", what.uses, ", ", what.threads,
            " threads\n  blocks     ", what.blocks, "\n  workspace  ", what.workspace,
            " bytes\n  work       ", number(what.flops * 1e-9), " GFLOP");
        if (what.constants != 0)
            text += ops::cat("\n  constants  ", what.constants, " bytes are kept");
        for (const explanation::candidate &c : what.others)
            text += ops::cat("\n  not ", c.algorithm, ", ", c.uses, ": ", c.reason);
        return text;
    });
}

}  // namespace CONVGRAD_ABI
}  // namespace convgrad
